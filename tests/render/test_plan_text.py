"""Plans as text."""

from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.render.plan_text import plan_text

COLLECTIVE = {"op": "ALLREDUCE", "call": "all_reduce", "root": None, "from_root": None, "pair": None, "numel": 1024,
              "dtype": "float32", "bytes": 4096}  # fmt: skip
RUN = {"op": "ALLREDUCE", "call": "torch.distributed.all_reduce", "numel": 1024, "dtype": "float32", "more_dtypes": [],
       "world_size": 4, "backend": "nccl", "ranks_per_host": [4], "env": {"NCCL_IB_DISABLE": "1"}}  # fmt: skip


def plan(**changes: Any) -> dict[str, Any]:
    asked = {"collective": COLLECTIVE, "further": [], "world_size": 4, "hosts": ["a"], "ranks_per_host": [4], "backend": "nccl",
             "treatments": [], "repeats": 2, "seconds_at_most": 900, "memory_per_rank": 1 << 20, "differs": []}  # fmt: skip
    entry = {
        "cause": "port-in-use",
        "status": "supported",
        "confidence": 0.9,
        "kind": "store",
        "asked": {**asked, **changes.pop("asked", {})},
        "decides": {"confirmed_if": "it fails", "refuted_if": None},
        "why_not": "no GPU",
        "control": changes.pop("control", None),
        "seconds_at_most": 100.0,
        "memory_per_rank": 1 << 20,
        "differs": ["on b"],
    }
    contacts = {"hosts": [{"name": "a", "addresses": [], "by": "ssh"}], "store": None, "probe": None, "elsewhere": []}
    return {
        "hosts": ["a"],
        "budget_s": 300.0,
        "runs": entry["control"] is not None,
        "contacts": contacts,
        "experiments": [entry],
        "commands": [],
        "healthy": False,
        **changes,
    }


def test_an_experiment_that_cannot_run_here() -> None:
    assert plan_text(plan(), "en").splitlines()[2:] == [
        "  port-in-use (supported, 0.90)",
        "    control: all_reduce, 1,024 x float32 (4 KiB); 4 ranks on a; NCCL; 2 times",
        "    confirmed if: it fails",
        "    takes: at most 300 s, 1 MiB on each rank",
        "    here: not run: no GPU",
        "",
        "  contacts: only a; by ssh",
    ]


def test_what_runs_as_it_is_asked_is_told_once() -> None:
    shown = plan_text(plan(control=RUN), "en")
    assert "here:" not in shown
    assert "    with: NCCL_IB_DISABLE=1\n    takes: at most 100 s" in shown


def test_what_runs_otherwise_says_how() -> None:
    shown = plan_text(plan(control={**RUN, "backend": "gloo", "numel": 16}), "en")
    assert "    here: all_reduce, 16 x float32, Gloo, 4 ranks on a\n    differs from the failure: on b\n" in shown


@pytest.mark.parametrize(
    ("hosts", "counts", "told"),
    [
        (["a", "b"], [2, 2], "4 ranks, 2 on each of a, b;"),
        (["a", "b"], [3, 1], "4 ranks (3 on a, 1 on b);"),
        ([f"n{index}" for index in range(10)], [1] * 10, "n7, .. (10);"),
    ],
)
def test_ranks_are_told_by_host(hosts: list[str], counts: list[int], told: str) -> None:
    assert told in plan_text(plan(asked={"hosts": hosts, "ranks_per_host": counts}), "en")


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"op": "BROADCAST", "call": "broadcast", "root": 0, "from_root": True}, "broadcast from rank 0, 1,024"),
        ({"op": "GATHER", "call": "gather", "root": 3, "from_root": False}, "gather to rank 3, 1,024"),
        ({"op": "SEND", "call": "send", "pair": [0, 1]}, "send from rank 0 to rank 1, 1,024"),
        ({"op": "BARRIER", "call": "barrier"}, "control: barrier; 4 ranks"),
    ],
)
def test_a_collective_says_from_and_to_whom(part: dict[str, Any], told: str) -> None:
    assert told in plan_text(plan(asked={"collective": {**COLLECTIVE, **part}}), "en")


def test_this_host_alone_contacts_nobody() -> None:
    made = plan(control=RUN)
    made["contacts"]["hosts"][0]["by"] = ""
    assert "contacts: nobody: everything stays on this host" in plan_text(made, "en")


def test_ports_are_told_between_several_hosts() -> None:
    made = plan()
    made["contacts"] = {
        "hosts": [
            {"name": "a", "addresses": ["10.0.0.1"], "by": "ssh"},
            {"name": "b", "addresses": [], "by": "ssh -p 22 b"},
        ],
        "store": {"host": "a", "ports": [29500, None]},
        "probe": {"ports_per_address": 6, "port_of_log": 29500},
        "elsewhere": ["10.9.9.9"],
    }
    shown = plan_text(made, "en")
    assert "  contacts: only a (10.0.0.1), b; by ssh; ssh -p 22 b\n" in shown
    assert (
        "port 29500 of the log or a free port on a (store); 6 free ports of each address, probed both ways; those"
        in shown
    )
    assert "    also 10.9.9.9, the address of the store in the log\n" in shown


def test_text_of_a_log_cannot_act_on_a_terminal() -> None:
    made = plan(control={**RUN, "env": {"NCCL_X": "\x1b[2Jx\nnccl-triage: fine"}})
    made["contacts"]["hosts"][0]["name"] = "a\x1b]0;x\x07\n$ reboot"
    made["commands"] = [{"launcher": "ssh", "commands": ["nccl-triage verify 'a\x1bb'"], "note": None}]
    shown = plan_text(made, "en")
    assert not any(character in shown for character in "\x1b\x07")
    assert not any(line.lstrip().startswith(("$ reboot", "nccl-triage: fine")) for line in shown.splitlines())


@pytest.mark.parametrize(("healthy", "told"), [(True, "the log shows no failure"), (False, "no cause is suspected")])
def test_an_empty_plan_says_why(healthy: bool, told: str) -> None:
    assert told in plan_text(plan(experiments=[], healthy=healthy), "en")
