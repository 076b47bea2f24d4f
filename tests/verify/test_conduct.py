"""Whole sessions: on hosts that exist only in words, whose troubles are known, and on real Gloo."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.api import diagnose
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import UsageError
from nccl_triage.hosts.links import HostPlace
from nccl_triage.verify import feedback, plan
from nccl_triage.verify.cluster import Cluster
from nccl_triage.verify.conduct import carry_out
from nccl_triage.verify.judge import ExperimentOutcome, Report
from nccl_triage.verify.means import Means
from nccl_triage.verify.plan import PlanOptions
from nccl_triage.verify.question import Question, SuspectedCause
from nccl_triage.verify.trials import Session
from tests.document import fields
from tests.verify.gloo_cluster import Gloo
from tests.verify.simulated import Launcher, Script, Started, World, always, failing, healthy, hosts, leave, reach

#: Every deadline but that of the start a twentieth: what hangs on purpose shall not hang for long.
WISHES = PlanOptions(timeout_factor=0.05, budget=60.0)


def question(on: World, *causes: str, **changes: Any) -> Question:
    """Return a failure on all hosts of a world, one rank each, of which everything is known."""
    known: dict[str, Any] = {
        "op": "ALLREDUCE", "numel": 64, "dtype": "float32", "world": len(on.hosts), "hosts": tuple(on.names), "backend": "gloo",
    }  # fmt: skip
    suspects = tuple(SuspectedCause(cause, "supported", 0.6) for cause in causes)
    return Question(**{"suspects": suspects, **known, **changes})


def conduct(
    on: World,
    rules: RuleSet,
    tmp_path: Path,
    *causes: str,
    options: PlanOptions = WISHES,
    gpus: int = 0,
    **changes: Any,
) -> Report:
    means = Means.alike(tuple(HostPlace(name) for name in on.names), gpus=gpus, torch="2.13.0")
    made = plan.build(question(on, *causes, **changes), rules.causes, means, options)
    with Cluster(Launcher(on)) as cluster:
        return carry_out(Session(cluster, made, rules, tmp_path))


def only(report: Report) -> ExperimentOutcome:
    (outcome,) = report.outcomes
    return outcome


def verdict(outcome: ExperimentOutcome) -> tuple[str, str]:
    return outcome.row.outcome, outcome.row.id


def across(started: Started) -> bool:
    return len(set(started.places)) > 1


def unless(broken: bool, started: Started) -> Sequence[Script]:
    return [failing() if broken else healthy() for _ in started.places]


def tried(outcome: ExperimentOutcome) -> list[tuple[str, bool]]:
    return [(item.variable, any(trial.fails for trial in trials)) for item, trials in outcome.treatments]


def test_two_networks_of_which_one_leads_nowhere(rules: RuleSet, tmp_path: Path) -> None:
    world = World(
        hosts(2, ("10.0.0", "10.1.0")),
        lambda started: unless(
            across(started) and any(env.get("GLOO_SOCKET_IFNAME") != "eth1" for env in started.env), started
        ),
        lambda origin, target, address: "no-route" if address.startswith("10.0.") else "reachable",
    )
    outcome = only(conduct(world, rules, tmp_path, "network-unreachable-subnet"))
    assert verdict(outcome) == ("confirmed", "fails-and-treatment-passes")
    assert ("interface", False) in tried(outcome) and ("placement", False) in tried(outcome)
    (found,) = outcome.findings
    assert (found.cause, found.kind, found.hosts) == ("network-unreachable-subnet", "path-no-route", ("n0", "n1"))
    assert len(outcome.controls) == 2


def test_a_network_that_works_refutes_what_needs_a_broken_one(rules: RuleSet, tmp_path: Path) -> None:
    outcome = only(conduct(World(hosts(2)), rules, tmp_path, "network-unreachable-subnet"))
    assert verdict(outcome) == ("refuted", "refuted")
    assert outcome.treatments == [] and outcome.findings == []


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({"world": 64}, "passes-on-less"),
        ({"hosts": ("n0", "n1", "n2")}, "passes-on-less"),
        ({"hosts": ("other", "n1")}, "other-hosts"),
        ({"hosts": ()}, "unknown-hosts"),
    ],
)
def test_but_not_when_the_failure_was_larger_or_elsewhere(
    rules: RuleSet, tmp_path: Path, changes: dict[str, Any], row: str
) -> None:
    outcome = only(conduct(World(hosts(2)), rules, tmp_path, "network-unreachable-subnet", **changes))
    assert verdict(outcome) == ("inconclusive", row)


def test_hosts_that_the_log_does_not_name_are_the_jobs_when_the_user_says_so(rules: RuleSet, tmp_path: Path) -> None:
    said = replace(WISHES, job_hosts=True)
    outcome = only(conduct(World(hosts(2)), rules, tmp_path, "network-unreachable-subnet", options=said, hosts=()))
    assert verdict(outcome) == ("refuted", "refuted")


def test_a_failure_on_other_hosts_confirms_nothing(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(2), lambda started: unless(across(started), started))
    known = {"env": {"NCCL_SOCKET_IFNAME": "bond0"}, "hosts": ("gpu-a", "gpu-b")}
    outcome = only(conduct(world, rules, tmp_path, "network-wrong-interface", **known))
    assert outcome.facts.fact == "shows" and outcome.facts.control == "fails"
    assert verdict(outcome) == ("inconclusive", "other-hosts") and outcome.row.weight == "none"


def test_what_the_log_proves_is_not_refuted_by_a_network_that_works_now(rules: RuleSet, tmp_path: Path) -> None:
    suspect = SuspectedCause("network-unreachable-subnet", "established", 0.99, proven=True)
    outcome = only(conduct(World(hosts(2)), rules, tmp_path, suspects=(suspect,)))
    assert verdict(outcome) == ("not-reproduced", "proven-by-the-log")


def test_nor_when_there_was_memory_for_a_part_only(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(2), always(lambda: healthy(fits=1000)))
    outcome = only(conduct(world, rules, tmp_path, "network-unreachable-subnet", numel=1 << 30))
    assert verdict(outcome) == ("inconclusive", "passes-on-less")
    assert any("1,000 elements instead of 1,073,741,824" in text["en"] for text in outcome.planned.differs)
    assert outcome.controls[0].result.run.message.numel == 1000


def test_a_control_that_fails_now_and_then_decides_nothing(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(2))
    world.behave = lambda started: unless(len(world.started) % 2 == 1, started)
    outcome = only(conduct(world, rules, tmp_path, "network-link-fault"))
    assert verdict(outcome) == ("inconclusive", "flaky")
    assert len(outcome.controls) == 5 and outcome.treatments == []


@pytest.mark.parametrize("bad", [{1, 4}, {3}])
def test_the_hosts_that_it_takes_are_found(rules: RuleSet, tmp_path: Path, bad: set[int]) -> None:
    world = World(hosts(6), lambda started: unless(across(started) and bad <= set(started.places), started))
    outcome = only(conduct(world, rules, tmp_path, "network-link-fault"))
    assert outcome.narrowed is not None
    assert (outcome.narrowed["hosts"], outcome.narrowed["kind"]) == (
        [f"n{place}" for place in sorted(bad)],
        "pair" if len(bad) == 2 else "one",
    )
    assert outcome.row.outcome == "confirmed"
    assert ("members", False) in tried(outcome), "without the culprit it passes"


def test_a_rank_that_crashes_is_left_out(rules: RuleSet, tmp_path: Path) -> None:
    def behave(started: Started) -> Sequence[Script]:
        scripts = unless(2 in started.slots, started)
        return [
            [*reach("group"), leave(-11)] if slot == 2 else script
            for slot, script in zip(started.slots, scripts, strict=True)
        ]

    outcome = only(conduct(World(hosts(1), behave), rules, tmp_path, "process-crashed", world=4))
    assert verdict(outcome) == ("confirmed", "fails-and-treatment-passes")
    assert outcome.findings[0].ranks == (2,)
    assert tried(outcome) == [("members", False)]


def test_a_culprit_that_changes_with_every_run_is_none(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(1))

    def behave(started: Started) -> Sequence[Script]:
        culprit = len(world.started) % 4
        return [[*reach("group"), leave(-11)] if slot == culprit else failing("entered") for slot in started.slots]

    world.behave = behave
    outcome = only(conduct(world, rules, tmp_path, "process-crashed", world=4))
    assert not outcome.facts.diagnosed
    assert outcome.row.outcome == "inconclusive"


def test_another_failure_than_diagnosed_speaks_against_it(rules: RuleSet, tmp_path: Path) -> None:
    def behave(started: Started) -> Sequence[Script]:
        return [[*reach("group"), leave(-9)] if slot == 1 else failing("entered") for slot in started.slots]

    outcome = only(conduct(World(hosts(1), behave), rules, tmp_path, "rank-divergence", world=4))
    assert verdict(outcome) == ("inconclusive", "another-cause")
    assert outcome.row.weight == "weak-against"


def test_the_same_control_runs_once_for_all_suspects(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(1))
    report = conduct(world, rules, tmp_path, "rank-divergence", "collective-mismatch", world=2)
    assert [verdict(outcome) for outcome in report.outcomes] == [("inconclusive", "transport-works")] * 2
    assert len(world.started) == 2
    assert len({started.label for started in world.started}) == 2


def test_a_brief_collective_shows_that_the_timeout_was_not_its(rules: RuleSet, tmp_path: Path) -> None:
    outcome = only(conduct(World(hosts(1)), rules, tmp_path, "timeout-too-short", world=2, timeout=600.0))
    assert verdict(outcome) == ("inconclusive", "collective-is-brief")


def test_a_host_that_is_lost_ends_no_session(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(3))

    def behave(started: Started) -> Sequence[Script]:
        if not world.links[2].dead:
            gone = {"answer": "gone", "error": "kernel panic"}
            return [failing("entered"), failing("entered"), [*reach("group"), gone]]
        return [failing("entered") for _ in started.places]

    world.behave = behave
    outcome = only(conduct(world, rules, tmp_path, "network-link-fault"))
    lost = [trial.result.ranks[2].error for trial in outcome.controls]
    assert [error["type"] for error in lost if error] == ["AgentLost"] * len(outcome.controls)
    # Later runs cannot even begin.
    assert [trial.result.outcome for trial in outcome.controls] == ["error", *["not-run"] * (len(lost) - 1)]
    assert outcome.row.outcome != "refuted"


def test_a_host_that_does_not_answer_ends_the_session_before_it_begins(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(2))
    means = Means.alike(tuple(HostPlace(name) for name in world.names), torch="2.13.0")
    made = plan.build(question(world, "network-link-fault"), rules.causes, means, WISHES)
    with Cluster(Launcher(world)) as cluster:
        world.links[1].die("Permission denied (publickey)")
        with pytest.raises(UsageError) as caught:
            carry_out(Session(cluster, made, rules, tmp_path))
    assert (caught.value.message, caught.value.cause) == ("no answer from n1", "Permission denied (publickey)")
    assert caught.value.remedy and world.started == []


def test_a_host_without_torch_is_no_verdict(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(2), torch_errors={1: "ModuleNotFoundError: No module named 'torch'"})
    report = conduct(world, rules, tmp_path, "network-link-fault")
    assert verdict(only(report)) == ("not-run", "not-run")
    assert "n1" in report.problems[0]["en"] and "n1" in report.problems[0]["zh"]
    assert world.started == []


def test_a_budget_that_is_too_small_proves_nothing(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(2))
    outcome = only(conduct(world, rules, tmp_path, "network-link-fault", options=PlanOptions(budget=1.0)))
    assert world.started == []
    assert outcome.row.outcome in ("not-run", "inconclusive")
    assert outcome.row.weight == "none"


def test_one_run_proves_nothing(rules: RuleSet, tmp_path: Path) -> None:
    """The budget ends a run, and the session with it: what the parent stopped is no failure that repeats."""
    world = World(hosts(2), lambda started: [reach("group") for _ in started.places])
    outcome = only(
        conduct(world, rules, tmp_path, "network-link-fault", options=PlanOptions(timeout_factor=1.0, budget=3.5))
    )
    assert len(world.started) == 1
    assert outcome.row.outcome == "inconclusive" and outcome.row.weight == "none"


def test_a_port_that_is_taken_is_a_fact(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(1), taken_ports={29500})
    world.behave = lambda started: unless(started.spec["store"]["port"] == 29500, started)
    outcome = only(conduct(world, rules, tmp_path, "port-in-use", world=2, port=29500))
    assert outcome.row.outcome == "confirmed"
    assert outcome.facts.fact == "shows" and ("port", False) in tried(outcome)


def test_a_port_that_is_free_again_is_no_proof_of_having_been(rules: RuleSet, tmp_path: Path) -> None:
    outcome = only(conduct(World(hosts(1)), rules, tmp_path, "port-in-use", world=2, port=29500))
    assert outcome.facts.fact == "clean" and outcome.row.outcome == "not-reproduced"


@pytest.mark.parametrize(("fails", "wanted"), [(True, "confirmed"), (False, "inconclusive")])
def test_versions_that_differ(rules: RuleSet, tmp_path: Path, fails: bool, wanted: str) -> None:
    def behave(started: Started) -> Sequence[Script]:
        end = failing("store")[-2:] if fails else healthy()[-1:]
        return [[*reach("store" if fails else "done", torch=f"2.{place}.0"), *end] for place in started.places]

    outcome = only(conduct(World(hosts(2), behave), rules, tmp_path, "nccl-version-conflict"))
    assert outcome.facts.fact == "shows"
    assert outcome.row.outcome == wanted


def test_versions_that_differ_say_nothing_of_the_driver(rules: RuleSet, tmp_path: Path) -> None:
    def behave(started: Started) -> Sequence[Script]:
        return [[*reach("store", torch=f"2.{place}.0", nccl="2.27.5"), *failing()[-2:]] for place in started.places]

    outcome = only(conduct(World(hosts(2), behave), rules, tmp_path, "driver-cuda-mismatch", gpus=1, backend="nccl"))
    assert outcome.row.outcome != "confirmed"


def test_what_no_collective_shows_starts_nothing(rules: RuleSet, tmp_path: Path) -> None:
    world = World(hosts(1))
    report = conduct(world, rules, tmp_path, "application-exception", "batch-size-mismatch")
    assert [verdict(outcome)[0] for outcome in report.outcomes] == ["not-testable"] * 2
    assert world.started == [] and report.hosts == [], "nobody was even asked"


def test_a_document_takes_it_all(rules: RuleSet, tmp_path: Path) -> None:
    """What a session came to is plain data of the published shape."""
    log = tmp_path / "job.log"
    log.write_text(
        "[W302 10:30:00 socket.cpp:1] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address "
        "already in use).\n"
    )
    document = diagnose([str(log)], rules=rules, model=None).to_dict()
    world = World(hosts(2), taken_ports={29500})
    world.behave = lambda started: unless(started.spec["store"]["port"] == 29500, started)
    report = conduct(world, rules, tmp_path, "port-in-use", port=29500)
    changed = json.loads(json.dumps(feedback.apply(document, report)))
    fields.check(changed)
    told = changed["diagnoses"][0]["verification"]
    assert told["outcome"] == "confirmed"
    assert [run["outcome"] for run in told["runs"][:2]] == ["error", "error"]
    assert told["runs"][0]["errors"][0]["type"] == "RuntimeError"


# on real Gloo


def session(gloo: Gloo, rules: RuleSet, tmp_path: Path, cause: str, faults: dict[str, Any]) -> ExperimentOutcome:
    known = Question(
        (SuspectedCause(cause, "supported", 0.6),),
        op="ALLREDUCE",
        numel=4096,
        dtype="float32",
        world=3,
        hosts=("here",),
        backend="gloo",
    )
    means = Means.alike((HostPlace("here"),), torch="2.13.0")
    made = plan.build(known, rules.causes, means, PlanOptions(timeout_factor=0.15, budget=60.0))
    gloo.cluster.gone.clear()
    return only(carry_out(Session(gloo.cluster, made, rules, tmp_path, faults=faults)))


@pytest.mark.parametrize(
    ("cause", "fault", "kind"),
    [
        ("rank-divergence", "leaves", "left"),
        ("collective-mismatch", "wrong-size", "different-call"),
        ("process-crashed", "sigsegv", "crashed"),
    ],
)
def test_a_real_fault_is_confirmed_with_its_culprit(
    gloo: Gloo, rules: RuleSet, tmp_path: Path, cause: str, fault: str, kind: str
) -> None:
    outcome = session(gloo, rules, tmp_path, cause, {"1": {"name": fault}})
    assert verdict(outcome) == ("confirmed", "fails-and-treatment-passes")
    assert [(found.kind, found.ranks) for found in outcome.findings] == [(kind, (1,))]
    (treatment, trials) = outcome.treatments[0]
    assert treatment.variable == "members"
    assert [[slot.number for slot in trial.result.run.slots] for trial in trials] == [[0, 2], [0, 2]]


@pytest.mark.parametrize(
    ("cause", "wanted"),
    [
        ("rank-divergence", "transport-works"),
        ("straggler", "says-nothing"),
        ("rendezvous-failed", "not-reproduced"),
    ],
)
def test_a_healthy_host(gloo: Gloo, rules: RuleSet, tmp_path: Path, cause: str, wanted: str) -> None:
    outcome = session(gloo, rules, tmp_path, cause, {})
    assert outcome.row.id == wanted
    assert all(trial.result.passed for trial in outcome.controls)
