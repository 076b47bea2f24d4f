"""A case: the story of what happened, and facts derived on demand from the events that count for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nccl_triage.engine.schema import RuleSet
from nccl_triage.numbers import whole
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.story import differences
from nccl_triage.story.devices import Devices
from nccl_triage.story.ledger import Ledger
from nccl_triage.story.presence import Presence
from nccl_triage.story.story import tell_story
from nccl_triage.story.view import View


@dataclass(slots=True)
class Fact:
    """A derived fact and the events that it rests on."""

    value: Any
    events: list[Event] = field(default_factory=list)


FactFunction = Callable[["Case"], Fact | None]
_REGISTRY: dict[str, tuple[FactFunction, str]] = {}
#: Fact -> why the ranks that are its value are to blame, in English and Chinese.
BLAMES: dict[str, tuple[str, str]] = {}


def fact(name: str, meaning: str, blames: tuple[str, str] | None = None) -> Callable[[FactFunction], FactFunction]:
    """Register a function as the maker of a fact; ``meaning`` says what its value is.

    ``blames`` says why the ranks that are its value are to blame, in English and Chinese, where they are.
    """

    def register(function: FactFunction) -> FactFunction:
        if name in _REGISTRY:
            raise ValueError(f"two makers of the fact {name}")
        _REGISTRY[name] = (function, meaning)
        if blames is not None:
            BLAMES[name] = blames
        return function

    return register


def fact_names() -> dict[str, str]:
    """Return every fact and its meaning."""
    from nccl_triage.diagnosis import facts

    facts.load_all()
    return {name: meaning for name, (_, meaning) in sorted(_REGISTRY.items())}


class Case(View):
    """Everything that conditions and culprit methods may ask about one failed (or healthy) job."""

    def __init__(self, observations: Observations, rules: RuleSet) -> None:
        from nccl_triage.diagnosis import facts

        facts.load_all()
        self.rules = rules
        self.story = tell_story(observations, rules)
        told = self.story.told
        super().__init__(
            observations,
            told.events,
            told.identity,
            self.story.order_known,
            len(self.story.runs) == 1,
        )
        #: Lines that do not count, with the reason.
        self.aside = told.aside
        self._facts: dict[str, Fact | None] = {}

    @cached_property
    def ledger(self) -> Ledger:
        """What each rank has entered and completed."""
        return Ledger(self)

    @cached_property
    def differences(self) -> list[differences.Difference]:
        """What differs between the hosts of the job."""
        return differences.between_hosts(self)

    @cached_property
    def stated_hosts(self) -> dict[int, str]:
        """Rank -> the host that a line about it names first."""
        found: dict[int, str] = {}
        for event in self.telling("rank", "host", states="host"):
            rank = whole(event.fields["rank"])
            if rank is not None and event.fields["host"]:
                found.setdefault(rank, event.fields["host"])
        return found

    @cached_property
    def presence(self) -> Presence:
        """Whose words are in the input."""
        return Presence(self)

    @cached_property
    def devices(self) -> Devices:
        """Whose GPUs and processes the lines of hosts speak of."""
        return self.story.told.devices

    def fact(self, name: str) -> Fact | None:
        """Return a fact, or None when it cannot be derived; made once."""
        if name not in self._facts:
            self._facts[name] = None  # a fact that asks for itself gets None
            maker = _REGISTRY.get(name)
            self._facts[name] = maker[0](self) if maker else None
        return self._facts[name]

    @property
    def holding(self) -> list[str]:
        """The facts that were asked for and have a value that counts."""
        return [name for name, found in self._facts.items() if found is not None and found.value]

    def value(self, name: str, default: Any = None) -> Any:
        """Return the value of a fact, or the default."""
        found = self.fact(name)
        return default if found is None else found.value
