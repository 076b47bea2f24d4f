"""How a run ended, by form and place alone: where which kinds of lines are, how far the end is, words of the last lines.

A feature is a string; its first part tells the kind:

- ``k:`` a kind of line that the run has, ``t:`` one among the last lines of its source, ``z:`` one among the last few,
  ``a:`` one behind the last progress, ``r:`` the role of a line behind it;
- ``w:`` a word of the last lines, ``v:`` a word of the last two, normalised by ``parsers.templates``;
- ``n:`` a number: lines behind the last progress, failures in all, lines of progress;
- ``f:`` a form: whether the last step of a known total was made, the kind of the last progress, the role of the last
  known line, and of the last lines whatever they say: how many are like the last one, whether a counter among them
  reached its total, how many name a value, how the last one begins and ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nccl_triage.lazy_regex import lazily
from nccl_triage.learned.linear import Linear, step
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import SourceInfo, lines_below, place_in_log
from nccl_triage.parsers import templates

#: How a run ended. A run that hangs has failed.
FINISHED, RUNNING, FAILED, STOPPED, CUT, NONE = "finished", "running", "failed", "stopped", "cut", "none"
LABELS = (FINISHED, RUNNING, FAILED, STOPPED, CUT, NONE)
#: Ways to end that are well.
WELL = (FINISHED, RUNNING)
#: Lines from the end of a source that are its last ones, and its last few.
LAST, FEW = 15, 3
#: Kinds of lines that say nothing of how a run goes.
_SILENT = frozenset({"speaker", "note", "variable", "setting"})
#: Words that stand everywhere.
_COMMON = frozenset(
    "the of to in is and for on from with by at be it as an or this that are was will you your".split()  # noqa: SIM905
)
#: Kinds of lines that a dump of stacks has.
_STACK = frozenset({"exception.frame", "speaker", "rank.identity"})
#: Sources whose last words are read: those with the most lines.
_SOURCES = 8
#: Steps by which numbers count.
_STEPS = (0, 1, 3, 8, 20, 60, 200, 1000)
#: Most lines of progress that are told apart.
_PROGRESS = 3
#: A counter with its total, or a percentage; a value with its name.
_COUNT = lazily(
    r"(?<![\d.])(?P<number>\d{1,9}) ?(?:/|of) ?(?P<total>\d{1,9})(?![\d.])|(?<![\d.])(?P<percent>\d{1,3})(?:\.\d+)?%"
)
_VALUE = lazily(r"[A-Za-z_@)\]] ?[:=|] ?-?\d+(?:\.\d+)?(?:e-?\d+)?\b")
#: Features that are told of a probability.
_REASONS = 4


class Ending(NamedTuple):
    """The probability of each way to end, by the features of a run."""

    probabilities: Mapping[str, float]
    model: Linear
    names: frozenset[str]

    @property
    def well(self) -> float:
        """The probability that the run finished or goes on."""
        return sum(self.probabilities.get(label, 0.0) for label in WELL)

    @property
    def likeliest(self) -> str:
        """The likeliest of all ways to end."""
        return max(self.probabilities, key=lambda label: self.probabilities[label])

    @property
    def best(self) -> str:
        """The likelier of the ways to end that are well."""
        return max(WELL, key=lambda label: self.probabilities.get(label, 0.0))

    @property
    def worst(self) -> str:
        """The likeliest way to end that is not well."""
        return max(
            (label for label in self.probabilities if label not in WELL), key=lambda label: self.probabilities[label]
        )

    def reasons(self, label: str) -> list[str]:
        """Return the features that speak most for a way to end, the strongest first."""
        return self.model.reasons(sorted(self.names), label, _REASONS)


def judge(model: Linear, names: set[str]) -> Ending:
    """Return what a model says of the features of a run."""
    return Ending(model.probabilities(names), model, frozenset(names))


def features(printed: Sequence[Event], sources: Mapping[str, SourceInfo], at_end: bool) -> set[str]:
    """Return the features of a run by all that it printed, in order; ``at_end``: no other run comes behind it."""
    found: set[str] = set()
    told = {event.source for event in printed if event.kind not in _STACK}
    # A file of stacks alone was written by who looked into the job: it does not end as the job does.
    printed = [event for event in printed if event.source in told]
    progress = [event for event in printed if event.role == "progress" and event.kind != "job.finished"]
    found.add(f"n:progress:{min(_PROGRESS, len(progress))}")
    found.add(f"n:failures:{_step(sum(event.is_failure for event in printed))}")
    for event in printed:
        if event.kind not in _SILENT:
            found.add(f"k:{event.kind}")
            source = sources.get(event.source)
            if at_end and source is not None and source.lines - event.last_line < LAST:
                found.add(f"t:{event.kind}")
                if source.lines - event.last_line < FEW:
                    found.add(f"z:{event.kind}")
    found.update(_behind(printed, progress[-1] if progress else None, sources, at_end))
    if printed:
        found.add(f"f:last:{printed[-1].role}")
    if at_end:
        found.update(_last_words(printed, sources))
    return found


def _step(number: int) -> str:
    return step(number, _STEPS)


def _behind(
    printed: Sequence[Event], last: Event | None, sources: Mapping[str, SourceInfo], at_end: bool
) -> Iterator[str]:
    """Yield what comes after the last progress, in its source; everything where there is none."""
    behind = printed if last is None else list(_after(printed, place_in_log(sources, last), sources))
    for event in behind:
        yield f"a:{event.kind}"
        yield f"r:{event.role}"
    if last is None:
        return
    yield f"f:progress:{last.kind}"
    if at_end and last.source in sources:
        yield f"n:behind:{_step(lines_below(sources, last.source, last.line) or 0)}"
    made, total = last.number("step"), last.number("total")
    if made is not None and total:
        yield "f:total:reached" if made >= total else "f:total:open"


def _after(printed: Sequence[Event], place: tuple[str, int, int], sources: Mapping[str, SourceInfo]) -> Iterator[Event]:
    """Yield the events of a log behind a place in it."""
    for event in printed:
        at = place_in_log(sources, event)
        if at[0] == place[0] and at > place:
            yield event


def _last_words(printed: Sequence[Event], sources: Mapping[str, SourceInfo]) -> Iterator[str]:
    """Yield words and form of the last lines of the longest sources of a run."""
    own = {sources[event.source].log or event.source for event in printed if event.source in sources} & sources.keys()
    own = own or {path for path, info in sources.items() if info.log is None}
    longest = sorted(own, key=lambda path: (-sources[path].lines, path))[:_SOURCES]
    for path in longest:
        texts = sources[path].last_lines[::-1]
        folded = [templates.template(text) for text in texts]
        for back, template in enumerate(folded):
            words = [word for word in templates.words(template) if word not in _COMMON]
            yield from (f"w:{word}" for word in words)
            if back < 2:
                yield from (f"v:{word}" for word in words)
        if texts:
            yield from _form(texts, folded)


def _form(texts: Sequence[str], folded: Sequence[str]) -> Iterator[str]:
    """Yield the form of the last lines of a source, the last one first."""
    alike = [back for back, template in enumerate(folded) if back and template == folded[0]]
    yield f"f:alike:{min(_PROGRESS, len(alike))}"
    if alike:
        yield f"f:again:{_step(alike[0])}"
    counts = [(back, found) for back, text in enumerate(texts) for found in _COUNT.finditer(text)]
    for back, found in counts:
        whole = found["percent"] == "100" or (found["total"] is not None and found["number"] == found["total"])
        where = "last" if back == 0 else "few" if back < FEW else "above"
        yield f"f:{'whole' if whole else 'part'}:{where}"
    yield f"f:values:{_step(sum(_VALUE.search(text) is not None for text in texts))}"
    first, last = texts[0].lstrip()[:1], texts[0][-1:]
    yield f"f:begins:{_class(first)}"
    yield f"f:ends:{_class(last)}"
    if texts[0][:1].isspace():
        yield "f:indented"
    if len(texts) < LAST:
        yield "f:short"


def _class(character: str) -> str:
    """Return the character, or what kind of letter or digit it is."""
    if character.isdigit():
        return "digit"
    if character.isalpha():
        return "other" if not character.isascii() else "upper" if character.isupper() else "lower"
    return character
