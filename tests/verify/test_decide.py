"""The decision table: each row by its own example, and what no combination of facts may lead to."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import pytest

import nccl_triage
from nccl_triage import resources
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import RuleError
from nccl_triage.verify import decide as module
from nccl_triage.verify.decide import DecisionRow, Fact, Facts, State, Verdict, decide, table
from nccl_triage.verify.feedback import log_odds
from nccl_triage.verify.reachability import BROKEN, DEGRADED
from nccl_triage.verify.same_world import GpuMatch, HostMatch, VariableMatch

KINDS = ("none", "memory", "replay", "reach", "pairs", "single", "store", "versions", "environment")
PASSING = ("refutes", "supports", "nothing", "not-reproduced")
BOTH = (False, True)
FACT: tuple[Fact, ...] = get_args(Fact)
STATES: tuple[State, ...] = get_args(State)
ROWS = {row.id: row for row in table()}


def everything() -> Iterator[Facts]:
    """Return every combination of facts in the world of the failure."""
    domains: tuple[tuple[Any, ...], ...] = (KINDS, BOTH, STATES, BOTH, STATES, BOTH, FACT, BOTH, PASSING, BOTH, BOTH)
    for values in itertools.product(*domains):
        yield Facts(*values)


def elsewhere() -> Iterator[Facts]:
    """Return the example of every row, in every world but that of the failure."""
    for row in table():
        example = Facts(**row.example)
        for hosts, gpu, variables in itertools.product(
            get_args(HostMatch), get_args(GpuMatch), get_args(VariableMatch)
        ):
            if (hosts, variables) != ("own", "same") or gpu == "other":
                yield replace(example, hosts=hosts, gpu=gpu, variables=variables)


@pytest.fixture(scope="module")
def decided() -> list[tuple[Facts, DecisionRow]]:
    """Every combination with the row that it selects."""
    return [(facts, decide(facts)) for facts in everything()]


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_selected_by_its_example(name: str) -> None:
    example = ROWS[name].example
    assert set(example) == {entry.name for entry in fields(Facts)}
    assert decide(Facts(**example)).id == name


def test_the_table_is_well_formed() -> None:
    names = {entry.name for entry in fields(Facts)}
    domains: dict[str, set[Any]] = {
        "kind": set(KINDS), "control": set(STATES), "treatment": set(STATES), "passing": set(PASSING),
        "fact": set(FACT), "hosts": set(get_args(HostMatch)), "gpu": set(get_args(GpuMatch)),
        "variables": set(get_args(VariableMatch)),
    }  # fmt: skip
    assert len(ROWS) == len(table())
    for row in table():
        assert set(row.when) <= names
        assert row.outcome in get_args(Verdict)
        assert all(row.says[language] for language in ("en", "zh"))
        for name, wanted in row.when.items():
            values = set(wanted) if isinstance(wanted, list) else {wanted}
            assert values <= domains.get(name, {True, False}), f"{row.id}: {name} can never be {values}"


def test_kinds_and_what_passing_says_are_those_of_the_rules(rules: RuleSet) -> None:
    assert {cause.experiment.kind for cause in rules.causes.values()} <= set(KINDS)
    assert {cause.experiment.passing for cause in rules.causes.values()} <= set(PASSING)


def test_every_row_is_reached_and_every_combination_decided(decided: list[tuple[Facts, DecisionRow]]) -> None:
    here = {row.id for _, row in decided}
    assert here | {decide(facts).id for facts in elsewhere()} == set(ROWS)


def test_outside_the_world_of_the_failure_nothing_moves() -> None:
    for facts in elsewhere():
        row = decide(facts)
        if row.id == "driver-shows-it":  # no variable changes what the driver reports
            assert (facts.hosts, facts.kind, facts.fact) == ("own", "single", "shows") and facts.gpu != "other"
            continue
        assert row.weight == "none", (row.id, facts)
        assert row.outcome in ("inconclusive", "not-run", "not-testable"), (row.id, facts)


def test_a_healthy_present_never_refutes_what_may_be_over_or_what_the_log_proves(
    decided: list[tuple[Facts, DecisionRow]],
) -> None:
    for facts, row in decided:
        if facts.proven or facts.passing == "not-reproduced":
            assert row.outcome != "refuted", (row.id, facts)
        if row.outcome == "not-reproduced":
            assert row.weight == "none" and facts.complete and facts.control in ("passes", "none"), (row.id, facts)


def test_the_last_row_always_holds() -> None:
    last = table()[-1]
    assert last.when == {}
    assert last.outcome == "inconclusive"
    assert all(last.holds(facts) for facts in everything())


def test_confirmed_takes_a_treatment_or_a_check_that_shows_the_cause_itself(
    decided: list[tuple[Facts, DecisionRow]],
) -> None:
    for facts, row in decided:
        if row.outcome == "confirmed":
            treated = facts.control == "fails" and facts.diagnosed and facts.treatment == "passes"
            shown = facts.fact == "shows" and facts.kind in ("versions", "store", "environment", "single")
            assert facts.ran and (treated or shown), (row.id, facts)
            assert facts.kind not in ("none", "memory")


def test_something_else_that_is_wrong_neither_confirms_nor_refutes(decided: list[tuple[Facts, DecisionRow]]) -> None:
    for facts, row in decided:
        if facts.fact == "other" and not (facts.control == "fails" and facts.diagnosed):
            assert row.outcome not in ("confirmed", "supported", "refuted"), (row.id, facts)
            assert log_odds(row.weight) <= 0, (row.id, facts)


def test_hosts_that_are_well_now_speak_for_nothing(decided: list[tuple[Facts, DecisionRow]]) -> None:
    for facts, row in decided:
        if facts.control == "passes":
            assert log_odds(row.weight) <= 0, (row.id, facts)


def test_nothing_is_confirmed_from_what_passed_or_changed(decided: list[tuple[Facts, DecisionRow]]) -> None:
    for facts, row in decided:
        if facts.control in ("passes", "mixed"):
            assert row.outcome != "confirmed", (row.id, facts)


def test_refuted_takes_the_whole_size_and_nothing_against_it(decided: list[tuple[Facts, DecisionRow]]) -> None:
    for facts, row in decided:
        if row.outcome == "refuted":
            assert facts.ran and facts.complete, (row.id, facts)
            assert facts.control in ("passes", "none"), (row.id, facts)
            assert facts.fact in ("clean", "none"), (row.id, facts)
            assert facts.fact == "clean" or facts.kind != "reach", "the probe is what tells"
            # A cause whose file says that passing tells nothing, or speaks for it, is never refuted by passing.
            assert facts.passing == "refutes", (row.id, facts)


def test_less_than_the_failure_never_refutes_and_never_becomes_surer(decided: list[tuple[Facts, DecisionRow]]) -> None:
    for facts, row in decided:
        if facts.complete:
            smaller = decide(replace(facts, complete=False))
            if smaller.outcome != row.outcome:
                assert smaller.outcome == "inconclusive", (row.id, smaller.id, facts)


def test_not_run_and_not_testable_say_exactly_that(decided: list[tuple[Facts, DecisionRow]]) -> None:
    for facts, row in decided:
        assert (row.outcome == "not-testable") == (facts.kind in ("none", "memory"))
        if row.outcome != "not-testable":
            assert (row.outcome == "not-run") == (not facts.ran)


def test_a_weight_points_where_the_outcome_does() -> None:
    signs = {"confirmed": 1, "supported": 1, "refuted": -1}
    for row in table():
        sign = signs.get(row.outcome, 0)
        if row.id in ("another-cause", "fails-although-called-well"):
            sign = -1  # undecided, yet it did not fail as diagnosed
        assert (log_odds(row.weight) > 0) - (log_odds(row.weight) < 0) == sign, row.id


def test_flaky_controls_decide_nothing(decided: list[tuple[Facts, DecisionRow]]) -> None:
    for facts, row in decided:
        if facts.control == "mixed" and facts.ran and facts.kind not in ("none", "memory"):
            assert row.id == "flaky", facts


@pytest.mark.parametrize(
    "text",
    [
        "- id: a\n  when: {}\n",
        "[",
        "- id: a\n  when: {}\n  outcome: confirmed\n  weight: x\n  says: {}\n  example: {}\n",
    ],
)
def test_a_table_that_is_none_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "verification"
    folder.mkdir()
    (folder / "decisions.yaml").write_text(text)
    monkeypatch.setattr(resources, "rules_dir", lambda: folder.parent)
    with pytest.raises(RuleError) as caught:
        module.table.__wrapped__()
    assert "decisions.yaml" in str(caught.value.where)


VERIFY = Path(nccl_triage.__file__).parent / "verify"
MAKERS = ("assess.py", "health.py", "network_findings.py", "stragglers.py")
KIND = re.compile(r"[a-z]+(?:-[a-z]+)*")


def _made() -> set[str]:
    """Return the kinds that the checks of the verifier make."""
    texts = {
        node.value
        for name in MAKERS
        for node in ast.walk(ast.parse((VERIFY / name).read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and KIND.fullmatch(node.value)
    }
    return texts & set(module.cause_table()) | {f"path-{state}" for state in BROKEN | DEGRADED}


def test_every_kind_is_made_by_a_check_and_every_path_state_has_a_cause() -> None:
    assert _made() == set(module.cause_table())


def test_the_causes_exist(rules: RuleSet) -> None:
    causes = {cause for situations in module.cause_table().values() for cause in situations.values()} - {""}
    assert causes <= set(rules.causes)


@pytest.mark.parametrize(
    ("kind", "situation", "cause"),
    [
        ("late", module.OTHERWISE, "straggler"),
        ("terminated", module.OTHERWISE, "job-preempted"),
        ("terminated", "by-hangup", "terminal-hangup"),
        ("collective-failed", module.OTHERWISE, ""),
        ("collective-failed", "between-hosts", "network-link-fault"),
        ("path-silent", "one-network", "network-firewall-port"),
        ("path-no-route", "one-network", "network-unreachable-subnet"),
        ("path-no-route", "filter", "network-firewall-port"),
        ("path-prohibited", "own-route", "network-unreachable-subnet"),
        ("path-silent", "own-route", "network-unreachable-subnet"),
        ("path-silent", "link-down", "network-link-fault"),
    ],
)
def test_the_situation_decides(kind: str, situation: str, cause: str) -> None:
    assert module.cause_of(kind, situation) == cause


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(RuleError, match="no-such-kind"):
        module.cause_of("no-such-kind")


def test_a_table_without_a_rest_says_where() -> None:
    with pytest.raises(RuleError) as caught:
        module.read_causes("late: straggler\nleft:\n  by-hangup: straggler\n", "rules/x.yaml")
    assert "'otherwise' is missing" in str(caught.value)
    assert caught.value.where == "rules/x.yaml:3"
