"""Which files are older parts of a log that was rotated: ``trainer.log.2.gz``, ``trainer.log.1`` and ``trainer.log``.

The part that is still written has the plain name. Numbers count backwards in time, dates and times forwards. Of numbers
alone that is custom, not certain: where the parts have times, these decide (``story.order``). What a followed log held
before it was truncated is called ``trainer.log (part 1, until 14:02:11)`` (``follow.followed_log``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from nccl_triage.ingest.layout_conditions import strip_compression
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.store import SourceInfo

_PART = lazily(
    r"(?:\.(?P<number>\d{1,3})|[.-](?P<date>(?:19|20)\d\d-?[01]\d-?[0-3]\d(?:[-_T.]\d\d[\d:.-]{0,12})?)"
    r"| \(part (?P<former>\d{1,9}), until [^()]{1,40}\))$"
)
#: What the path of a log says of its writer, and so of the writer of its older parts.
_WRITER = ("rank", "local_rank", "host", "pid", "attempt", "stream", "layout", "job")


class _Part(NamedTuple):
    """The place of a part among the others: those with dates come first, as logrotate numbers on what it has not dated."""

    dated: str
    number: int
    info: SourceInfo


def link(infos: Iterable[SourceInfo]) -> None:
    """Tell every older part of which log it is one, and what the path of that log says."""
    known = {strip_compression(info.path): info for info in infos}
    parts: dict[str, list[_Part]] = defaultdict(list)
    for path, info in known.items():
        found = _PART.search(path)
        log = known.get(path[: found.start()]) if found is not None else None
        if found is None or log is None or _is_rank(info, log, found["number"]):
            continue
        number = int(found["former"] or 0) - int(found["number"] or 0)
        parts[path[: found.start()]].append(_Part(found["date"] or "~", number, info))
    for path, older in parts.items():
        log = known[path]
        log.part = len(older)
        for place, (_, _, info) in enumerate(sorted(older, key=lambda one: one[:2])):
            info.log, info.part = log.path, place
            for name in _WRITER:
                setattr(info, name, getattr(log, name))


def _is_rank(info: SourceInfo, log: SourceInfo, number: str | None) -> bool:
    """Tell whether the number at the end of a name was read as a rank."""
    return number is not None and info.rank == int(number) and log.rank is None
