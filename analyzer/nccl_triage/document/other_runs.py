"""What other runs say of this one: the comparison with a good run, and earlier failures of its hosts."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from nccl_triage import messages
from nccl_triage.diagnosis.findings import Findings
from nccl_triage.engine.schema import RuleSet
from nccl_triage.history.signatures import GPU, HOST
from nccl_triage.numbers import whole
from nccl_triage.observations.event import Event

_COMPARED = "baseline.compared"
#: Subjects in the order in which they are listed; the divergence of the runs has a key of its own.
_SUBJECTS = ("variable", "version", "interface", "transport", "world", "topology", "algorithm", "pace", "message")
#: Maximum number of differences in a document.
MAX_DIFFERENCES = 60


def comparison(diagnosis: Findings) -> dict[str, Any] | None:
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


#: Maximum number of hosts and GPUs listed.
MOST = 4


def host_causes(rules: RuleSet) -> set[str]:
    """Return the causes that can be a host's fault: earlier failures are reported for these."""
    return {cause.id for cause in rules.causes.values() if cause.of_host}


def recurrence(diagnosis: Findings) -> list[dict[str, Any]]:
    """Return the hosts and GPUs that failed before: those of culprits first, then others that failed at least twice."""
    if diagnosis.verdict == "healthy":
        return []
    counted = host_causes(diagnosis.case.rules)
    grouped: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in diagnosis.case.story.remembered:
        if event.signature in (HOST, GPU) and event.fields.get("cause") in counted:
            grouped[event.signature, event.fields.get("gpu") or event.fields.get("host", "")].append(event)
    suspects = {c.host for candidate in diagnosis.candidates[:1] for c in candidate.culprits if c.host}
    entries = [_entry(name, events, suspects) for (_, name), events in grouped.items()]
    told = [entry for entry in entries if entry["culprit"] or entry["times"] > 1]
    told.sort(key=lambda entry: (not entry["culprit"], -entry["times"], entry["host"], entry["gpu"] or ""))
    return told[:MOST]


def _entry(name: str, events: list[Event], suspects: set[str]) -> dict[str, Any]:
    events = sorted(events, key=lambda e: (-(whole(e.fields["times"]) or 0), e.fields["cause"]))
    fields = events[0].fields
    causes = [{"cause": e.fields["cause"], "times": whole(e.fields["times"]) or 0} for e in events]
    incidents = sorted({int(number) for e in events for number in e.fields["incidents"].split()})
    listed = ", ".join(f"{one['cause']} {one['times']}" if len(causes) > 1 else str(one["cause"]) for one in causes)
    values: dict[str, object] = {
        "name": name, "times": len(incidents), "days": fields["days"], "causes": listed,
        "last": max(e.fields["last"] for e in events),
    }  # fmt: skip
    said = [_says(values, len(incidents), lang) for lang in ("en", "zh")]
    return {
        "host": fields["host"],
        "gpu": fields.get("gpu"),
        "culprit": fields["host"] in suspects,
        "times": len(incidents),
        "days": whole(fields["days"]),
        "first": min(e.fields["first"] for e in events),
        "last": values["last"],
        "causes": causes,
        "incidents": incidents,
        "says": said[0],
        "says_zh": said[1],
    }


def _says(values: dict[str, object], times: int, lang: str) -> str:
    if times == 1:
        return messages.fill("{name} failed once in the {days} days before: {causes}, {last}", values, lang)
    return messages.fill("{name} failed {times} times in the {days} days before: {causes}; last {last}", values, lang)
