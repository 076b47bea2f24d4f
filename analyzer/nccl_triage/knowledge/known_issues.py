"""Known issues of programs: the shape of their message, which versions have them, what mends and what avoids them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from nccl_triage.engine import cache as cache_files
from nccl_triage.engine.fields import identifier
from nccl_triage.engine.nodes import Node
from nccl_triage.engine.pattern import Pattern
from nccl_triage.engine.regex_analysis import Anchors
from nccl_triage.engine.rule_cache import AnchorTable
from nccl_triage.errors import RuleError
from nccl_triage.knowledge import reading
from nccl_triage.knowledge.entries import Bound, Text

#: How the mend or the way around an issue is known, from the surest to the weakest.
HOW_KNOWN = ("closing-change", "release-notes", "source", "maintainer", "reporter", "users")
#: Characters of a message that are searched.
MAX_TEXT = 4_000
_SAYS = {
    ("mended", "avoid"): {
        "en": "{name} issue, mended in {version}; until then {avoid}.",
        "zh": "{name} 的问题，{version} 已修复；在此之前请{avoid}。",
    },
    ("mended",): {"en": "{name} issue, mended in {version}.", "zh": "{name} 的问题，{version} 已修复。"},
    ("avoid",): {
        "en": "{name} issue, no release that mends it is known; {avoid}.",
        "zh": "{name} 的问题，目前没有已知的修复版本；请{avoid}。",
    },
}
_REPAIRS = {
    ("mended", "avoid"): {
        "en": "Install {name} {version} or later, which mends this known issue; until then {avoid}",
        "zh": "安装 {name} {version} 或更高版本（已修复此已知问题）；在此之前请{avoid}",
    },
    ("mended",): {
        "en": "Install {name} {version} or later, which mends this known issue",
        "zh": "安装 {name} {version} 或更高版本（已修复此已知问题）",
    },
    ("avoid",): {"en": "This is a known issue of {name}: {avoid}", "zh": "这是 {name} 的已知问题：请{avoid}"},
}


class KnownIssue(NamedTuple):
    """An issue of a program: ``matches`` is searched in a message, ``affects`` are conditions on stated versions.

    ``mended_in`` is the first release of the program without it, None where none is known. ``avoid`` continues a
    sentence that begins with "until then".
    """

    id: str
    program: str
    name: str
    title: Text
    matches: Pattern
    affects: tuple[Bound, ...]
    mended_in: str | None
    avoid: Text | None
    url: str
    how_known: str
    causes: tuple[str, ...]
    match_samples: tuple[str, ...]
    not_samples: tuple[str, ...]
    where: str

    def open_in(self, versions: Mapping[str, Sequence[str]]) -> bool:
        """Tell whether the issue may be in a job of these versions; a program whose version is unknown may have it."""
        bounds = [*self.affects]
        if self.mended_in is not None:
            bounds.append(Bound(self.program, "<", self.mended_in))
        return all(
            any(reading.holds((bound,), {bound.program: version}) for version in versions[bound.program])
            for bound in bounds
            if versions.get(bound.program)
        )

    @property
    def says(self) -> Text:
        """Which program it is of, what mends it and what avoids it, in one sentence."""
        return self._filled(_SAYS)

    @property
    def repair(self) -> Text:
        """What to do about it."""
        return self._filled(_REPAIRS)

    def _filled(self, templates: Mapping[tuple[str, ...], Text]) -> Text:
        keys = tuple(key for key, value in (("mended", self.mended_in), ("avoid", self.avoid)) if value)
        return {
            language: text.format(name=self.name, version=self.mended_in, avoid=(self.avoid or {}).get(language))
            for language, text in templates[keys].items()
        }


@cache
def shipped() -> dict[str, KnownIssue]:
    """Return the issues by id, in the order of the files."""
    found: dict[str, KnownIssue] = {}
    for root in reading.roots("known_issues"):
        file = root.keys(("program", "name", "known_issues"))
        for item in file["known_issues"].items():
            issue = _issue(item, file["program"].text(), file["name"].text())
            if issue.id in found:
                raise item.fail("{id!r} already exists ({place})", id=issue.id, place=found[issue.id].where)
            found[issue.id] = issue
    return found


def _issue(node: Node, program: str, name: str) -> KnownIssue:
    part = node.keys(
        ("id", "title", "matches", "url", "how_known", "causes", "match", "not"), ("affects", "mended_in", "avoid")
    )
    if not part.keys() & {"mended_in", "avoid"}:
        raise node.fail("an issue needs 'mended_in' or 'avoid'")
    mended_in = reading.text(part, "mended_in")
    if mended_in is not None and reading.version_bound(f"{program} < {mended_in}") is None:
        raise part["mended_in"].fail("{text!r} is not a version", text=mended_in)
    return KnownIssue(
        id=identifier(part["id"]),
        program=program,
        name=name,
        title=reading.bilingual(part["title"]),
        matches=Pattern(part["matches"].text()),
        affects=reading.bounds(part, "affects"),
        mended_in=mended_in,
        avoid=reading.maybe_bilingual(part, "avoid"),
        url=part["url"].text(),
        how_known=part["how_known"].choice(HOW_KNOWN),
        causes=reading.texts(part, "causes"),
        match_samples=reading.texts(part, "match"),
        not_samples=reading.texts(part, "not"),
        where=node.where,
    )


@cache
def _anchored() -> tuple[tuple[Anchors, KnownIssue], ...]:
    """Return every issue with the literals of which each of its messages has one."""
    table = AnchorTable(reading.digest("known_issues"))
    found = []
    for issue in shipped().values():
        path, _, line = issue.where.rpartition(":")
        anchors = table.of(Node(issue.matches.source, path, int(line)))
        if anchors is None:
            raise RuleError("the pattern requires no literal", where=issue.where)
        found.append((anchors, issue))
    table.save()
    return tuple(found)


@cache
def _literals() -> tuple[frozenset[str], frozenset[str]]:
    """Return the literals of all issues, those of any case apart: few messages hold one, so few jobs need the issues."""
    entry = cache_files.name("known_issue_literals", reading.digest("known_issues"))
    known = (cache_files.read_table(entry) or {}).get("literals")
    if isinstance(known, list) and len(known) == 2 and all(isinstance(part, list) for part in known):
        return frozenset(map(str, known[0])), frozenset(map(str, known[1]))
    exact, caseless = (
        frozenset(text for anchors, _ in _anchored() if anchors.caseless == any_case for text in anchors.texts)
        for any_case in (False, True)
    )
    cache_files.write_table(entry, {"literals": [sorted(exact), sorted(caseless)]})
    return exact, caseless


def of(text: str, versions: Mapping[str, Sequence[str]]) -> list[KnownIssue]:
    """Return the issues whose message a text holds and that the stated versions may have."""
    text = text[:MAX_TEXT]
    lowered = text.lower()
    exact, caseless = _literals()
    if not (_holds(text, exact) or _holds(lowered, caseless)):
        return []
    return [
        issue
        for anchors, issue in _anchored()
        if _holds(lowered if anchors.caseless else text, anchors.texts)
        and issue.matches.search(text)
        and issue.open_in(versions)
    ]


def _holds(text: str, literals: Iterable[str]) -> bool:
    return any(literal in text for literal in literals)
