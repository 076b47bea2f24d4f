"""What the answer to a labelled case needs: ablation of rows of evidence, facts, culprit methods and signatures.

A case is scanned once. Then it is judged again without pieces that held in it: by the rules alone if these are right,
else with the vote of the classifier, which has learned from most of these cases and would hide what is needed. What is
not right even then needs nothing. An answer is worse if its first cause or verdict is no longer right, or a right cause
falls below even odds, or its culprit or the line that proves it is no longer the labelled one. For a single fact the
words count as well: what happened, why, what proves it or how to fix it is told in other words without it.

A piece is needed if the answer is worse without it alone. Two rows may each be enough, so that neither is needed alone
and yet one of them is. Therefore the pieces that are not needed alone are given up together, as far as the answer stays
as good: facts before methods before rows, and weak rows before strong ones. What is left is needed as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from nccl_triage.checks.earned import row_id
from nccl_triage.classifier.model import Model
from nccl_triage.diagnosis import culprit, placeholders
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.findings import Findings
from nccl_triage.diagnosis.verdict import case_of, judge, votes_on
from nccl_triage.diagnosis.weigh import SET_ASIDE_ID, gather
from nccl_triage.document.advice import CauseAdvice
from nccl_triage.document.finding import finding
from nccl_triage.engine.schema import Evidence, RuleSet
from nccl_triage.evaluation.cases import LabelledCase
from nccl_triage.evaluation.run import outcome_of
from nccl_triage.evaluation.score import ACCUSES
from nccl_triage.observations.store import Observations


class Piece(NamedTuple):
    """A piece of knowledge: one of ``checks.earned.KINDS``, and its id."""

    kind: str
    id: str


Pieces = frozenset[Piece]
#: What is given up before what: kinds, and roles of signatures.
GIVEN_UP = ("facts", "methods", "rows", "signatures")
ROLES = ("progress", "context", "cascade", "root")
NOTHING: Pieces = frozenset()


@dataclass(frozen=True, slots=True)
class Answer:
    """How good an answer is."""

    right: bool
    sure: bool
    culprit: bool
    line: bool

    def worse_than(self, other: Answer) -> bool:
        """Whether something that was right with the other answer is not with this one."""
        pairs = (
            (self.right, other.right),
            (self.sure, other.sure),
            (self.culprit, other.culprit),
            (self.line, other.line),
        )
        return any(before and not now for now, before in pairs)


class Trial:
    """A labelled case that is judged without some pieces."""

    def __init__(self, case: LabelledCase, observations: Observations, rules: RuleSet, model: Model | None) -> None:
        self._labelled, self._observations, self._rules, self._model = case, observations, rules, model
        self._whole = case_of(observations, rules)
        found = judge(self._whole)
        self._votes = not self._answer(found).right and model is not None
        if self._votes:
            found = self._judge(self._whole)
        self._before, self._words = self._answer(found), _words(found)
        #: Rows, facts and methods that held.
        self.held = _held(found)
        #: The signatures of the lines that were read.
        self.seen = frozenset(Piece("signatures", event.signature) for event in self._whole.events)
        self._weights = {
            row_id(cause.id, row): row.log_odds
            for cause in rules.causes.values()
            for row in (*cause.evidence, *cause.against)
        }
        # Rows do not ask for each other: without some of them no further one holds. Only lines that are set aside do.
        aside = any(event.is_failure for event, _ in self._whole.aside)
        self._holding = (
            rules if aside else _rows_alone(rules, {piece.id for piece in self.held if piece.kind == "rows"})
        )

    def _judge(self, case: Case) -> Findings:
        return judge(case, votes_on(case, self._model) if self._votes and self._model is not None else ())

    def _answer(self, found: Findings) -> Answer:
        outcome = outcome_of(self._labelled, found)
        right = outcome.right()
        return Answer(
            right=right,
            sure=right and outcome.verdict == "diagnosed" and outcome.confidence >= ACCUSES,
            culprit=right and outcome.culprit_right() is True,
            line=right and outcome.line_right() is True,
        )

    def _without(self, gone: Pieces) -> Findings:
        """Return what is found without some pieces."""
        ids = {kind: {piece.id for piece in gone if piece.kind == kind} for kind in {piece.kind for piece in gone}}
        few = not ids.keys() - {"rows", "methods"}
        rules = _without_rows(self._holding if few else self._rules, ids.get("rows", ()))
        whole = self._whole
        if "signatures" in ids:
            whole = case_of(_without_signatures(self._observations, ids["signatures"]), rules)
        with _without_methods(ids.get("methods", ())):
            return self._judge(whole.without(ids.get("facts", ()), rules))

    def worse(self, gone: Pieces) -> bool:
        """Tell whether a right answer is worse without some pieces."""
        return self._before.right and self._answer(self._without(gone)).worse_than(self._before)

    def _needs_alone(self, piece: Piece) -> bool:
        now = self._without(frozenset({piece}))
        return self._answer(now).worse_than(self._before) or (piece.kind == "facts" and self._tells_otherwise(now))

    def _tells_otherwise(self, now: Findings) -> bool:
        """Tell whether an answer has other words; for evidence that does not hold any more, the answer itself counts."""
        words = _words(now)
        return any(words.get(name, told) != told for name, told in self._words.items())

    def needed(self) -> Pieces:
        """Return the rows, facts and methods that the answer needs."""
        if not self._before.right:
            return NOTHING
        alone = {piece for piece in self.held if self._needs_alone(piece)}
        others = {*self.held} - alone
        # Where a method or a fact is gone, another one may step in that was never asked before.
        while ways := frozenset(piece for piece in others if piece.kind != "rows"):
            further = _held(self._without(ways)) - others - alone
            if not further:
                break
            others |= further
        return frozenset(alone) | self._least(others)

    def needed_signatures(self) -> Pieces:
        """Return the signatures that the answer needs. They are given up together alone: there are many."""
        return self._least(self.seen)

    def _least(self, pieces: Iterable[Piece]) -> Pieces:
        return frozenset(least(sorted(pieces, key=self._value), self.worse))

    def _value(self, piece: Piece) -> tuple[int, float, str]:
        """Return the sort key of a piece: what is given up first comes first."""
        signature = self._rules.signatures.get(piece.id)
        worth = self._weights.get(piece.id, 0.0) if signature is None else ROLES.index(signature.role)
        return GIVEN_UP.index(piece.kind), worth, piece.id


def least(pieces: Sequence[Piece], worse: Callable[[Pieces], bool], gone: Pieces = NOTHING) -> list[Piece]:
    """Return those pieces that have to stay so that it gets no worse, giving up the first ones first; ``gone`` are already."""
    if not pieces or not worse(gone.union(pieces)):
        return []
    if len(pieces) == 1:
        return list(pieces)
    first, second = pieces[: len(pieces) // 2], pieces[len(pieces) // 2 :]
    kept = least(first, worse, gone)
    return kept + least(second, worse, gone.union(first).difference(kept))


def _held(found: Findings) -> Pieces:
    """Return the rows, facts and culprit methods that held where a case was judged."""
    case = found.case
    rows = {
        Piece("rows", row_id(weighed.cause.id, item.evidence))
        for weighed in gather(case)
        for item in weighed.contributions
        if item.evidence.id != SET_ASIDE_ID
    }
    named = {culprit.found_by(case, candidate.weighed)[0] for candidate in found.candidates[:1]}
    methods = {Piece("methods", name) for name in named if name in culprit.METHODS}
    return frozenset(rows | methods | {Piece("facts", name) for name in case.holding})


def _words(found: Findings) -> dict[str, object]:
    """Return the words of an answer that a fact may be needed for: what happened, why, what proves it, what to do."""
    words: dict[str, object] = {}
    for one in found.candidates[:1]:
        weighed, case = one.weighed, found.case
        events = [event for item in weighed.for_items for event in item.events]
        words["explanation"] = placeholders.fill_both(weighed.cause.explanation, case, events)
        words["finding"], words["fixes"] = finding(one, case), CauseAdvice(case, one).fixes()
        for item in weighed.contributions:
            words[f"/{item.evidence.id}"] = placeholders.fill_both(item.evidence.says, case, item.events)
    return words


def _rows_alone(rules: RuleSet, ids: Collection[str]) -> RuleSet:
    """Return the rules with those rows alone."""
    every = {row_id(cause.id, row) for cause in rules.causes.values() for row in (*cause.evidence, *cause.against)}
    return _without_rows(rules, every.difference(ids))


def _without_rows(rules: RuleSet, ids: Collection[str]) -> RuleSet:
    if not ids:
        return rules
    causes = dict(rules.causes)
    for name in {one.partition("/")[0] for one in ids}:
        cause = causes[name]

        def left(rows: Sequence[Evidence], name: str = name) -> tuple[Evidence, ...]:
            return tuple(row for row in rows if row_id(name, row) not in ids)

        causes[name] = cause._replace(evidence=left(cause.evidence), against=left(cause.against))
    return replace(rules, causes=causes)


def _without_signatures(observations: Observations, ids: Collection[str]) -> Observations:
    buckets = {name: found for name, found in observations.buckets.items() if name not in ids}
    counts = {name: number for name, number in observations.counts.items() if name not in ids}
    return replace(observations, buckets=buckets, counts=counts)


@contextmanager
def _without_methods(names: Collection[str]) -> Iterator[None]:
    """Let some methods find nobody for a while."""
    kept = {name: culprit.METHODS[name] for name in names}
    culprit.METHODS.update(dict.fromkeys(names, lambda case, weighed: []))
    try:
        yield
    finally:
        culprit.METHODS.update(kept)
