"""How many of the natural forms in corpus/leaks reach a reader: kind by format, without and with ``--redact``.

A real diagnosis of a failure, whose message and neighbouring lines are marked, is the mould: each form takes the place of
a mark, wherever the document holds it, and the document goes to every format.
"""

from __future__ import annotations

import copy
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from nccl_triage import diagnose
from nccl_triage.redaction import redact
from nccl_triage.redaction.secret_kinds import expand
from nccl_triage.render import FORMATS, render

#: Formats that quote lines of the log; the three lines of ``brief`` are among those that ``text`` prints.
QUOTING = tuple(form for form in FORMATS if form != "brief")
#: Of these, the ones that quote a part of the lines only, since their length is bounded.
BOUNDED = ("prompt", "csv")

ROOT = Path(__file__).resolve().parents[1]
#: Ranks that fail, and lines of their messages that every format shows.
RANKS, LINES = 1, 6
AT_ONCE = RANKS * LINES
_HIDDEN = re.compile("«(.*?)»")
_PREFIX = re.compile(r"(?:\[rank\d+\]: )?\s*")


@dataclass(frozen=True)
class Form:
    """A line of a log as somebody may write it, and what in it must not be readable."""

    kind: str
    line: str
    hidden: tuple[str, ...]

    def readable_in(self, shown: str) -> bool:
        """Tell whether any of it stands in an output."""
        return any(secret in shown for secret in self.hidden)


def forms(name: str) -> list[Form]:
    """Return the forms of one file, ``secrets`` or ``names``; no two secrets of different forms are alike."""
    found = []
    for group in yaml.safe_load((ROOT / "corpus" / "leaks" / f"{name}.yaml").read_text(encoding="utf-8")):
        for text in group["forms"]:
            marked = (
                expand(text)
                .replace("Hunter2x", f"Hunter{len(found)}x")
                .replace("swordfish", f"swordfish{_word(len(found))}")
            )
            found.append(Form(group["kind"], _HIDDEN.sub(r"\1", marked), tuple(_HIDDEN.findall(marked))))
    return found


def _word(number: int) -> str:
    return "".join(chr(ord("a") + digit) for digit in divmod(number, 26))


def mark(number: int) -> str:
    """Return what stands in the mould for a form."""
    return f"zzmark{_word(number)}zz"


@cache
def mould() -> dict[str, Any]:
    """Return the document of a failure whose message and the lines before it are marks."""
    log = ""
    for rank in range(RANKS):
        marks = [mark(number) for number in range(rank * LINES, (rank + 1) * LINES)]
        trace = ["Traceback (most recent call last):", f'  File "/srv/lab/train.py", line {rank + 3}, in main']
        message = [f"RuntimeError: {marks[0]}", *(f"  {text}" for text in marks[1:])]
        log += "".join(f"[rank{rank}]: {line}\n" for line in (*marks, *trace, *message))
    return diagnose("-", stdin=io.BytesIO(log.encode())).to_dict()


def filled(document: Any, some: list[Form]) -> Any:
    """Return the document with the forms in place of the marks."""
    if isinstance(document, str):
        if "\n" not in document:  # one line of a log has one line of a form
            return _lines(document, some)[0]
        return "\n".join(line for text in document.split("\n") for line in _lines(text, some))
    if isinstance(document, dict):
        return {filled(key, some): filled(value, some) for key, value in document.items()}
    if not isinstance(document, list):
        return document
    parts = [_lines(part, some) if isinstance(part, str) else [filled(part, some)] for part in document]
    return [item for part in parts for item in part]


def _lines(text: str, some: list[Form]) -> list[str]:
    """Return a line of the mould with the forms in place of its marks; each line of a form has its prefix."""
    prefix = _PREFIX.match(text)
    made = [text]
    for number, form in enumerate(some):
        if mark(number) in text:
            first, *more = form.line.split("\n")
            made = [
                made[0].replace(mark(number), first),
                *made[1:],
                *(f"{prefix[0] if prefix else ''}{one}" for one in more),
            ]
    return made


def outputs(some: list[Form], redacted: bool) -> Iterator[tuple[str, str]]:
    """Yield (format, output) of a document that holds at most ``AT_ONCE`` forms."""
    document = filled(copy.deepcopy(mould()), some)
    shown = redact(document) if redacted else document
    for form in QUOTING:
        yield form, render(shown, form, verbose=2).decode()


def leaks(some: list[Form], redacted: bool) -> dict[str, list[Form]]:
    """Return the forms that are readable, by format; what JSON and HTML write otherwise counts as well."""
    found: dict[str, list[Form]] = {form: [] for form in QUOTING}
    for start in range(0, len(some), AT_ONCE):
        part = some[start : start + AT_ONCE]
        for form, shown in outputs(part, redacted):
            texts = f"{shown}\n{_unescaped(shown)}"
            found[form] += [one for one in part if one.readable_in(texts)]
    return found


def _unescaped(text: str) -> str:
    import html

    return html.unescape(re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", lambda m: chr(int(m[1], 16)) if m[1] else m[2], text))


def table() -> str:
    """Return the table of leaks as Markdown."""
    rows = [f"| kind | forms | {' | '.join(QUOTING)} |", "|" + " --- |" * (2 + len(QUOTING))]
    for name in ("secrets", "names"):
        every = forms(name)
        for kind in dict.fromkeys(form.kind for form in every):
            some = [form for form in every if form.kind == kind]
            masked = leaks(some, redacted=False) if name == "secrets" else {}
            redacted = leaks(some, redacted=True)
            cells = [
                f"{len(masked[form])} / {len(redacted[form])}" if masked else f"- / {len(redacted[form])}"
                for form in QUOTING
            ]
            rows.append(f"| {kind} | {len(some)} | {' | '.join(cells)} |")
    return "\n".join(rows)
