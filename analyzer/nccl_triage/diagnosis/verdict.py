"""Decide the verdict (diagnosed, unknown or healthy) and the status of each candidate cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nccl_triage import steps
from nccl_triage.classifier.features import LINES, extract
from nccl_triage.classifier.model import Model
from nccl_triage.classifier.vote import Vote, cast
from nccl_triage.diagnosis import culprit
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.findings import Candidate, Findings, Status
from nccl_triage.diagnosis.weigh import VOTE_ID, Weighed, rank_causes
from nccl_triage.engine.schema import RuleSet
from nccl_triage.learned.form import Form
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.story.decisions import ITSELF, Decision, Grounds, Table
from nccl_triage.story.line_origins import correct_origins

#: Maximum number of candidates in the findings.
MAX_CANDIDATES = 5
#: Kinds of events by which a job tells its settings. They alone do not show that anything went wrong.
CHOICES = ("interface.chosen", "transport.chosen", "setup", "variable", "setting")


@dataclass(frozen=True)
class _Weighed:
    """A job whose causes are weighed, and of which the verdict is asked."""

    case: Case
    best: Weighed | None
    #: Whether the reading was ended early.
    is_partial: bool


@dataclass(frozen=True)
class _Ranked:
    """A candidate cause of which is asked how sure it is; ``rival`` is the confidence of the next one."""

    confidence: float
    rival: float
    is_decisive: bool
    rests_on_vote: bool = False
    is_partial: bool = False


VERDICT: Table[_Weighed] = Table("verdict")
STATUS: Table[_Ranked] = Table("status")


def least_confidence() -> float:
    """Return the least confidence of a cause that becomes the verdict."""
    return VERDICT.limits["named"]


@VERDICT.condition("read-in-part")
def _read_in_part(asked: _Weighed) -> Grounds | None:
    return ITSELF if asked.is_partial and asked.case.story.outcome.is_well else None


@VERDICT.condition("run-is-well")
def _run_is_well(asked: _Weighed) -> Grounds | None:
    outcome = asked.case.story.outcome
    return (ITSELF if outcome.event is None else Grounds((outcome.event,))) if outcome.is_well else None


@VERDICT.condition("no-cause")
def _no_cause(asked: _Weighed) -> Grounds | None:
    return ITSELF if asked.best is None else None


@VERDICT.condition("below-even-odds")
def _below_even_odds(asked: _Weighed) -> Grounds | None:
    best = asked.best
    if best is None or best.confidence >= VERDICT.limits["named"]:
        return None
    return Grounds((), {"cause": best.cause.id, "confidence": round(best.confidence, 3)})


@VERDICT.condition("settings-alone")
def _settings_alone(asked: _Weighed) -> Grounds | None:
    best = asked.best
    if best is None or asked.case.story.outcome.is_bad or _strong(best):
        return None
    return Grounds((), {"cause": best.cause.id})


@VERDICT.condition("cause-named")
def _cause_named(asked: _Weighed) -> Grounds | None:
    best = asked.best
    return None if best is None else Grounds((), {"cause": best.cause.id, "confidence": round(best.confidence, 3)})


@STATUS.condition("similarity-alone")
def _similarity_alone(asked: _Ranked) -> Grounds | None:
    return ITSELF if asked.rests_on_vote else None


@STATUS.condition("read-in-part")
def _decisive_but_read_in_part(asked: _Ranked) -> Grounds | None:
    # The part that was not read may show an earlier cause.
    return _sure(asked) if asked.is_partial else None


@STATUS.condition("decisive")
def _decisive_and_sure(asked: _Ranked) -> Grounds | None:
    return _sure(asked)


def _sure(asked: _Ranked) -> Grounds | None:
    sure = asked.is_decisive and asked.confidence >= STATUS.limits["established"]
    return Grounds((), {"confidence": round(asked.confidence, 3)}) if sure else None


@STATUS.condition("leads")
def _leads(asked: _Ranked) -> Grounds | None:
    lead, limits = asked.confidence - asked.rival, STATUS.limits
    if asked.confidence < limits["supported"] or lead < limits["margin"]:
        return None
    return Grounds((), {"confidence": round(asked.confidence, 3), "lead": round(lead, 3)})


@STATUS.condition("close")
def _close(asked: _Ranked) -> Grounds | None:
    return Grounds((), {"confidence": round(asked.confidence, 3), "lead": round(asked.confidence - asked.rival, 3)})


def decide(observations: Observations, rules: RuleSet, model: Model | None = None) -> Findings:
    """Return the findings on a job from everything observed; without a model the rules decide alone."""
    case = case_of(observations, rules, model.form if model is not None else None)
    return judge(case, votes_on(case, model) if model is not None else (), model.origin if model is not None else "")


def case_of(observations: Observations, rules: RuleSet, form: Form | None = None) -> Case:
    """Return the case that everything observed makes; without models of ``form`` the rules tell the story alone."""
    observations = correct_origins(observations)
    return Case(observations.beside(steps.observe(observations)), rules, form)


def votes_on(case: Case, model: Model) -> Sequence[Vote]:
    """Return the votes of a classifier on a case; none when it abstains."""
    # Where nothing failed no vote is cast, and no line need be ranked.
    return cast(model, extract(told_lines(case)), True).votes if case.story.outcome.is_bad else ()


def told_lines(case: Case) -> Sequence[Event]:
    """Return the lines of a case that the classifier reads."""
    return case.told_lines(LINES)


def judge(case: Case, votes: Sequence[Vote] = (), model: str = "") -> Findings:
    """Return the findings on a case by its rules and the votes of a classifier, whose file is told if it is not shipped."""
    weighed, unknown = rank_causes(case, votes)
    partial = case.observations.interruption is not None
    shown = [w for w in weighed if w.confidence >= 0.02 and w.score > 0][:MAX_CANDIDATES]
    decision = VERDICT.settle(_Weighed(case, shown[0] if shown else None, partial))
    candidates: list[Candidate] = []
    if decision.answer != "healthy":
        for index, item in enumerate(shown):
            rival = shown[index + 1].confidence if index + 1 < len(shown) else 0.0
            why = _status(item, rival if index == 0 else 1.0, partial)
            method, culprits = culprit.found_by(case, item)
            candidates.append(Candidate(item, why, culprits, method))
    return Findings(
        decision=decision,
        candidates=candidates,
        unknown_confidence=unknown,
        case=case,
        model=model,
    )


def _strong(item: Weighed) -> bool:
    """Tell whether strong evidence rests on more than settings, as a run without a bad end needs."""
    return any(
        c.evidence.weight in ("decisive", "strong")
        and c.explained_by is None
        and any(event.kind not in CHOICES for event in c.events)
        for c in item.rule_items
    )


def _decisive(item: Weighed) -> bool:
    return any(c.evidence.weight == "decisive" and c.explained_by is None for c in item.for_items)


def _status(item: Weighed, rival: float, partial: bool) -> Decision:
    votes = sum(c.applied for c in item.for_items if c.evidence.id == VOTE_ID)
    # Similarity to known incidents alone proves nothing.
    resembles = 2 * votes > sum(c.applied for c in item.for_items)
    return STATUS.settle(_Ranked(item.confidence, rival, _decisive(item), resembles, partial))


def status_of(confidence: float, rival: float, decisive: bool) -> Status:
    """Return the status of a cause by its confidence, that of its rival, and whether it has decisive evidence."""
    status: Status = STATUS.settle(_Ranked(confidence, rival, decisive)).answer  # type: ignore[assignment]
    return status
