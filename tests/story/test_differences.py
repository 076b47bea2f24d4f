"""What differs between hosts, told by doctor or by the processes themselves, is compared in one way."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.story.differences import minority, usual
from tests.scan_helpers import diagnose_text

HOSTS = ("gpu01", "gpu02", "gpu03")
#: A message of NCCL that fits a fault of its own, and one of many faults.
BROKEN = "socketProgressOpt: Call to recv from 10.0.0.9<51326> failed : Connection reset by peer"
END = (
    "[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote process exited or "
    "there was a network error\n"
)
LINES = {
    "version": "NCCL INFO NCCL version {}+cuda12.4",
    "module": "NCCL INFO Using network {}",
    "variable": "NCCL INFO NCCL_IB_HCA set by environment to {}",
    "source": f"{{}}:58 NCCL WARN {BROKEN}",
}


def job(kind: str, *values: str) -> str:
    hosts = list(zip(HOSTS, values, strict=False))
    lines = [f"{host}:{n}00:{n}00 [0] {LINES[kind].format(value)}\n" for n, (host, value) in enumerate(hosts, 1)]
    broken = [f"{host}:{n}00:{n}00 [0] misc/socket.cc:58 NCCL WARN {BROKEN}\n" for n, (host, _) in enumerate(hosts, 1)]
    return "".join([*lines, *(broken if kind != "source" else []), END])


def told(log: str, rules: RuleSet) -> list[tuple[str, str, str | None]]:
    return [(one.host, one.value, one.usual) for one in diagnose_text(log, rules).case.differences]


VALUES = [
    ("version", "2.21.5", "2.27.3"),
    ("module", "IB", "AWS Libfabric"),
    ("variable", "mlx5_0", "mlx5_9"),
    ("source", "misc/socket.cc", "os/linux.cc"),
]


@pytest.mark.parametrize(("kind", "usual", "odd"), VALUES)
def test_the_host_that_differs_from_all_others_is_found(kind: str, usual: str, odd: str, rules: RuleSet) -> None:
    assert told(job(kind, usual, odd, usual), rules) == [("gpu02", odd, usual)]
    assert told(job(kind, usual, usual, usual), rules) == []
    assert told(job(kind, usual, odd), rules) == [("gpu01", usual, None), ("gpu02", odd, None)]


@pytest.mark.parametrize(
    ("kind", "usual", "odd", "cause"),
    [(*VALUES[0], "nccl-version-conflict"), (*VALUES[1], "network-plugin"), (*VALUES[3], "nccl-version-conflict")],
)
def test_the_odd_host_is_the_culprit_and_of_two_sides_both_are(
    kind: str, usual: str, odd: str, cause: str, rules: RuleSet
) -> None:
    for values, culprits in (((usual, usual, odd), ["gpu03"]), ((usual, odd), ["gpu01", "gpu02"])):
        candidate = next(
            one for one in diagnose_text(job(kind, *values), rules).candidates if one.weighed.cause.id == cause
        )
        assert [culprit.host for culprit in candidate.culprits] == culprits
        assert odd in candidate.culprits[-1].why["en"]
        assert odd in candidate.culprits[-1].why["zh"]


def test_the_minority_differs_from_more_than_half() -> None:
    assert minority({"a": 1, "b": 1, "c": 2}) == ["c"]
    assert usual({"a": 1, "b": 1, "c": 2}) == 1


def test_where_all_agree_nobody_is_apart() -> None:
    assert minority({"a": 1, "b": 1}) == []
    assert minority({}) == []


def test_without_a_majority_everybody_is_apart() -> None:
    assert minority({"a": 1, "b": 2}) == ["a", "b"]
    assert minority({"a": 1, "b": 1, "c": 2, "d": 3}) == ["a", "b", "c", "d"]
    assert usual({"a": 1, "b": 1, "c": 2, "d": 3}) is None


def test_those_that_are_not_heard_may_side_with_the_minority() -> None:
    assert minority({"a": 1, "b": 1, "c": 2}, unheard=1) == ["a", "b", "c"]
    assert minority({"a": 1, "b": 1, "c": 1, "d": 2}, unheard=1) == ["d"]
