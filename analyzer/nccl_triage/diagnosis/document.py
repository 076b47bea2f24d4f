"""The report document: the findings as plain data, the JSON contract that every renderer reads.

Texts for people come in pairs, ``X`` in English and ``X_zh`` in Chinese; ids, keys and log lines are never translated.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from nccl_triage._version import __version__
from nccl_triage.diagnosis import (
    blanks,
    comparison,
    foreign,
    incident,
    interruption,
    job,
    last_step,
    peers,
    programs,
    recorded,
    remembered,
    series,
    software,
    subnets,
    texts,
    told,
    witnesses,
)
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.conditions import Conditions
from nccl_triage.diagnosis.culprit import Culprit
from nccl_triage.diagnosis.model import Candidate, Findings
from nccl_triage.diagnosis.weigh import VOTE_ID, Contribution, Weighed
from nccl_triage.engine.schema import WEIGHTS, Fix, NextCheck
from nccl_triage.knowledge import collective_advice, remarks, stages
from nccl_triage.observations.event import Event
from nccl_triage.parsers import times
from nccl_triage.producers import produced_signatures

SCHEMA_VERSION = 1
#: Lines of evidence per item, per cause, and timeline entries kept.
PER_ITEM, PER_CAUSE, TIMELINE = 3, 14, 200
_TEXT = 1000


def _pair(name: str, text: dict[str, str]) -> dict[str, str]:
    return {name: text["en"], f"{name}_zh": text["zh"]}


def ordered_evidence(weighed: Weighed) -> list[tuple[Contribution, Event]]:
    """Return the lines that speak for a cause, the most telling first, each line once."""
    items = sorted(
        enumerate(weighed.for_items),
        key=lambda pair: (
            pair[1].evidence.id == VOTE_ID,
            -abs(pair[1].applied),
            -WEIGHTS[pair[1].evidence.weight],
            pair[0],
        ),
    )
    found: list[tuple[Contribution, Event]] = []
    seen: set[tuple[str, int]] = set()
    for depth in range(PER_ITEM):
        for _, item in items:
            if depth and item.evidence.id == VOTE_ID:
                continue  # one line is enough to show what the log as a whole resembles
            events = sorted(item.events, key=lambda e: e.role != "root") if depth == 0 else item.events
            fresh = [e for e in events if (e.source, e.line) not in seen]
            if fresh:
                seen.add((fresh[0].source, fresh[0].line))
                found.append((item, fresh[0]))
    return found[:PER_CAUSE]


def _evidence(case: Case, item: Contribution, event: Event) -> dict[str, Any]:
    says = texts.fill_both(item.evidence.says, case, item.events)
    return {
        **_location(event),
        "end_line": event.last_line,
        "time": _time(event),
        "rank": case.rank(event),
        "host": case.host(event),
        "signature": event.signature,
        "text": event.text[:_TEXT],
        **_pair("says", says),
        "weight": item.evidence.weight,
    }


def _location(event: Event) -> dict[str, Any]:
    return {"path": event.source, "line": event.line}


def _time(event: Event) -> str | None:
    return times.show(event.context.time) if event.context.time is not None else None


def _culprit(found: Culprit) -> dict[str, Any]:
    return {
        "rank": found.rank,
        "host": found.host,
        "address": found.address,
        "pid": found.pid,
        "gpu": found.gpu,
        **_pair("why", found.why),
    }


def _filled(command: str | None, known: dict[str, str]) -> str | None:
    return blanks.fill(command, known) if command else None


def _fix(case: Case, fix: Fix, known: dict[str, str]) -> dict[str, Any]:
    caution = texts.fill_both(fix.caution, case) if fix.caution else None
    return {
        **_pair("title", texts.fill_both(fix.title, case)),
        "commands": [blanks.fill(texts.fill_command(command, case), known) for command in fix.commands],
        "env": dict(fix.env),
        "caution": caution["en"] if caution else None,
        "caution_zh": caution["zh"] if caution else None,
        "applies_to": fix.applies_to,
        "references": list(fix.references),
    }


def _check(case: Case, check: NextCheck, known: dict[str, str]) -> dict[str, Any]:
    return {
        **_pair("what", texts.fill_both(check.what, case)),
        "command": _filled(check.command, known),
        **_pair("if_yes", texts.fill_both(check.if_yes, case)),
        **_pair("if_no", texts.fill_both(check.if_no, case)),
    }


def _candidate(case: Case, candidate: Candidate) -> dict[str, Any]:
    weighed, cause = candidate.weighed, candidate.weighed.cause
    conditions = Conditions(case)
    events = [event for item in weighed.for_items for event in item.events]
    fixes = [fix for fix in cause.fixes if fix.when is None or conditions.holds(fix.when)[0]]
    experiment = cause.experiment
    known = blanks.values(case, candidate.culprits)
    return {
        "cause": cause.id,
        "family": cause.family,
        **_pair("title", cause.title),
        "status": candidate.status,
        "confidence": round(candidate.confidence, 3),
        **_pair("explanation", texts.fill_both(cause.explanation, case, events)),
        "culprits": [_culprit(found) for found in candidate.culprits],
        "evidence": [_evidence(case, item, event) for item, event in ordered_evidence(weighed)],
        "against": [
            _evidence(case, item, event) for item in weighed.contributions if item.against for event in item.events[:1]
        ],
        "fixes": [_fix(case, fix, known) for fix in fixes],
        "next_check": _check(case, cause.next_check, known) if cause.next_check else None,
        "stages": [{**row, "command": _filled(row["command"], known)} for row in stages.rows(cause)],
        "experiment": {
            "kind": experiment.kind,
            "control": experiment.control,
            "treatment": {name: value for item in experiment.vary for name, value in item.env.items()},
            "vary": [dict(item.env) if item.env else {item.variable: item.value} for item in experiment.vary],
            "passing": experiment.passing,
            "confirmed_if": experiment.confirmed_if,
            "refuted_if": experiment.refuted_if,
            "needs": experiment.needs,
            "why_not": experiment.why_not["en"] if experiment.why_not else None,
            "why_not_zh": experiment.why_not["zh"] if experiment.why_not else None,
        },
        "verification": None,
        "score": round(weighed.score, 3),
        "contributions": [_contribution(case, item) for item in weighed.contributions],
    }


def _contribution(case: Case, item: Contribution) -> dict[str, Any]:
    sign = -1 if item.against else 1
    return {
        "id": item.evidence.id,
        "weight": item.evidence.weight,
        "log_odds": round(sign * item.evidence.log_odds, 3),
        "applied": round(item.applied, 3),
        **_pair("says", texts.fill_both(item.evidence.says, case, item.events)),
        "explained_by": item.explained_by,
        "events": [_location(event) for event in item.events[:PER_ITEM]],
    }


def _meaning(case: Case, signature: str) -> str:
    known = case.rules.signatures.get(signature) or produced_signatures().get(signature)
    return known.meaning if known is not None else ""


def _symptoms(case: Case) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for signature in case.observations.signatures():
        events = case.of(signature)
        if not events or not events[0].is_failure:
            continue
        found.append(
            {
                "signature": signature,
                "role": events[0].role,
                "meaning": _meaning(case, signature),
                "count": case.observations.count(signature),
                "ranks": case.ranks(events),
                "first": _location(events[0]),
                "last": _location(events[-1]),
            }
        )
    found.sort(key=lambda s: (s["role"] != "root", s["first"]["path"], s["first"]["line"]))
    return found


def _timeline(case: Case) -> list[dict[str, Any]]:
    """Return the salient events: every root and cascade signature's first per rank, and the last progress before.

    Of too many, the late failures go, and the progress of the ranks between the first and the last to go quiet.
    """
    chosen: dict[tuple[str, int | None], Event] = {}
    per_signature: Counter[str] = Counter()
    progress: dict[int | None, Event] = {}
    for event in case.events:
        rank = case.rank(event)
        if event.role == "progress":
            progress[rank] = event
        elif event.is_failure:
            key = (event.signature, rank)
            if key not in chosen and per_signature[event.signature] < 24:
                chosen[key] = event
                per_signature[event.signature] += 1
    quiet = sorted(progress.values(), key=case.position)
    room = TIMELINE - min(len(quiet), TIMELINE // 4)
    failures = sorted(chosen.values(), key=case.position)[:room]
    early = (TIMELINE - len(failures)) // 4
    late = max(early, len(quiet) - (TIMELINE - len(failures) - early))
    picked = sorted([*failures, *quiet[:early], *quiet[late:]], key=case.position)
    return [
        {
            "order": index,
            "time": _time(event),
            "rank": case.rank(event),
            "host": case.host(event),
            "signature": event.signature,
            "role": event.role,
            **_location(event),
            "text": event.text[:300],
            "meaning": _meaning(case, event.signature),
        }
        for index, event in enumerate(picked)
    ]


def _collective(case: Case) -> dict[str, Any] | None:
    records = case.value("collective.stuck")
    called = case.value("collective.called")
    dumped = recorded.stuck_call(case) or {}
    if not records and called is None and not dumped:
        return None
    first = records[0] if records else None
    found = {
        "op": case.value("collective.op") or called,
        "seq": case.value("collective.seq"),
        "numel_in": first.numel_in if first else None,
        "numel_out": first.numel_out if first else None,
        "dtype": None,
        "world_size": case.value("collective.group_size") or case.identity.world_size,
        "process_group": first.group if first else None,
        "timeout_ms": case.value("collective.timeout_ms"),
        "elapsed_ms": first.elapsed_ms if first else None,
    }
    found = {name: dumped.get(name) if value is None else value for name, value in found.items()}
    found["advice"] = collective_advice.advice(found, software.first_versions(case), programs.frameworks(case))
    return found


def _job(diagnosis: Findings) -> dict[str, Any]:
    case = diagnosis.case
    hosts: dict[str, dict[str, Any]] = {
        host: {"name": host, "addresses": sorted(case.identity.host_addresses.get(host, ())), "ranks": []}
        for host in case.identity.hosts
    }
    for rank, info in sorted(case.identity.ranks.items()):
        if info.host in hosts:
            hosts[info.host]["ranks"].append(rank)
    versions = software.first_versions(case)
    variables: dict[str, Any] = {}
    for name, values in sorted(software.environment(case).items()):
        variables[name] = values[0][0] if len(values) == 1 else [value for value, _ in values]
    return {
        "world_size": case.identity.world_size,
        "ranks": job.rank_states(diagnosis),
        "hosts": list(hosts.values()),
        "launcher": programs.launcher(case),
        "frameworks": programs.frameworks(case),
        "software": versions,
        "env": variables,
        "env_remarks": remarks.remarks(variables, versions),
    }


def build(diagnosis: Findings) -> dict[str, Any]:
    """Return the document of a diagnosis."""
    case = diagnosis.case
    recurrence = remembered.describe(diagnosis)
    compared = comparison.describe(diagnosis)
    partial = interruption.describe(case)
    others = foreign.describe(diagnosis)
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "nccl-triage", "version": __version__, "rules": case.rules.digest[:12]},
        "verdict": diagnosis.verdict,
        **_pair("headline", interruption.marked(case, job.headline(diagnosis))),
        **({"foreign_rules": others} if others else {}),
        "outcome": told.outcome(case),
        "runs": told.runs(case),
        **({"interrupted": partial} if partial else {}),
        "diagnoses": [_candidate(case, candidate) for candidate in diagnosis.candidates],
        "incident": incident.describe(diagnosis),
        "waits": incident.waits(case),
        "last_good_step": last_step.last_good_step(diagnosis),
        "collective": _collective(case),
        "network": subnets.describe(case),
        "peers": peers.describe(case),
        "series": series.describe(diagnosis),
        **({"baseline": compared} if compared is not None else {}),
        "job": _job(diagnosis),
        "symptoms": _symptoms(case),
        "not_seen": witnesses.not_seen(diagnosis),
        **({"recurrence": recurrence} if recurrence else {}),
        "timeline": _timeline(case),
        "excerpts": diagnosis.excerpts,
        "inputs": [
            {
                "path": path,
                "bytes": info.bytes,
                "lines": info.lines,
                "problems": list(info.problems),
                **({"interrupted": True} if info.stopped else {}),
            }
            for path, info in sorted(case.observations.sources.items())
        ],
        "notes": [note["en"] for note in diagnosis.notes],
        "notes_zh": [note["zh"] for note in diagnosis.notes],
        "timing": {"seconds": diagnosis.seconds} if diagnosis.seconds is not None else {},
    }
