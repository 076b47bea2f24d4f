"""The comparison with a good run, as the document tells it: read from the events of ``nccl_triage.baseline``."""

from __future__ import annotations

from typing import Any

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.model import Findings
from nccl_triage.observations.event import Event

_COMPARED = "baseline.compared"
#: Subjects in the order in which they are told; where the runs part is told by itself.
_SUBJECTS = ("variable", "version", "interface", "transport", "world", "topology", "algorithm", "pace", "message")
#: Differences in a document.
MAX_DIFFERENCES = 60
_NOTES = {
    "failed": (
        "The log given as a good run is itself that of a failure ({cause}): what it shares with this one is not told.",
        "作为正常运行给出的日志本身就是故障日志（{cause}）：两者相同之处不会列出。",
    ),
    "empty": (
        "Nothing is known in the log given as a good run: no comparison is possible.",
        "作为正常运行给出的日志中没有可识别的内容，无法比较。",
    ),
    "other": (
        "The log given as a good run shares no kind of line with this one: it seems to be of another program, and no "
        "comparison is possible.",
        "作为正常运行给出的日志与本日志没有任何同类的行，似乎来自另一个程序，无法比较。",
    ),
}


def notes(case: Case) -> list[dict[str, str]]:
    """Return what the reader must know of the good run."""
    found = case.of(_COMPARED)
    if not found or found[0].fields["state"] not in _NOTES:
        return []
    cause = found[0].fields.get("cause", "")
    english, chinese = _NOTES[found[0].fields["state"]]
    return [{"en": english.format(cause=cause), "zh": chinese.format(cause=cause)}]


def describe(diagnosis: Findings) -> dict[str, Any] | None:
    """Return the comparison, None without a good run; differences that speak for a cause come first."""
    case = diagnosis.case
    found = case.of(_COMPARED)
    if not found:
        return None
    fields = found[0].fields
    speaks = _causes(diagnosis)
    events = [event for subject in _SUBJECTS for event in case.of(f"baseline.{subject}")]
    leading = diagnosis.candidates[0].id if diagnosis.candidates else None
    events.sort(key=lambda event: leading not in speaks.get(id(event), ()))
    parted = case.of("baseline.divergence")
    return {
        "good": [{"path": value} for name, value in sorted(fields.items()) if name.startswith("good_")],
        "logs": int(fields["logs"]),
        "state": fields["state"],
        "verdict": fields["verdict"],
        "divergence": _difference(parted[0], speaks) if parted else None,
        "differences": [_difference(event, speaks) for event in events[:MAX_DIFFERENCES]],
        "total": len(events),
    }


def _causes(diagnosis: Findings) -> dict[int, list[str]]:
    """Return the causes for which each line speaks."""
    found: dict[int, list[str]] = {}
    for candidate in diagnosis.candidates:
        for item in candidate.weighed.for_items:
            for event in item.events:
                known = found.setdefault(id(event), [])
                if candidate.id not in known:
                    known.append(candidate.id)
    return found


def _difference(event: Event, speaks: dict[int, list[str]]) -> dict[str, Any]:
    fields = event.fields
    good = fields.get("good_path")
    return {
        "subject": event.signature.partition(".")[2],
        "name": fields["name"],
        "change": fields["change"],
        "good": fields.get("good"),
        "bad": fields.get("bad"),
        "ratio": event.number("ratio"),
        "when": fields.get("when"),
        "path": event.source,
        "line": event.line,
        "good_at": {"path": good, "line": int(fields["good_line"])} if good is not None else None,
        "causes": speaks.get(id(event), []),
    }
