"""The variables of a rank."""

from __future__ import annotations

import os
from typing import Any

import pytest

from nccl_triage.verify.worker import variables


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment of its own, as somebody's shell has it."""
    own = {"NCCL_DEBUG": "WARN", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "60000", "PATH": "/bin"}
    monkeypatch.setattr(os, "environ", own)
    return own


def set_up(backend: str = "nccl", env: Any = None, **more: Any) -> dict[str, str]:
    variables.set_up({"backend": backend, "env": env or {}, **more})
    return dict(os.environ)


def test_nccl_says_which_network_it_takes_and_torch_does_not_wait_a_minute() -> None:
    found = set_up(nccl_log="/work/100%/rank-0.nccl.log")
    assert found["NCCL_DEBUG"] == "INFO"
    assert "NET" in found["NCCL_DEBUG_SUBSYS"].split(",") and "COLL" not in found["NCCL_DEBUG_SUBSYS"]
    assert found["NCCL_DEBUG_FILE"] == "/work/100%%/rank-0.nccl.log", "NCCL reads %h and %p"
    assert 4 * int(found["TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"]) <= 2000
    assert found["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "0"
    assert found["TORCH_NCCL_USE_COMM_NONBLOCKING"] == "0"


def test_what_the_experiment_sets_stands() -> None:
    found = set_up(env={"NCCL_DEBUG": "TRACE", "TORCH_NCCL_USE_COMM_NONBLOCKING": "1", "NCCL_IB_HCA": "mlx5_0"})
    assert (found["NCCL_DEBUG"], found["TORCH_NCCL_USE_COMM_NONBLOCKING"]) == ("TRACE", "1")
    assert found["NCCL_IB_HCA"] == "mlx5_0"
    assert "NCCL_DEBUG_FILE" not in found


def test_dumps_that_were_asked_for_are_written() -> None:
    found = set_up(env={"TORCH_FR_DUMP_TEMP_FILE": "/work/dump_", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"})
    assert found["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"


def test_gloo_needs_nothing_of_it() -> None:
    found = set_up("gloo", {"GLOO_SOCKET_IFNAME": "lo"})
    assert (found["NCCL_DEBUG"], found["GLOO_SOCKET_IFNAME"]) == ("WARN", "lo")
    assert "NCCL_DEBUG_FILE" not in found
