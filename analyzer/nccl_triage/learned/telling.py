"""Which lines of a run tell why it ended, by form and place, whether a rule knows them or not.

Candidates are the lines that may tell of trouble: all but those of progress, setup and the like, and of many alike the
first two and the last. A feature is a string; its first part tells the kind:

- ``k:`` and ``r:`` the kind and the role of the line, ``l:`` its level, ``b:`` and ``c:`` the kinds of candidates right
  above and below it;
- ``n:`` a number: its place among the candidates from the top and from the end, its place among the failures that
  count, lines to the end of its source and since its last progress, how often it came, its length;
- ``f:`` a form: an exception, several lines, a failure that was set aside, the first or last failure of its role or kind;
- ``w:`` a word of it, normalised by ``parsers.templates``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nccl_triage.lazy_regex import lazily
from nccl_triage.learned.linear import Linear, step
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import SourceInfo
from nccl_triage.parsers import templates

#: The label of a line that tells why a run ended, and of any other.
TELLING, OTHER = "telling", "other"
#: Kinds of lines that are no candidates.
_NEVER = frozenset({
    "progress.bar", "progress", "exception.frame", "measurement", "task.started", "task.finished", "step", "speaker",
    "rank.identity", "variable", "setting", "communicator.ready", "setup", "software.version", "interface.chosen",
    "transport.chosen", "checkpoint", "job.finished", "collective.counters",
})  # fmt: skip
#: Most candidates from the top and from the end of a run.
_FIRST, _LAST = 200, 100
#: Occurrences of lines alike that are candidates beside the last one.
_ALIKE = 2
_EXCEPTION = lazily(r"(?:\S{1,40}: )?[\w.]*(?:Error|Exception|Interrupt|Exit|Fault)\b")
#: A line that only says that others follow.
_OPENING = "Traceback (most recent call last):"
_STEPS = (0, 1, 2, 3, 5, 8, 15, 30, 60, 150, 400, 1500)
#: Words that count, characters to a step of length, and most steps.
_WORDS, _CHARACTERS, _LENGTHS = 40, 40, 6
#: Lines between two candidates that are neighbours.
_BESIDE = 2


class Told(NamedTuple):
    """A line that may tell why a run ended, and how likely it is that a reader would point at it."""

    event: Event
    score: float


@dataclass(slots=True)
class TroubleLine:
    """A line that may tell why a run ended: how often it came, and the words of its template."""

    event: Event
    words: Sequence[str]
    times: int = 1


def rank(
    model: Linear, printed: Sequence[Event], aside: Collection[int], sources: Mapping[str, SourceInfo]
) -> list[Told]:
    """Return the candidates of a run, the most telling first, and behind them those that only repeat one.

    ``aside`` are the ids of events that do not count.
    """
    found = candidates(printed)
    scored = [
        (model.probabilities(names)[TELLING], one)
        for one, names in zip(found, features(found, printed, aside, sources), strict=True)
    ]
    first: list[Told] = []
    alike: list[Told] = []
    seen: set[object] = set()
    for score, one in sorted(scored, key=lambda pair: -pair[0]):
        if one.event.text.strip() == _OPENING:
            continue
        place, form = (one.event.source, one.event.line), (one.event.kind, tuple(one.words))
        if place not in seen:
            (alike if form in seen else first).append(Told(one.event, score))
            seen |= {place, form}
    return [*first, *alike]


def candidates(printed: Sequence[Event]) -> list[TroubleLine]:
    """Return the candidates of a run by all that it printed, in order."""
    alike: dict[tuple[str, str], list[TroubleLine]] = {}
    templates_of: dict[tuple[object, ...], str] = {}
    for event in printed:
        if event.kind in _NEVER:
            continue
        text = event.text.partition("\n")[0]
        key = templates.key(text)
        template = templates_of.get(key)
        if template is None:
            template = templates_of[key] = templates.template(text)
        members = alike.setdefault((event.kind, template), [])
        if len(members) > _ALIKE:
            members[0].times += 1
            members[-1].event = event
        else:
            words = members[0].words if members else list(dict.fromkeys(templates.words(template)))[:_WORDS]
            members.append(TroubleLine(event, words))
    kept = {id(one.event): one for members in alike.values() for one in members}
    found = [kept[id(event)] for event in printed if id(event) in kept]
    return found if len(found) <= _FIRST + _LAST else [*found[:_FIRST], *found[-_LAST:]]


def features(
    found: Sequence[TroubleLine], printed: Sequence[Event], aside: Collection[int], sources: Mapping[str, SourceInfo]
) -> Iterator[set[str]]:
    """Yield the features of each candidate of a run."""
    progress: dict[str, int] = {}
    for event in printed:
        if event.role == "progress":
            progress[event.source] = max(event.line, progress.get(event.source, 0))
    counting = [one.event for one in found if one.event.is_failure and id(one.event) not in aside]
    places = _places(counting)
    for number, one in enumerate(found):
        event = one.event
        names = {
            f"k:{event.kind}", f"r:{event.role}",
            f"n:place:{_step(number)}", f"n:back:{_step(len(found) - 1 - number)}",
            f"n:times:{_step(one.times)}", f"n:count:{_step(event.count)}",
            f"n:length:{min(_LENGTHS, len(event.text) // _CHARACTERS)}",
        }  # fmt: skip
        if event.context.level:
            names.add(f"l:{event.context.level}")
        if id(event) in aside:
            names.add("f:aside")
        if id(event) in places:
            names.update(places[id(event)])
        else:
            names.add("f:no-failure")
            if counting:
                names.add("f:above-failures" if event.line < counting[0].line else "f:below-failures")
        if event.source in sources:
            names.add(f"n:end:{_step(sources[event.source].lines - event.last_line)}")
        names.add(_since(event, progress.get(event.source)))
        if _EXCEPTION.match(event.text.lstrip()):
            names.add("f:exception")
        if event.last_line > event.line:
            names.add("f:lines")
        if number and _beside(found[number - 1].event, event):
            names.add(f"b:{found[number - 1].event.kind}")
        if number + 1 < len(found) and _beside(event, found[number + 1].event):
            names.add(f"c:{found[number + 1].event.kind}")
        names.update(f"w:{word}" for word in one.words)
        yield names


def _step(number: int) -> str:
    return step(number, _STEPS)


def _since(event: Event, last: int | None) -> str:
    if last is None:
        return "n:progress:none"
    return f"n:progress:{_step(event.line - last)}" if event.line > last else "n:progress:goes-on"


def _beside(one: Event, other: Event) -> bool:
    return one.source == other.source and 0 <= other.line - one.last_line <= _BESIDE


def _places(counting: Sequence[Event]) -> dict[int, set[str]]:
    """Return the place of each failure that counts: from the top and the end, and the ends of its role and kind."""
    found = {
        id(event): {f"n:failure:{_step(number)}", f"n:failure-back:{_step(len(counting) - 1 - number)}"}
        for number, event in enumerate(counting)
    }
    groups: tuple[tuple[str, Callable[[Event], str]], ...] = (
        ("role", lambda event: event.role),
        ("kind", lambda event: event.kind),
    )
    for name, of in groups:
        first = {of(event): event for event in reversed(counting)}
        last = {of(event): event for event in counting}
        for value, event in first.items():
            found[id(event)].add(f"f:first-of-{name}:{value}" if name == "role" else f"f:first-of-{name}")
        for value, event in last.items():
            found[id(event)].add(f"f:last-of-{name}:{value}" if name == "role" else f"f:last-of-{name}")
    return found
