"""Knowledge is earned: what counts, and that the claims in ``rules/earned.yaml`` are true."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from corpus.gate import earned, scores
from corpus.gate.needs import Piece
from nccl_triage.checks.earned import KINDS, claims
from nccl_triage.diagnosis.case import BLAMES, fact_names
from nccl_triage.diagnosis.culprit import METHODS
from nccl_triage.diagnosis.culprit_base import BY_RANK, BY_SPEAKER, FAMILIES, NAMED
from nccl_triage.engine.schema import FAMILIES as OF_CAUSES
from nccl_triage.engine.schema import RuleSet
from nccl_triage.evaluation import cases
from nccl_triage.evaluation.cases import LabelledCase
from nccl_triage.evaluation.suite import pieces

ROOT = Path(__file__).parents[2]
FILES = "[rank1]: OSError: [Errno 24] Too many open files: '/data/part-7.bin'\n"
#: Cases by name and group, and whether they count.
TASKS = (("one/A", "g", True), ("one/B", "g", True), ("one/C", "h", True), ("written/W", "w", False))
#: Every so manieth claim is tried.
EVERY = 12


def test_every_way_in_the_lists_of_families_exists_and_every_method_stands_in_one() -> None:
    assert set(FAMILIES) == set(OF_CAUSES)
    listed = {way for ways in FAMILIES.values() for way in ways}
    assert listed <= {*METHODS, *(name for name in fact_names() if name in BLAMES)}
    assert set(METHODS) <= {*listed, "message", "evidence-facts"}
    assert listed >= BY_SPEAKER | BY_RANK | NAMED


@pytest.mark.parametrize("kind", ["rows", "facts", "methods"])
def test_what_is_claimed_of_an_incident_is_true(kind: str) -> None:
    logs = {
        f"{folder.name}/{case.id}": case
        for folder in (ROOT / "corpus" / "recorded", ROOT / "corpus" / "written")
        for case in cases.read(folder)
    }
    tried = 0
    for name, incidents in sorted(claims()[kind].items())[::EVERY]:
        for one in incidents:
            if one in logs:
                assert Piece(kind, name) in earned.trial(logs[one]).needed(), (name, one)
                tried += 1
    assert tried


def _case(name: str, group: str) -> LabelledCase:
    return LabelledCase(name, Path(name), "unknown", (), "yes", (), (), None, group)


def test_what_counts_is_what_no_rule_was_fitted_to() -> None:
    counting = {task.name for task in earned.tasks() if task.counts}
    written = {name.partition("/")[2] for name in counting if name.startswith("written/")}
    assert written == scores.frozen()["written"]
    recorded = {f"recorded/{case.id}" for case in cases.read(ROOT / "corpus" / "recorded")}
    assert recorded <= counting


@pytest.fixture
def needs(rules: RuleSet) -> earned.Needs:
    """Four rows: two incidents need the first, one the second; the third is needed by a fitted excerpt, the fourth held."""
    rows = [piece.id for piece in pieces(rules) if piece.kind == "rows" and piece.id not in earned.of_documents()]
    first, second, third, fourth = (Piece("rows", name) for name in rows[:4])
    found = earned.Needs()
    for piece in (first, second, third, fourth):
        found.held[piece] = {"g": "whole/A", "h": "whole/B"}
    found.needed[first] = {"g": "whole/A", "h": "whole/B", "i": "whole/C"}
    found.needed[second] = {"g": "whole/A"}
    found.fitted[third] = {"w": "written/W"}
    return found


def test_the_table_and_the_file(needs: earned.Needs) -> None:
    (first, second, third, fourth), total = [piece.id for piece in needs.held], len(earned.known()["rows"])
    told = earned.table(needs, {kind: {} for kind in KINDS}).splitlines()[1].split()
    assert told == ["rows", str(total), "1", "1", str(total - 2), "1", "1", str(total - 4), "0"]
    assert earned.ledger(needs, {kind: {} for kind in KINDS}).splitlines()[1:3] == [
        "rows:",
        f'  {first}: ["whole/A", "whole/B"]',
    ]
    listed = [line.split() for line in earned.listing(needs, "rows", {kind: {} for kind in KINDS})]
    assert first not in {line[2] for line in listed}
    assert listed[-3:] == [
        ["held", "2", fourth, "whole/A", "whole/B"],
        ["fitted", "2", third, "written/W"],
        ["one", "2", second, "whole/A"],
    ]


def test_cases_of_one_group_are_one_incident(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(FILES, "utf-8")
    case = replace(_case("a", "g"), log=tmp_path / "log", cause="os-limit")
    listed = [earned.Task(name, replace(case, group=group), counts) for name, group, counts in TASKS]
    found = earned.measure(listed, 1)
    row = Piece("rows", "os-limit/too-many-open-files")
    assert found.needed[row] == {"g": "one/A", "h": "one/C"}
    assert found.fitted[row] == {"w": "written/W"}
    assert set(found.held[row]) == {"g", "h", "w"}


def test_tests_that_are_claimed_exist() -> None:
    for ids in claims().values():
        for name, shown in ids.items():
            for one in shown:
                if one.startswith("tests/"):
                    path, _, function = one.partition("::")
                    assert f"def {function.rpartition('::')[2]}(" in (ROOT / path).read_text("utf-8"), name
