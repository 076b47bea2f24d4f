"""A view of events in order: their ranks and hosts, their positions, and selections by kind and field."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from nccl_triage.engine.match import expand
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.story.identity import Identity

_Made = TypeVar("_Made")


class View:
    """Events in order, with common queries over them.

    Each result is computed once and shared, so callers must not change the lists that they get. ``order_known`` says
    whether the order is certain across sources. If the events are not the ``whole`` of what was observed, ``count``
    counts only those that were kept.
    """

    def __init__(
        self,
        observations: Observations,
        events: Sequence[Event],
        identity: Identity,
        order_known: bool,
        whole: bool = True,
    ) -> None:
        self.observations = observations
        self.events = list(events)
        self.identity = identity
        self.order_known = order_known
        self._whole = whole
        self._position = {id(event): index for index, event in enumerate(self.events)}
        self._by_signature: dict[str, list[Event]] = {}
        for event in self.events:
            self._by_signature.setdefault(event.signature, []).append(event)
        self._kinds = {name: found[0].kind for name, found in self._by_signature.items()}
        self._names: dict[str, list[str]] = {}
        self._answers: dict[object, Any] = {}
        self._ranks = [identity.rank_of(event) for event in self.events]

    @cached_property
    def failures(self) -> list[Event]:
        """The events that report a failure, in order."""
        return [event for event in self.events if event.is_failure]

    @cached_property
    def first_complaints(self) -> dict[int | None, int]:
        """The position of the first error line of each rank; under None, that of the first of all."""
        first: dict[int | None, int] = {}
        for event in self.failures:
            position = self._position[id(event)]
            first.setdefault(None, position)
            first.setdefault(self._ranks[position], position)
        return first

    def signatures(self, pattern: str) -> list[str]:
        """Return the ids among the events for which a kind, an id or a glob of ids stands."""
        found = self._names.get(pattern)
        if found is None:
            found = self._names[pattern] = expand(pattern, self._kinds)
        return found

    def of(self, *patterns: str) -> list[Event]:
        """Return the kept events of kinds (or of signatures: ids or globs), in order."""
        return self._answer(patterns, lambda: self._of(patterns))

    def _of(self, patterns: Sequence[str]) -> list[Event]:
        names = {name for pattern in patterns for name in self.signatures(pattern)}
        if len(names) == 1:
            return self._by_signature[names.pop()]
        found = [event for name in names for event in self._by_signature[name]]
        found.sort(key=self.position)
        return found

    def having(self, kind: str, *names: str, **values: str) -> list[Event]:
        """Return the events of a kind that have all of these fields, and these values in them."""
        key = (kind, names, tuple(values.items()))
        return self._answer(key, lambda: _with_fields(self.of(kind), names, values))

    def telling(self, *names: str, **values: str) -> list[Event]:
        """Return the events of any kind that have all of these fields, and these values in them."""
        key = (None, names, tuple(values.items()))
        return self._answer(key, lambda: _with_fields(self._fewest((*names, *values)), names, values))

    def once(self, make: Callable[[View], _Made]) -> _Made:
        """Return what a function makes of the view; it is called only once."""
        return self._answer(make, lambda: make(self))

    def forget(self) -> None:
        """Drop the results that are shared: they are computed again where they are asked for."""
        self._answers = {}

    def _answer(self, key: object, make: Callable[[], _Made]) -> _Made:
        if key not in self._answers:
            self._answers[key] = make()
        found: _Made = self._answers[key]
        return found

    def _fewest(self, names: Sequence[str]) -> list[Event]:
        """Return the events with one of the fields: the field that the fewest events have."""
        return min((self._by_field.get(name, []) for name in names), key=len, default=self.events)

    @cached_property
    def _by_field(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = {}
        for event in self.events:
            for name in event.fields:
                found.setdefault(name, []).append(event)
        return found

    def count(self, *patterns: str) -> int:
        """Return how often lines of kinds (or signatures) were seen, kept or not."""
        names = {name for pattern in patterns for name in self.signatures(pattern)}
        if not self._whole:
            return sum(event.count for name in names for event in self._by_signature[name])
        return sum(self.observations.count(name) for name in names)

    def position(self, event: Event) -> int:
        """Return the position of an event in the order."""
        return self._position.get(id(event), len(self.events))

    def scopes(self) -> list[list[Event]]:
        """Return the events in groups within which the order is certain: one of all, or one per source."""
        if self.order_known:
            return [self.events]
        by_source: dict[str, list[Event]] = {}
        for event in self.events:
            by_source.setdefault(event.source, []).append(event)
        return [sorted(events, key=lambda e: e.line) for events in by_source.values()]

    def rank(self, event: Event) -> int | None:
        """Return the global rank of an event, or None."""
        position = self._position.get(id(event))
        # An event that was assembled from others has no position.
        return self.identity.rank_of(event) if position is None else self._ranks[position]

    def host(self, event: Event) -> str | None:
        """Return the host of an event, or None."""
        return self.identity.host_of(event)

    def ranks(self, events: Iterable[Event]) -> list[int]:
        """Return the distinct known ranks of events, sorted."""
        return sorted({rank for event in events if (rank := self.rank(event)) is not None})


def _with_fields(events: Iterable[Event], names: Collection[str], values: Mapping[str, str]) -> list[Event]:
    return [
        event
        for event in events
        if all(name in event.fields for name in names)
        and all(event.fields.get(name) == value for name, value in values.items())
    ]
