"""Find in a text what may name somebody: names known already, names at a known place, lists of hosts, and forms such as paths."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

from nccl_triage import resources
from nccl_triage.engine import nodes
from nccl_triage.engine.nodes import Node
from nccl_triage.engine.pattern import Pattern
from nccl_triage.lazy_regex import lazily
from nccl_triage.redaction import strings
from nccl_triage.redaction.kept_words import vocabulary
from nccl_triage.redaction.pseudonyms import FORM, MADE
from nccl_triage.redaction.secret_kinds import written_out

_RUN = lazily(r"[A-Za-z0-9]+|[^\x00-\x7f]")


class KnownNames:
    """Names, each with what stands in its place; a name may hold any characters.

    ``edges`` are characters besides letters and digits that, next to a name, make it a part of something else.
    """

    def __init__(self, edges: str = "") -> None:
        self._edges = frozenset(edges)
        self._names: dict[str, str] = {}
        #: First run of letters and digits of a name -> (where it begins in the name, length of the name), long ones first.
        self._places: dict[str, list[tuple[int, int]]] = defaultdict(list)

    def add(self, name: str, replacement: str) -> None:
        """Add a name; the first replacement given to a name stays."""
        key = name.lower()
        run = _RUN.search(key)
        if run is None or key in self._names or len(key) != len(name):
            return
        self._names[key] = replacement
        place = (run.start(), len(key))
        places = self._places[run[0]]
        if place not in places:
            places.append(place)
            places.sort(key=lambda entry: -entry[1])

    def find(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield (start, end, replacement) of the names in a text, from left to right, none inside another."""
        lowered = text.lower()
        if self._places.keys().isdisjoint(_RUN.findall(lowered)):
            return
        if len(lowered) != len(text):  # a letter whose lower case is longer: places would not fit
            lowered = "".join(char.lower() if len(char.lower()) == 1 else char for char in text)
        done = 0
        for run in _RUN.finditer(lowered):
            for offset, length in self._places.get(run[0], ()):
                start = run.start() - offset
                end = start + length
                if start >= done and lowered[start:end] in self._names and self._whole(text, start, end):
                    yield start, end, self._names[lowered[start:end]]
                    done = end
                    break

    def _whole(self, text: str, start: int, end: int) -> bool:
        return not (
            (start > 0 and self._continues(text[start - 1], text[start]))
            or (end < len(text) and self._continues(text[end], text[end - 1]))
        )

    def _continues(self, outside: str, inside: str) -> bool:
        return outside in self._edges or (_alphanumeric(outside) and _alphanumeric(inside))

    def replace(self, text: str) -> str:
        """Return the text with all names replaced."""
        made, done = [], 0
        for start, end, replacement in self.find(text):
            made += [text[done:start], replacement]
            done = end
        return "".join([*made, text[done:]]) if made else text


def _alphanumeric(char: str) -> bool:
    return char.isascii() and char.isalnum()


NameKind = Literal["host", "user", "name", "repo", "path", "guid", "serial", "account", "phone"]
KINDS: tuple[NameKind, ...] = ("host", "user", "name", "repo", "path", "guid", "serial", "account", "phone")
#: An item of a list, its brackets of numbers included, without the port or the slots behind it.
_ITEM = lazily(r"(?P<name>[^\s,\"'\[\]:]{1,253}(?:\[[\d,-]{1,400}\])?[^\s,\"'\[\]:]{0,64})[^\s,]{0,64}")


@dataclass(frozen=True, slots=True)
class NameContext:
    """A place where a name of one kind stands; the last group of ``pattern`` that matched is the name.

    What a ``weak`` place holds is no name when it is made of words of messages alone; ``several`` have a list of names.
    """

    id: str
    kind: NameKind
    guards: tuple[str, ...]
    pattern: Pattern
    match_samples: tuple[str, ...]
    not_samples: tuple[str, ...]
    weak: bool = False
    several: bool = False

    def names(self, text: str) -> Iterator[str]:
        """Yield the names that stand at such places of a text."""
        for match in self.pattern.compiled.finditer(text):
            found = match[match.lastgroup]
            for name in (item["name"] for item in _ITEM.finditer(found)) if self.several else (found,):
                if not (self.weak and vocabulary().common(name, prose=True)):
                    yield name


def _context(node: Node, parts: dict[str, str]) -> NameContext:
    part = node.keys(("id", "kind", "guard", "pattern", "match", "not"), ("weak", "several"))
    return NameContext(
        id=part["id"].text(),
        kind=part["kind"].choice(KINDS),  # type: ignore[arg-type]
        guards=tuple(part["guard"].texts()),
        pattern=written_out(part["pattern"], parts),
        match_samples=tuple(part["match"].texts()),
        not_samples=tuple(part["not"].texts()),
        weak="weak" in part and part["weak"].flag(),
        several="several" in part and part["several"].flag(),
    )


@cache
def contexts() -> tuple[NameContext, ...]:
    """Return all rows; raises RuleError when the file is wrong."""
    text = (resources.rules_dir() / "redaction" / "names.yaml").read_text(encoding="utf-8")
    root = nodes.parse(text, "rules/redaction/names.yaml").keys(("parts", "names"))
    parts = {name: node.text() for name, node in root["parts"].mapping().items()}
    return tuple(_context(node, parts) for node in root["names"].items())


@lru_cache(maxsize=1 << 14)
def _contexts_of(shape: str) -> tuple[NameContext, ...]:
    lowered = shape.lower()
    return tuple(row for row in contexts() if any(strings.shape(guard) in lowered for guard in row.guards))


def names_in(text: str) -> Iterator[tuple[NameKind, str]]:
    """Yield the names in a text with their kinds."""
    for context in _contexts_of(strings.shape(text)):
        for name in context.names(text):
            yield context.kind, name


_LIST = lazily(r"(?P<before>[^\[\]]*)\[(?P<ranges>[0-9][0-9,-]*)\](?P<after>[^\[\]]*)")
_RANGE = lazily(r"(\d{1,9})(?:-(\d{1,9}))?")
_NUMBERED = lazily(r"(\D*)(0|[1-9]\d*)(|\D.*)")
#: Maximum number of hosts expanded from one list.
_MOST = 8192


def hosts_of_list(text: str) -> list[str] | None:
    """Return the hosts of a list, in its order, or None when it is none."""
    match = _LIST.fullmatch(text)
    if match is None:
        return None
    found: list[str] = []
    for part in match["ranges"].split(","):
        span = _RANGE.fullmatch(part)
        if span is None:
            return None
        first, last = int(span[1]), int(span[2] or span[1])
        if last < first or last - first >= _MOST or len(found) >= _MOST:
            return None
        found += [f"{match['before']}{n:0{len(span[1])}d}{match['after']}" for n in range(first, last + 1)]
    return found


def is_host_list(text: str) -> bool:
    """Tell whether brackets hold numbers of hosts rather than the index of a list: padded, or after a hyphen."""
    match = _LIST.fullmatch(text)
    return match is not None and bool(match["before"].endswith("-") or re.match(r"0\d", match["ranges"]))


def shortened(hosts: list[str]) -> str:
    """Return hosts as a list: ``host-[1-3,7]``; names that have no number in common stand side by side."""
    parts: list[tuple[str, str, list[list[int]]]] = []
    for host in hosts:
        match = _NUMBERED.fullmatch(host)
        if match is None:
            parts.append((host, "", []))
            continue
        number = int(match[2])
        if parts and parts[-1][:2] == (match[1], match[3]) and parts[-1][2]:
            runs = parts[-1][2]
            if runs[-1][1] + 1 == number:
                runs[-1][1] = number
            else:
                runs.append([number, number])
        else:
            parts.append((match[1], match[3], [[number, number]]))
    return ",".join(_written(*part) for part in parts)


def _written(before: str, after: str, runs: list[list[int]]) -> str:
    if not runs:
        return before
    listed = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return f"{before}[{listed}]{after}" if len(runs) > 1 or "-" in listed else f"{before}{listed}{after}"


_SEGMENT = r"[\w.@+~%=#*{}$-]"
_HEX4 = r"[0-9A-Fa-f]{1,4}"

#: name -> pattern, in the order in which they are tried at each place; {DOMAINS} and the like are filled in.
_FORMS = {
    "secret": r"\[secret:[a-z0-9-]{1,40}\]",
    "made": rf"(?<![A-Za-z0-9.]){MADE}(?![A-Za-z0-9])",
    "url": r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s\"'<>|)\\,;`]{1,2048}",
    "mail": r"(?<![A-Za-z0-9_.+-])[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}@[A-Za-z0-9][A-Za-z0-9_.-]{0,252}",
    "uuid": r"(?<![A-Za-z0-9])(?:GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "mac": r"(?<![0-9A-Fa-f:.])(?:[0-9A-Fa-f]{2}:){5,19}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])"
    r"|(?<![0-9A-Za-z-])(?=[0-9-]{0,16}[A-Fa-f])(?:[0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2}(?![0-9A-Za-z-])",
    "guid": r"(?<![0-9A-Za-z:.])(?:[0-9a-fA-F]{4}:){3}[0-9a-fA-F]{4}(?![0-9A-Za-z:])",
    "ipv6": rf"(?:(?<![0-9A-Za-z:.])|(?<=\w:)(?=(?i:fe[89ab]|f[cd]|2|::ffff)))(?=[0-9A-Fa-f:]{{0,40}}::|(?:{_HEX4}:){{7}})(?:{_HEX4}(?=:)|(?=::))(?::{{1,2}}{_HEX4}){{1,7}}(?:::)?"
    r"(?:\.\d{1,3}\.\d{1,3}\.\d{1,3})?(?:/\d{1,3})?(?![0-9A-Za-z])",
    "ipv4": r"(?<![A-Za-z0-9.])\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2}(?![\d/]))?(?![A-Za-z0-9]|\.\d)",
    "apart": r"(?<![0-9A-Za-z.-])(?<![0-9]_)(?:10|172(?=.(?:1[6-9]|2\d|3[01])\D)|192(?=.168\D)|100)"
    r"(?P<joint>[_-])(?:0|[1-9]\d{0,2})(?P=joint)(?:0|[1-9]\d{0,2})(?P=joint)(?:0|[1-9]\d{0,2})(?![0-9A-Za-z-]|_\d)",
    "winpath": r"(?<![A-Za-z0-9])[A-Za-z]:\\{1,2}[\w.@+~%=#-]{1,255}(?:\\{1,2}[\w.@+~%=#-]{1,255}){0,64}",
    "path": rf"(?:(?<![\w./<])|(?<=\w)(?=/(?i:home|homes|users)/))(?:~[\w.-]{{0,64}})?(?:/{_SEGMENT}{{1,255}}){{1,64}}/?"
    rf"|(?<![\w./~$-])(?:\.{{1,2}}/){{1,16}}{_SEGMENT}{{1,255}}(?:/{_SEGMENT}{{1,255}}){{0,64}}",
    "file": r"(?<![\w./~$@-])(?:[\w.@+-]{1,255}/){1,32}[\w.@+=-]{1,200}\.(?:{SUFFIXES})(?![\w-])",
    "nodes": r"(?<![\w.-])[A-Za-z][\w.-]{0,62}\[[0-9][0-9,-]{0,500}\][\w.-]{0,62}",
    "domain": r"(?<![\w.@/-])(?:[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?\.){1,8}(?:{DOMAINS})(?![\w-]|\.\w)"
    rf"(?::\d{{1,5}})?(?:/{_SEGMENT}{{1,255}}){{0,32}}",
    "pseudonym": rf"(?<![A-Za-z0-9]){FORM}(?![A-Za-z0-9])",
}


#: What a text must hold for a form to be looked for.
_SIGNS = {
    "secret": lazily(r"\[secret:"),
    "made": lazily(r"\.net-|::id-"),
    "url": lazily("://"),
    "mail": lazily("@"),
    "uuid": lazily("GPU-|MIG-"),
    "mac": lazily(r"[0-9A-Fa-f]{2}[:-][0-9A-Fa-f]{2}[:-][0-9A-Fa-f]{2}[:-][0-9A-Fa-f]{2}[:-]"),
    "guid": lazily(r"(?:[0-9A-Fa-f]{4}:){3}"),
    "ipv6": lazily(r"::|(?:[0-9A-Fa-f]{1,4}:){4}"),
    "ipv4": lazily(r"\d\.\d{1,3}\.\d{1,3}\.\d"),
    "apart": lazily(r"\d[_-]\d{1,3}[_-]\d{1,3}[_-]\d"),
    "winpath": lazily(r":\\"),
    "path": lazily("/"),
    "file": lazily("/"),
    "nodes": lazily(r"[\w.-]\[\d"),
    "domain": lazily(r"[A-Za-z0-9]\.[a-z]"),
    "pseudonym": lazily(r"[a-z]-\d"),
}


@lru_cache(maxsize=1024)
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    words = vocabulary()
    filled = {
        "{SUFFIXES}": "|".join(sorted(words.suffixes | words.library_suffixes)),
        "{DOMAINS}": "|".join(sorted(words.domains | words.local_domains)),
    }
    source = "|".join(f"(?P<{name}>{_FORMS[name]})" for name in names)
    for place, alternatives in filled.items():
        source = source.replace(place, alternatives)
    return re.compile(source)


@lru_cache(maxsize=1 << 14)
def _form_names(shape: str) -> tuple[str, ...]:
    return tuple(name for name, sign in _SIGNS.items() if sign.search(shape))


def forms_in(text: str) -> list[re.Match[str]]:
    """Return the matches of known forms in a text; the group that matched names the form."""
    names = _form_names(strings.shape(text))
    return list(_pattern(names).finditer(text)) if names else []
