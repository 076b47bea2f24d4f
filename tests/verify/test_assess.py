"""What a run shows, from the traces of its ranks alone: each check, and which goes first."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from nccl_triage.engine import load
from nccl_triage.verify.assess import POOR
from nccl_triage.verify.assessed_run import OwnDiagnosis
from nccl_triage.verify.collective_run import RunFinding, Slot
from tests.verify.told_runs import CALL, KILLED, NAMES, WAITS, rank, seen, told


def test_healthy_ranks_show_nothing() -> None:
    assert seen(rank(0), rank(1), rank(2)) is None
    assert seen(rank(0)) is None


def test_another_call() -> None:
    odd = rank(1, "entered", calls=[{"call": "broadcast", "message": ["float32", 64]}], **WAITS)
    assert told(seen(rank(0, "entered", **WAITS), odd, rank(2, "entered", **WAITS))) == (
        "collective-mismatch",
        "different-call",
        (1,),
    )


@pytest.mark.parametrize("culprit", [0, 1])
@pytest.mark.parametrize(
    "call",
    [
        {"call": "broadcast", "message": ["float32", 64]},
        {"call": "all_reduce", "message": ["float32", 32]},
        {"call": "all_reduce", "message": ["float64", 64]},
        {"call": "barrier", "message": None},
    ],
)
def test_of_two_ranks_the_one_that_calls_what_was_not_asked(culprit: int, call: dict[str, Any]) -> None:
    ranks = [rank(k, "entered", calls=[call] if k == culprit else [CALL], **WAITS) for k in range(2)]
    assert told(seen(*ranks)) == ("collective-mismatch", "different-call", (culprit,))


def test_another_call_counts_although_the_run_passed() -> None:
    """Gloo does not notice every mismatch."""
    odd = rank(1, calls=[{"call": "all_reduce", "message": ["float32", 32]}])
    assert told(seen(rank(0), odd, rank(2))) == ("collective-mismatch", "different-call", (1,))


def test_the_first_call_is_compared_not_the_later_ones() -> None:
    more = rank(1, calls=[CALL, {"call": "barrier", "message": None}])
    assert seen(rank(0), more) is None


@pytest.mark.parametrize(
    ("number", "cause", "kind"),
    [
        (signal.SIGKILL, "process-crashed", "killed"),
        (signal.SIGSEGV, "process-crashed", "crashed"),
        (signal.SIGABRT, "process-crashed", "crashed"),
        (signal.SIGBUS, "process-crashed", "crashed"),
        (signal.SIGTERM, "job-preempted", "terminated"),
        (signal.SIGINT, "job-preempted", "terminated"),
        (signal.SIGHUP, "terminal-hangup", "terminated"),
        (42, "process-crashed", "crashed"),
    ],
)
def test_death_by_a_signal(number: int, cause: str, kind: str) -> None:
    dead = rank(1, "group", exit_code=-int(number), exited_at=1.0)
    assert told(seen(rank(0, "entered", **WAITS), dead)) == (cause, kind, (1,))


def test_of_several_dead_the_first_is_named() -> None:
    early, late = rank(2, "group", exit_code=-11, exited_at=1.0), rank(1, "entered", exit_code=-6, exited_at=1.5)
    found = seen(rank(0, "entered", **WAITS), late, early)
    assert told(found) == ("process-crashed", "crashed", (2,))
    assert "SIGSEGV" in str(found and found.says["en"])


def test_what_the_parent_killed_did_not_die() -> None:
    found = seen(rank(0, "entered", **KILLED), rank(1, "group", **KILLED))
    assert told(found) == ("rank-divergence", "absent", (1,))


@pytest.mark.parametrize("stage", ["warm", "done"])
def test_wrong_data(stage: str) -> None:
    wrong = rank(1)
    wrong.details[stage] = {"wrong": 7, "median": 0.01}
    wrong.details["done"]["wrong"] = 7  # the ranks add up
    assert told(seen(rank(0), wrong, backend="nccl")) == ("gpu-p2p-broken", "wrong-data", (1,))
    assert told(seen(rank(0), wrong)) == ("", "wrong-data", (1,)), "no GPU has computed that"


def flight(*calls: tuple[int, str, list[list[int]], list[str]]) -> list[dict[str, Any]]:
    names = ("collective_seq_id", "profiling_name", "input_sizes", "input_dtypes")
    return [dict(zip(names, call, strict=True)) for call in calls]


ALIKE = flight((1, "gloo:all_reduce", [[64]], ["Float"]), (2, "gloo:all_reduce", [[64]], ["Float"]))
ABORTED: dict[str, Any] = {"exit_code": -signal.SIGABRT, "exited_at": 1.0}
MISMATCH = OwnDiagnosis("collective-mismatch", "established", (3,), (), "op.preamble.length <= op.nbytes")


@pytest.mark.parametrize(
    "second",
    [
        (2, "gloo:all_reduce", [[64]], ["Double"]),
        (2, "gloo:all_reduce", [[32]], ["Float"]),
        (2, "gloo:barrier", [], []),
    ],
)
def test_what_the_library_got_names_who_differs(second: Any) -> None:
    others = [rank(number, "entered", flight=ALIKE, **WAITS) for number in (0, 1)]
    odd = rank(2, "entered", flight=[ALIKE[0], *flight(second)], **WAITS)
    victim = rank(3, "entered", **ABORTED)
    found = seen(*others, odd, victim, own=MISMATCH)
    assert told(found) == ("collective-mismatch", "different-call", (2,))
    assert found is not None and "as collective 2" in found.says["en"], "and not the victim, that could say nothing"


def test_who_alone_cannot_tell_is_the_other_one_where_all_others_agree() -> None:
    others = [rank(number, "entered", flight=ALIKE, **WAITS) for number in (0, 1, 2)]
    victim = rank(3, "entered", **ABORTED)
    assert told(seen(*others, victim, own=MISMATCH)) == ("collective-mismatch", "different-call", (3,))
    assert told(seen(*others, victim)) == ("process-crashed", "crashed", (3,)), "nothing proves that the calls differ"


def test_two_that_differ_name_nobody() -> None:
    one = rank(0, "entered", flight=ALIKE, **WAITS)
    two = rank(1, "entered", flight=flight((1, "gloo:all_reduce", [[64]], ["Double"])), **WAITS)
    assert told(seen(one, two, own=MISMATCH)) == ("collective-mismatch", "own-log", ())


def test_a_rank_that_aborts_over_what_it_got_is_not_blamed_for_it() -> None:
    found = seen(rank(0, "entered", **WAITS), rank(1, "entered", **ABORTED), own=MISMATCH)
    assert told(found) == ("collective-mismatch", "own-log", ())


def test_a_rank_that_leaves_between_two_collectives() -> None:
    left = rank(1, "warm", exit_code=0, exited_at=1.0)
    assert told(seen(rank(0, "warm", **WAITS), left)) == ("rank-divergence", "left", (1,))


def test_all_entered_and_nothing_came() -> None:
    one = seen(rank(0, "entered", **KILLED), rank(1, "entered", **KILLED))
    assert told(one) == ("", "collective-failed", ())
    two = seen(rank(0, "entered", **KILLED), rank(1, "entered", place=1, **KILLED))
    assert told(two) == ("network-link-fault", "collective-failed", ())


def path(kind: str, *hosts: str) -> RunFinding:
    return RunFinding("network-firewall-port", kind, {"en": "x", "zh": "x"}, hosts=hosts)


def test_a_broken_path_explains_a_failure_of_its_hosts() -> None:
    ranks = rank(0, "store", **KILLED), rank(1, "store", place=1, **KILLED)
    found = seen(*ranks, paths=[path("path-silent", "node-c"), path("path-silent", *NAMES)])
    assert found is not None and (found.kind, found.hosts) == ("path-silent", NAMES)
    assert told(seen(*ranks, paths=[path("path-silent", "node-c", "node-a")])) == (
        "network-link-fault",
        "group-failed",
        (),
    )


def test_a_broken_path_is_nothing_to_a_run_that_passed() -> None:
    assert seen(rank(0), rank(1, place=1), paths=[path("path-silent", *NAMES)]) is None


def test_a_path_that_only_one_host_can_open_counts_although_gloo_passed() -> None:
    ranks, paths = (rank(0), rank(1, place=1)), [path("path-one-way", *NAMES)]
    assert told(seen(*ranks, paths=paths)) == ("network-firewall-port", "path-one-way", ())
    assert seen(*ranks, paths=paths, backend="nccl") is None, "what NCCL passes it did not need"


@pytest.mark.parametrize("kind", sorted(POOR))
def test_a_poor_path_counts_although_the_run_passed(kind: str) -> None:
    found = seen(rank(0), rank(1, place=1), paths=[path(kind, *NAMES)])
    assert found is not None and found.kind == kind
    assert seen(rank(0), rank(1), paths=[path(kind, *NAMES)]) is None, "not between these ranks"


def own(cause: str, status: str = "established", ranks: tuple[int, ...] = (1,)) -> OwnDiagnosis:
    told_by_stages = load.load().causes[cause].experiment.told_by_stages
    return OwnDiagnosis(cause, status, ranks, (), "the line", told_by_stages)


def test_what_the_ranks_own_log_establishes() -> None:
    ranks = rank(0, "entered", **WAITS), rank(1, "group", **WAITS)
    assert told(seen(*ranks, own=own("gpu-out-of-memory"))) == ("gpu-out-of-memory", "own-log", (1,))


@pytest.mark.parametrize(
    "found", [own("gpu-out-of-memory", "possible"), own("rank-divergence"), own("straggler"), own("process-crashed")]
)
def test_own_logs_that_only_guess_or_that_the_stages_know_better(found: OwnDiagnosis) -> None:
    ranks = rank(0, "entered", **WAITS), rank(1, "group", state="T", **KILLED)
    assert told(seen(*ranks, own=found)) == ("rank-divergence", "stopped", (1,))


def test_ranks_are_named_by_their_place_in_the_whole_job() -> None:
    """Rank 1 of an experiment that leaves others out may be rank 5 of the job."""
    dead = rank(1, "group", exit_code=-9, exited_at=1.0, slot=Slot(5, 0))
    found = seen(rank(0, "entered", **WAITS), dead)
    assert told(found)[2] == (5,) and "rank 5" in str(found and found.says["en"])


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"state": "T", **KILLED}, "stopped"),
        ({"state": "S", **KILLED}, "absent"),
        ({"state": "D", **KILLED}, "absent"),
        ({"exit_code": 0, "exited_at": 1.0}, "left"),
    ],
)
def test_a_rank_that_never_entered(changes: dict[str, Any], kind: str) -> None:
    found = seen(rank(0, "entered", **WAITS), rank(1, "group", **changes), rank(2, "entered", **WAITS))
    assert told(found) == ("rank-divergence", kind, (1,))


def test_nobody_entered_is_no_divergence() -> None:
    found = seen(rank(0, "store", **KILLED), rank(1, "store", **KILLED))
    assert told(found) == ("", "group-failed", ())


def test_a_rank_that_never_joined_the_store() -> None:
    found = seen(rank(0, "device", **WAITS), rank(1, "device", **KILLED), rank(2, "store", **WAITS))
    assert told(found) == ("rendezvous-failed", "never-joined", (1,))


def test_all_ranks_waiting_for_the_store_blame_nobody_of_never_joining() -> None:
    found = seen(rank(0, "device", **KILLED), rank(1, "device", **KILLED))
    assert found is None or found.kind != "never-joined"


def test_a_store_that_cannot_be_reached_names_both_ends() -> None:
    found = seen(rank(0, "device", **WAITS), rank(1, "device", place=1, **WAITS))
    assert told(found) == ("rendezvous-failed", "store-unreachable", (1,))
    assert found is not None and found.hosts == NAMES
