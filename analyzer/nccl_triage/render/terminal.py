"""The diagnosis on a terminal: no boxes, and every line stands for itself under grep.

Prose is folded and log lines are cut only where ``width`` says that a terminal shows them; in a pipe nothing
is. Meaning never rests on colour: every line begins with a word that says what it is.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import click

from nccl_triage import messages
from nccl_triage.lazy_regex import lazily
from nccl_triage.render import phrases, verification
from nccl_triage.render.options import RenderOptions
from nccl_triage.render.verification import outcome_lines
from nccl_triage.render.words import (
    Document,
    Lang,
    columns,
    confidence,
    consequence_phrase,
    culprit_name,
    cut,
    harmless_line,
    pick,
    place,
    prompt,
    run_name,
    run_text,
    unknown_text,
    verification_text,
    visible,
    word,
)

WEIGHTS = ("decisive", "strong", "moderate", "weak")
_MAX_TEXT_LINES = 6
#: Pieces at whose ends a line may be folded: a wide character with its closing punctuation, or a word.
_PIECES = lazily(
    r"[\u2e80-\u9fff\uac00-\ud7ff\uff00-\uffef][，。；：！？、）》”’]*"
    r"|[^\s\u2e80-\u9fff\uac00-\ud7ff\uff00-\uffef]+[，。；：！？、）》”’]*|\s+"
)


def fold(text: str, width: int, indent: int) -> list[str]:
    """Return the text in lines of at most ``width`` columns; the second and later ones are indented."""
    lines, line = [], ""
    for piece in _PIECES.findall(text):
        if line.strip() and columns(line + piece.rstrip()) > width:
            lines.append(line.rstrip())
            line = " " * indent + piece.lstrip()
        else:
            line += piece
    return [*lines, line.rstrip()] if line.strip() else lines


class _Page:
    """Collects the lines and formats them for this output."""

    def __init__(self, color: bool, width: int | None, lang: Lang) -> None:
        self.color, self.width, self.lang = color, width, lang
        self.lines: list[str] = []

    def style(self, text: str, **how: Any) -> str:
        return click.style(text, **how) if self.color and text else text

    def say(self, indent: int, label: str, text: str, **how: Any) -> None:
        """Add ``label: text``, folded on a terminal."""
        if not text:
            return
        name = f"{visible(label).lower()}:"
        whole = " " * indent + f"{name} {visible(text)}"
        lines = fold(whole, self.width, indent + 2) if self.width else [whole]
        start = " " * indent
        lines[0] = start + self.style(name, **{"bold": True, **how}) + lines[0][len(start) + len(name) :]
        self.lines += lines

    def command(self, indent: int, text: str) -> None:
        """Add a command, never folded: it is there to be copied."""
        for line in text.splitlines():
            self.lines.append(" " * indent + prompt(line) + self.style(visible(line), fg="green"))

    def evidence(self, indent: int, item: Mapping[str, Any]) -> None:
        """Add ``path:line: text`` for each line of one piece of evidence, and what it says."""
        texts = str(item.get("text") or "").rstrip("\r\n").split("\n")
        first, last = item.get("line") or 0, item.get("end_line") or 0
        follows = last - first + 1 == len(texts)
        for offset, text in enumerate(texts[:_MAX_TEXT_LINES]):
            place = f"{visible(item.get('path') or '')}:{first + (offset if follows else 0)}:"
            shown = visible(text.rstrip("\r"))
            if self.width:
                shown = cut(shown.expandtabs(4), max(self.width - indent - columns(place) - 1, 24))
            self.lines.append(" " * indent + self.style(place, fg="cyan") + f" {shown}")
        if len(texts) > _MAX_TEXT_LINES:
            self.lines.append(" " * (indent + 2) + f".. {len(texts) - _MAX_TEXT_LINES} {word('more_lines', self.lang)}")
        self.say(indent + 2, word(str(item.get("weight") or "note"), self.lang), pick(item, "says", self.lang))


def strongest(evidence: Iterable[Mapping[str, Any]], number: int) -> list[Mapping[str, Any]]:
    """Return the pieces of evidence that decide, the weightiest first, one line for each thing they say."""
    rank = {weight: order for order, weight in enumerate(WEIGHTS)}
    found: dict[str, Mapping[str, Any]] = {}
    lines = (e for e in evidence if not str(e.get("signature")).startswith("history."))  # a line of its own tells of it
    for item in sorted(lines, key=lambda e: rank.get(str(e.get("weight")), len(rank))):
        found.setdefault(str(item.get("says") or id(item)), item)
    return list(found.values())[:number]


def _sure(diagnosis: Mapping[str, Any], lang: Lang) -> str:
    status = word(str(diagnosis.get("status") or "possible"), lang)
    return f"({word('confidence', lang)} {confidence(diagnosis.get('confidence'))}, {status})"


def _check(page: _Page, indent: int, diagnosis: Mapping[str, Any]) -> None:
    check = diagnosis.get("next_check")
    if not check:
        return
    page.say(indent, word("check", page.lang), pick(check, "what", page.lang))
    if check.get("command"):
        page.command(indent + 2, str(check["command"]))
    for key in ("if_yes", "if_no"):
        page.say(indent + 2, word(key, page.lang), pick(check, key, page.lang))


def _fix(page: _Page, fix: Mapping[str, Any]) -> None:
    page.say(2, word("fix", page.lang), pick(fix, "title", page.lang), fg="green")
    for name, value in sorted((fix.get("env") or {}).items()):
        page.command(4, f"export {name}={shlex.quote(str(value))}")
    for command in fix.get("commands") or []:
        page.command(4, str(command))
    page.say(4, word("caution", page.lang), pick(fix, "caution", page.lang), fg="yellow")
    page.say(4, word("applies_to", page.lang), pick(fix, "applies_to", page.lang))


def _incident(page: _Page, document: Document) -> None:
    page.say(2, word("started", page.lang), phrases.incident_started(document, page.lang))
    page.say(2, word("cost_word", page.lang), phrases.incident_cost(document, page.lang))


def _recurrence(page: _Page, document: Document) -> None:
    """Print which hosts of the job failed before."""
    for entry in document.get("recurrence") or []:
        page.say(2, word("history", page.lang), pick(entry, "says", page.lang), fg="yellow")


def _stages(page: _Page, diagnosis: Mapping[str, Any]) -> None:
    """Print the advice by urgency."""
    for item in diagnosis.get("stages") or []:
        page.say(2, word(f"stage_{item.get('when')}", page.lang), pick(item, "what", page.lang), fg="green")
        if item.get("command"):
            page.command(4, str(item["command"]))


def _score(page: _Page, diagnosis: Mapping[str, Any]) -> None:
    """Print why a candidate has its score: the whole sum, term by term."""
    name = f"{diagnosis.get('cause')} {float(diagnosis.get('score') or 0):.2f}"
    page.say(2, word("score", page.lang), f"{name} {_sure(diagnosis, page.lang)}")
    for term in diagnosis.get("contributions") or []:
        full, applied = float(term.get("log_odds") or 0), float(term.get("applied") or 0)
        amount = f"{applied:+.2f}" if applied == full else f"{applied:+.2f} ({full:+.2f})"
        parts = [amount, word(str(term.get("weight") or ""), page.lang), visible(term.get("id") or "")]
        if term.get("explained_by"):
            parts.append(f"[{word('explained_by', page.lang)} {visible(term['explained_by'])}]")
        places = [place(e) for e in (term.get("events") or [])[:3]]
        tail = f" ({visible(', '.join(places))})" if places else ""
        page.lines.append(f"    {' '.join(parts)}: {visible(pick(term, 'says', page.lang))}{tail}")


def _diagnosed(page: _Page, document: Document, verbose: int) -> None:
    best, *rivals = document["diagnoses"]
    lang = page.lang
    title = f"{best.get('cause')} {_sure(best, lang)}: {pick(best, 'title', lang)}"
    page.say(2, word("root_cause", lang), title, fg="red")
    for culprit in best.get("culprits") or []:
        why = pick(culprit, "why", lang)
        page.say(2, word("culprit", lang), culprit_name(culprit, lang) + (f": {why}" if why else ""), fg="red")
    _recurrence(page, document)
    _incident(page, document)
    evidence = best.get("evidence") or []
    for item in evidence if verbose else strongest(evidence, 3):
        page.evidence(2, item)
    if verbose:
        page.say(2, word("meaning", lang), pick(best, "explanation", lang))
        for item in best.get("against") or []:
            page.say(2, word("against", lang), pick(item, "says", lang))
            page.evidence(4, item)
        _stages(page, best)
    for fix in (best.get("fixes") or [])[: 2 if verbose < 1 else 50]:
        _fix(page, fix)
    _check(page, 2, best)
    for rival in rivals:
        page.say(2, word("or", lang), f"{rival.get('cause')} {_sure(rival, lang)}: {pick(rival, 'title', lang)}")
    page.say(2, word("consequences", lang), consequence_phrase(document, lang))


def _unknown(page: _Page, document: Document) -> None:
    lang = page.lang
    page.say(2, word("root_cause", lang), f"{word('unknown', lang)}: {unknown_text(document, lang)}", fg="yellow")
    _recurrence(page, document)
    for diagnosis in document.get("diagnoses") or []:
        sure = f"{diagnosis.get('cause')} ({word('confidence', lang)} {confidence(diagnosis.get('confidence'))})"
        page.say(2, word("possible", lang), f"{sure}: {pick(diagnosis, 'title', lang)}")
        for item in strongest(diagnosis.get("evidence") or [], 1):
            page.evidence(4, item)
        _check(page, 4, diagnosis)


def _healthy(page: _Page, document: Document) -> None:
    lang, inputs = page.lang, document.get("inputs") or []
    lines = sum(i.get("lines") or 0 for i in inputs)
    text = word("healthy_text", lang).format(inputs=len(inputs), lines=f"{lines:,}")
    page.say(2, word("verdict", lang), f"{word('healthy', lang)}: {text}", fg="green")
    seen = [s for s in document.get("symptoms") or [] if s.get("role") in ("root", "cascade")]
    for symptom in seen[:5]:
        times = f"{symptom.get('signature')} x{symptom.get('count')}"
        page.say(2, word("seen", lang), f"{times}: {pick(symptom, 'meaning', lang)}")


def _runs(page: _Page, document: Document) -> None:
    """Print a line for each run, where the input holds several."""
    found = document.get("runs") or []
    if len(found) < 2:
        return
    lang = page.lang
    for run in found:
        page.say(2, run_name(run, found, lang), run_text(run, lang))


def _compared(page: _Page, document: Document) -> None:
    """Print what differs from the good run, the few differences that matter."""
    found = phrases.compared(document)
    if found is None:
        return
    lang = page.lang
    page.say(2, word("compared_with", lang), phrases.good_logs(found))
    for line in phrases.comparison_lines(document, lang) or [word("diff_none", lang)]:
        page.lines += fold(f"    {line}", page.width, 6) if page.width else [f"    {line}"]


def _verification(page: _Page, document: Document) -> None:
    """Print what the experiments say of each cause, those of one in detail, or the command that makes them."""
    lang, entries = page.lang, verification.verified(document)
    detail = verification.detailed(entries)
    best = document["diagnoses"][0] if document.get("verdict") == "diagnosed" else None
    for entry in entries:
        text = verification_text(entry, lang)
        page.say(2, word("verification", lang), text if entry is best else f"{entry.get('cause')}: {text}")
        for line in outcome_lines(entry["verification"], lang) if entry is detail else []:
            page.lines += fold(f"    {line}", page.width, 6) if page.width else [f"    {line}"]
    if verification.needs_command(document):
        page.say(2, word("confirm", lang), verification.verify_command(document))
    if not entries:
        page.say(2, word("verification", lang), word("not_verified", lang))


def render(document: Document, *, color: bool, width: int | None, lang: Lang, verbose: int) -> str:
    """Return the text for a terminal (``width`` columns) or a pipe (``width`` None)."""
    page = _Page(color, width, lang)
    verdict = document.get("verdict")
    diagnoses = document.get("diagnoses") or []
    page.say(0, "nccl-triage", pick(document, "headline", lang) or word(str(verdict), lang))
    page.say(2, word("foreign", lang), phrases.foreign_rules_note(document, lang), fg="yellow")
    if verdict == "diagnosed" and diagnoses:
        _diagnosed(page, document, verbose)
    elif verdict == "healthy":
        _healthy(page, document)
    else:
        _unknown(page, document)
    _runs(page, document)
    _compared(page, document)
    if verbose:
        for diagnosis in diagnoses:
            _score(page, diagnosis)
    for note in phrases.notes(document, lang):
        page.say(2, word("note", lang), note, fg="yellow")
    for source in document.get("inputs") or []:
        for problem in source.get("problems") or []:
            page.say(
                2,
                word("problems", lang),
                f"{source.get('path')}: {messages.translated_text(str(problem), lang)}",
                fg="yellow",
            )
    causes = [str(d.get("cause")) for d in diagnoses[: 1 if verdict == "diagnosed" else 3]]
    for cause in causes:
        page.say(2, word("more", lang), f"nccl-triage explain {cause}")
    if causes:
        _verification(page, document)
    return "\n".join(map(harmless_line, page.lines)) + "\n"


def produce(document: Document, view: RenderOptions) -> str:
    """Return the text with the reader's options."""
    return render(document, color=view.color, width=view.width, lang=view.lang, verbose=view.verbose)
