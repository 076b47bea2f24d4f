"""Values of two runs by name: what one has and the other has not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from nccl_triage.baseline.model import Difference, place
from nccl_triage.diagnosis.case import Case
from nccl_triage.observations.event import Event

#: A value and the first line that shows it.
Valued = Sequence[tuple[str, Event]]


def first_event(case: Case) -> Event | None:
    """Return the first line that is known of a run."""
    return next(iter(case.events), None)


def shown(values: Iterable[str]) -> str:
    """Return values as a reader sees them."""
    return ", ".join(sorted(set(values)))


def of_field(events: Iterable[Event], name: str) -> Valued:
    """Return the distinct values of a field, each with its first line."""
    found: dict[str, Event] = {}
    for event in events:
        value = event.fields.get(name)
        if value:
            found.setdefault(value, event)
    return list(found.items())


def changed(subject: str, name: str, good: Valued, bad: Valued, **further: str) -> Iterator[Difference]:
    """Yield the difference between the values of both runs; a run that shows none says nothing."""
    ours, theirs = {value for value, _ in bad}, {value for value, _ in good}
    if not ours or not theirs or ours == theirs:
        return
    at = next((event for value, event in bad if value not in theirs), bad[0][1])
    good_at = next((event for value, event in good if value not in ours), good[0][1])
    host = at.context.host if len(ours) > 1 and ours & theirs else None  # the others have what the good run had
    yield Difference(subject, name, shown(theirs), shown(ours), at, place(good_at), further, host=host)


def by_name(good: Mapping[str, Valued], bad: Mapping[str, Valued]) -> Iterator[tuple[str, Valued, Valued]]:
    """Yield each name with the values of both runs."""
    for name in sorted({*good, *bad}):
        yield name, good.get(name, ()), bad.get(name, ())
