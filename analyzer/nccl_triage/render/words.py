"""A word of the interface in the reader's language, and the short phrases that every format builds from a document.

Log text never reaches a reader except through ``visible``: escape sequences, control characters and
characters that reorder or hide text would otherwise act on the terminal or the page that shows them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from nccl_triage.lazy_regex import lazily
from nccl_triage.numbers import VERY_LIKELY
from nccl_triage.render.vocabulary import WORDS

Lang = Literal["en", "zh"]
Document = Mapping[str, Any]


class RenderOptions(NamedTuple):
    """The reader's wishes; a format ignores those that do not concern it. ``link(path, line)`` is an address, or None."""

    lang: Lang = "en"
    #: Colours of a terminal.
    color: bool = False
    #: Columns of the terminal; None where nothing may be folded.
    width: int | None = None
    #: 0: what decides; 1 and more: everything.
    verbose: int = 0
    link: Callable[[str, int], str | None] | None = None


#: What a document may use as a word: nothing that a terminal, Markdown or a page would take for more than that.
_WORD = lazily(r"(?:[A-Za-z0-9][A-Za-z0-9_-]{0,63})?")


def is_word(text: str) -> bool:
    """Tell whether a text can be a state, role or the like, if maybe one of a newer document."""
    return _WORD.fullmatch(text) is not None


def word(key: str, lang: Lang) -> str:
    """Return an interface word; an unknown key (a state or role of a newer document) stands for itself."""
    pair = WORDS.get(key)
    if pair is None:
        return key if is_word(key) else "?"
    return pair[0 if lang == "en" else 1]


def run_name(run: Mapping[str, Any], runs: Sequence[Mapping[str, Any]], lang: Lang) -> str:
    """Return what one of several runs is called; that of the verdict is marked."""
    name = word("run_of", lang).format(n=run.get("number"), all=runs[-1].get("number"))
    return f"{name} {word('run_told', lang)}" if run.get("told") else name


def run_text(run: Mapping[str, Any], lang: Lang) -> str:
    """Return one line on a run: how it ended, where it stands in the input, its first fault."""
    first, last = run.get("from"), run.get("to")
    where = f" ({first['path']}:{first['line']}-{last['line']})" if first and last else ""
    fault = f": {' '.join(str(run['fault']).split())}" if run.get("fault") else ""
    return f"{pick(run, 'says', lang).rstrip('.。')}{where}{fault}"


def unknown_text(document: Document, lang: Lang) -> str:
    """Return why no cause is named: the log does not show it, or it shows no failure."""
    outcome = document.get("outcome") or {}
    if outcome.get("state") in ("cut", "none"):
        return pick(outcome, "says", lang)
    return word("unknown_text", lang)


def pick(item: Mapping[str, Any], key: str, lang: Lang) -> str:
    """Return a text for people as one line in the language asked for, in English where there is no other."""
    value = (item.get(f"{key}_zh") if lang == "zh" else None) or item.get(key)
    return "" if value is None else " ".join(str(value).split())


def listed(item: Mapping[str, Any], key: str, lang: Lang) -> list[str]:
    """Return a list of texts for people in the language asked for, in English where there is no other."""
    return [str(text) for text in (item.get(f"{key}_zh") if lang == "zh" else None) or item.get(key) or []]


_SEQUENCE = lazily(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
#: Controls except the tab, invisible and bidirectional characters, separators, surrogates, tag letters.
_UNSEEN = lazily(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff\ufffe\uffff\U000e0000-\U000e0fff]"
)


def _escape(code: int) -> str:
    if code == 10:
        return "\\n"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class _Shown(dict[int, str]):
    """Replacements of characters, computed on first use and cached."""

    def __missing__(self, code: int) -> str:
        shown = chr(code)
        if _UNSEEN.match(shown):
            shown = _escape(code)
        if len(self) < _KEPT:
            self[code] = shown
        return shown


_SHOWN = _Shown()
#: Maximum number of cached characters.
_KEPT = 4096


def visible(value: object, limit: int = 4000) -> str:
    """Return the text with escape sequences removed, unseen characters spelled out, and cut at ``limit``."""
    text = str(value)
    left_out = len(text) - limit
    if left_out > 0:
        text = text[:limit]
    text = _SEQUENCE.sub("", text).translate(_SHOWN)
    return f"{text} ..[+{left_out}]" if left_out > 0 else text


#: What runners of continuous integration obey: ``::`` at the beginning of a line, ``##[`` and ``##vso[`` anywhere.
_COMMAND = lazily(r"^(\s*:)(?=:)|(##)(?=\w*\[)")


def harmless_line(line: str) -> str:
    """Return a line of which no runner of continuous integration takes a part for a command."""
    return _COMMAND.sub(r"\1\2 ", line) if "::" in line or "##" in line else line


def visible_lines(value: object) -> str:
    """Return a text whose line ends stay and of which nothing else acts, however long it is."""
    lines = str(value).replace("\r\n", "\n").split("\n")
    return "\n".join(visible(line, len(line)) for line in lines)


def prompt(command: str) -> str:
    """Return the prompt before a command; comments and batch directives get none."""
    return "" if command.startswith("#") else "$ "


def columns(text: str) -> int:
    """Return how many terminal columns a text takes."""
    if text.isascii():
        return len(text)
    seen = (c for c in text if not unicodedata.combining(c))
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in seen)


def cut(text: str, room: int) -> str:
    """Return the text, ended with ``..`` where it is wider than ``room`` columns."""
    if columns(text) <= room:
        return text
    kept, used = [], 0
    for char in text:
        used += columns(char)
        if used > room - 2:
            break
        kept.append(char)
    return "".join(kept) + ".."


def place(item: Mapping[str, Any]) -> str:
    """Return ``path:line``."""
    return f"{item.get('path') or '?'}:{item.get('line') or '?'}"


def confidence(value: Any) -> str:
    """Return a confidence with two decimals that never rounds up to certainty."""
    return f"{min(float(value or 0), 0.99):.2f}"


def certainty(item: Mapping[str, Any], lang: Lang) -> str:
    """Return how sure a cause is in words: established, very likely, likely or possible."""
    status = str(item.get("status") or "possible")
    if status == "supported" and float(item.get("confidence") or 0) >= VERY_LIKELY:
        return word("sure_very", lang)
    return word(f"sure_{status}" if status in ("established", "supported", "possible") else status, lang)


def rank_ranges(ranks: Iterable[int]) -> str:
    """Return ranks as ``0-3, 7``."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def culprit_name(culprit: Mapping[str, Any], lang: Lang) -> str:
    """Return ``rank 2 on node-a (gpu 2, pid 4711)``, as far as known."""
    rank, host = culprit.get("rank"), culprit.get("host")
    name = "" if rank is None else f"rank {rank}"
    if host:
        name = word("on_host", lang).format(rank=name, host=host) if name else str(host)
    details = [f"{k} {culprit[k]}" for k in ("gpu", "pid") if culprit.get(k) is not None]
    if culprit.get("address") and culprit["address"] != host:
        details.append(str(culprit["address"]))
    if not name and not details:
        return word("culprit_unknown", lang)
    told = word("list_comma", lang).join(details)
    return word("in_brackets", lang).format(what=name, more=told) if name and details else name or told


#: Most columns that a list of ranks takes in a sentence.
RANKS_TOLD = 48


def consequence_phrase(document: Document, lang: Lang, lines: bool = True) -> str:
    """Return how many ranks (or lines, where none names a rank) merely show the consequences."""
    culprits = [c for d in document.get("diagnoses", [])[:1] for c in d.get("culprits", [])]
    blamed: set[int | None] = {c["rank"] for c in culprits if c.get("rank") is not None}
    hosts = {c["host"] for c in culprits if c.get("rank") is None and c.get("host")}
    ranks: set[int | None] = set()
    count = 0
    for symptom in document.get("symptoms", []):
        if symptom.get("role") == "cascade":
            ranks.update(symptom.get("ranks") or [])
            count += symptom.get("count") or 0
    for entry in (document.get("job") or {}).get("ranks") or []:
        if entry.get("state") in ("root", "missing", "behind") or entry.get("host") in hosts:
            blamed.add(entry.get("rank"))
        elif entry.get("state") in ("entered", "error", "dead"):
            ranks.add(entry.get("rank"))
    own = {
        rank
        for symptom in document.get("symptoms", [])
        if symptom.get("role") == "root"
        for rank in symptom.get("ranks") or []
    }
    others = {rank for rank in ranks - blamed - own if rank is not None}
    if others:
        key = "consequence_ranks" if blamed | own else "consequence_all"
        ranges = cut(rank_ranges(others), RANKS_TOLD)
        return word(f"{key}_one" if len(others) == 1 else key, lang).format(n=len(others), ranks=ranges)
    key = "consequence_lines_one" if count == 1 else "consequence_lines"
    return word(key, lang).format(n=count) if count and lines and not ranks else ""


def verification_text(diagnosis: Mapping[str, Any], lang: Lang) -> str:
    """Return the outcome of the experiments with its reason, or nothing when none has run."""
    found = diagnosis.get("verification") or {}
    outcome = word(str(found.get("outcome") or ""), lang)
    return ": ".join(part for part in (outcome, pick(found, "reason", lang)) if part)
