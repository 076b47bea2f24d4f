"""Decide the verdict (diagnosed, unknown or healthy) and the status of each candidate cause."""

from __future__ import annotations

from collections.abc import Sequence

from nccl_triage import steps
from nccl_triage.classifier.features import extract
from nccl_triage.classifier.model import Model
from nccl_triage.classifier.vote import Vote, cast
from nccl_triage.diagnosis import culprit
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.facts import software
from nccl_triage.diagnosis.findings import Candidate, Findings, Status, Verdict
from nccl_triage.diagnosis.weigh import VOTE_ID, Weighed, rank_causes
from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.store import Observations
from nccl_triage.story.line_origins import correct_origins

#: Maximum number of candidates in the findings.
MAX_CANDIDATES = 5
#: Least confidence of a cause that becomes the verdict.
NAMED = 0.5
ESTABLISHED = 0.8
SUPPORTED = 0.55
#: Least lead over the next candidate for a status above *possible*.
MARGIN = 0.15
#: Kinds of events by which a job tells its settings. They alone do not show that anything went wrong.
CHOICES = ("interface.chosen", "transport.chosen", "setup", "variable", "setting")


def decide(observations: Observations, rules: RuleSet, model: Model | None = None) -> Findings:
    """Return the findings on a job from everything observed; without a model the rules decide alone."""
    case = case_of(observations, rules)
    return judge(case, votes_on(case, model) if model is not None else (), model.origin if model is not None else "")


def case_of(observations: Observations, rules: RuleSet) -> Case:
    """Return the case that everything observed makes."""
    observations = correct_origins(observations)
    return Case(observations.beside(steps.observe(observations)), rules)


def votes_on(case: Case, model: Model) -> Sequence[Vote]:
    """Return the votes of a classifier on a case; none when it abstains."""
    return cast(model, extract(case, software.programs(case)), case.story.outcome.is_bad).votes


def judge(case: Case, votes: Sequence[Vote] = (), model: str = "") -> Findings:
    """Return the findings on a case by its rules and the votes of a classifier, whose file is told if it is not shipped."""
    weighed, unknown = rank_causes(case, votes)
    partial = case.observations.interruption is not None
    shown = [w for w in weighed if w.confidence >= 0.02 and w.score > 0][:MAX_CANDIDATES]
    verdict = _verdict(case, shown)
    if verdict == "healthy" and partial:
        verdict = "unknown"
    candidates: list[Candidate] = []
    if verdict != "healthy":
        for index, item in enumerate(shown):
            rival = shown[index + 1].confidence if index + 1 < len(shown) else 0.0
            status = _status(item, rival if index == 0 else 1.0)
            if status == "established" and partial:
                status = "supported"  # the part that was not read may show an earlier cause
            candidates.append(Candidate(item, status, culprit.find(case, item)))
    return Findings(
        verdict=verdict,
        candidates=candidates,
        unknown_confidence=unknown,
        case=case,
        model=model,
    )


def _verdict(case: Case, shown: list[Weighed]) -> Verdict:
    """Return the verdict by how the job ended and by the confidence of the first candidate."""
    outcome = case.story.outcome
    if outcome.is_well:
        return "healthy"
    best = shown[0] if shown else None
    if best is None or best.confidence < NAMED or not (outcome.is_bad or _strong(best)):
        return "unknown"
    return "diagnosed"


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


def _status(item: Weighed, rival: float) -> Status:
    votes = sum(c.applied for c in item.for_items if c.evidence.id == VOTE_ID)
    if 2 * votes > sum(c.applied for c in item.for_items):
        return "possible"  # similarity to known incidents alone proves nothing
    return status_of(item.confidence, rival, _decisive(item))


def status_of(confidence: float, rival: float, decisive: bool) -> Status:
    """Return the status of a cause by its confidence, that of its rival, and whether it has decisive evidence."""
    if decisive and confidence >= ESTABLISHED:
        return "established"
    if confidence >= SUPPORTED and confidence - rival >= MARGIN:
        return "supported"
    return "possible"
