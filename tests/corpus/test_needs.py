"""Ablation: what the answer to a case needs, alone and where pieces can replace each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from corpus.gate.needs import Piece, Pieces, Trial, least
from nccl_triage.diagnosis import culprit
from nccl_triage.engine.schema import RuleSet
from nccl_triage.evaluation.ablation import scan_case
from nccl_triage.evaluation.cases import LabelledCase
from nccl_triage.ingest.layouts import LayoutReader
from nccl_triage.scan.scanner import Scanner

FILES = "[rank1]: OSError: [Errno 24] Too many open files: '/data/part-7.bin'\n"
WELL = "step 1/2 loss 2.1\nstep 2/2 loss 2.0\nTraining completed.\n"
ROW = Piece("rows", "os-limit/too-many-open-files")


def pieces(names: str) -> list[Piece]:
    return [Piece("rows", name) for name in names]


def lacks(*groups: str) -> Callable[[Pieces], bool]:
    """Return what is worse when all pieces of one of the groups are gone."""
    return lambda gone: any(set(pieces(group)) <= gone for group in groups)


@pytest.mark.parametrize(
    ("worse", "left"),
    [
        (lacks(), ""),
        (lacks("b"), "b"),
        (lacks("b", "e"), "be"),
        (lacks("ab"), "b"),  # each is enough: the first is given up
        (lacks("ade"), "e"),
        (lacks("ab", "bc"), "b"),
        (lacks("abcde"), "e"),
        (lacks("a", "bcd"), "ad"),
    ],
)
def test_the_least_that_is_left(worse: Callable[[Pieces], bool], left: str) -> None:
    found = least(pieces("abcde"), worse)
    assert found == pieces(left)
    gone = frozenset(pieces("abcde")) - set(found)
    assert not worse(gone)
    assert all(worse(gone | {one}) for one in found)


@pytest.fixture
def judged(tmp_path: Path) -> Callable[..., Trial]:
    def trial(rules: RuleSet, log: str, cause: str, **labels: object) -> Trial:
        path = tmp_path / "log"
        path.write_text(log, "utf-8")
        given: dict[str, object] = {"also": (), "determinable": "yes", "ranks": (), "hosts": (), "evidence_line": None}
        case = LabelledCase(id="a", log=path, cause=cause, group="a", **{**given, **labels})  # type: ignore[arg-type]
        return Trial(case, scan_case(case, Scanner(rules), LayoutReader(rules.layouts)), rules, None)

    return trial


def test_what_an_answer_needs_alone(judged: Callable[..., Trial], rules: RuleSet) -> None:
    trial = judged(rules, FILES, "os-limit", ranks=(1,), evidence_line=1)
    assert {ROW, Piece("methods", "exception"), Piece("facts", "exception.ranks")} <= trial.held
    needed = trial.needed()
    assert ROW in needed
    assert Piece("facts", "job.failed") not in needed
    assert trial.needed_signatures() == {Piece("signatures", "os.limit_emfile")}


def test_what_would_step_in_is_known(judged: Callable[..., Trial], rules: RuleSet) -> None:
    """Two methods find the rank, and the second is asked only where the first one finds nobody, for lack of its facts."""
    trial = judged(rules, FILES, "os-limit", ranks=(1,))
    either = [Piece("methods", name) for name in ("exception", "evidence")]
    assert [piece in trial.held for piece in either] == [True, False]
    assert [piece in trial.needed() for piece in either] == [False, True]


def test_who_is_to_blame_is_part_of_the_answer(judged: Callable[..., Trial], rules: RuleSet) -> None:
    named = judged(rules, FILES, "os-limit", ranks=(1,)).needed()
    wrong = judged(rules, FILES, "os-limit", ranks=(2,)).needed()
    unlabelled = judged(rules, FILES, "os-limit").needed()
    assert [sum(piece.kind == "methods" for piece in found) for found in (named, wrong, unlabelled)] == [1, 0, 0]


def test_a_wrong_answer_needs_nothing(judged: Callable[..., Trial], rules: RuleSet) -> None:
    trial = judged(rules, FILES, "port-in-use")
    assert ROW in trial.held
    assert trial.needed() == frozenset() == trial.needed_signatures()


def test_a_healthy_run_needs_what_keeps_it_from_being_accused(judged: Callable[..., Trial], rules: RuleSet) -> None:
    trial = judged(rules, WELL, "healthy")
    assert trial.needed() == frozenset()
    assert len(trial.needed_signatures()) == 1  # that it went on to its end


@pytest.mark.parametrize(("weight", "kept"), [("moderate", "too-many-open-files"), ("decisive", "twin")])
def test_of_two_rows_that_replace_each_other_the_stronger_is_needed(
    judged: Callable[..., Trial], rules: RuleSet, weight: str, kept: str
) -> None:
    cause = rules.causes["os-limit"]
    row = next(item for item in cause.evidence if item.id == "too-many-open-files")
    twins = (row._replace(weight="strong"), row._replace(id="twin", weight=weight))
    causes = {**rules.causes, cause.id: cause._replace(evidence=twins)}
    trial = judged(replace(rules, causes=causes), FILES, "os-limit")
    assert not any(trial.worse(frozenset({Piece("rows", f"os-limit/{twin.id}")})) for twin in twins)
    assert {piece.id for piece in trial.needed() if piece.kind == "rows"} == {f"os-limit/{kept}"}


def test_a_case_is_left_as_it_was(judged: Callable[..., Trial], rules: RuleSet) -> None:
    methods = dict(culprit.METHODS)
    trial = judged(rules, FILES, "os-limit", ranks=(1,))
    assert trial.needed() == trial.needed()
    assert methods == culprit.METHODS
