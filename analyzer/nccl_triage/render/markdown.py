"""The diagnosis as Markdown, ready to paste into an issue: log text only in code, never as markup."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nccl_triage.render import experiments
from nccl_triage.render.view import View
from nccl_triage.render.words import (
    Document,
    Lang,
    confidence,
    consequence_phrase,
    culprit_name,
    listed,
    pick,
    place,
    rank_ranges,
    verification_text,
    visible,
    word,
)

_MAX_LINE = 1000
_MAX_ROWS = 40
_MARKUP = re.compile(r"[\\`*_\[\]<>|~&{}!$]|^(?:[-+=]|\d+(?=[.)]\s))")
#: Issue trackers turn these into mentions and references even when escaped; as code they stay inert.
_REFERENCE = re.compile(r"(?<!\w)[@#](?=\w)")
_URL = re.compile(r"https?://[\w./?=&%#:~+,-]+")


def plain(text: object) -> str:
    """Return the text as one line of Markdown in which nothing is markup."""
    escaped = _MARKUP.sub(lambda m: m[0] + "\\" if m[0][0].isdigit() else "\\" + m[0], visible(text).strip())
    return _REFERENCE.sub(lambda m: f"`{m[0]}`", escaped)


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def code(text: object) -> str:
    """Return the text as a code span, whatever backticks it holds."""
    shown = visible(text, _MAX_LINE) or " "
    ticks = "`" * (_longest_run(shown) + 1)
    room = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{ticks}{room}{shown}{room}{ticks}"


def fence(lines: Iterable[str], language: str = "text") -> list[str]:
    """Return the lines as a code block, its fence longer than any run of backticks inside."""
    shown = [visible(line, _MAX_LINE) for text in lines for line in text.rstrip("\r\n").split("\n")]
    ticks = "`" * max(3, max(map(_longest_run, shown), default=0) + 1)
    return [ticks + language, *shown, ticks]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table; the cells are Markdown already, and only their bars are escaped."""
    lines = [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for row in rows[:_MAX_ROWS]:
        lines.append("| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", cell) or " " for cell in row) + " |")
    if len(rows) > _MAX_ROWS:
        lines.append(f"| .. {_MAX_ROWS} / {len(rows)} |" + " |" * (len(heads) - 1))
    return lines


def _bold(key: str, lang: Lang) -> str:
    label = word(key, lang)
    return f"**{label[0].upper()}{label[1:]}:**"


def _sure(diagnosis: Mapping[str, Any], lang: Lang) -> str:
    status = word(str(diagnosis.get("status") or "possible"), lang)
    return f"{word('confidence', lang)} {confidence(diagnosis.get('confidence'))}, {status}"


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


def _best(document: Document, best: Mapping[str, Any], lang: Lang) -> list[str]:
    title = plain(pick(best, "title", lang))
    lines = [f"{_bold('root_cause', lang)} {code(best.get('cause'))}: {title} ({_sure(best, lang)})", ""]
    for culprit in best.get("culprits") or []:
        why = plain(pick(culprit, "why", lang))
        name = plain(culprit_name(culprit, lang))
        lines += [f"{_bold('culprit', lang)} {name}{': ' if why else ''}{why}", ""]
    outcome = verification_text(best, lang)
    shown = plain(outcome or word("not_verified", lang))
    lines += [f"{_bold('verification', lang)} {shown}", "", plain(pick(best, "explanation", lang)), ""]
    consequences = consequence_phrase(document, lang)
    if consequences:
        lines += [consequences, ""]
    for key, items in (("evidence", best.get("evidence")), ("against", best.get("against"))):
        if items:
            lines += [f"### {word(key, lang)}", "", *_evidence(items[:10], lang)]
    if best.get("fixes"):
        lines += [f"### {word('fixes', lang)}", "", *_fixes(best["fixes"][:5], lang)]
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
            plain(experiments.ended(run, lang)),
            plain(experiments.changed(run, lang)),
            plain(f"{experiments.message(run)}, {run.get('backend')}, {experiments.where(run, lang)}"),
            plain(run.get("seconds")),
            plain(experiments.figure((run.get("bandwidth") or {}).get("busbw"))),
            plain(experiments.shows(run, lang)),
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
            code(experiments.endpoint(path)),
            plain(experiments.state_word(path, lang)),
            plain(experiments.measured(path, lang)),
        )
        for path in experiments.folded(found.get("reachability") or [])
    ]
    return [*table([word(key, lang) for key in heads], rows), ""] if rows else []


def _verification(document: Document, lang: Lang) -> list[str]:
    """Return what the experiments showed, or the command that would make them."""
    entries = experiments.verified(document)
    lines = [f"### {word('verification', lang)}", ""]
    if not any(entry["verification"].get("runs") for entry in entries):
        lines += [word("not_verified_text", lang), ""]
    if experiments.needs_command(document):
        lines += [word("to_verify", lang), ""]
        lines += [*fence([experiments.verify_command(document)], "sh"), ""]
    for entry in entries:
        moved = experiments.moved(entry["verification"], lang)
        change = f" ({word('confidence', lang)} {plain(moved)})" if moved else ""
        lines.append(f"- {code(entry.get('cause'))}: {plain(verification_text(entry, lang))}{change}")
    detail = experiments.detailed(entries)
    if detail is None:
        return lines
    found = detail["verification"]
    narrowed = experiments.narrowed_text(found, lang)
    lines += [f"- {plain(text)}" for text in ([narrowed] if narrowed else [])]
    for key in ("differs", "problems"):
        lines += [f"- {word(key, lang)}: {plain(text)}" for text in listed(found, key, lang)]
    for notice in found.get("notices") or []:
        causes = ", ".join(map(code, notice.get("candidates") or []))
        says = f"- {word('notices', lang)}: {code(notice.get('run'))}: {plain(pick(notice, 'says', lang))}"
        lines.append(f"{says}; {word('possible_causes', lang)}: {causes}" if causes else says)
    return [*lines, "", *_runs(found, lang), *_paths(found, lang)]


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
            plain("; ".join(i.get("problems") or [])),
        )
        for i in document.get("inputs") or []
    ]
    section("inputs", ("path", "size", "lines", "problems"), inputs)
    notes = (document.get("notes_zh") if lang == "zh" else None) or document.get("notes") or []
    return [*lines, *(f"- {plain(' '.join(str(note).split()))}" for note in notes), *([""] if notes else [])]


def render(document: Document, lang: Lang) -> str:
    """Return the whole report as GitHub-flavoured Markdown."""
    diagnoses = document.get("diagnoses") or []
    lines = [f"## nccl-triage: {plain(pick(document, 'headline', lang))}", ""]
    if document.get("verdict") == "diagnosed" and diagnoses:
        lines += _best(document, diagnoses[0], lang)
        lines += _rivals(diagnoses[1:], lang, "rivals")
    elif document.get("verdict") == "healthy":
        lines += [f"{_bold('verdict', lang)} {word('healthy', lang)}", ""]
    else:
        lines += [
            f"{_bold('root_cause', lang)} {word('unknown', lang)}: {word('unknown_text', lang)}",
            "",
        ]
        lines += _rivals(diagnoses, lang, "possible_causes")
    if document.get("verdict") != "healthy" and diagnoses:
        lines += _verification(document, lang)
    lines += _context(document, lang)
    tool = document.get("tool") or {}
    lines += [f"nccl-triage {code(tool.get('version'))}, {word('rules', lang)} {code(tool.get('rules'))}"]
    return "\n".join(lines) + "\n"


def produce(document: Document, view: View) -> str:
    """Return the whole text as a reader with this view wants it."""
    return render(document, view.lang)
