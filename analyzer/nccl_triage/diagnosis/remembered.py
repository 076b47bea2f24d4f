"""What earlier diagnoses say of the hosts of this job: a sentence for each host and GPU that failed before."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from nccl_triage import messages
from nccl_triage.diagnosis.model import Findings
from nccl_triage.engine.schema import RuleSet
from nccl_triage.numbers import whole
from nccl_triage.observations.event import Event

#: Hosts and GPUs told of at most.
MOST = 4


def host_causes(rules: RuleSet) -> set[str]:
    """Return the causes that a host can be to blame for: those of which its earlier failures are told."""
    return {cause.id for cause in rules.causes.values() if cause.of_host}


def describe(diagnosis: Findings) -> list[dict[str, Any]]:
    """Return the hosts and GPUs that failed before: those of the culprits first, of the others those that failed twice."""
    if diagnosis.verdict == "healthy":
        return []
    counted = host_causes(diagnosis.case.rules)
    grouped: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in diagnosis.case.story.remembered:
        if event.fields.get("cause") in counted:
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
