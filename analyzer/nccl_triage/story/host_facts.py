"""Facts of hosts beside the log: they have no place in its order, and those of hosts outside the job say nothing.

A host is the job's when the log names it or one of its addresses; where the log names no host that the facts know, all count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from nccl_triage.observations.event import Event

PREFIX = "host."


def split(events: Sequence[Event]) -> tuple[list[Event], list[Event]]:
    """Return the events of the log, and the facts of the job's hosts, each in the order given."""
    facts = [event for event in events if event.signature.startswith(PREFIX)]
    if not facts:
        return list(events), []
    rest = [event for event in events if not event.signature.startswith(PREFIX)]
    hosts = _of_job(facts, rest)
    return rest, [event for event in facts if event.fields.get("host") in hosts]


def _of_job(facts: Sequence[Event], rest: Sequence[Event]) -> set[str]:
    named = {_short(event.context.host) for event in rest if event.context.host}
    used = {event.context.address for event in rest if event.context.address}
    addresses: dict[str, set[str]] = defaultdict(set)
    for event in facts:
        found = addresses[event.fields.get("host", "")]
        if event.fields.get("fact") == "address":
            found.add(event.fields.get("value", ""))
    hosts = {host for host, own in addresses.items() if _short(host) in named or own & used}
    return hosts or set(addresses)


def _short(host: str) -> str:
    """Return a name without its domain and without what doctor adds to tell nodes of one name apart."""
    name = host.partition("#")[0]
    return name if name.replace(".", "").isdigit() else name.partition(".")[0]
