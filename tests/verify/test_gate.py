"""NCCL is tried alone and with a trivial all-reduce before anything is judged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nccl_triage.engine.schema import RuleSet
from nccl_triage.verify.judge import ExperimentOutcome
from nccl_triage.verify.question import AccusedGpu, SuspectedCause
from nccl_triage.verify.treatments import ALONE, TRIVIAL
from tests.verify.simulated import Script, Started, World, failing, healthy, hosts, leave, mark, reach
from tests.verify.test_conduct import conduct, only, verdict

NCCL: dict[str, Any] = {"backend": "nccl", "gpus": 2, "world": 4, "numel": 1 << 20}


def changes(outcome: ExperimentOutcome) -> list[str]:
    return [trial.result.run.changed for trial in outcome.gates]


def by_world(**scripts: Sequence[Script]) -> Any:
    """Behave by the kind of a run: ``alone``, ``trivial`` or the ``rest``."""

    def behave(started: Started) -> Sequence[Script]:
        small = started.spec["numel"] == 1024
        kind = "alone" if len(started.places) == 1 else "trivial" if small else "rest"
        return [list(scripts[kind][0] if kind in scripts else healthy()) for _ in started.places]

    return behave


def test_nccl_runs_alone_on_each_host_and_trivially_before_the_control(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(2))
    outcome = only(conduct(world, rules, tmp_path, "rank-divergence", **NCCL))
    assert changes(outcome) == [ALONE["en"], ALONE["en"], TRIVIAL["en"]]
    assert [len(started.places) for started in world.started] == [1, 1, 4, 4, 4]
    assert verdict(outcome) == ("inconclusive", "transport-works")


def test_gloo_needs_no_gate(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(2))
    outcome = only(conduct(world, rules, tmp_path, "rank-divergence"))
    assert outcome.gates == () and len(world.started) == 2


def test_nccl_that_works_on_no_gpu_is_no_evidence(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(2), by_world(alone=[failing("device", "ncclUnhandledCudaError: unhandled cuda error")]))
    outcome = only(conduct(world, rules, tmp_path, "rank-divergence", **NCCL))
    assert outcome.row.outcome == "not-run" and outcome.controls == []
    assert outcome.why_not is not None
    assert "NCCL does not work on a single GPU of n0" in outcome.why_not["en"]
    assert "unhandled cuda error" in outcome.why_not["en"]
    assert changes(outcome) == [ALONE["en"]] * 2, "one GPU may be broken: a second one was tried"


def test_one_broken_gpu_does_not_stop_the_rest(rules: RuleSet, tmp_path: Path) -> None:
    """The first GPU fails alone, the second one does not: NCCL works, and the control decides."""

    def behave(started: Started) -> Sequence[Script]:
        first = len(started.places) == 1 and started.slots == [0]
        return [failing("group") if first else healthy() for _ in started.places]

    outcome = only(conduct(World(hosts(2), behave), rules, tmp_path, "rank-divergence", **NCCL))
    assert changes(outcome) == [ALONE["en"]] * 3 + [TRIVIAL["en"]]
    assert outcome.row.outcome == "inconclusive"


def test_the_accused_gpu_is_not_asked_whether_nccl_works(rules: RuleSet, tmp_path: Path) -> None:
    suspect = SuspectedCause("gpu-hardware-fault", "supported", 0.7, hosts=("n0",), gpus=(AccusedGpu("n0", 0),))
    world = World(hosts(2))
    outcome = only(conduct(world, rules, tmp_path, suspects=(suspect,), **NCCL))
    alone = [trial.result.run for trial in outcome.gates if trial.result.run.changed == ALONE["en"]]
    assert [(slot.place, slot.gpu.index) for run in alone for slot in run.slots if slot.gpu] == [(0, 1)]


def test_a_trivial_all_reduce_that_fails_leaves_nothing_supported(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(2), by_world(trivial=[failing("group")]))
    outcome = only(conduct(world, rules, tmp_path, "rank-divergence", **NCCL))
    assert verdict(outcome) == ("inconclusive", "flaky")


def test_a_rank_that_cannot_start_is_the_verifiers_own_failure(rules: RuleSet, tmp_path: Path) -> None:
    broken = [
        *reach("start"),
        mark("error", type="ModuleNotFoundError", text="No module named 'torch'", own=True),
        leave(3),
    ]
    world = World(
        hosts(2), lambda started: [list(broken) if rank else healthy() for rank in range(len(started.places))]
    )
    outcome = only(conduct(world, rules, tmp_path, "rendezvous-failed"))
    assert outcome.row.outcome == "not-run" and outcome.findings == [] and len(outcome.controls) == 1
    assert outcome.why_not is not None and "No module named 'torch'" in outcome.why_not["en"]
    assert not any("store" in str(entry) for entry in outcome.findings)
