"""What a line measures rather than says: numbers of curves, connections between ranks.

Both go beside the events, into tables of their own (``Observations.curves`` and ``links``): they show a reader what
happened and prove nothing, so neither rules nor the classifier see them.
"""

from __future__ import annotations

from collections.abc import Mapping

from nccl_triage import links
from nccl_triage.curves import NOT_KNOWN, Point, Process
from nccl_triage.events import Context, Observations
from nccl_triage.parsers.series import SeriesReader, stated_rank

#: Signature of the lines that name a connection.
LINK = "nccl.channel_via_net"


def _process(context: Context, text: str, source: str) -> Process:
    rank = context.rank
    if rank is None and context.group_rank is None and "ank" in text:
        rank = stated_rank(text)
    # What looked like the head of an NCCL line in a line that is none was a time of day ("14:22:01 - INFO -").
    mistaken = context.program == "nccl"
    return Process(
        rank=_known(rank),
        local_rank=_known(context.local_rank),
        group_rank=_known(context.group_rank),
        host="" if mistaken or context.host is None else context.host,
        pid=NOT_KNOWN if mistaken else _known(context.pid),
        source=source,
    )


def _known(number: int | None) -> int:
    return NOT_KNOWN if number is None else number


def numbers(reader: SeriesReader, text: str, context: Context, source: str, line: int, into: Observations) -> None:
    """Note the numbers that a message reports; lines of NCCL report none."""
    found = reader.read(text) if " NCCL " not in text else None
    if found is not None:
        time = -1.0 if context.time is None else context.time
        place = Point(source, line, found.step, found.epoch, time, 0.0, _process(context, text, source))
        into.curves.add(found.values, place)


def link(fields: Mapping[str, str], context: Context, source: str, line: int, into: Observations) -> None:
    """Note the connection that an event of ``LINK`` names."""
    found = links.read(fields, context.host, context.pid)
    if found is not None:
        into.links.add(*found, source, line)
