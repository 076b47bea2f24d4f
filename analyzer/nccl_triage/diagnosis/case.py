"""A case: the story of a job, and the facts that are derived from its events on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nccl_triage.engine.schema import RuleSet
from nccl_triage.learned import telling
from nccl_triage.learned.form import Form
from nccl_triage.learned.telling import Told
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
#: Fact -> why the ranks or hosts that are its value are to blame, in English and Chinese.
BLAMES: dict[str, tuple[str, str]] = {}


def fact(name: str, meaning: str, blames: tuple[str, str] | None = None) -> Callable[[FactFunction], FactFunction]:
    """Register the function that derives a fact; ``meaning`` says what the value of the fact is.

    If the ranks or hosts that are the value are to blame, ``blames`` says why, in English and Chinese.
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
    """Return the names of all facts with their meanings."""
    from nccl_triage.diagnosis import facts

    facts.load_all()
    return {name: meaning for name, (_, meaning) in sorted(_REGISTRY.items())}


class Case(View):
    """Everything that conditions and culprit methods may ask about one failed (or healthy) job."""

    def __init__(self, observations: Observations, rules: RuleSet, form: Form | None = None) -> None:
        from nccl_triage.diagnosis import facts

        facts.load_all()
        self.rules = rules
        self.story = tell_story(observations, rules, form)
        told = self.story.told
        super().__init__(
            observations,
            told.events,
            told.identity,
            self.story.order_known,
            len(self.story.runs) == 1,
        )
        #: Events that do not count, each with the reason.
        self.aside = told.aside
        self._form = form
        self._facts: dict[str, Fact | None] = {}

    @cached_property
    def most_telling(self) -> list[Told]:
        """The lines of the run that may tell why it ended, the most telling first; none without a model of them."""
        if self._form is None or self._form.telling is None:
            return []
        aside = {id(event) for event, _ in self.aside}
        return telling.rank(self._form.telling, self.story.told.printed, aside, self.observations.sources)

    def told_lines(self, most: int) -> list[Event]:
        """Return the lines that tell most, the first one most; without a model of them, the first failures."""
        return [told.event for told in self.most_telling[:most]] or self.failures[:most]

    @cached_property
    def ledger(self) -> Ledger:
        """The collectives that each rank entered and completed."""
        return Ledger(self)

    @cached_property
    def differences(self) -> list[differences.Difference]:
        """The values that differ between the hosts of the job."""
        return differences.between_hosts(self)

    @cached_property
    def stated_hosts(self) -> dict[int, str]:
        """Rank -> the host that the first line about it names."""
        found: dict[int, str] = {}
        for event in self.telling("rank", "host", states="host"):
            rank = whole(event.fields["rank"])
            if rank is not None and event.fields["host"]:
                found.setdefault(rank, event.fields["host"])
        return found

    @cached_property
    def presence(self) -> Presence:
        """The ranks whose output is in the input."""
        return Presence(self)

    @cached_property
    def devices(self) -> Devices:
        """The ranks to which the GPUs and processes in the logs of hosts belong."""
        return self.story.told.devices

    def fact(self, name: str) -> Fact | None:
        """Return a fact, or None if it cannot be derived. Each fact is derived once."""
        if name not in self._facts:
            self._facts[name] = None  # for a fact that depends on itself
            maker = _REGISTRY.get(name)
            self._facts[name] = maker[0](self) if maker else None
        return self._facts[name]

    def without(self, facts: Iterable[str], rules: RuleSet) -> Case:
        """Return the same case, in which some facts cannot be derived and other rules apply; the story stays as told."""
        other = copy(self)
        other.rules = rules
        other._facts = dict.fromkeys(facts)
        other.forget()
        return other

    @property
    def holding(self) -> list[str]:
        """The names of those facts asked for so far whose value is true."""
        return [name for name, found in self._facts.items() if found is not None and found.value]

    def value(self, name: str, default: Any = None) -> Any:
        """Return the value of a fact, or the default."""
        found = self.fact(name)
        return default if found is None else found.value
