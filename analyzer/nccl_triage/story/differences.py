"""What differs between the hosts of a job: versions, variables, interfaces, network modules.

Two witnesses fill one table, aspect x host: what ``nccl-triage doctor`` collected from hosts, and what the processes of
each host print of themselves. One comparison reads it. What a host does not tell is no value, and a host whose own
processes differ has the value of all of them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.story.majority import minority, usual
from nccl_triage.story.view import View

#: The network module that NCCL chose: its own InfiniBand or sockets, or a plug-in.
MODULE = "module"
#: The file of NCCL's source that a message comes from: the same message from two files is of two versions.
SOURCE = "nccl-source"
_SOURCE = lazily(r"(?<!\S)(?P<file>(?:\w+/){0,4}\w+\.(?:cc|cu)):\d+ NCCL WARN", re.ASCII)


@dataclass(frozen=True, slots=True)
class Difference:
    """A host that tells another value than most hosts do; ``usual`` is None where no value has a majority."""

    aspect: str
    host: str
    value: str
    usual: str | None
    event: Event


def between_hosts(view: View) -> list[Difference]:
    """Return the hosts that stand alone with a value; without a majority all hosts."""
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
    """Yield (aspect, host, value, event) of everything that a host tells of itself."""
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
