"""One run: deadlines, deaths and misbehaviour, with ranks of real Gloo and with hosts that exist only in words."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.verify import record, runner
from nccl_triage.verify.assess import assess, diagnose_own_logs
from nccl_triage.verify.assessed_run import AssessedRun
from nccl_triage.verify.cluster import Cluster
from nccl_triage.verify.collective_run import (
    CollectiveMessage,
    CollectiveRun,
    Deadlines,
    RankTrace,
    RunFinding,
    RunOutcome,
    RunResult,
    Slot,
)
from nccl_triage.verify.judge import Trial
from nccl_triage.verify.runner import first_missing, next_mark, note, outcome_of
from nccl_triage.verify.worker.faults import MEANINGS
from tests.verify.gloo_cluster import QUICK, Gloo
from tests.verify.simulated import Launcher, Started, World, always, failing, healthy, hosts, leave, mark, reach
from tests.verify.told_runs import KILLED, WAITS, rank

#: What RAS prints of a communicator whose rank 1 is behind.
RAS = """Communicators...
  #0-0 (27a079b828ff1a75) MISMATCH
    Communicator ranks have different AllReduce operation counts
    1 ranks have launched up to operation 41
    Rank 1 has launched up to operation 40 -- GPU 0 managed by process 4802 on node 10.0.0.2
"""
#: Seconds after a deadline within which it is noticed and everything is gone, on a busy machine.
TOLERANCE = 2.0
#: Of what each fault's run must come to: outcomes, first mark that is missing, cause, kind.
FAULTS: dict[str, tuple[set[str], str, str, str]] = {
    "imports-late": ({"passed"}, "end", "", ""),
    "cannot-import": ({"not-run"}, "imported", "", ""),
    "late": ({"passed"}, "end", "straggler", "late"),
    "slow": ({"passed"}, "end", "straggler", "slow"),
    "starved": ({"passed"}, "end", "straggler", "slow"),
    "absent": ({"error", "hung"}, "entered", "rank-divergence", "absent"),
    "never-joins": ({"error", "hung"}, "store", "rendezvous-failed", "never-joined"),
    "leaves": ({"error", "crashed"}, "entered", "rank-divergence", "left"),
    "raise": ({"error"}, "entered", "application-exception", "own-log"),
    "oom": ({"error"}, "entered", "", "own-log"),
    "sigsegv": ({"crashed"}, "entered", "process-crashed", "crashed"),
    "sigkill": ({"crashed"}, "entered", "process-crashed", "killed"),
    "sigterm": ({"crashed"}, "entered", "job-preempted", "terminated"),
    "sigstop": ({"error", "hung"}, "entered", "rank-divergence", "stopped"),
    "wrong-op": ({"error", "hung", "crashed"}, "warm", "collective-mismatch", "different-call"),
    "wrong-order": ({"error", "hung", "crashed"}, "warm", "collective-mismatch", "different-call"),
    "wrong-size": ({"error", "hung", "crashed"}, "warm", "collective-mismatch", "different-call"),
    "wrong-dtype": ({"error", "hung", "crashed"}, "warm", "collective-mismatch", "different-call"),
    "hidden-size": ({"error", "hung", "crashed"}, "warm", "collective-mismatch", "different-call"),
    "hidden-dtype": ({"error", "hung", "crashed"}, "warm", "collective-mismatch", "different-call"),
    "skips": ({"error", "hung", "crashed"}, "done", "collective-mismatch", "different-call"),
    "leaves-midway": ({"error"}, "done", "rank-divergence", "left"),
}
#: A victim can tell nothing any more: it takes two others to outvote the culprit.
OUTVOTED = frozenset({"hidden-size", "hidden-dtype", "skips"})
SECONDS = {"late": 1.5, "slow": 0.3, "imports-late": 2.0}
LIMITS = Deadlines(start=20.0, store=5.0, group=15.0, entered=4.0, first=8.0, timed=12.0, grace=0.5)


def assert_clean(result: RunResult) -> None:
    """No rank of a run is left, and killing took no time worth the name."""
    pids = [trace.details["start"]["pid"] for trace in result.ranks.values() if "start" in trace.details]
    assert pids
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert result.cleaned_s < 2.0


def test_every_fault_is_tried() -> None:
    assert set(FAULTS) == set(MEANINGS)


@pytest.mark.parametrize(
    ("name", "culprit"),
    [*((name, 1) for name in FAULTS), *((name, 2) for name in ("sigsegv", "leaves", "wrong-size", "raise"))],
)
def test_a_fault_is_found_with_its_culprit(gloo: Gloo, rules: RuleSet, name: str, culprit: int) -> None:
    outcomes, stage, cause, kind = FAULTS[name]
    fault = {"name": name, "seconds": SECONDS.get(name, 0.0)}
    result = gloo.run(world=4 if name in OUTVOTED else 3, deadlines=LIMITS, faults={str(culprit): fault})
    assert result.outcome in outcomes, result
    assert result.stage == stage
    found = assess(AssessedRun(result, ["here"], own=diagnose_own_logs(result, rules)))
    if not kind:
        assert found is None
        assert_clean(result)
        return
    assert found is not None
    assert (found.kind, found.ranks) == (kind, (culprit,))
    assert found.cause == cause or (not cause and found.cause.endswith("out-of-memory"))
    assert_clean(result)


def test_a_healthy_run(gloo: Gloo) -> None:
    result = gloo.run(world=4)
    assert (result.outcome, result.stage, result.reason) == ("passed", "end", "")
    assert all(trace.exit_code == 0 and trace.details["done"]["wrong"] == 0 for trace in result.ranks.values())
    assert assess(AssessedRun(result, ["here"])) is None
    assert_clean(result)
    assert sorted(path.name for path in gloo.folder.joinpath(result.run.label).iterdir()) == [
        f"rank-{rank}.log" for rank in range(4)
    ]


class SilentLibrary(Deadlines):
    """Limits with a library whose own time-out lies far off: only the parent's deadline can end a hang."""

    def library(self, timeout: float | None) -> float:
        return 60.0


@pytest.mark.parametrize("name", ["absent", "sigstop", "wrong-order"])
def test_a_hang_is_declared_at_its_deadline(gloo: Gloo, name: str) -> None:
    limits = SilentLibrary(start=20.0, store=4.0, group=4.0, entered=1.0, first=1.5, timed=8.0, grace=1.0)
    result = gloo.run(deadlines=limits, faults={"1": {"name": name}})
    stage, since, limit = (
        ("warm", "entered", limits.first) if name == "wrong-order" else ("entered", "group", limits.entered)
    )
    assert (result.outcome, result.stage) == ("hung", stage)
    assert result.reason.startswith(f"deadline before {stage!r}")
    assert any(trace.killed for trace in result.ranks.values())
    begun = min(trace.times[since] for trace in result.ranks.values())
    assert limit <= result.seconds - begun < limit + TOLERANCE
    assert_clean(result)


def test_a_stopped_rank_is_seen_to_be_stopped_and_killed(gloo: Gloo) -> None:
    limits = SilentLibrary(start=20.0, store=4.0, group=4.0, entered=1.0, first=3.0, timed=8.0, grace=1.0)
    result = gloo.run(deadlines=limits, faults={"2": {"name": "sigstop"}})
    assert (result.ranks[2].state, result.ranks[2].killed, result.ranks[2].exit_code) == ("T", True, -9)
    assert_clean(result)


def test_a_short_budget_ends_a_run(gloo: Gloo) -> None:
    label = "budget"
    run = CollectiveRun(
        label, (Slot(0, 0), Slot(1, 0)), CollectiveMessage(numel=64), faults={"1": {"name": "absent"}}, timeout=60.0
    )
    started = time.monotonic()
    result = runner.execute(gloo.cluster, run, gloo.folder / label, QUICK, budget=0.5)
    assert time.monotonic() - started < 0.5 + TOLERANCE
    assert (result.outcome, result.reason) == ("hung", "the time for this run is up")
    assert_clean(result)


def test_a_rank_keeps_its_fault_when_others_are_left_out(gloo: Gloo) -> None:
    """Faults belong to places in the whole job, not to ranks of one run."""
    label = "subset"
    run = CollectiveRun(label, (Slot(0, 0), Slot(2, 0)), CollectiveMessage(numel=64), faults={"1": {"name": "absent"}})
    assert runner.execute(gloo.cluster, run, gloo.folder / label, QUICK).passed


def test_each_rank_may_have_variables_of_its_own(gloo: Gloo) -> None:
    result = gloo.run(world=2, per_rank_env={1: {"GLOO_SOCKET_IFNAME": "no-such-interface0"}})
    assert result.outcome == "error" and result.ranks[1].error is not None
    assert "no-such-interface0" in result.ranks[1].error["text"]
    assert gloo.run(world=2).passed, "and no other run has them"


# hosts that exist only in words

FAST = Deadlines(start=0.4, store=0.3, group=0.3, entered=0.3, first=0.3, timed=0.3, grace=0.2, device=0.3)


def simulate(world: World, *, lose: int | None = None, count: int = 2) -> RunResult:
    with Cluster(Launcher(world)) as cluster:
        cluster.greet(5.0)
        if lose is not None:
            world.links[lose].die()
            cluster.ask("port", [lose], 1.0)
        slots = tuple(Slot(rank, rank % len(world.hosts)) for rank in range(count))
        return runner.execute(cluster, CollectiveRun("r", slots, CollectiveMessage(numel=64)), Path("nowhere"), FAST)


def test_marks_of_all_hosts_come_together() -> None:
    result = simulate(World(hosts(3)), count=6)
    assert result.passed
    assert [result.ranks[rank].slot.place for rank in range(6)] == [0, 1, 2, 0, 1, 2]


def test_the_first_failure_gives_the_others_their_grace() -> None:
    def behave(started: Started) -> Any:
        return [failing("entered"), *(reach("entered") for _ in started.places[1:])]

    world = World(hosts(2), behave)
    result = simulate(world)
    assert (result.outcome, result.reason) == ("error", "the others did not exit after the first failure")
    assert FAST.grace <= result.seconds < FAST.first + TOLERANCE
    assert result.ranks[1].killed and result.ranks[1].state == "S"
    assert world.stopped == ["r", "r"], "both hosts were told"


def lose_second(world: World, when: str) -> None:
    """Lose the second host after its rank has come to a stage."""
    lost = {"answer": "gone", "error": "client_loop: send disconnect: Broken pipe"}

    def behave(started: Started) -> Any:
        return [reach("entered"), [*reach(when), lost]]

    world.behave = behave


def test_an_agent_that_is_lost_in_a_run_is_a_result() -> None:
    world = World(hosts(2))
    lose_second(world, "store")
    result = simulate(world)
    assert (result.outcome, result.own_failure) == ("error", None)
    assert result.ranks[1].error == {"type": "AgentLost", "text": "client_loop: send disconnect: Broken pipe"}
    assert result.ranks[0].killed


def test_an_agent_that_is_lost_before_the_ranks_meet_is_the_verifiers_own_affair() -> None:
    world = World(hosts(2))
    lose_second(world, "imported")
    result = simulate(world)
    assert result.outcome == "not-run" and result.own_failure is not None
    assert "Broken pipe" in result.own_failure["en"]
    assert assess(AssessedRun(result, ["n0", "n1"])) is None


def test_an_agent_that_was_lost_before_is_not_waited_for() -> None:
    started = time.monotonic()
    result = simulate(World(hosts(2), always(lambda: reach("device"))), lose=1)
    assert time.monotonic() - started < TOLERANCE
    assert result.outcome == "not-run" and result.ranks[1].error is not None
    assert result.ranks[1].error["type"] == "AgentLost"


def test_what_a_rank_says_of_a_peer_that_was_killed_is_no_error() -> None:
    """One host kills its rank sooner than the other, whose library then sees the connection close."""

    class SecondLate(World):
        def run(self, place: int, command: Any) -> None:
            super().run(place, command)
            late = self.links[0]

            def stop(command: Any) -> None:
                late.hanging.clear()
                error = mark("error", type="RuntimeError", text="Connection closed by peer")
                for answer in (error, leave(3)):
                    late.say(**answer, run="r", rank=0)

            late.do_stop = stop  # type: ignore[method-assign]

    result = simulate(SecondLate(hosts(2), always(lambda: reach("group"))))
    assert (result.outcome, result.stage) == ("hung", "entered")
    assert result.ranks[0].error is None and result.ranks[0].exit_code == 3


def test_ras_is_asked_once_while_ranks_of_nccl_hang_and_read_as_a_log(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(2), lambda started: [reach("entered") for _ in started.places], ras={1: RAS})
    with Cluster(Launcher(world)) as cluster:
        cluster.greet(5.0)
        slots = tuple(Slot(rank, rank) for rank in range(2))
        run = CollectiveRun("r", slots, CollectiveMessage(numel=64), "nccl", "cuda")
        result = runner.execute(cluster, run, tmp_path / "r", FAST)
        assert runner.execute(cluster, replace(run, label="g", backend="gloo"), tmp_path / "g", FAST).ras == {}
    assert result.outcome == "hung" and result.ras == {"n1": RAS}
    diagnose_own_logs(result, rules)
    assert [symptom["path"] for symptom in result.symptoms if symptom["signature"].startswith("nccl.ras")] == [
        "ras-1.log"
    ]
    assert record.run_record(Trial(result, None), ["n0", "n1"], world.hosts, "")["ras"] == [{"host": "n1", "text": RAS}]


def test_without_the_host_of_rank_0_nothing_runs() -> None:
    result = simulate(World(hosts(2)), lose=0)
    assert (result.outcome, result.reason) == ("not-run", "the host of rank 0 reported no port")


def test_a_rank_that_cannot_start_is_a_failure() -> None:
    gone = {"answer": "exit", "code": None, "error": "No space left on device"}
    result = simulate(World(hosts(2), lambda started: [reach("device"), [gone]]))
    assert result.outcome == "not-run" and result.ranks[1].error is not None
    assert result.ranks[1].error["type"] == "NotStarted"
    assert result.own_failure is not None and "No space left on device" in result.own_failure["zh"]


def test_silence_from_the_first_moment_is_no_finding() -> None:
    result = simulate(World(hosts(2), always(list)))
    assert (result.outcome, result.stage) == ("not-run", "start")
    assert result.own_failure is not None and "had not imported torch" in result.own_failure["en"]


@pytest.mark.parametrize("stage", ["start", "imported", "device"])
def test_ranks_meet_when_all_are_ready(stage: str) -> None:
    """Nobody is let go, nor blamed, before the last one has imported torch and has its device."""
    world = World(hosts(2), lambda started: [reach("device"), reach(stage)])
    result = simulate(world)
    assert world.let_go == (["r", "r"] if stage == "device" else [])
    late = {"start": "imported", "imported": "device", "device": "store"}[stage]
    assert result.stage == late and result.reason.startswith(f"deadline before {late!r}")
    assert (result.outcome, result.own_failure is None) == (("not-run", False) if stage == "start" else ("hung", True))


def test_waiting_for_a_slow_import_takes_nothing_from_the_limit_of_the_store(gloo: Gloo) -> None:
    """The library waits 0.5 s at the store; one rank comes 2 s later than the other to where it may go there."""
    limits = replace(QUICK, store=1.0)
    fault = {"1": {"name": "imports-late", "seconds": 2.0}}
    result = gloo.run(world=2, deadlines=limits, faults=fault)
    assert result.passed, result
    store = [trace.times["store"] for trace in result.ranks.values()]
    assert min(store) > 2.0
    assert_clean(result)


def test_a_rank_that_imports_for_too_long_is_no_finding(gloo: Gloo, rules: RuleSet) -> None:
    limits = replace(QUICK, start=1.0)
    result = gloo.run(world=2, deadlines=limits, faults={"1": {"name": "imports-late", "seconds": 60.0}})
    assert (result.outcome, result.stage) == ("not-run", "imported")
    assert result.own_failure == {
        "en": "rank 1 had not imported torch when its time was up",
        "zh": "rank 1 未能在限时内导入 torch",
    }
    assert assess(AssessedRun(result, ["here"], own=diagnose_own_logs(result, rules))) is None
    assert_clean(result)


def test_torch_without_nccl_is_no_finding(gloo: Gloo, rules: RuleSet) -> None:
    torch = pytest.importorskip("torch")
    if torch.distributed.is_nccl_available():
        pytest.skip("this torch has NCCL")
    result = gloo.run(world=2, backend="nccl", device="cuda")
    assert (result.outcome, result.stage) == ("not-run", "imported")
    assert result.own_failure is not None and "was built without NCCL" in result.own_failure["en"]
    assert assess(AssessedRun(result, ["here"], own=diagnose_own_logs(result, rules))) is None


def test_ranks_of_a_store_only_meet_there(gloo: Gloo) -> None:
    result = gloo.run(world=3, message=CollectiveMessage("INIT", 1), joins="store")
    assert (result.outcome, result.stage) == ("passed", "end")
    for trace in result.ranks.values():
        assert "store" in trace.times and "group" not in trace.times
        assert trace.calls == [] and trace.exit_code == 0


def test_a_group_alone_issues_no_collective(gloo: Gloo) -> None:
    result = gloo.run(world=3, message=CollectiveMessage("INIT", 1))
    assert (result.outcome, result.stage) == ("passed", "end")
    for trace in result.ranks.values():
        assert "group" in trace.times and "entered" not in trace.times and trace.calls == []


def test_sizes_of_a_sweep_are_timed_each(gloo: Gloo) -> None:
    sizes = (8, 4096, 1 << 20)
    result = gloo.run(world=2, message=CollectiveMessage("_ALLGATHER_BASE", 1000), sweep=sizes)
    assert result.passed
    for trace in result.ranks.values():
        assert [size["numel"] for size in trace.sizes] == [1, 512, 131072]
        assert all(size["wrong"] == 0 and size["median"] > 0 for size in trace.sizes)


def test_a_run_tells_the_size_that_its_ranks_had_memory_for() -> None:
    part = CollectiveMessage("BROADCAST", 900)
    run = CollectiveRun("r", (Slot(0, 0), Slot(1, 0)), CollectiveMessage("ALLREDUCE", 1000), more=(part,))
    told = [
        rank(0, details={"entered": {"numel": 500}}, parts=[{"numel": 900, "wrong": 0}]),
        rank(1, details={"entered": {"numel": 500}}, parts=[{"numel": 200, "wrong": 0}]),
    ]
    taken = runner.as_run(run, dict(enumerate(told)))
    assert (taken.message.numel, [message.numel for message in taken.more]) == (500, [200])
    assert runner.as_run(run, {0: rank(0, details={"entered": {"numel": "many"}}), 1: rank(1)}) == run
    assert runner.as_run(run, {0: rank(0, details={"entered": {"numel": 4000}}), 1: rank(1)}) == run


def test_signs_of_life_prolong_a_long_run() -> None:
    """Each mark of iterations starts the time anew."""
    trace = [
        *reach("warm"),
        mark("iteration", done=20),
        mark("iteration", done=40),
        mark("done", wrong=0, median=0.1),
        leave(0),
    ]
    assert simulate(World(hosts(2), always(lambda: trace))).passed


def test_answers_of_an_earlier_run_are_not_mistaken() -> None:
    world = World(hosts(2))

    def behave(started: Started) -> Any:
        world.links[0].queue.append({**mark("error", type="X", text="late"), "run": "earlier", "rank": 0})
        world.links[0].queue.append({"answer": "exit", "run": started.label, "rank": 77, "code": 1})
        return [healthy() for _ in started.places]

    world.behave = behave
    assert simulate(world).passed


def test_wrong_data_is_no_pass() -> None:
    wrong = [*reach("warm"), mark("done", wrong=5, median=0.1), leave(0)]
    result = simulate(World(hosts(2), lambda started: [healthy(), wrong]))
    assert (result.outcome, result.stage) == ("wrong-data", "end")
    found: RunFinding | None = assess(AssessedRun(result, ["n0", "n1"]))
    assert found is not None and (found.kind, found.ranks, found.hosts) == ("wrong-data", (1,), ("n1",))


def test_marks_become_a_trace() -> None:
    trace = RankTrace(0, Slot(0, 0))
    assert not note(trace, {"stage": "start", "pid": 1}, 10.5, 10.0)
    assert (trace.stage, trace.times, trace.since) == ("start", {"start": 0.5}, 0.0), "to import is part of the start"
    assert not note(trace, {"stage": "call", "call": "barrier", "message": None}, 11.0, 10.0)
    assert not note(trace, {"stage": "iteration", "done": 20}, 12.0, 10.0)
    assert (trace.stage, trace.since, len(trace.calls)) == ("start", 12.0, 1), "an iteration is a sign of life"
    assert note(trace, {"stage": "error", "type": "X", "text": "y"}, 13.0, 10.0)
    assert (trace.error, trace.done) == ({"stage": "error", "type": "X", "text": "y"}, False)
    assert not note(trace, {"stage": "from-a-later-release"}, 14.0, 10.0)
    assert not note(trace, {"stage": "flight"}, 14.0, 10.0)
    assert trace.flight == []


@pytest.mark.parametrize(
    ("ranks", "outcome"),
    [
        ([rank(0), rank(1)], "passed"),
        ([rank(0), rank(1, details={"done": {"wrong": 3}})], "wrong-data"),
        ([rank(0, "entered", **WAITS), rank(1, "group", exit_code=-11)], "crashed"),
        ([rank(0, "entered", **WAITS), rank(1, "group", **KILLED)], "error"),
        ([rank(0, "entered", **KILLED), rank(1, "group", **KILLED)], "hung"),
        ([rank(0, "group", exit_code=0), rank(1, "group", exit_code=0)], "crashed"),
        ([rank(0), rank(1, killed=True)], "passed"),
    ],
)
def test_how_a_run_ended(ranks: list[RankTrace], outcome: RunOutcome) -> None:
    assert outcome_of({trace.rank: trace for trace in ranks}) == outcome


def test_the_stage_of_a_failure_is_the_first_mark_that_is_missing() -> None:
    assert first_missing({0: rank(0, "entered"), 1: rank(1, "store")}) == "group"
    assert first_missing({0: rank(0)}) == "end"
    assert first_missing({0: RankTrace(0, Slot(0, 0))}) == "start"
    assert [next_mark(stage) for stage in ("started", "start", "warm", "done")] == ["start", "imported", "done", "done"]
