"""Evaluate the conditions of rules: what the functions in them mean for one case.

The events that support the answer of a function are noted during the evaluation. They become the lines that prove the
evidence.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import Any

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.facts import software
from nccl_triage.engine.expression import Evaluator, Expression, Missing
from nccl_triage.engine.functions import FUNCTIONS, VALUE_FUNCTIONS
from nccl_triage.observations.event import Event
from nccl_triage.story.addresses import parse as parse_address

#: Maximum number of events that are noted per evaluation.
MAX_NOTED = 24


class Conditions:
    """Evaluates the conditions of rules for one case and remembers the events behind them."""

    def __init__(self, case: Case, platform: frozenset[str] | None = None) -> None:
        """``platform`` is assumed instead of that of the case."""
        self._case = case
        self._platform = platform
        self._noted: list[Event] = []
        own: dict[str, Callable[..., Any]] = {
            name: getattr(self, f"_{name}") for name in FUNCTIONS - {*VALUE_FUNCTIONS}
        }
        self._evaluator = Evaluator({**VALUE_FUNCTIONS, **own})

    def holds(self, expression: Expression) -> tuple[bool, list[Event]]:
        """Return whether a condition holds, and the events behind it if it does."""
        self._noted = []
        truth = self._evaluator.truth(expression)
        return truth, self._noted if truth else []

    def selects(self, expression: Expression, event: Event) -> bool:
        """Return whether an event satisfies a ``where`` filter."""
        context = event.context
        fields: dict[str, Any] = {
            "text": event.text,
            "level": context.level,
            "program": context.program,
            "context_rank": self._case.rank(event),
            "context_host": self._case.host(event),
            **event.fields,
        }
        return self._evaluator.truth(expression, fields)

    def _note(self, events: Iterable[Event]) -> None:
        for event in events:
            if len(self._noted) >= MAX_NOTED:
                return
            if event not in self._noted:
                self._noted.append(event)

    # -- over signatures ----------------------------------------------------------------------------------------

    def _has(self, *patterns: str) -> bool:
        events = self._case.of(*patterns)
        self._note(events[:4])
        return bool(events)

    def _count(self, *patterns: str) -> int:
        self._note(self._case.of(*patterns)[:4])
        return self._case.count(*patterns)

    def _ranks(self, *patterns: str) -> list[int]:
        events = self._case.of(*patterns)
        self._note(events[:4])
        return self._case.ranks(events)

    def _hosts(self, *patterns: str) -> list[str]:
        events = self._case.of(*patterns)
        self._note(events[:4])
        return sorted({host for event in events if (host := self._case.host(event)) is not None})

    def _all_ranks(self, *patterns: str) -> bool:
        printed = set(self._ranks(*patterns))
        known = set(self._case.identity.ranks)
        return len(printed) > 1 and printed >= known

    def _values(self, pattern: str, name: str) -> list[str]:
        events = [event for event in self._case.of(pattern) if name in event.fields]
        self._note(events[:4])
        return sorted({event.fields[name] for event in events})

    def _numbers(self, pattern: str, name: str) -> list[float]:
        events = [event for event in self._case.of(pattern) if event.number(name) is not None]
        self._note(events[:4])
        return sorted({number for event in events if (number := event.number(name)) is not None})

    def _value(self, pattern: str, name: str) -> str:
        for event in self._case.of(pattern):
            if name in event.fields:
                self._note([event])
                return event.fields[name]
        raise Missing(name)

    def _number(self, pattern: str, name: str) -> float:
        for event in self._case.of(pattern):
            number = event.number(name)
            if number is not None:
                self._note([event])
                return number
        raise Missing(name)

    def _before(self, one: str, two: str) -> bool:
        first, second = self._case.of(one), self._case.of(two)
        if not first:
            return False
        self._note(first[:1])
        return not second or self._case.position(first[0]) < self._case.position(second[0])

    def _leads(self, *patterns: str) -> bool:
        events = self._case.of(*patterns)
        if not events:
            return False
        names = {event.signature for event in events}
        first = self._case.position(events[0])
        self._note(events[:1])
        return self._case.order_known and all(
            self._case.position(event) > first
            for event in self._case.events
            if event.role == "cascade" and event.signature not in names
        )

    # -- over the job -------------------------------------------------------------------------------------------

    def _premise(self, name: str) -> bool:
        known = self._case.rules.premises.get(name)
        if known is None:
            raise Missing(name)
        return self._evaluator.within(known.when)

    def _words(self, name: str) -> tuple[str, ...]:
        known = self._case.rules.words.get(name)
        if known is None:
            raise Missing(name)
        return known.texts

    def _env(self, name: str) -> str | None:
        values = software.environment(self._case).get(name)
        if values is None:
            return None
        self._note([event for _, event in values[:3]])
        return values[0][0]

    def _version(self, program: str) -> str | None:
        found = software.versions(self._case).get(program)
        if found is None:
            return None
        self._note([found[0][1]])
        return found[0][0]

    def _fact(self, name: str) -> Any:
        found = self._case.fact(name)
        if found is None:
            return None
        if found.value:
            self._note(found.events)
        return found.value

    def _on(self, *words: str) -> bool:
        platform = software.platform(self._case) if self._platform is None else self._platform
        return not platform.isdisjoint(words)

    # -- values -------------------------------------------------------------------------------------------------

    @staticmethod
    def _older(one: str | None, two: str | None) -> bool:
        if one is None or two is None:
            raise Missing("version")
        return software.version_key(one) < software.version_key(two)

    @staticmethod
    def _in_network(address: Any, *networks: str) -> bool:
        parsed = parse_address(address)
        return parsed is not None and any(parsed in ipaddress.ip_network(net) for net in networks)

    @staticmethod
    def _is_loopback(address: Any) -> bool:
        parsed = parse_address(address)
        return parsed is not None and parsed.is_loopback

    @staticmethod
    def _is_private(address: Any) -> bool:
        parsed = parse_address(address)
        return parsed is not None and parsed.is_private

    @staticmethod
    def _is_link_local(address: Any) -> bool:
        parsed = parse_address(address)
        return parsed is not None and parsed.is_link_local

    @staticmethod
    def _same_network(addresses: Any, length: int) -> bool:
        parsed = [parse_address(address) for address in addresses or []]
        if not parsed or any(address is None for address in parsed):
            raise Missing("addresses")
        return len({ipaddress.ip_network(f"{address}/{int(length)}", strict=False) for address in parsed}) == 1
