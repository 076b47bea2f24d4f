"""Peel the prefixes that launchers, collectors and loggers put around a message, in any nesting.

``PrefixReader.peel`` takes one physical line and returns the message and the context that the prefixes carried. Headers of
the programs whose lines we diagnose (NCCL's ``host:pid:tid [dev] NCCL WARN``, c10's ``[E1206 .. file.cpp:607]``)
are read but stay in the message, because signatures speak of them.

The prefixes are those of ``rules/prefixes``. Some look like ordinary text (``3: ``, ``node1: ``, ``[2] ``). They count only
when the source as a whole uses them: ``PrefixReader.sniff`` decides that once per source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from re import Match

from nccl_triage.engine.line_prefixes import PrefixRules
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Context
from nccl_triage.parsers import line_context
from nccl_triage.parsers.believed import BELIEVED, NUMBERED
from nccl_triage.parsers.learned_prefix import MOST, PROBE, LearnedPrefix, learn
from nccl_triage.parsers.prefixes import PrefixTable, TextLikePrefix

#: Lines at which is looked more closely.
SOME = 100
#: Lines of samples that are tried where a larger one shows no prefix: behind a short run others may speak.
FEW = (100, 30)
#: Lines of one shape from which it is learnt where many lines are of few shapes.
SAME_SHAPE = 4
#: Prefixes peeled from one line at most; real lines carry six or seven.
MAX_LAYERS = 16

_ANSI = lazily(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]")
# rsyslog writes a control character as `#` and its octal number.
_OCTAL_ANSI = lazily(r"#033\[[0-9;]{0,12}[mK]")
# Copies from web consoles lose the ESC byte: `[36m(Actor pid=1) ...`.
_LOST_ANSI = lazily(r"^(?:\[\d{1,2}(?:;\d{1,2})*m)+")
_INNER_LOST_ANSI = lazily(r"\[\d{1,2}(?:;\d{1,2})*m(?=\s|$|\()")


@dataclass(slots=True)
class Peeled:
    """A line without its wrappers. ``extra`` holds further lines that were packed inside (JSON ``exc_info``)."""

    text: str
    context: Context
    wrappers: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)


_DEDUP = lazily(r"\s*\[repeated (?P<n>\d{1,9})x across cluster\](?: \(Ray deduplicates logs by default\.[^\n]*\))?\s*$")

_DIGIT_RUNS = lazily(r"\d+")
#: How lines without a prefix begin that belong to a traceback, to py-spy's stacks or to nccl-tests.
_BEGINS = lazily(
    r'Traceback \(most recent call last\):|  File "|[A-Za-z_][\w.]{0,80}(?:Error|Exception)(?:: |$)'
    r"|Thread (?:(?:0x)?\w{1,20} )?\((?:active|idle)| {4}[\w.<>]{1,120} \([\w./<>-]{1,200}:\d{1,7}\)$|#(?: nThread|$|\s{2,})"
)


@dataclass(slots=True)
class WrapperProfile:
    """Which of the prefixes that look like text a source uses, and the prefix that all of its lines got later."""

    #: The ids of those that are believed, and the names of speakers by which they are.
    believed: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    outer: LearnedPrefix | None = None
    #: A learned prefix behind known ones, such as the name of a stream behind the time of its collector.
    inner: LearnedPrefix | None = None


_PLAIN = WrapperProfile()
#: Longest last part of a host's name, and a rank as torchrun writes it before a line.
_LAST_PART = 8
_RANKED = lazily(r"\[(?:rank|default)\d{1,7}\]:")
#: Characters of lines that are remembered, and lines.
_SHORT, _MAX_KNOWN = 500, 1 << 12
#: Folds the digits of a text.
FOLDED = str.maketrans("123456789", "000000000")


class PrefixReader:
    """Reads the prefixes of lines by one set of rules."""

    def __init__(self, rules: PrefixRules) -> None:
        self._table = PrefixTable(rules)
        self.speaker_of = self._table.speaker_of
        #: Lines without their digits -> whether they begin with an unambiguous prefix: it is asked of each several times.
        self._known: dict[str, bool] = {}

    def sniff(self, lines: Iterable[str]) -> WrapperProfile:
        """Look at the first lines of a source and decide; where most of many tell nothing, the first few may."""
        sample = [_strip_ansi(line) for line in lines]
        sample = [line for line in sample if line.strip()]
        profile = self._profile_of(sample)
        if profile != _PLAIN:
            return profile
        shapes = [_DIGIT_RUNS.sub("0", line) for line in sample]
        distinct = set(shapes)
        for few in FEW:
            if len(sample) > few and len(set(shapes[:few])) < len(distinct):  # else they tell nothing else
                profile = self._profile_of(sample[:few])
                if profile != _PLAIN:
                    return profile
        # Lines of another program that come again and again hide how the others begin.
        rare = _few_of_a_shape(sample, shapes)
        if SAME_SHAPE < len(rare) < len(sample) // 2:
            profile = self._profile_of(rare)
            if not all(map(NUMBERED.search, profile.names)):
                profile = WrapperProfile()  # of so few lines a word before a colon is no name
        return profile

    def _profile_of(self, sample: list[str]) -> WrapperProfile:
        if not sample:
            return WrapperProfile()
        profile = self._look(sample)
        if profile == _PLAIN:
            outer = learn(sample[:SOME], self._recognised, self._table.copied)
            if outer is not None:
                sample = [rest for line in sample if (rest := outer.without(line)) is not None and rest.strip()]
                profile = self._look(sample)
                profile.outer = outer
        # Behind a collector's prefix may stand that of a launcher.
        for some in (sample[:PROBE], sample[:SOME]):
            inside = [peeled.text for line in some if (peeled := self.peel(line, profile)).wrappers]
            if len(inside) <= MOST * len(some):
                return profile
        inside = [text for text in inside if text.strip()]
        profile.inner = learn(inside, self._recognised, self._table.copied)
        if profile.inner is not None:
            inside = [rest for text in inside if (rest := profile.inner.without(text)) is not None and rest.strip()]
        self._look_inside(inside, profile)
        return profile

    def _look(self, sample: Sequence[str]) -> WrapperProfile:
        """Decide which of the prefixes that look like text stand at the beginning of lines."""
        half = max(2, len(sample) // 2)
        found: dict[str, frozenset[str]] = {}
        for row in self._table.text_like:
            if row.believed is not None and (names := BELIEVED[row.believed](row, sample, half)) is not None:
                found[row.id] = names
        return WrapperProfile(frozenset(found), frozenset().union(*found.values()))

    def _look_inside(self, sample: Sequence[str], profile: WrapperProfile) -> None:
        """Look behind other prefixes, where words before a colon are common: of more lines is asked more."""
        most = max(3, MOST * len(sample))
        outside = profile.believed
        for row in self._table.text_like:
            if row.inside is None or row.id in outside or (row.behind is not None and row.behind not in outside):
                continue
            names = BELIEVED[row.inside](row, sample, most)
            if names is not None:
                profile.believed |= {row.id}
                profile.names |= names

    def _recognised(self, lines: Sequence[str]) -> int:
        """Return how many of some lines begin with a known prefix, if they are a whole source."""
        profile = self._look(lines)
        if profile == _PLAIN:
            return sum(
                self._plainly_known(line) if len(line) <= _SHORT else self._is_known(line, _PLAIN) for line in lines
            )
        return sum(self._is_known(line, profile) for line in lines)

    def _is_known(self, line: str, profile: WrapperProfile) -> bool:
        peeled = self.peel(line, profile)
        return bool(peeled.wrappers or peeled.context.program or _BEGINS.match(line))

    def _plainly_known(self, line: str) -> bool:
        """Tell whether a line, or one before it that differed in its digits, begins with an unambiguous prefix."""
        folded = line.translate(FOLDED)
        known = self._known.get(folded)
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[folded] = self._is_known(line, _PLAIN)
        return known

    def peel(self, line: str, profile: WrapperProfile = _PLAIN) -> Peeled:
        """Return the message of a line and the context that its prefixes carried."""
        text = _strip_ansi(line).rstrip()
        peeled = Peeled(text=text, context=Context())
        if profile.outer is not None and (behind := profile.outer.without(text)) is not None:
            peeled.wrappers.append(profile.outer.id)
            text = behind
        table, context, seen = self._table, peeled.context, set[str]()
        believed = table.chosen(profile.believed) if profile.believed else ()
        for _ in range(MAX_LAYERS):
            if not text:
                break
            first = text[0]
            if first in table.readers:
                name, reader = table.readers[first]
                unpacked = reader(text, context)
                if unpacked is None:
                    break
                if context.clock is None and context.time is not None:
                    context.clock = name
                peeled.wrappers.append(name)
                text, *extra = map(_strip_ansi, unpacked)
                peeled.extra.extend(extra)
                continue
            if believed and (rest := _text_like(text, believed, profile, context, seen)) is not None:
                peeled.wrappers.append(rest[0])
                text = rest[1]
                continue
            stripped = text.lstrip(" \t") if first in " \t" else text
            for row in table.certain.get(stripped[:1], table.anywhere):
                match = row.pattern.match(stripped)
                if match is not None:
                    row.take(match, context)
                    peeled.wrappers.append(row.id)
                    text = stripped[match.end() :]
                    break
            else:
                if profile.inner is None or "" in seen or (behind := profile.inner.without(text)) is None:
                    break
                seen.add("")  # no prefix has this id
                peeled.wrappers.append(profile.inner.id)
                text = behind
        # It stands at the end, if anywhere.
        repeated = _DEDUP.search(text, max(0, len(text) - 400)) if "repeated" in text[-400:] else None
        if repeated is not None:
            context.repeated = int(repeated["n"])
            text = text[: repeated.start()]
        line_context.read_headers(text, context)
        peeled.text = text
        return peeled


def _text_like(
    text: str, believed: Sequence[TextLikePrefix], profile: WrapperProfile, context: Context, seen: set[str]
) -> tuple[str, str] | None:
    """Take one of the prefixes that are believed, each once per line; returns its id and what is behind it."""
    for row in believed:
        if row.id in seen or (row.first and seen) or (row.behind is not None and row.behind not in seen):
            continue
        match = row.pattern.match(text)
        if match is not None and (not row.named or _may_speak(row, match, profile)):
            seen.add(row.id)
            row.take(match, context)
            return row.id, text[match.end() :]
    return None


def _may_speak(row: TextLikePrefix, match: Match[str], profile: WrapperProfile) -> bool:
    """Tell whether a word is the name of a speaker: a known one, one that is named like it, or one before a rank."""
    name = match[row.speaker]
    if name in profile.names:
        return True
    if not row.may_speak(name):
        return False
    stem = _stem(name)
    return (stem is not None and stem in _stems(profile.names)) or _RANKED.match(match.string, match.end()) is not None


@lru_cache(maxsize=16)
def _stems(names: frozenset[str]) -> frozenset[str]:
    return frozenset(stem for name in names if (stem := _stem(name)) is not None)


def _stem(name: str) -> str | None:
    """Return what the names of hosts of one cluster share: all before the last part of a name."""
    end = max(map(name.rfind, "-_.")) + 1
    return name[:end] if 1 < end < len(name) <= end + _LAST_PART and name[0].isalpha() else None


def _few_of_a_shape(sample: Sequence[str], shapes: Sequence[str]) -> list[str]:
    """Return the lines without those that only differ in digits from several before them."""
    seen: Counter[str] = Counter()
    kept = []
    for line, shape in zip(sample, shapes, strict=True):
        seen[shape] += 1
        if seen[shape] <= SAME_SHAPE:
            kept.append(line)
    return kept


def _strip_ansi(line: str) -> str:
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if "#033[" in line:
        line = _OCTAL_ANSI.sub("", line)
    if line.startswith("[") and "m" in line[:12]:
        stripped = _LOST_ANSI.sub("", line)
        if stripped != line:
            line = _INNER_LOST_ANSI.sub("", stripped)
    return line
