"""The diagnosis as annotations of GitHub Actions, and the report cut to what the summary of a step holds.

A runner obeys every line of the output that begins with ``::``, and an old one every ``##[command]`` within a line that
it does not know. Log text never begins a line here: each annotation is one line that this module begins, and line ends
within it are escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nccl_triage.lazy_regex import lazily
from nccl_triage.render import phrases, terminal
from nccl_triage.render.words import Document, Lang, RenderOptions, pick, visible, word

#: Annotations of one kind that GitHub shows for a step; the rest is dropped without a word.
MAX_ANNOTATIONS = 10
#: Bytes that the summary of one step holds at most; GitHub refuses a larger one as a whole.
SUMMARY_BYTES = 1 << 20
#: A line that opens or closes a block of code; what opens one may name a language, in which there are no backticks.
_FENCE = lazily(r"( *`{3,})[^`]*")
#: What begins a command in the middle of a line: ``##[error]``, ``##vso[task.setvariable]``.
_INNER = lazily(r"##(?=\w*\[)")


def _data(text: str) -> str:
    """Return a text escaped as the message of a workflow command."""
    return _INNER.sub("## ", text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _value(text: object) -> str:
    """Return a text escaped as the value of a property, where colon and comma have a meaning too."""
    return _data(visible(text)).replace(":", "%3A").replace(",", "%2C")


def annotation(level: str, title: str, message: str, where: Mapping[str, Any]) -> str:
    """Return one workflow command; ``where`` has ``path``, ``line`` and ``end_line``, as far as known."""
    properties = []
    if phrases.is_file(where.get("path")):
        properties.append(f"file={_value(where['path'])}")
        first, last = where.get("line"), where.get("end_line")
        if isinstance(first, int) and first > 0:
            properties.append(f"line={first}")
            if isinstance(last, int) and last > first:
                properties.append(f"endLine={last}")
    shown = "\n".join(map(visible, message.split("\n")))
    return f"::{level} {','.join([*properties, f'title={_value(title)}'])}::{_data(shown)}"


def _first(item: Mapping[str, Any]) -> Mapping[str, Any]:
    evidence = terminal.strongest(item, 1)
    return evidence[0] if evidence else {}


def _proof(item: Mapping[str, Any], lang: Lang) -> str:
    says = visible(pick(item, "says", lang))
    return "\n".join(part for part in (says, phrases.shown_text(item)) if part)


def _annotations(document: Document, lang: Lang) -> list[str]:
    headline = "\n".join(
        part for part in (phrases.headline(document, lang), phrases.foreign_rules_note(document, lang)) if part
    )
    diagnoses = document.get("diagnoses") or []
    if document.get("verdict") == "healthy":
        return [annotation("notice", "nccl-triage", headline, {})]
    if document.get("verdict") == "diagnosed" and diagnoses:
        best = diagnoses[0]
        title = f"nccl-triage: {best.get('cause')}"
        found = [annotation("error", title, "\n".join([headline, *phrases.cause_lines(best, lang)]), _first(best))]
        for item in terminal.strongest(best, MAX_ANNOTATIONS):
            weight = word(str(item.get("weight") or "note"), lang)
            found.append(annotation("notice", f"{word('evidence', lang)} ({weight})", _proof(item, lang), item))
        return found
    firsts = [symptom.get("first") or {} for symptom in document.get("symptoms") or []]
    text = f"{headline}\n{word('unknown_text', lang)}"
    found = [annotation("error", f"nccl-triage: {word('unknown', lang)}", text, firsts[0] if firsts else {})]
    for entry in diagnoses:
        proof = _first(entry)
        message = "\n".join([*phrases.cause_lines(entry, lang, leads=False), *([_proof(proof, lang)] if proof else [])])
        found.append(annotation("warning", f"{word('possible', lang)}: {entry.get('cause')}", message, proof))
    return found


def produce(document: Document, view: RenderOptions) -> str:
    """Return at most ``MAX_ANNOTATIONS`` workflow commands, the root cause first."""
    return "".join(f"{line}\n" for line in _annotations(document, view.lang)[:MAX_ANNOTATIONS])


def summary(markdown: str, room: int, lang: Lang) -> str:
    """Return the report in at most ``room`` bytes of UTF-8: whole, or its beginning and a sentence that says so."""
    if len(markdown.encode()) <= room:
        return markdown
    end = f"\n{word('summary_cut', lang)}\n"
    left = room - len(end.encode())
    kept: list[str] = []
    fence = ""
    for line in markdown.split("\n"):
        mark = _FENCE.fullmatch(line)
        after = fence if mark is None else "" if fence == line else fence or mark[1]
        left -= len(line.encode()) + 1
        if left < len(after) + 1:
            break
        kept.append(line)
        fence = after
    return "\n".join([*kept, fence]) + end if kept else ""
