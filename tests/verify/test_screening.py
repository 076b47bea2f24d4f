"""The stages of a screening, on hosts that exist only in words and whose troubles are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.engine.schema import Experiment, RuleSet
from nccl_triage.hosts.links import HostPlace
from nccl_triage.verify.cluster import Cluster
from nccl_triage.verify.collective_run import CollectiveMessage, CollectiveRun, Deadlines, Slot
from nccl_triage.verify.means import Means
from nccl_triage.verify.pair_screening import PairScreening, bisected
from nccl_triage.verify.plan import Plan, Planned, PlanOptions
from nccl_triage.verify.question import Question, SuspectedCause
from nccl_triage.verify.screening import Screening
from nccl_triage.verify.trials import Session
from tests.verify.simulated import Launcher, Script, Started, World, failing, healthy, hosts, leave, mark, reach

SAYS = {"en": "it failed", "zh": "失败"}


def done(median: float = 0.01, work: float = 0.03, **device: Any) -> Script:
    """Do everything, in so many seconds an iteration, and so many for the work of its own."""
    script = healthy()
    details = {
        "wrong": 0,
        "median": median,
        "compute": {"matmul_s": work, "copy_s": 0.01, "flop_s": 1e9, "bytes_s": 1e9},
    }
    script[-2] = mark("done", **details)
    script[2] = mark("device", **({"device": "cpu"} | device))
    parts = [mark("part", op="SEND", numel=1 << 20, dtype="float32", wrong=0, median=0.01) for _ in range(2)]
    return [*script[:-2], *parts, *script[-2:]]


Behaves = Any


@dataclass
class Screened:
    """A screening that is over."""

    world: World
    screening: Screening
    pairs: PairScreening

    @property
    def named(self) -> list[tuple[str, tuple[str, ...], int | None]]:
        return [(suspect.stage, suspect.hosts, suspect.rank) for suspect in self.screening.suspects]

    @property
    def states(self) -> Counter[tuple[str, str]]:
        return Counter((check.id, check.state) for check in self.screening.checks)

    def runs(self, count: int) -> list[tuple[int, ...]]:
        """Return the hosts of each run between so many hosts."""
        places = [tuple(dict.fromkeys(run.places)) for run in self.world.started if not run.spec["alone"]]
        return [found for found in places if len(found) == count]


@contextmanager
def opened(
    rules: RuleSet, world: World, tmp_path: Path, each: int = 1, backend: str = "gloo", budget: float = 60.0
) -> Iterator[Screening]:
    """Yield a screening of all hosts of a world, nothing of which has run."""
    means = Means.alike(tuple(HostPlace(name) for name in world.names), torch="2.13.0")
    made = Plan(Question(()), means, PlanOptions(budget=budget), ())
    slots = tuple(Slot(place * each + k, place) for place in range(len(world.hosts)) for k in range(each))
    run = CollectiveRun("screening", slots, CollectiveMessage(numel=1 << 20), backend)
    limits = Deadlines().scaled(0.05)
    planned = Planned(SuspectedCause("", "possible", 0.0), Experiment(kind="replay"), run, None, deadlines=limits)
    with Cluster(Launcher(world)) as cluster:
        live = Session(cluster, made, rules, tmp_path)
        live.prepare(backend, len(world.hosts) > 1)
        yield Screening(live, run, planned)


def screen(rules: RuleSet, world: World, tmp_path: Path, **how: Any) -> Screened:
    with opened(rules, world, tmp_path, **how) as screening:
        screening.carry_out()
        pairs = PairScreening(screening)
        pairs.carry_out()
        return Screened(world, screening, pairs)


def if_(bad: Any, script: Script | None = None) -> Any:
    """Let runs for which ``bad`` holds do something else."""

    def behave(started: Started) -> Sequence[Script]:
        if bad(started):
            return [list(script) if script is not None else failing() for _ in started.places]
        return [done() for _ in started.places]

    return behave


def across(started: Started) -> bool:
    return len(set(started.places)) > 1 and not started.spec["alone"]


def test_healthy_hosts_meet_in_disjoint_pairs_and_nobody_stands_out(rules: RuleSet, tmp_path: Path) -> None:
    found = screen(rules, World(hosts(4), if_(lambda started: False)), tmp_path)
    assert found.named == [] and found.states == {("compute", "ok"): 1, ("pairs", "ok"): 1}
    assert sorted(map(sorted, found.runs(2))) == [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    assert [sorted((*one, *two)) for one, two in zip(*[iter(found.runs(2))] * 2, strict=True)] == [[0, 1, 2, 3]] * 3
    measured = found.screening.measured
    assert [entry["host"] for entry in measured["compute"]] == ["n0", "n1", "n2", "n3"]
    assert all(entry["there"] > 0 and entry["back"] > 0 and entry["busbw"] > 0 for entry in measured["pairs"])


def test_messages_go_each_way_between_the_hosts(rules: RuleSet, tmp_path: Path) -> None:
    found = screen(rules, World(hosts(2), if_(lambda started: False)), tmp_path, each=2)
    between = next(run for run in found.world.started if across(run))
    assert [(part["op"], part["pair"]) for part in between.spec["more"]] == [("SEND", [0, 2]), ("SEND", [2, 0])]


@pytest.mark.parametrize("count", [3, 4, 7])
def test_a_host_that_fails_with_every_partner_is_named(rules: RuleSet, tmp_path: Path, count: int) -> None:
    found = screen(rules, World(hosts(count), if_(lambda run: across(run) and 2 in run.places)), tmp_path)
    assert found.named == [("pairs", ("n2",), None)]
    assert found.screening.places == [place for place in range(count) if place != 2]
    assert "bad with every partner" in found.screening.suspects[0].says["en"]


def test_two_hosts_that_fail_only_with_each_other_are_named(rules: RuleSet, tmp_path: Path) -> None:
    found = screen(rules, World(hosts(4), if_(lambda run: across(run) and set(run.places) == {1, 2})), tmp_path)
    (suspect,) = found.screening.suspects
    assert sorted(suspect.hosts) == ["n1", "n2"] and found.screening.failed == set()


def test_a_slow_host_is_found_by_the_median(rules: RuleSet, tmp_path: Path) -> None:
    slow = if_(lambda run: across(run) and 1 in run.places, done(median=0.4))
    found = screen(rules, World(hosts(5), slow), tmp_path)
    assert found.named == [("pairs", ("n1",), None)]
    assert found.screening.failed == set(), "slow is not broken"
    everybody = screen(rules, World(hosts(5), if_(lambda run: True, done(median=0.4))), tmp_path)
    assert everybody.named == []


def test_of_two_hosts_the_one_whose_rank_did_it_is_named(rules: RuleSet, tmp_path: Path) -> None:
    def behave(started: Started) -> Sequence[Script]:
        dead = [*reach("group"), leave(-9)]
        return [dead if across(started) and slot == 1 else done() for slot in started.slots]

    found = screen(rules, World(hosts(2), behave), tmp_path)
    assert found.named == [("pairs", ("n1",), 1)]


def test_a_pair_that_fails_once_is_no_suspect(rules: RuleSet, tmp_path: Path) -> None:
    seen: list[Started] = []

    def first(run: Started) -> bool:
        if across(run) and set(run.places) == {0, 1}:
            seen.append(run)
        return len(seen) == 1 and across(run) and set(run.places) == {0, 1}

    found = screen(rules, World(hosts(4), if_(first)), tmp_path)
    assert found.named == [] and len(seen) == 2
    assert found.states["pairs", "warning"] == 1


def test_where_every_pair_fails_nobody_is_named(rules: RuleSet, tmp_path: Path) -> None:
    found = screen(rules, World(hosts(4), if_(across)), tmp_path)
    assert found.named == [] and found.states["pairs", "failed"] == 1


def test_what_the_probe_has_shown_is_not_waited_for(rules: RuleSet, tmp_path: Path) -> None:
    world = World(
        hosts(3),
        if_(lambda run: False),
        lambda origin, target, address: "silent" if "n1" in (origin, target) else "reachable",
    )
    found = screen(rules, world, tmp_path)
    assert found.named == [("pairs", ("n1",), None)] and found.runs(2) == [(0, 2)]
    assert found.pairs.cut([0, 1]) and not found.pairs.cut([0, 2])


def test_a_host_that_fails_alone_meets_nobody(rules: RuleSet, tmp_path: Path) -> None:
    bad = if_(lambda run: not run.spec["alone"] and set(run.places) == {1})
    found = screen(rules, World(hosts(3), bad), tmp_path, each=2)
    assert found.named == [("inside", ("n1",), None)]
    assert Counter(found.runs(1)) == {(0,): 1, (1,): 2, (2,): 1}, "a failure is repeated"
    assert all(1 not in places for places in found.runs(2))


def compute(slow: int, times: int) -> Any:
    """Let one rank take long for its own work in the first so many runs."""
    seen: list[Started] = []

    def behave(started: Started) -> Sequence[Script]:
        seen.append(started)
        late = started.spec["alone"] and len(seen) <= times
        return [done(work=0.9 if late and slot == slow else 0.03) for slot in started.slots]

    return behave


def test_a_device_that_computes_slowly_twice_is_named(rules: RuleSet, tmp_path: Path) -> None:
    found = screen(rules, World(hosts(3), compute(4, 2)), tmp_path, each=2)
    assert found.named == [("compute", ("n2",), 4)]
    assert "rank 4 takes 910 ms" in found.screening.suspects[0].says["en"]


def test_a_device_that_was_slow_once_is_a_warning(rules: RuleSet, tmp_path: Path) -> None:
    found = screen(rules, World(hosts(2), compute(1, 1)), tmp_path)
    assert found.named == [] and found.states["compute", "warning"] == 1


def test_a_rank_that_dies_alone_is_named_and_its_host_left_out(rules: RuleSet, tmp_path: Path) -> None:
    def behave(started: Started) -> Sequence[Script]:
        dead = [*reach("device"), leave(-11)]
        return [dead if started.spec["alone"] and slot == 1 else done() for slot in started.slots]

    found = screen(rules, World(hosts(3), behave), tmp_path)
    assert found.named == [("compute", ("n1",), 1)] and found.runs(2) == [(0, 2)]


def test_a_host_on_which_nothing_can_run_is_named_with_the_reason(rules: RuleSet, tmp_path: Path) -> None:
    def behave(started: Started) -> Sequence[Script]:
        unable = [mark("start", pid=1), mark("error", type="OwnFailureError", text="no NCCL", own=True), leave(3)]
        return [unable if slot == 1 else done() for slot in started.slots]

    found = screen(rules, World(hosts(3), behave), tmp_path)
    assert found.named == [("compute", ("n1",), None)] and found.runs(2) == [(0, 2)]
    assert "no NCCL" in found.screening.suspects[0].says["en"]


GPU = {"device": "cuda", "name": "H100", "index": 0, "bus": "0000:4f:00"}


def nccl(direct: Any, staged: Any) -> Any:
    def behave(started: Started) -> Sequence[Script]:
        script = staged if started.env[0].get("NCCL_P2P_DISABLE") == "1" else direct
        return [list(script) for _ in started.places]

    return behave


def test_a_host_that_passes_only_without_p2p(rules: RuleSet, tmp_path: Path) -> None:
    def behave(started: Started) -> Sequence[Script]:
        return nccl(failing(), done())(started) if not started.spec["alone"] else [done() for _ in started.places]

    found = screen(rules, World(hosts(1), behave), tmp_path, each=2, backend="nccl")
    assert found.named == [("inside", ("n0",), None)]
    assert "without P2P it passes" in found.screening.suspects[0].says["en"]
    assert any(run.env[0].get("NCCL_RUN_DIAGNOSTICS") == "1" for run in found.world.started)


def test_p2p_that_is_no_faster_is_a_warning(rules: RuleSet, tmp_path: Path) -> None:
    slow = screen(rules, World(hosts(1), nccl(done(0.02), done(0.01))), tmp_path, each=2, backend="nccl")
    assert slow.states["p2p", "warning"] == 1 and slow.named == []
    fast = screen(rules, World(hosts(1), nccl(done(0.01), done(0.02))), tmp_path, each=2, backend="nccl")
    assert fast.states["p2p", "warning"] == 0


def test_a_gpu_is_named_with_its_rank(rules: RuleSet, tmp_path: Path) -> None:
    def behave(started: Started) -> Sequence[Script]:
        return [done(work=0.09 if slot == 1 else 0.03, **{**GPU, "bus": f"0000:{slot}0:00"}) for slot in started.slots]

    found = screen(rules, World(hosts(2), behave), tmp_path, backend="nccl")
    assert found.named == [("compute", ("n1",), 1)]
    assert found.screening.suspects[0].gpu == "GPU 0, 0000:10:00"


def test_without_time_everything_is_said_to_be_left_out(rules: RuleSet, tmp_path: Path) -> None:
    found = screen(rules, World(hosts(3), if_(lambda run: False)), tmp_path, each=2, budget=1.0)
    assert found.states == {("compute", "skipped"): 1, ("inside", "skipped"): 1, ("pairs", "skipped"): 1}
    assert found.world.started == []


def test_bisection_tries_its_culprit_again(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(5), if_(lambda run: across(run) and 3 in run.places))
    with opened(rules, world, tmp_path) as screening:
        bisected(screening, screening.base, SAYS)
    assert [(one.stage, one.hosts) for one in screening.suspects] == [("bisection", ("n3",))]


def test_bisection_names_nobody_who_passes_the_second_time(rules: RuleSet, tmp_path: Path) -> None:
    seen: Counter[tuple[int, ...]] = Counter()

    def once(run: Started) -> bool:
        seen[run.places] += 1
        return 3 in run.places and seen[run.places] == 1

    with opened(rules, World(hosts(5), if_(once)), tmp_path) as screening:
        bisected(screening, screening.base, SAYS)
    assert screening.suspects == [] and [check.state for check in screening.checks] == ["warning"]


def test_what_only_a_large_group_shows_follows_nobody(rules: RuleSet, tmp_path: Path) -> None:
    with opened(rules, World(hosts(6), if_(lambda run: len(set(run.places)) > 4)), tmp_path) as screening:
        bisected(screening, screening.base, SAYS)
    assert screening.suspects == [] and screening.checks[0].id == "bisection"
