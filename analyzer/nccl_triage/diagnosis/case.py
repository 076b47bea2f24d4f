"""A case: the observations in order, who is who, and facts derived on demand.

Order inside one source is certain. Across sources it rests on time stamps, which come from different clocks: it is
used where all sources have them, and otherwise sources stand one after another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nccl_triage.diagnosis import coded, host_facts, kernel_log
from nccl_triage.diagnosis.devices import Devices
from nccl_triage.diagnosis.identity import Identity
from nccl_triage.engine.names import expand
from nccl_triage.engine.schema import RuleSet
from nccl_triage.events import Event, Observations
from nccl_triage.parsers import times
from nccl_triage.producers import produced_signatures


@dataclass(slots=True)
class Fact:
    """A derived fact and the events that it rests on."""

    value: Any
    events: list[Event] = field(default_factory=list)


FactFunction = Callable[["Case"], Fact | None]
_REGISTRY: dict[str, tuple[FactFunction, str]] = {}


def fact(name: str, meaning: str) -> Callable[[FactFunction], FactFunction]:
    """Register a function as the maker of a fact; ``meaning`` says what its value is."""

    def register(function: FactFunction) -> FactFunction:
        if name in _REGISTRY:
            raise ValueError(f"two makers of the fact {name}")
        _REGISTRY[name] = (function, meaning)
        return function

    return register


def fact_names() -> dict[str, str]:
    """Return every fact and its meaning."""
    from nccl_triage.diagnosis import facts

    facts.load_all()
    return {name: meaning for name, (_, meaning) in sorted(_REGISTRY.items())}


class Case:
    """Everything that conditions and culprit methods may ask about one failed (or healthy) job."""

    def __init__(self, observations: Observations, rules: RuleSet) -> None:
        from nccl_triage.diagnosis import facts

        facts.load_all()
        self.observations = observations
        self.rules = rules
        everything = _with_kinds(observations.all_events(), rules)
        remembered = [event for event in everything if event.is_remembered]
        events, self.order_known = _in_order([e for e in everything if not e.is_remembered], observations)
        events = coded.settle(events, rules)
        self.identity = Identity(observations, events)
        self._settled = events
        #: Lines of the kernel that cannot concern the job, with the reason.
        self.aside: list[kernel_log.Aside]
        self.events, self.aside = kernel_log.sort_out(events, lambda: self.devices)
        self._position = {id(event): index for index, event in enumerate(self.events)}
        self._by_signature: dict[str, list[Event]] = {}
        for event in (*self.events, *remembered):
            self._by_signature.setdefault(event.signature, []).append(event)
        self._kinds = {name: found[0].kind for name, found in self._by_signature.items()}
        self._names: dict[str, list[str]] = {}
        self._facts: dict[str, Fact | None] = {}
        self._ranks = [self.identity.rank_of(event) for event in self.events]

    @cached_property
    def devices(self) -> Devices:
        """Whose GPUs and processes the lines of hosts speak of."""
        return Devices(self.identity, self._settled)

    @cached_property
    def failures(self) -> list[Event]:
        """The events that speak of a failure, in order."""
        return [event for event in self.events if event.is_failure]

    @cached_property
    def first_complaints(self) -> dict[int | None, int]:
        """Where each rank's own first error line stands; under None the first of all."""
        first: dict[int | None, int] = {}
        for event in self.failures:
            position = self._position[id(event)]
            first.setdefault(None, position)
            first.setdefault(self._ranks[position], position)
        return first

    def signatures(self, pattern: str) -> list[str]:
        """Return the ids seen that a kind, an id or a glob of ids stands for."""
        found = self._names.get(pattern)
        if found is None:
            found = self._names[pattern] = expand(pattern, self._kinds)
        return found

    def of(self, *patterns: str) -> list[Event]:
        """Return the kept events of kinds (or of signatures: ids or globs), in order."""
        names = {name for pattern in patterns for name in self.signatures(pattern)}
        if len(names) == 1:
            return self._by_signature[names.pop()]
        found = [event for name in names for event in self._by_signature[name]]
        found.sort(key=self.position)
        return found

    def having(self, kind: str, *names: str, **values: str) -> list[Event]:
        """Return the events of a kind that have all of these fields, and these values in them."""
        return _with_fields(self.of(kind), names, values)

    def telling(self, *names: str, **values: str) -> list[Event]:
        """Return the events of any kind that have all of these fields, and these values in them."""
        return _with_fields(self.events, names, values)

    def count(self, *patterns: str) -> int:
        """Return how often lines of the kinds (or signatures) were seen, kept or not."""
        names = {name for pattern in patterns for name in self.signatures(pattern)}
        return sum(self.observations.count(name) for name in names)

    def position(self, event: Event) -> int:
        """Return the place of an event in the order of the case."""
        return self._position.get(id(event), len(self.events))

    def scopes(self) -> list[list[Event]]:
        """Return the events in groups whose order is certain: all together, or source by source."""
        if self.order_known:
            return [self.events]
        by_source: dict[str, list[Event]] = {}
        for event in self.events:
            by_source.setdefault(event.source, []).append(event)
        return [sorted(events, key=lambda e: e.line) for events in by_source.values()]

    def rank(self, event: Event) -> int | None:
        """Return the global rank of an event, or None."""
        position = self._position.get(id(event))
        # An event that was made of others has no position.
        return self.identity.rank_of(event) if position is None else self._ranks[position]

    def host(self, event: Event) -> str | None:
        """Return the host of an event, or None."""
        return self.identity.host_of(event)

    def ranks(self, events: Iterable[Event]) -> list[int]:
        """Return the distinct known ranks of events, sorted."""
        return sorted({rank for event in events if (rank := self.rank(event)) is not None})

    def fact(self, name: str) -> Fact | None:
        """Return a fact, or None when it cannot be derived; made once."""
        if name not in self._facts:
            self._facts[name] = None  # a fact that asks for itself gets None
            maker = _REGISTRY.get(name)
            self._facts[name] = maker[0](self) if maker else None
        return self._facts[name]

    def value(self, name: str, default: Any = None) -> Any:
        """Return the value of a fact, or the default."""
        found = self.fact(name)
        return default if found is None else found.value


def _with_fields(events: Iterable[Event], names: Collection[str], values: Mapping[str, str]) -> list[Event]:
    return [
        event
        for event in events
        if all(name in event.fields for name in names)
        and all(event.fields.get(name) == value for name, value in values.items())
    ]


def _with_kinds(events: list[Event], rules: RuleSet) -> list[Event]:
    """Give the events their kinds that came without: those that are no pattern of a line."""
    produced = produced_signatures()
    for event in events:
        if not event.kind:
            known = rules.signatures.get(event.signature) or produced.get(event.signature)
            if known is not None:
                event.kind = known.kind
    return events


def _in_order(events: list[Event], observations: Observations) -> tuple[list[Event], bool]:
    """Return the events in order, and whether that order is certain across sources; facts of hosts come last."""
    events, facts = host_facts.split(events)
    dumps = observations.recorder.sources()
    if dumps and any(event.source not in dumps for event in events):
        # Their clock is UTC and a log's may be any; what they show together is facts, whatever the order.
        events = [event for event in events if event.source not in dumps]
    ordered, known = _by_time(events, observations)
    return ordered + facts, known


def _by_time(events: list[Event], observations: Observations) -> tuple[list[Event], bool]:
    sources = {event.source for event in events}
    if len(sources) <= 1:
        return events, True
    stamped: dict[str, float | None] = {}
    keyed: list[tuple[float, str, int, Event]] = []
    for event in events:
        time = event.context.time
        if time is not None and times.has_year(time):
            last = stamped.get(event.source)
            stamped[event.source] = max(time, last) if last is not None else time
        elif time is not None and event.source not in stamped:
            stamped[event.source] = time
    counts = Counter(event.source for event in events)
    timed = Counter(event.source for event in events if event.context.time is not None)
    if any(timed[source] * 2 < counts[source] for source in sources):
        # A source with few stamps: nothing orders most of its lines against the others.
        return _by_share(events, observations), False
    current: dict[str, float] = {}
    for event in events:
        time = event.context.time
        if time is not None:
            current[event.source] = max(time, current.get(event.source, time))
        keyed.append((current.get(event.source, 0.0), event.source, event.line, event))
    # Events before a source's first stamp get that stamp.
    first: dict[str, float] = {}
    for value, source, _, _ in keyed:
        if value and source not in first:
            first[source] = value
    ordered = sorted(keyed, key=lambda k: (k[0] or first.get(k[1], 0.0), k[1], k[2]))
    return [event for *_, event in ordered], True


def _by_share(events: list[Event], observations: Observations) -> list[Event]:
    """Order events of unstamped sources by how far into their source they stand."""

    def share(event: Event) -> tuple[float, str, int]:
        info = observations.sources.get(event.source)
        lines = info.lines if info is not None and info.lines else event.line
        return (event.line / max(1, lines), event.source, event.line)

    return sorted(events, key=share)
