"""Culprit methods that read a name: the rank, host, peer, GPU or process that the lines of the evidence speak of."""

from __future__ import annotations

import ipaddress
from collections import Counter

from nccl_triage.diagnosis import placeholders
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.culprit_base import Culprit, by_weight, method, of_rank, strongest
from nccl_triage.diagnosis.weigh import Weighed
from nccl_triage.engine.schema import NAMED
from nccl_triage.lazy_regex import lazily
from nccl_triage.numbers import listed, whole
from nccl_triage.observations.event import Event
from nccl_triage.story.addresses import parse

#: What PyTorch prints for the other end of a connection between addresses of IPv4: memory that was never set.
_NO_ADDRESS = ipaddress.ip_network("fdff:ffff::/32")
#: The device of a tensor that Python printed.
_TENSOR = lazily(r"\bdevice='cuda:(\d{1,2})'")


#: Fields that hold a rank which a line names as the one to blame, and lists of ranks; ``rank`` may be who speaks.
_RANK, _SPEAKER, _RANK_LIST = ("culprit_rank", "lagging_rank"), "rank", "ranks"


@method("named-rank")
def _named(case: Case, weighed: Weighed) -> list[Culprit]:
    """The ranks that the strongest evidence names in its text: one, a list (``ranks``: "1, 3"), or those of its pairs."""
    why = ("named by the deciding line", "决定性的那一行点名了它")
    fields = _RANK if weighed.cause.victims_speak else (_RANK[0], _SPEAKER, *_RANK[1:])
    for item in by_weight(weighed):
        pairs: Counter[int] = Counter()
        for event in item.events:
            if "src_rank" in event.fields:
                continue  # the line names who waits, and apart from it the rank that is waited for
            # A task of a scheduler need not be the rank of its number.
            alone = () if event.fields.get("names") == "task" else fields
            number = next((found for name in alone if (found := event.number(name)) is not None), None)
            other = event.number("peer_rank")
            if number is not None and other is not None:
                pairs.update((int(number), int(other)))
                continue
            ranks = [int(number)] if number is not None else listed(event.fields.get(_RANK_LIST) or "")
            if ranks and not pairs:
                return [of_rank(case, rank, *why) for rank in ranks]
        if pairs:
            return [of_rank(case, rank, *why) for rank, _ in pairs.most_common(2)]
    return []


#: The method that reads what signatures tell of culprits.
BY_MESSAGE = "message"


@method(BY_MESSAGE)
def _by_message(case: Case, weighed: Weighed) -> list[Culprit]:
    """The one that a message of the evidence, or beside it, names, if its signature has ``culprit``."""
    found: dict[tuple[object, ...], Culprit] = {}
    told: dict[str, list[int]] = {}
    for event in (event for item in weighed.rule_items for event in item.events):
        told.setdefault(event.source, []).append(event.line)
    for event in case.events:
        signature = case.rules.signatures.get(event.signature)
        if signature is None or signature.culprit is None:
            continue
        within = signature.culprit.within
        if not any(abs(line - event.line) <= within for line in told.get(event.source, ())):
            continue
        rank, host, gpu = (event.fields.get(signature.culprit.fields.get(name, "")) for name in NAMED)
        if (rank is not None and whole(rank) is None) or not (rank or host):
            continue
        why = {
            language: placeholders.fill(text, case, [event], language)
            for language, text in signature.culprit.why.items()
        }
        if rank is not None:
            found[rank, host, gpu] = of_rank(case, whole(rank) or 0, why["en"], why["zh"])
        elif host is not None:
            known = case.identity.host_of_address(host)
            address = host if parse(host) is not None else None
            found[rank, host, gpu] = Culprit(None, known or host, address, None, whole(gpu), why)
    return list(found.values()) if len(found) == 1 else []


#: Fields that hold a host or an address which a line names.
_HOST = ("host", "host2", "node", "address", "ip", "peer", "peer2", "nodes")


@method("named-host")
def named_host(case: Case, weighed: Weighed) -> list[Culprit]:
    """The host or address that the strongest evidence names in its text."""
    for event in strongest(weighed):
        for name in _HOST:
            value = event.fields.get(name)
            if value and _names_somebody(value):
                return [_host_of(case, weighed, value, event)]
    return []


def _host_of(case: Case, weighed: Weighed, name: str, event: Event) -> Culprit:
    known = parse(name)
    # IPv4 as a socket of both families writes it (::ffff:10.0.0.5) is that address.
    address = None if known is None else str(known) if known.version == 4 else name
    host = _owner(case, weighed, address) if address else name
    why = {"en": "named by the deciding line", "zh": "决定性的那一行点名了它"}
    return Culprit(_task(case, event), host or address or name, address, None, None, why)


def _task(case: Case, event: Event) -> int | None:
    """Return the rank that a scheduler names as a task, where tasks are ranks."""
    number = whole(event.fields.get("rank")) if event.fields.get("names") == "task" else None
    return None if number is None else case.identity.rank_of_task(number)


def _names_somebody(value: str) -> bool:
    """Say whether a name or address belongs to one host; every host has a loopback address."""
    known = parse(value)
    if known is None:
        return not value.isdigit()
    return not (known.is_loopback or known.is_unspecified or known in _NO_ADDRESS)


def _owner(case: Case, weighed: Weighed, address: str) -> str | None:
    """Return the host of an address; if no line tells it, the only host of which no line complains of that address."""
    known = case.identity.host_of_address(address)
    if known is not None:
        return known
    complaining = {
        case.host(event)
        for item in weighed.rule_items
        for event in item.events
        if address in event.fields.values() or address in event.text
    }
    others = [host for host in case.identity.hosts if host not in complaining and host != address]
    return others[0] if len(others) == 1 and complaining - {None} else None


@method("named-gpu")
def _named_gpu(case: Case, weighed: Weighed) -> list[Culprit]:
    """On a single node without rank prefixes: the GPU index that the evidence names, taken for the rank."""
    if len(case.identity.hosts) > 1 or max(case.identity.ranks, default=0) >= 16:
        return []
    for event in strongest(weighed):
        if case.rank(event) is not None:
            return []
        gpu = event.number("gpu") if event.number("gpu") is not None else event.number("device")
        if gpu is None and (tensor := _TENSOR.search(event.text)) is not None:
            gpu = int(tensor[1])
        if gpu is not None:
            why = {
                "en": f"the line names GPU {int(gpu)}; on one node that is usually the rank",
                "zh": f"该行点名 GPU {int(gpu)}；单节点上它通常就是 rank",
            }
            return [Culprit(int(gpu), case.host(event), None, None, int(gpu), why)]
    return []


@method("listener")
def _listener(case: Case, weighed: Weighed) -> list[Culprit]:
    """Rank 0, where a program that makes its process group cannot listen: only this rank does (rendezvous.py, TCPStore)."""
    if not any(event.kind == "port.taken" for event in strongest(weighed)):
        return []
    paths = [event.fields.get("path", "") for event in case.having("exception.frame", "path")]
    if not any(path.endswith("torch/distributed/rendezvous.py") for path in paths):
        return []
    if any("torch/distributed/elastic/" in path or path.endswith("torch/distributed/run.py") for path in paths):
        return []  # an agent listens in place of rank 0
    return [of_rank(case, 0, "the rank that listens for all others", "负责监听、供其他 rank 连接的那个 rank")]
