"""From weighed causes to a verdict: diagnosed, unknown or healthy."""

from __future__ import annotations

from nccl_triage import steps
from nccl_triage.classifier.features import extract
from nccl_triage.classifier.model import Model
from nccl_triage.classifier.vote import Ballot, cast
from nccl_triage.diagnosis import culprit, software
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.model import Candidate, Findings, Status, Verdict
from nccl_triage.diagnosis.weigh import VOTE_ID, Weighed, rank_causes
from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.store import Observations
from nccl_triage.story.line_origins import correct_origins

#: Candidates reported at most.
MAX_CANDIDATES = 5
#: A cause below this confidence is not worth naming as the verdict.
NAMED = 0.5
ESTABLISHED = 0.8
SUPPORTED = 0.55
#: Rivals within this share of the first keep it from being more than possible.
MARGIN = 0.15
#: Kinds of lines by which a job says what it was set to use. That it ends badly by that is for a later line to show.
CHOICES = ("interface.chosen", "transport.chosen", "setup", "variable", "setting")


def decide(observations: Observations, rules: RuleSet, model: Model | None = None) -> Findings:
    """Return the findings on a job from everything observed; without a model the rules decide alone."""
    observations = correct_origins(observations)
    case = Case(observations.beside(steps.observe(observations)), rules)
    if model is not None:
        ballot = cast(model, extract(case, software.programs(case)), case.story.outcome.is_bad)
    else:
        ballot = Ballot()
    weighed, unknown = rank_causes(case, ballot.votes)
    shown = [w for w in weighed if w.confidence >= 0.02 and w.score > 0][:MAX_CANDIDATES]
    verdict = _verdict(case, shown)
    partial = observations.interruption is not None
    if verdict == "healthy" and partial:
        verdict = "unknown"
    candidates: list[Candidate] = []
    if verdict != "healthy":
        for index, item in enumerate(shown):
            rival = shown[index + 1].confidence if index + 1 < len(shown) else 0.0
            status = _status(item, rival if index == 0 else 1.0)
            if status == "established" and partial:
                status = "supported"  # what was not read may tell of something earlier
            candidates.append(Candidate(item, status, culprit.find(case, item)))
    return Findings(
        verdict=verdict,
        candidates=candidates,
        unknown_confidence=unknown,
        case=case,
        model=model.origin if model is not None else "",
    )


def _verdict(case: Case, shown: list[Weighed]) -> Verdict:
    """Return healthy where the story ends well; else a cause from even odds on."""
    outcome = case.story.outcome
    if outcome.is_well:
        return "healthy"
    best = shown[0] if shown else None
    if best is None or best.confidence < NAMED or not (outcome.is_bad or _strong(best)):
        return "unknown"
    return "diagnosed"


def _strong(item: Weighed) -> bool:
    """Tell whether a strong row rests on more than what any job chooses: of a run without a bad end nothing less counts."""
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
        return "possible"  # resemblance alone establishes nothing
    return status_of(item.confidence, rival, _decisive(item))


def status_of(confidence: float, rival: float, decisive: bool) -> Status:
    """Return how sure a cause is: its confidence, that of the next one, and whether decisive evidence stands."""
    if decisive and confidence >= ESTABLISHED:
        return "established"
    if confidence >= SUPPORTED and confidence - rival >= MARGIN:
        return "supported"
    return "possible"
