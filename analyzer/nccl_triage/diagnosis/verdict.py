"""From weighed causes to a verdict: diagnosed, unknown or healthy."""

from __future__ import annotations

from typing import Any

from nccl_triage import messages, steps
from nccl_triage.classifier.features import extract
from nccl_triage.classifier.model import Model
from nccl_triage.classifier.vote import Ballot, cast
from nccl_triage.diagnosis import aside_notes, comparison, culprit, document, interruption, recorded, stack_notes
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.model import Candidate, Findings, Status, Verdict
from nccl_triage.diagnosis.weigh import VOTE_ID, Weighed, rank_causes
from nccl_triage.engine.schema import RuleSet
from nccl_triage.events import Observations
from nccl_triage.parsers.salient import SALIENT
from nccl_triage.redaction.secrets import mask_secrets

#: Candidates reported at most.
MAX_CANDIDATES = 5
#: A cause below this confidence is not worth naming as the verdict.
NAMED = 0.2
ESTABLISHED = 0.8
SUPPORTED = 0.55
#: Rivals within this share of the first keep it from being more than possible.
MARGIN = 0.15

#: Signatures that show no sign of life by themselves.
_NO_LIFE = (SALIENT, "baseline.")


class Diagnosis(Findings):
    """The findings with their report document."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report document: the JSON contract (schema in reports/schema), with every secret masked."""
        return mask_secrets(document.build(self))


def diagnose_observations(observations: Observations, rules: RuleSet, model: Model | None = None) -> Diagnosis:
    """Return the diagnosis of a job from everything observed; without a model the rules decide alone."""
    case = Case(observations.beside(steps.observe(observations)), rules)
    ballot = cast(model, extract(case), bool(case.failures)) if model is not None else Ballot()
    weighed, unknown = rank_causes(case, ballot.votes)
    shown = [w for w in weighed if w.confidence >= 0.02 and w.score > 0][:MAX_CANDIDATES]
    verdict = _verdict(case, shown, ballot)
    if verdict == "healthy" and interruption.partial(case):
        verdict = "unknown"
    candidates: list[Candidate] = []
    if verdict != "healthy":
        for index, item in enumerate(shown):
            rival = shown[index + 1].confidence if index + 1 < len(shown) else 0.0
            status = _status(item, rival if index == 0 else 1.0)
            if status == "established" and interruption.partial(case):
                status = "supported"  # what was not read may tell of something earlier
            candidates.append(Candidate(item, status, culprit.find(case, item)))
    notes = _notes(case, verdict)
    return Diagnosis(verdict=verdict, candidates=candidates, unknown_confidence=unknown, case=case, notes=notes)


def _verdict(case: Case, shown: list[Weighed], ballot: Ballot) -> Verdict:
    best = shown[0] if shown else None
    bad = case.failures
    resumed = bool(case.value("progress.resumed"))
    strong = best is not None and best.confidence >= 0.5
    # A job may run to its end and have learnt nothing since the loss was lost.
    well = (not bad and case.value("progress.finished")) or case.value("progress.ended_well")
    if well and not case.of("steps.loss_lost"):
        return "healthy"
    if not bad and not strong:
        # Nothing went wrong; some sign of life is needed before a log is called healthy.
        hangs = any(
            case.value(f)
            for f in (
                "stacks.dumped",
                "exception.without_end",
                "progress.ends_waiting",
                "progress.ends_warned",
                "progress.ends_in_error",
                "progress.ends_in_init",
            )
        )
        life = any(not event.signature.startswith(_NO_LIFE) for event in case.events)
        trouble = ballot.looks_healthy is False and bool(case.of(SALIENT))
        suspected = best is not None and best.confidence >= NAMED and not _overtaken(case, best)
        if life and not trouble and not hangs and not suspected:
            return "healthy"
    elif resumed and not _fatal(case, best):
        return "healthy"
    if best is not None and best.confidence >= NAMED:
        return "diagnosed"
    return "unknown"


def _overtaken(case: Case, best: Weighed) -> bool:
    """Tell whether the job advanced after every line that speaks for a cause, none of which is a failure."""
    lines = [event for item in best.rule_items for event in item.events]
    last = max((case.position(e) for e in case.events if e.role == "progress"), default=-1)
    return bool(lines) and case.order_known and all(case.position(event) < last for event in lines)


def _fatal(case: Case, best: Weighed | None) -> bool:
    """Tell whether a process is reported dead, or decisive evidence stands, although the job seemed to go on."""
    if case.value("process.exits"):
        return True
    return best is not None and _decisive(best)


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


def _notes(case: Case, verdict: Verdict) -> list[dict[str, str]]:
    notes = interruption.notes(case)
    notes += [{"en": note, "zh": messages.retold(note)} for note in case.observations.notes]
    notes += aside_notes.notes(case.aside)
    notes += recorded.notes(case)
    notes += comparison.notes(case)
    notes += stack_notes.notes(case)
    if verdict == "healthy" and not case.value("progress.finished"):
        # A job that hangs before any time-out prints nothing: its log looks like that of a job that runs.
        notes.append(
            {
                "en": "The log does not say that the job finished. If it hangs now, its log cannot show why: take "
                "py-spy dump --pid PID of every rank, and look for the one that stands elsewhere.",
                "zh": "日志没有表明作业已结束。若作业此刻卡住，仅凭日志看不出原因：请对每个 rank 执行 py-spy dump --pid PID，找出停在别处的那个。",
            }
        )
    if case.value("job.filtered"):
        notes.append(
            {
                "en": "The input looks filtered by grep: Python tracebacks, exit codes and kernel messages are missing, "
                "so causes outside NCCL cannot be seen. Give the unfiltered log.",
                "zh": "输入看起来经过 grep 过滤：缺少 Python 异常、退出码和内核消息，无法看到 NCCL 之外的原因。请提供未过滤的日志。",
            }
        )
    cut = [path for path, info in case.observations.sources.items() if info.tail_cut]
    if cut and case.failures:
        notes.append(
            {
                "en": f"The last line of {cut[0]} has no end: the writer may have died there.",
                "zh": f"{cut[0]} 的最后一行不完整：写入进程可能就在那里终止。",
            }
        )
    return notes
