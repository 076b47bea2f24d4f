"""All probes in processes of their own, on this very machine, and what becomes of those that hang or die."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.doctor import cluster, collect
from nccl_triage.doctor.collect import ProbeOptions
from nccl_triage.doctor.probes import GROUPS
from nccl_triage.hosts.asking import ask
from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.processes import ProcessLauncher
from tests.raylets import alive

NO_TORCH = "/nonexistent/python"


def test_this_machine_answers_from_the_archive_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"NCCL_DEBUG": "WARN", "PYTHONPATH": "", "SOME_TOKEN": "secret"}.items():
        monkeypatch.setenv(name, value)
    answers: list[dict[str, Any]] = []
    launcher = ProcessLauncher([HostPlace("here")], cluster.program())
    assert not ask(launcher, {0: {"python": NO_TORCH}}, 120.0, lambda _, answer: answers.append(answer))
    begun, found = answers
    assert (begun["answer"], found["answer"]) == ("begun", "facts")
    assert set(found["facts"]) == {name for group in GROUPS.values() for name in group}
    assert {entry["why"] for entry in found["unseen"]}.isdisjoint({"broke", "died", "hangs"})
    facts = found["facts"]
    assert facts["system"]["name"] == socket.gethostname()
    assert facts["environment"]["variables"]["NCCL_DEBUG"] == "WARN"
    assert "secret" not in json.dumps(answers)
    assert "lo" in {entry["name"] for entry in facts["network"]["interfaces"]}
    assert facts["limits"]["nofile"]["soft"] > 0
    assert facts["software"]["torch"] is None
    assert "torch" in {entry["what"] for entry in found["unseen"]}


def test_a_probe_that_hangs_is_told_and_left_behind(tmp_path: Path) -> None:
    # Nobody writes into the pipe: whoever opens it waits without end, as on a dead file system.
    (tmp_path / "etc").mkdir()
    os.mkfifo(tmp_path / "etc" / "os-release")
    start = time.monotonic()
    found = collect.collect(ProbeOptions(root=str(tmp_path), timeout_factor=0.3), ("host",))
    assert time.monotonic() - start < 60
    hung = {entry["what"] for entry in found["unseen"] if entry["why"] == "hangs"}
    assert hung == {"system"}
    assert set(GROUPS["host"]) - set(found["facts"]) == {"system"}


def test_a_group_that_crashes_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    crashing = "import sys, os\nif sys.argv[2] == 'gpu': os.abort()\n" + collect._START.replace("; ", "\n")
    monkeypatch.setattr(collect, "_START", crashing)
    found = collect.collect(ProbeOptions(), ("host", "gpu"))
    assert [entry for entry in found["unseen"] if entry["why"] == "died"] == [
        {"what": "gpus", "why": "died", "error": "SIGABRT"}
    ]
    assert set(GROUPS["host"]) <= set(found["facts"])


def test_nothing_is_left_running_when_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    def interrupted(groups: list[collect._Group]) -> None:
        started.extend(group.process.pid for group in groups)
        raise KeyboardInterrupt

    monkeypatch.setattr(collect, "_read_answers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        collect.collect(ProbeOptions(), ("host", "gpu"))
    assert len(started) == 2
    assert not any(alive(pid) for pid in started)
