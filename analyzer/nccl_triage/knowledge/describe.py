"""Knowledge as plain data for the pages of ``explain``: one thing each, or a table of numbers, symptoms or families.

Texts come in pairs, ``X`` in English and ``X_zh`` in Chinese.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from nccl_triage.engine.match import stands_for
from nccl_triage.engine.schema import (
    Cause,
    Evidence,
    Fix,
    PlatformCommand,
    RuleSet,
    Signature,
    in_catalogue,
    with_named_placeholders,
)
from nccl_triage.knowledge import catalogue, lookup
from nccl_triage.knowledge.entries import Advice, Code, CodeTable, Data, Problem, Symptom, Text, Variable, pair
from nccl_triage.knowledge.judge import describe_values, judge_variable, program_of
from nccl_triage.knowledge.known_issues import KnownIssue
from nccl_triage.knowledge.lookup import KnowledgeItem
from nccl_triage.knowledge.report_advice import staged_steps
from nccl_triage.knowledge.variables import shipped
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.kinds import KINDS
from nccl_triage.parsers.wrappers import PrefixReader


def titles(ids: Iterable[str], rules: RuleSet) -> list[Data]:
    """Return causes as id and title; ids that do not exist are left out."""
    return [{"id": name, **pair("title", rules.causes[name].title)} for name in ids if name in rules.causes]


#: What stands before a message and tells nothing of it: glog's, NCCL's and torchelastic's headers.
_HEADER = lazily(
    r"^(?:\[?[EWIF]\d{4} [^\]]+\]\s*(?:\[(?:PG [^\]]*|Rank \d+)\]\s*)?|\S+:\d+:\d+ \[\d+\] (?:\S+\.(?:h|cc):\d+ )?)"
)


def _code_row(item: Code) -> Data:
    action = catalogue.tables()[item.table].actions.get(item.action or "")
    return {
        "number": item.number,
        "name": item.name,
        "text": item.text,
        "tells": item.tells,
        **pair("meaning", item.meaning),
        "causes": list(item.causes),
        "since": item.since,
        "until": item.until,
        "severity": item.severity,
        "role": item.role,
        **pair("action", action),
    }


def code(item: Code, rules: RuleSet) -> Data:
    """Return one number of a table."""
    table = catalogue.tables()[item.table]
    return {
        "kind": "code",
        "id": f"{item.table}:{item.number}",
        **_code_row(item),
        "causes": titles(item.causes, rules),
        **pair("table", table.title),
        **pair("about", table.about),
        "references": list(table.references),
        "as_of": table.as_of,
        "where": item.where,
    }


def table(item: CodeTable) -> Data:
    """Return a whole table of numbers."""
    return {
        "kind": "table",
        "id": item.id,
        **pair("title", item.title),
        **pair("about", item.about),
        "codes": [_code_row(row) for row in sorted(item.codes, key=lambda row: (row.number < 0, abs(row.number)))],
        "references": list(item.references),
        "as_of": item.as_of,
        "where": item.where,
    }


def symptom(item: Symptom, rules: RuleSet) -> Data:
    """Return one row of the symptom table."""
    return {
        "kind": "symptom",
        "id": item.id,
        "sees": item.sees,
        "message": _HEADER.sub("", PrefixReader(rules.prefixes).peel(item.sees).text.strip()),
        "signatures": list(item.signatures),
        "tells": item.tells,
        "urgency": item.urgency,
        **pair("means", item.means),
        **pair("look", item.look),
        "causes": titles(item.causes, rules),
        "where": item.where,
    }


def family(name: str, rules: RuleSet) -> Data:
    """Return the causes of a family."""
    members = [item.id for item in rules.causes.values() if item.family == name]
    return {"kind": "family", "id": name, "causes": titles(sorted(members), rules)}


def owner(milliseconds: int, rules: RuleSet) -> Data:
    """Return who may have set a timeout."""
    from nccl_triage.knowledge import amounts, timeouts

    rows = timeouts.owners(milliseconds, {})
    return {
        "kind": "owner",
        "id": str(milliseconds),
        **pair("shown", amounts.duration(milliseconds / 1000)),
        "rows": [
            {
                "program": row.program,
                **pair("who", row.who),
                "change": timeouts.written(catalogue.knobs()[row.knob], None) if row.knob is not None else None,
            }
            for row in rows
        ],
    }


def topic(name: str, rules: RuleSet) -> Data:
    """Return a page that is no entry of a file."""
    if name == "symptoms":
        return {"kind": "symptoms", "rows": [symptom(item, rules) for item in catalogue.symptoms().values()]}
    if name == "codes":
        return {"kind": "tables", "rows": [{"id": t.id, **pair("title", t.title)} for t in catalogue.tables().values()]}
    from nccl_triage.knowledge import timeout_plan

    return timeout_plan.plan()


def problem(item: Problem, rules: RuleSet) -> Data:
    """Return what people notice, what to do first, and the entries to go on with."""
    leads = [found for name in item.leads if (found := lookup.exact(name, rules)) is not None]
    return {
        "kind": "problem",
        "id": item.id,
        **pair("title", item.title),
        **pair("first", item.first),
        "commands": list(item.commands),
        "leads": lookup.rows(leads),
    }


def _plain(name: str, text: Text) -> Data:
    """Return a text of a rule with its placeholders shown as names."""
    return pair(name, {language: in_catalogue(value).strip() for language, value in text.items()})


def _evidence(item: Evidence) -> Data:
    return {"id": item.id, "weight": item.weight, **_plain("says", item.says), "signatures": list(item.signatures)}


def _fix(fix: Fix) -> Data:
    caution = {language: in_catalogue(text) for language, text in fix.caution.items()} if fix.caution else None
    return {
        **_plain("title", fix.title),
        "commands": [with_named_placeholders(text) for command in fix.commands for text in command.listed()],
        "env": dict(fix.env),
        **pair("caution", caution),
        "applies_to": fix.applies_to,
        "references": list(fix.references),
    }


def _listed(command: PlatformCommand | None) -> str | None:
    return "\n".join(command.listed()) if command is not None else None


def _check(cause: Cause, rules: RuleSet) -> Data | None:
    check = cause.general_check
    if check is None:
        return None
    return {
        **_plain("what", check.what),
        "command": _listed(check.command),
        **_plain("if_yes", check.if_yes),
        **_plain("if_no", check.if_no),
        "rivals": titles(check.rivals, rules),
    }


def cause(item: Cause, rules: RuleSet) -> Data:
    """Return what is known of a cause."""
    experiment = item.experiment
    symptoms = [s.id for s in catalogue.symptoms().values() if item.id in s.causes]
    return {
        "kind": "cause",
        "id": item.id,
        "family": item.family,
        **pair("title", item.title),
        **_plain("explanation", item.explanation),
        "symptoms": symptoms,
        "evidence": [_evidence(one) for one in item.evidence],
        "against": [_evidence(one) for one in item.against],
        "stages": [{**row, "command": _listed(row["command"])} for row in staged_steps(item)],
        "fixes": [_fix(fix) for fix in item.fixes],
        "next_check": _check(item, rules),
        "experiment": {
            "kind": experiment.kind,
            **pair("control", experiment.control),
            **pair("confirmed_if", experiment.confirmed_if),
            **pair("refuted_if", experiment.refuted_if),
            **pair("needs", experiment.needs),
            **pair("why_not", experiment.why_not),
        },
        "advice": [_judged(a) for a in catalogue.advice().values() if item.id in a.causes],
        "references": sorted({reference for fix in item.fixes for reference in fix.references}),
        "where": item.where,
    }


def _judged(item: Advice) -> Data:
    return {"id": item.id, "verdict": item.verdict, **pair("claim", item.claim)}


def _speaks(signature: Signature, items: Iterable[Evidence]) -> str | None:
    """Return the weight of the weightiest item that speaks of a signature."""
    weights = [
        item.weight for item in items if any(stands_for(p, signature.id, signature.kind) for p in item.signatures)
    ]
    order = ("decisive", "strong", "moderate", "weak")
    return min(weights, key=order.index) if weights else None


def signature(item: Signature, rules: RuleSet) -> Data:
    """Return what is known of a signature; its meaning exists in English alone."""
    sides: dict[str, list[Data]] = {"evidence_for": [], "evidence_against": []}
    for known in rules.causes.values():
        for key, items in (("evidence_for", known.evidence), ("evidence_against", known.against)):
            weight = _speaks(item, items)
            if weight is not None:
                sides[key].append({"id": known.id, **pair("title", known.title), "weight": weight})
    explained = [
        name for name, known in rules.causes.items() if any(stands_for(p, item.id, item.kind) for p in known.explains)
    ]
    return {
        "kind": "signature",
        "id": item.id,
        "program": item.program,
        "event_kind": item.kind,
        "event_kind_meaning": KINDS[item.kind],
        "role": item.role,
        "level": item.level,
        "meaning": item.meaning.strip(),
        "source": item.source,
        "since": item.since,
        "until": item.until,
        "samples": list(item.match_samples),
        "not_samples": list(item.not_samples),
        "premise": item.premise.source if item.premise else None,
        **sides,
        "brought_about_by": explained,
        "symptoms": [s.id for s in catalogue.symptoms().values() if item.id in s.signatures],
        "where": item.where,
    }


def variable(item: Variable, rules: RuleSet, value: str | None = None) -> Data:
    """Return what is known of a variable, with the remarks on a value where one is given."""
    return {
        "kind": "variable",
        "id": item.id,
        "sort": item.kind,
        "program": program_of(item),
        "status": item.status,
        "aliases": list(item.aliases),
        **pair("meaning", item.meaning),
        **pair("values", describe_values(item.grammar)),
        "default": [{"since": since or None, "value": text} for since, text in item.default],
        "since": item.since,
        "until": item.until,
        "replaced_by": item.replaced_by,
        **pair("touch", item.touch),
        **pair("caution", item.caution),
        "traps": [{"level": trap.level, **pair("says", trap.says)} for trap in item.traps],
        **pair("verification", item.verification),
        **pair("undo", item.undo),
        "causes": titles(item.causes, rules),
        "advice": [_judged(a) for a in catalogue.advice().values() if item.id in a.variables],
        "references": list(item.references),
        "source": item.source,
        "where": item.where,
        "value": value,
        "remarks": remarks(item.id, value),
    }


def remarks(name: str, value: str | None) -> list[Data]:
    """Return the remarks on a value, without versions: what holds everywhere."""
    if value is None:
        return []
    return [{"level": r.level, "kind": r.kind, **pair("says", r.says)} for r in judge_variable(name, value, {})]


def unknown_name(name: str, value: str | None) -> Data:
    """Return what is known of a name that has no entry: whether its program reads it at all."""
    space = shipped().namespace(name)
    known = space is not None and name in space.names
    near = difflib.get_close_matches(name, [other for other in shipped() if other[:4] == name[:4]], 3, 0.75)
    return {
        "kind": "name",
        "id": name,
        "program": space.title if space is not None else None,
        "read": known,
        "complete": space is not None and space.complete,
        "near": [] if known else near,
        "value": value,
        "remarks": remarks(name, value or "1"),
    }


def advice(item: Advice, rules: RuleSet) -> Data:
    """Return a judged claim."""
    return {
        "kind": "advice",
        "id": item.id,
        "verdict": item.verdict,
        **pair("claim", item.claim),
        **pair("why", item.why),
        **pair("instead", item.instead),
        "applies_to": item.applies_to,
        "variables": list(item.variables),
        "causes": titles(item.causes, rules),
        "references": list(item.sources),
        "where": item.where,
    }


def known_issue(item: KnownIssue, rules: RuleSet) -> Data:
    """Return a known issue of a program."""
    return {
        "kind": "known_issue",
        "id": item.id,
        "program": item.name,
        **pair("title", item.title),
        **pair("says", item.says),
        "affects": [" ".join(bound) for bound in item.affects],
        "mended_in": item.mended_in,
        "how_known": item.how_known,
        "samples": list(item.match_samples),
        "causes": titles(item.causes, rules),
        "references": [item.url],
        "where": item.where,
    }


def found(item: KnowledgeItem, rules: RuleSet) -> Data:
    """Return what is known of something that was looked up."""
    simple: Mapping[str, Any] = {
        "cause": cause,
        "signature": signature,
        "advice": advice,
        "code": code,
        "symptom": symptom,
        "problem": problem,
        "known_issue": known_issue,
        "owner": owner,
        "family": family,
        "topic": topic,
    }
    if item.kind == "variable":
        return variable(item.item, rules, item.value)
    if item.kind == "name":
        return unknown_name(item.item, item.value)
    if item.kind == "table":
        return table(item.item)
    data: Data = simple[item.kind](item.item, rules)
    return data
