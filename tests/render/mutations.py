"""Documents with one value changed for something that nobody expects there, and what no format may make of it."""

from __future__ import annotations

import copy
import html.parser
import json
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from nccl_triage.render import FORMATS, render

Doc = dict[str, Any]
Place = tuple[Any, ...]

ESCAPES = "\x1b[2J\x1b]8;;https://evil.example\x07x\x1b]8;;\x07\x9b6n\x08\x7f\x85\u202etxt\u2066\u200b"
MARKUP = (
    "<script>alert(1)</script><img src=https://evil.example/p.png onerror=alert(2)>\"'</pre> "
    "[go](https://evil.example/a) ![see](https://evil.example/b.png) <https://evil.example/c> "
    "https://evil.example/d www.evil.example/e a@evil.example | cell | **bold** # h"
)
COMMANDS = "::add-mask::secret\n##[add-mask]secret\n  ::set-output name=x::y%0A::error::z\r\n##vso[task.setvariable]x\n# heading\n- item\n> quoted"
#: What a place may hold instead, of the same kind or not.
TEXTS = (ESCAPES, MARKUP, COMMANDS, "", "www.evil.example", "x" * 100_000, "\n".join("y" * 9 for _ in range(3000)))
OTHERS = (
    0,
    -1,
    7.5,
    1e308,
    -1e308,
    5e-324,
    10**18,
    10**25,
    True,
    None,
    [],
    {},
    [MARKUP],
    {MARKUP: ESCAPES},
    [[1]],
    [{}],
)


def places(value: Any, above: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yield the way to every value within a document, and the same way with the lists' positions left out."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        way = (*above, key)
        yield way, ".".join("[]" if isinstance(part, int) else part for part in way)
        yield from places(item, way)


def changed(document: Doc, place: Place, value: Any) -> Doc:
    """Return the document with another value at a place."""
    found = copy.deepcopy(document)
    holder: Any = found
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    return found


def at(document: Doc, place: Place) -> Any:
    """Return the value at a place."""
    value: Any = document
    for key in place:
        value = value[key]
    return value


def complaints(document: Doc, formats: tuple[str, ...] = tuple(FORMATS), lang: Any = "en") -> Iterator[str]:
    """Yield what is wrong with the formats of a document whose texts are hostile."""
    for form in formats:
        text = render(document, form, lang=lang, verbose=2).decode()
        acting = [char for char in set(text) if not char.isprintable() and char not in "\n\t"]
        if any(char in "\x1b\x07\x08\x7f\x85\x9b\u202e\u2066\r" for char in acting):
            yield f"{form}: {acting!r}"
        yield from (f"{form}: {what}" for what in _CHECKS.get(form, _nothing)(text))


def _nothing(text: str) -> Iterator[str]:
    yield from ()


def _lines(text: str) -> Iterator[str]:
    """Yield what a runner of continuous integration would obey."""
    for line in text.split("\n"):
        if line.lstrip().startswith("::") or re.search(r"##\w*\[", line):
            yield f"a command: {line[:80]!r}"


def _markdown(text: str) -> Iterator[str]:
    yield from _lines(text)
    bare = outside_code(text)
    for pattern in (
        r"(?<!\\)<(?!https://(?!evil))",
        r"(?<!\\)\[",
        r"(?<!\\)!\S*\[",
        r"(?:^|[\s*_~(])(?:www\.|(?:https?|ftp)://)",
        r"\w@\w",
        r"(?<!\w)[@#](?=\w)",
        r"(?m)^\s*(?:#+ h|- item|> quoted)",
    ):
        for found in re.finditer(pattern, bare):
            yield f"live {pattern}: {bare[max(0, found.start() - 30) : found.end() + 30]!r}"
            break


def outside_code(text: str) -> str:
    """Return Markdown without its code blocks and code spans."""
    kept, fence = [], ""
    for line in text.split("\n"):
        marker = re.match(r" *(`{3,})(?:text|sh)?$", line)
        if fence:
            fence = "" if marker and marker[1] == fence else fence
        elif marker:
            fence = marker[1]
        else:
            kept.append(line)
    return re.sub(r"(?<![\\`])(`+)(?!`).*?(?<!`)\1(?!`)", " ", "\n".join(kept))


class _Page(html.parser.HTMLParser):
    """Notes what a page would load, run or lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name.startswith("on") or (name in ("src", "srcset", "action") and value):
                self.bad.append(f"{tag} {name}={value!r}"[:100])
            if name in ("href", "xlink:href") and not (value or "").startswith(("#", "https://", "http://", "data:")):
                self.bad.append(f"{tag} {name}={value!r}"[:100])
        if tag in ("img", "iframe", "object", "embed", "form", "base"):
            self.bad.append(tag)


def _html(text: str) -> Iterator[str]:
    page = _Page()
    page.feed(text)
    yield from page.bad
    if "<script>alert" in text:
        yield "a script"


def _junit(text: str) -> Iterator[str]:
    root = ElementTree.fromstring(text)
    for element in root.iter():
        yield from _lines(element.text or "")


def _json(text: str) -> Iterator[str]:
    yield from _lines(text)
    json.loads(text)


def _ndjson(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield from _json(line)


def _github(text: str) -> Iterator[str]:
    for line in text.removesuffix("\n").split("\n"):
        found = re.fullmatch(r"::(?:error|warning|notice) ((?:[a-zA-Z]+=[^:,\n]*,?)+)::([^\n\r]*)", line)
        if found is None:
            yield f"no annotation: {line[:100]!r}"
        elif re.search(r"%(?!25|0A|0D|3A|2C)", line) or "::" in found[1]:
            yield f"an escape that is not ours: {line[:100]!r}"
        if re.search(r"##\w*\[", line):
            yield f"a command: {line[:80]!r}"


_CHECKS = {
    "text": _lines,
    "markdown": _markdown,
    "html": _html,
    "junit": _junit,
    "sarif": _json,
    "json": _json,
    "ndjson": _ndjson,
    "github": _github,
    "brief": _lines,
}
