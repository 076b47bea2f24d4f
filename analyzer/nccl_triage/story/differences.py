"""Who differs from the majority: a comparison of values, and what differs by it between the hosts of a job.

Hosts are compared in versions, variables, interfaces and network modules. Their values come from what ``nccl-triage
doctor`` collected and from what the processes of each host print about themselves. A host that prints nothing has no
value, and a host whose own processes differ has the value of all of them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.story.view import View

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)

#: The network module that NCCL chose: its own InfiniBand or sockets, or a plug-in.
MODULE = "module"
#: The file of NCCL's source that a message comes from: two files mean two versions.
SOURCE = "nccl-source"
_SOURCE = lazily(r"(?<!\S)(?P<file>(?:\w+/){0,4}\w+\.(?:cc|cu)):\d+ NCCL WARN", re.ASCII)


def usual(values: Mapping[K, V], unheard: int = 0) -> V | None:
    """Return the value that more than half hold, None if no value has such a majority.

    ``unheard`` is the number of members whose value is unknown. They may hold any value, so the majority must be one
    without them.
    """
    counted = Counter(values.values()).most_common(1)
    return counted[0][0] if counted and 2 * counted[0][1] > len(values) + unheard else None


def minority(values: Mapping[K, Hashable], unheard: int = 0) -> list[K]:
    """Return who holds another value than the majority: all of them without a majority, none if all agree."""
    if len(set(values.values())) < 2:
        return []
    common = usual(values, unheard)
    return [who for who, value in values.items() if common is None or value != common]


class Difference(NamedTuple):
    """A host whose value differs from that of most hosts; ``usual`` is None if no value has a majority."""

    aspect: str
    host: str
    value: str
    usual: str | None
    event: Event


def between_hosts(view: View) -> list[Difference]:
    """Return the hosts whose values differ from the majority; without a majority all hosts."""
    table: dict[str, dict[str, dict[str, Event]]] = defaultdict(lambda: defaultdict(dict))
    for aspect, host, value, event in _told(view):
        table[aspect][host].setdefault(value, event)
    return [difference for aspect in sorted(table) for difference in _odd(aspect, table[aspect])]


def _odd(aspect: str, told: dict[str, dict[str, Event]]) -> Iterator[Difference]:
    values = {host: " and ".join(sorted(values)) for host, values in told.items()}
    common = usual(values)
    for host in sorted(minority(values)):
        yield Difference(aspect, host, values[host], common, next(iter(told[host].values())))


def _told(view: View) -> Iterator[tuple[str, str, str, Event]]:
    """Yield (aspect, host, value, event) of everything that hosts tell about themselves."""
    for event in view.of("host.value"):
        yield event.fields["fact"], event.fields["host"], event.fields["value"], event
    for event in view.having("software.version", "version", of="nccl"):
        if event.context.host:
            yield "nccl", event.context.host, event.fields["version"], event
    for event in view.having("transport.chosen", "name", chosen="network"):
        if event.context.host:
            yield MODULE, event.context.host, event.fields["name"], event
    for event in view.having("variable", "name", "value"):
        if event.context.host:
            yield f"variable:{event.fields['name']}", event.context.host, event.fields["value"], event
    for event in view.events:
        if event.context.program == "nccl" and event.context.host and (found := _SOURCE.search(event.text)):
            yield f"{SOURCE}:{event.signature}", event.context.host, found["file"], event
