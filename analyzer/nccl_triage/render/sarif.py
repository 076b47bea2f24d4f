"""The diagnosis as SARIF 2.1.0, for code-scanning pages and editors: causes are rules, findings are results.

Section numbers are those of the OASIS standard with errata 01.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import orjson

from nccl_triage import messages
from nccl_triage.render import RenderOptions, json_output, phrases
from nccl_triage.render.words import Document, Lang, pick, visible, word

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
VERSION = "2.1.0"
#: The rule of a failure whose cause the log does not establish.
UNKNOWN = "unknown"
_LANGUAGES = {"en": "en-US", "zh": "zh-CN"}

Item = Mapping[str, Any]
Made = dict[str, Any]


def _message(lines: Iterable[str]) -> Made:
    """Return a plain-text message: braces are doubled (3.11.5), and nothing reads as a link (3.11.6)."""
    text = "\n".join(lines).replace("{", "{{").replace("}", "}}").replace("](", "] (")
    return {"text": text}


def uri(path: str) -> str:
    """Return a path as a URI: absolute ones with the scheme ``file``, all others as a relative reference."""
    escaped = quote(path, safe="/", errors="replace")
    return f"file://{escaped}" if path.startswith("/") else escaped


def _artifact(path: object) -> Made:
    """Return the artifactLocation of an input; what is no file has a description only."""
    if phrases.is_file(path):
        return {"uri": uri(str(path))}
    return {"description": {"text": visible(path or "?")}}


def _physical(item: Item) -> Made:
    found: Made = {"artifactLocation": _artifact(item.get("path"))}
    first, last = item.get("line"), item.get("end_line")
    if isinstance(first, int) and first > 0:
        found["region"] = {"startLine": first}
        if isinstance(last, int) and last > first:
            found["region"]["endLine"] = last
        if item.get("text"):
            found["region"]["snippet"] = {"text": phrases.shown_text(item)}
    return found


def _related(number: int, item: Item, prefix: str, lang: Lang) -> Made:
    says = visible(pick(item, "says", lang))
    return {"id": number, "physicalLocation": _physical(item), "message": _message([prefix + says])}


def _rule(diagnosis: Item, lang: Lang) -> Made:
    """Return a cause as a reportingDescriptor; its short description is English in both languages."""
    explanation = visible(pick(diagnosis, "explanation", lang) or pick(diagnosis, "title", lang))
    fixes = diagnosis.get("fixes") or []
    advice = [f"- {visible(pick(fix, 'title', lang))}" for fix in fixes]
    more = f"nccl-triage explain {visible(diagnosis.get('cause'))}"
    help_lines = [explanation, *([f"{word('fixes', lang)}:", *advice] if advice else []), more]
    made: Made = {
        "id": visible(diagnosis.get("cause")),
        "shortDescription": _message([visible(pick(diagnosis, "title", "en") or diagnosis.get("cause"))]),
        "fullDescription": _message([explanation]),
        "help": _message(help_lines),
        "properties": {"tags": [visible(diagnosis.get("family") or "nccl")]},
    }
    pages = [str(url) for fix in fixes for url in fix.get("references") or []]
    pages = [url for url in pages if url.startswith("https://") and quote(url, safe=":/?#[]@!$&'()*+,;=%~") == url]
    return {**made, "helpUri": pages[0]} if pages else made


def _culprits(diagnosis: Item, lang: Lang) -> list[Made]:
    found = []
    for culprit in diagnosis.get("culprits") or []:
        known = {key: culprit.get(key) for key in ("rank", "host", "address", "pid", "gpu")}
        known["why"] = pick(culprit, "why", lang)
        found.append({key: visible(value) if isinstance(value, str) else value for key, value in known.items()})
    return found


def _result(document: Document, diagnosis: Item, level: str, lang: Lang) -> Made:
    evidence: Sequence[Item] = diagnosis.get("evidence") or []
    against = word("against", lang) + ": "
    related = [("", item) for item in evidence[1:]] + [(against, item) for item in diagnosis.get("against") or []]
    sure = min(max(float(diagnosis.get("confidence") or 0), 0.0), 1.0)
    leads = level == "error"
    lead = [phrases.headline(document, lang)] if leads else []
    outcome = (diagnosis.get("verification") or {}).get("outcome")
    made: Made = {
        "ruleId": visible(diagnosis.get("cause")),
        "level": level,
        "rank": round(100 * sure, 1),
        "message": _message([*lead, *phrases.cause_lines(diagnosis, lang, leads)]),
        "locations": [{"physicalLocation": _physical(item)} for item in evidence[:1] or _inputs(document)[:1]],
        "properties": {
            "confidence": sure,
            "status": visible(diagnosis.get("status") or "possible"),
            "culprits": _culprits(diagnosis, lang),
            "verification": None if outcome is None else visible(outcome),
        },
    }
    if related:
        made["relatedLocations"] = [_related(n, item, prefix, lang) for n, (prefix, item) in enumerate(related, 1)]
    return made


def _unknown(document: Document, lang: Lang) -> tuple[Made, Made]:
    """Return rule and result of a failure without an established cause, at its first symptom."""
    text = {x: word("unknown_text", x) for x in ("en", "zh")}
    firsts = [symptom.get("first") or {} for symptom in document.get("symptoms") or []]
    where = (firsts or _inputs(document))[:1]
    rule: Made = {"id": UNKNOWN, "shortDescription": _message([text["en"]]), "help": _message([text[lang]])}
    result: Made = {
        "ruleId": UNKNOWN,
        "level": "error",
        "message": _message([phrases.headline(document, lang), text[lang]]),
        "locations": [{"physicalLocation": _physical(item)} for item in where],
    }
    return rule, result


def _inputs(document: Document) -> Sequence[Item]:
    found: Sequence[Item] = document.get("inputs") or []
    return found


def _findings(document: Document, lang: Lang) -> tuple[list[Made], list[Made]]:
    """Return rules and results, the root cause first; other possible causes are warnings, or notes beside a root cause."""
    diagnoses = document.get("diagnoses") or []
    verdict = document.get("verdict")
    if verdict == "healthy":
        return [], []
    rules, results = [], []
    named = verdict == "diagnosed" and bool(diagnoses)
    if not named:
        rule, result = _unknown(document, lang)
        rules, results = [rule], [result]
    for number, diagnosis in enumerate(diagnoses):
        level = ("note" if number else "error") if named else "warning"
        results.append(_result(document, diagnosis, level, lang))
        rules.append(_rule(diagnosis, lang))
    once = list({rule["id"]: rule for rule in rules}.values())
    order = {rule["id"]: index for index, rule in enumerate(once)}
    return once, [{**result, "ruleIndex": order[result["ruleId"]]} for result in results]


def _notifications(document: Document, lang: Lang) -> list[Made]:
    notes = (document.get("notes_zh") if lang == "zh" else None) or document.get("notes") or []
    notes = [*filter(None, [phrases.foreign_rules_note(document, lang)]), *notes]
    found: list[Made] = [{"level": "note", "message": _message([visible(note)])} for note in notes]
    for source in _inputs(document):
        for problem in source.get("problems") or []:
            where = [{"physicalLocation": {"artifactLocation": _artifact(source.get("path"))}}]
            found.append(
                {
                    "level": "warning",
                    "message": _message([visible(messages.translated_text(str(problem), lang))]),
                    "locations": where,
                }
            )
    return found


def _log(document: Document, lang: Lang) -> Made:
    rules, results = _findings(document, lang)
    tool = document.get("tool") or {}
    driver = {
        "name": "nccl-triage",
        "version": visible(tool.get("version") or "?"),
        "rules": rules,
        "properties": {"rulesDigest": visible(tool.get("rules") or "?")},
    }
    artifacts = [
        {"location": _artifact(source.get("path")), "length": source.get("bytes"), "roles": ["analysisTarget"]}
        for source in _inputs(document)
        if isinstance(source.get("bytes"), int)
    ]
    run = {
        "tool": {"driver": driver},
        "language": _LANGUAGES[lang],
        "invocations": [
            {"executionSuccessful": True, "toolExecutionNotifications": _notifications(document, lang)},
        ],
        "artifacts": artifacts,
        "results": results,
        "properties": {"verdict": visible(document.get("verdict")), "headline": phrases.headline(document, lang)},
    }
    return {"$schema": SCHEMA, "version": VERSION, "runs": [run]}


def produce(document: Document, view: RenderOptions) -> str:
    """Return the SARIF log of one run: no results for a healthy job."""
    return json_output.dump(_log(document, view.lang), orjson.OPT_INDENT_2).decode()
