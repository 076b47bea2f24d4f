"""Read one line in full: who printed it, what its signatures find, and what it would add to the observations."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from nccl_triage.engine import match
from nccl_triage.engine.schema import Signature
from nccl_triage.observations.event import MAX_TEXT, Event
from nccl_triage.observations.store import SourceInfo
from nccl_triage.parsers import STATEFUL, line_context, templates, times, unknown_errors
from nccl_triage.parsers.wrappers import Peeled, PrefixReader, WrapperProfile
from nccl_triage.scan.literals import LineKind
from nccl_triage.scan.measurements import LINK, CurveSampler, LinkCollector

_OPENERS = tuple(opener for parser in STATEFUL for opener in parser.OPENERS)

#: A signature that a line matches, with its fields.
Match = tuple[Signature, dict[str, str]]


class ParsedLine(NamedTuple):
    """What was read of a line: the message and who printed it, and what its signatures find."""

    peeled: Peeled
    found: Sequence[Match]


class LineEffect(NamedTuple):
    """What a line would add, in a form to compare: the signatures that it matches, and all that tells such lines apart."""

    matched: frozenset[str]
    rest: Hashable


class LineParser:
    """Reads the lines of one source; ``profile`` are its prefixes, once its first lines are known."""

    def __init__(self, info: SourceInfo, curves: CurveSampler, prefixes: PrefixReader) -> None:
        self.profile = WrapperProfile()
        self._prefixes = prefixes
        self._info = info
        self._curves = curves
        #: A time with a year, of the line that had one last.
        self._year: float | None = None

    def go_on_from(self, other: LineParser) -> None:
        """Take over what another parser knows of the source so far."""
        self.profile, self._year = other.profile, other._year

    def peel(self, text: str) -> Peeled:
        """Return a line without its prefixes, its context completed."""
        peeled = self._prefixes.peel(text, self.profile)
        self.complete(peeled)
        return peeled

    def parse(self, text: str, signatures: Iterable[Signature]) -> ParsedLine:
        """Return what a line says by itself, without what the file's name and other lines add."""
        peeled = self._prefixes.peel(text, self.profile)
        return ParsedLine(peeled, list(match.matches(signatures, peeled.text, text)))

    def complete(self, peeled: Peeled) -> None:
        """Fill the context from the file's name and the year seen so far."""
        context, info = peeled.context, self._info
        if context.rank is None and info.rank is not None:
            context.rank = info.rank
        if context.local_rank is None and info.local_rank is not None:
            context.local_rank = info.local_rank
        context.host = context.host or info.host
        if context.pid is None and info.pid is not None:
            context.pid = info.pid
        if context.time is not None:
            # glog, vLLM and syslog print no year: theirs is that of the other clock, or of the lines before.
            for time in (context.printed, context.time):
                if time is not None and times.has_year(time):
                    self._year = time
            if self._year is not None:
                context.time = times.with_year_of(context.time, self._year)
                if context.printed is not None:
                    context.printed = times.with_year_of(context.printed, self._year)

    def event(self, signature: Signature, fields: dict[str, str], peeled: Peeled, number: int) -> Event:
        """Return the event of a signature that a line matches."""
        context = peeled.context  # shared by the events of one line: nobody changes it after this
        if signature.role == "progress" and context.rank is None and context.group_rank is None:
            named = line_context.plain_rank(peeled.text) if "ank" in peeled.text else None
            if named is not None:
                context = context.copy()
                context.rank = named
        return Event(
            signature=signature.id,
            source=self._info.path,
            line=number,
            text=peeled.text[:MAX_TEXT],
            context=context,
            role=signature.role,
            fields=fields,
            count=1 + context.repeated,
            kind=signature.kind,
        )

    def states_numbers(self, text: str, formats: tuple[str, ...]) -> bool:
        """Tell whether a line with literals of these formats states numbers of a curve."""
        return self._curves.reads(self._prefixes.peel(text, self.profile), formats)

    def effect(self, text: str, kind: LineKind) -> LineEffect | None:
        """Return what a line would add, without values that only its kept events show; None if each such line must be read."""
        if any(opener in text for opener in _OPENERS):
            return None
        year = self._year
        peeled = self.peel(text)
        self._year = year  # the line may be made up
        if peeled.extra:
            return None
        told: list[Hashable] = [peeled.context.repeated]
        matched: set[str] = set()
        for signature, fields in match.matches(kind.signatures or (), peeled.text, text):
            event = self.event(signature, fields, peeled, 0)
            matched.add(signature.id)
            told.append((signature.id, event.key(signature.keep_by)))
            if signature.id == LINK:
                told.append((LinkCollector.key(fields, peeled.context), fields.get("channel")))
        if kind.formats is not None:
            process = self._curves.process_of(peeled, kind.formats)
            if process is None:
                return None
            told.append(process)
        if not matched and kind.signatures is not None and unknown_errors.sounds(peeled.text):
            told.append(templates.key(peeled.text))
        return LineEffect(frozenset(matched), tuple(told))
