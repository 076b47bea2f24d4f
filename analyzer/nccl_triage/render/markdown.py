"""The diagnosis as Markdown, ready to paste into an issue: log text only in code, never as markup."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from nccl_triage import messages
from nccl_triage.lazy_regex import lazily
from nccl_triage.render import known_issues, phrases, similar, verification
from nccl_triage.render.markdown_text import code, fence, plain, table
from nccl_triage.render.words import (
    Document,
    Lang,
    RenderOptions,
    certainty,
    confidence,
    consequence_phrase,
    culprit_name,
    harmless_line,
    listed,
    pick,
    place,
    rank_ranges,
    run_name,
    run_text,
    unknown_text,
    verification_text,
    word,
)

_URL = lazily(r"https?://[\w./?=&%#:~+,-]+")


def _bold(key: str, lang: Lang) -> str:
    label = word(key, lang)
    return f"**{label[0].upper()}{label[1:]}:**"


def _sure(diagnosis: Mapping[str, Any], lang: Lang) -> str:
    return f"{word('confidence', lang)} {confidence(diagnosis.get('confidence'))}, {certainty(diagnosis, lang)}"


def _evidence(items: Iterable[Mapping[str, Any]], lang: Lang) -> list[str]:
    lines, before = [], ""
    for item in items:
        says = f" {plain(pick(item, 'says', lang))} ({word(str(item.get('weight') or ''), lang)})"
        lines += [code(place(item)) + ("" if says == before else says), ""]
        before = says
        lines += [*fence([str(item.get("text") or "")]), ""]
    return lines


def _fixes(fixes: Iterable[Mapping[str, Any]], lang: Lang) -> list[str]:
    lines: list[str] = []
    for number, fix in enumerate(fixes, 1):
        lines += [f"{number}. **{plain(pick(fix, 'title', lang))}**", ""]
        commands = [f"export {k}={shlex.quote(str(v))}" for k, v in sorted((fix.get("env") or {}).items())]
        commands += [str(command) for command in fix.get("commands") or []]
        if commands:
            lines += [*(f"   {line}" for line in fence(commands, "sh")), ""]
        for key in ("caution", "applies_to"):
            if pick(fix, key, lang):
                lines += [f"   {word(key, lang)}: {plain(pick(fix, key, lang))}", ""]
        for reference in map(str, fix.get("references") or []):
            shown = f"<{reference}>" if _URL.fullmatch(reference) else code(reference)
            lines += [f"   {word('references', lang)}: {shown}", ""]
    return lines


def _stages(stages: Iterable[Mapping[str, Any]], lang: Lang) -> list[str]:
    """Return the advice by urgency as one list a stage."""
    lines: list[str] = []
    for when, items in groupby(stages, key=lambda item: str(item.get("when"))):
        lines += [f"**{plain(word(f'stage_{when}', lang))}**", ""]
        for item in items:
            command = f" {code(item['command'])}" if item.get("command") else ""
            lines.append(f"- {plain(pick(item, 'what', lang))}{command}")
        lines.append("")
    return lines


def _incident(document: Document, lang: Lang) -> list[str]:
    """Return when the failure started and what it cost, if known."""
    rows = (("started", phrases.incident_started(document, lang)), ("cost_word", phrases.incident_cost(document, lang)))
    return [line for key, text in rows if text for line in (f"{_bold(key, lang)} {plain(text)}", "")]


def _restart(document: Document, lang: Lang) -> list[str]:
    """Return whether the job should be started again, where that was decided."""
    told = phrases.restart_in_full(document, lang)
    return [f"{_bold('restart_word', lang)} {plain(told)}", ""] if told else []


def _not_seen(document: Document, lang: Lang) -> list[str]:
    """Return what the record lacks, and how to have it next time."""
    items = document.get("not_seen") or []
    if not items:
        return []
    lines = [f"### {word('not_seen', lang)}", ""]
    for item in items:
        lines += [f"- {plain(pick(item, 'what', lang))}: {plain(pick(item, 'why', lang))}"]
        commands = [f"export {k}={shlex.quote(str(v))}" for k, v in sorted((item.get("env") or {}).items())]
        commands += [str(command) for command in item.get("commands") or []]
        lines += [f"  {line}" for line in fence(commands, "sh")] if commands else []
    return [*lines, ""]


def _check(check: Mapping[str, Any] | None, lang: Lang) -> list[str]:
    if not check:
        return []
    lines = [plain(pick(check, "what", lang)), ""]
    if check.get("command"):
        lines += [*fence([str(check["command"])], "sh"), ""]
    for key in ("if_yes", "if_no"):
        if pick(check, key, lang):
            lines.append(f"- {word(key, lang)}: {plain(pick(check, key, lang))}")
    return [*lines, ""]


def _recurrence(document: Document, lang: Lang) -> list[str]:
    entries = document.get("recurrence") or []
    return [text for entry in entries for text in (f"{_bold('history', lang)} {plain(pick(entry, 'says', lang))}", "")]


def _runs_of_input(document: Document, lang: Lang) -> list[str]:
    """Return a line for each run, where the input holds several."""
    found = document.get("runs") or []
    if len(found) < 2:
        return []
    rows = [f"- {run_name(run, found, lang)}: {plain(run_text(run, lang))}" for run in found]
    return [f"### {word('runs_of_input', lang)}", "", *rows, ""]


def _best(document: Document, best: Mapping[str, Any], lang: Lang) -> list[str]:
    title = plain(pick(best, "title", lang))
    lines = [f"{_bold('root_cause', lang)} {code(best.get('cause'))}: {title} ({_sure(best, lang)})", ""]
    for culprit in best.get("culprits") or []:
        why = plain(pick(culprit, "why", lang))
        name = plain(culprit_name(culprit, lang))
        lines += [f"{_bold('culprit', lang)} {name}{': ' if why else ''}{why}", ""]
    lines += _recurrence(document, lang)
    lines += _incident(document, lang)
    lines += _restart(document, lang)
    outcome = verification_text(best, lang)
    shown = plain(outcome or word("not_verified", lang))
    lines += [f"{_bold('verification', lang)} {shown}", "", plain(pick(best, "explanation", lang)), ""]
    consequences = consequence_phrase(document, lang)
    if consequences:
        lines += [consequences, ""]
    for key, items in (("evidence", best.get("evidence")), ("against", best.get("against"))):
        if items:
            lines += [f"### {word(key, lang)}", "", *_evidence(items[:10], lang)]
    if best.get("fixes") or best.get("stages"):
        lines += [f"### {word('fixes', lang)}", "", *_stages(best.get("stages") or [], lang)]
        lines += _fixes((best.get("fixes") or [])[:5], lang)
    check = _check(best.get("next_check"), lang)
    return [*lines, f"### {word('next_check', lang)}", "", *check] if check else lines


def _rivals(rivals: Sequence[Mapping[str, Any]], lang: Lang, heading: str) -> list[str]:
    if not rivals:
        return []
    lines = [f"### {word(heading, lang)}", ""]
    for rival in rivals:
        lines += [
            f"**{code(rival.get('cause'))}**: {plain(pick(rival, 'title', lang))} ({_sure(rival, lang)})",
            "",
        ]
        if heading == "possible_causes":
            lines += _evidence((rival.get("evidence") or [])[:2], lang)
        lines += _check(rival.get("next_check"), lang)
    return lines


def _runs(found: Mapping[str, Any], lang: Lang) -> list[str]:
    heads = ("run", "outcome", "changed", "message", "seconds", "bus_bandwidth", "shows")
    rows = [
        (
            code(run.get("run")),
            plain(verification.ended(run, lang)),
            plain(verification.changed(run, lang)),
            plain(f"{verification.message(run)}, {run.get('backend')}, {verification.where(run, lang)}"),
            plain(run.get("seconds")),
            plain(verification.figure((run.get("bandwidth") or {}).get("busbw"))),
            plain(verification.shows(run, lang)),
        )
        for run in found.get("runs") or []
    ]
    return [*table([word(key, lang) for key in heads], rows), ""] if rows else []


def _paths(found: Mapping[str, Any], lang: Lang) -> list[str]:
    heads = ("from", "to", "interface", "address", "state", "errno")
    rows = [
        (
            plain(path.get("from")),
            plain(path.get("to")),
            code(path.get("to_interface")),
            code(verification.endpoint(path)),
            plain(verification.state_word(path, lang)),
            plain(verification.measured(path, lang)),
        )
        for path in verification.folded(found.get("reachability") or [])
    ]
    return [*table([word(key, lang) for key in heads], rows), ""] if rows else []


def _verification(document: Document, lang: Lang) -> list[str]:
    """Return what the experiments showed, or the command that would make them."""
    entries = verification.verified(document)
    lines = [f"### {word('verification', lang)}", ""]
    if not any(entry["verification"].get("runs") for entry in entries):
        lines += [word("not_verified_text", lang), ""]
    if verification.needs_command(document):
        command = verification.to_confirm(document)
        note = plain(verification.verify_note(command, lang))
        told = (
            word("in_brackets", lang).format(what=word("to_verify", lang), more=note)
            if note
            else word("to_verify", lang)
        )
        lines += [told, "", *fence(verification.verify_lines(command), "sh"), ""]
    for entry in entries:
        moved = verification.moved(entry["verification"], lang)
        change = f" ({word('confidence', lang)} {plain(moved)})" if moved else ""
        lines.append(f"- {code(entry.get('cause'))}: {plain(verification_text(entry, lang))}{change}")
    detail = verification.detailed(entries)
    if detail is None:
        return lines
    found = detail["verification"]
    narrowed = verification.narrowed_text(found, lang)
    lines += [f"- {plain(text)}" for text in ([narrowed] if narrowed else [])]
    for key in ("differs", "problems"):
        lines += [f"- {word(key, lang)}: {plain(text)}" for text in listed(found, key, lang)]
    for notice in found.get("notices") or []:
        causes = ", ".join(map(code, notice.get("candidates") or []))
        says = f"- {word('notices', lang)}: {code(notice.get('run'))}: {plain(pick(notice, 'says', lang))}"
        lines.append(f"{says}; {word('possible_causes', lang)}: {causes}" if causes else says)
    return [*lines, "", *_runs(found, lang), *_paths(found, lang)]


def _compared(document: Document, lang: Lang) -> list[str]:
    """Return what differs from the good run as a table."""
    found = phrases.compared(document)
    if found is None:
        return []
    lines = [f"### {word('compared_with', lang)} {code(phrases.good_logs(found))}", ""]
    rows = [
        (
            plain(row.subject.zh if lang == "zh" else row.subject.en),
            code(row.name),
            code(row.good) + (f" {code(place(row.good_at))}" if row.good_at else ""),
            code(row.bad),
            code(place(row.at)),
            ", ".join(map(code, row.causes)),
        )
        for row in phrases.difference_rows(found)
    ]
    heads = ("diff_subject", "name", "good_run", "this_run", "location", "speaks_for")
    shown = table([word(key, lang) for key in heads], rows) if rows else [word("diff_none", lang)]
    return [*lines, *shown, ""]


def _context(document: Document, lang: Lang) -> list[str]:
    """Return the tables: symptoms, environment, inputs."""
    lines: list[str] = []

    def section(heading: str, keys: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        if rows:
            lines.extend([f"### {word(heading, lang)}", "", *table([word(k, lang) for k in keys], rows), ""])

    symptoms = [
        (
            code(s.get("signature")),
            word(f"role_{s.get('role')}", lang),
            str(s.get("count")),
            rank_ranges(s.get("ranks") or []),
            code(place(s.get("first") or {})),
        )
        for s in document.get("symptoms") or []
    ]
    section("symptoms", ("signature", "role", "count", "ranks", "first"), symptoms)
    job = document.get("job") or {}
    facts = [(k, v) for k, v in sorted((job.get("software") or {}).items()) if v]
    facts += [
        (k, ", ".join(map(str, v)) if isinstance(v, list) else v) for k, v in sorted((job.get("env") or {}).items())
    ]
    section("environment", ("name", "value"), [(code(k), code(v)) for k, v in facts])
    inputs = [
        (
            code(i.get("path")),
            str(i.get("bytes")),
            str(i.get("lines")),
            plain("; ".join(messages.translated_text(str(problem), lang) for problem in i.get("problems") or [])),
        )
        for i in document.get("inputs") or []
    ]
    section("inputs", ("path", "size", "lines", "problems"), inputs)
    notes = phrases.notes(document, lang)
    return [*lines, *(f"- {plain(note)}" for note in notes), *([""] if notes else [])]


def render(document: Document, lang: Lang) -> str:
    """Return the whole report as GitHub-flavoured Markdown."""
    diagnoses = document.get("diagnoses") or []
    lines = [f"## nccl-triage: {plain(pick(document, 'headline', lang))}", ""]
    others = phrases.foreign_rules_note(document, lang)
    lines += [f"{_bold('foreign', lang)} {plain(others)}", ""] if others else []
    if document.get("verdict") == "diagnosed" and diagnoses:
        lines += _best(document, diagnoses[0], lang)
        lines += _rivals(diagnoses[1:], lang, "rivals")
    elif document.get("verdict") == "healthy":
        lines += [f"{_bold('verdict', lang)} {word('healthy', lang)}", ""]
    else:
        lines += [f"{_bold('root_cause', lang)} {word('unknown', lang)}: {plain(unknown_text(document, lang))}", ""]
        lines += _restart(document, lang)
        lines += _rivals(diagnoses, lang, "possible_causes")
    if document.get("verdict") != "healthy" and diagnoses:
        lines += _verification(document, lang)
    lines += known_issues.markdown(document, lang)
    lines += similar.markdown(document, lang)
    lines += _runs_of_input(document, lang)
    lines += _compared(document, lang)
    lines += _context(document, lang)
    lines += _not_seen(document, lang)
    tool = document.get("tool") or {}
    lines += [f"nccl-triage {code(tool.get('version'))}, {word('rules', lang)} {code(tool.get('rules'))}"]
    return "\n".join(map(harmless_line, "\n".join(lines).split("\n"))) + "\n"


def produce(document: Document, view: RenderOptions) -> str:
    """Return the text with the reader's options."""
    return render(document, view.lang)
