"""Culprit methods that read a name: the rank, host, peer, GPU or process that the lines of the evidence speak of."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter

from nccl_triage.diagnosis import placeholders
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.culprit_base import Culprit, method, of_rank, strongest
from nccl_triage.diagnosis.weigh import Weighed
from nccl_triage.engine.schema import NAMED
from nccl_triage.events import Event
from nccl_triage.numbers import listed, whole
from nccl_triage.patterns import lazily
from nccl_triage.story.addresses import parse

#: What PyTorch prints for the other end of a connection between addresses of IPv4: memory that was never set.
_NO_ADDRESS = ipaddress.ip_network("fdff:ffff::/32")
#: Lines of Ray's report of a dead actor.
_BLOCK = 16
#: How verl names its actors: group of bundles (one a node) and local rank (verl/single_controller/ray/base.py).
_VERL_ACTOR = lazily(r"\w_0:(\d{1,4})$")
#: How vLLM names its workers: VllmWorker-RANK (multiproc_executor.py), or a list of ranks (ray_executor_v2.py).
_VLLM_WORKER = lazily(r"VllmWorker-(\d{1,6})$|\[(\d{1,6})\]$")
#: The device of a tensor that Python printed.
_TENSOR = lazily(r"\bdevice='cuda:(\d{1,2})'")


@method("named-rank")
def _named(case: Case, weighed: Weighed) -> list[Culprit]:
    """The rank that the strongest evidence names in its text."""
    for event in strongest(weighed):
        if "src_rank" in event.fields:
            continue  # the line names who waits, and apart from it the rank that is waited for
        for name in ("culprit_rank", "rank", "lagging_rank"):
            number = event.number(name)
            if number is not None:
                return [of_rank(case, int(number), "named by the deciding line", "决定性的那一行点名了它")]
    return []


@method("named-ranks")
def _named_list(case: Case, weighed: Weighed) -> list[Culprit]:
    """The list of ranks that the strongest evidence names in its text (``ranks`` field: "1, 3")."""
    for event in strongest(weighed):
        text = event.fields.get("ranks")
        if text:
            ranks = listed(text)
            if ranks:
                return [of_rank(case, rank, "named by the deciding line", "决定性的那一行点名了它") for rank in ranks]
    return []


#: The method that every cause has, whether it lists it or not.
BY_MESSAGE = "named-by-message"


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
        # A cause that does not ask for it takes the word of its own evidence alone.
        within = signature.culprit.within if BY_MESSAGE in weighed.cause.culprit else 0
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


@method("named-host")
def _named_host(case: Case, weighed: Weighed) -> list[Culprit]:
    """The host or address that the strongest evidence names in its text."""
    for event in strongest(weighed):
        for name in ("host", "host2", "node", "address", "ip", "peer", "peer2", "nodes"):
            value = event.fields.get(name)
            if value and _names_somebody(value):
                known = parse(value)
                why = {"en": "named by the deciding line", "zh": "决定性的那一行点名了它"}
                # IPv4 as a socket of both families writes it (::ffff:10.0.0.5) is that address.
                address = None if known is None else str(known) if known.version == 4 else value
                host = _owner(case, weighed, address) if address else value
                return [Culprit(_task(case, event), host or address or value, address, None, None, why)]
    return []


def _task(case: Case, event: Event) -> int | None:
    """Return the rank that a scheduler names as a task, where tasks are ranks."""
    number = whole(event.fields.get("rank")) if event.fields.get("names") == "task" else None
    return None if number is None else case.identity.rank_of_task(number)


def _names_somebody(value: str) -> bool:
    """Say whether a name or address belongs to one host; every host has a loopback address."""
    known = parse(value)
    return known is None or not (known.is_loopback or known in _NO_ADDRESS)


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


@method("named-most")
def _named_most(case: Case, weighed: Weighed) -> list[Culprit]:
    """The rank that the evidence names most often, on either side of a pair."""
    counted: Counter[int] = Counter()
    for item in weighed.rule_items:
        for event in item.events:
            for name in ("rank", "peer_rank", "other_rank"):
                number = event.number(name)
                if number is not None:
                    counted[int(number)] += 1
    ordered = [rank for rank, _ in counted.most_common()]
    return [of_rank(case, rank, "named by the deciding lines", "决定性的几行点名了它") for rank in ordered[:2]]


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


@method("peer")
def _peer(case: Case, weighed: Weighed) -> list[Culprit]:
    """The host that most error lines name as their peer."""
    counted: Counter[str] = Counter()
    for item in weighed.rule_items:
        for event in item.events:
            peer = event.fields.get("peer") or event.fields.get("remote") or event.fields.get("address")
            if peer and _names_somebody(peer.strip("[]")):
                counted[peer.strip("[]")] += 1
    if not counted:
        return []
    peer = counted.most_common(1)[0][0]
    address = peer if parse(peer) is not None else None
    host = _owner(case, weighed, peer) if address else peer
    why = {"en": "the peer that the error lines name", "zh": "报错行所指的对端"}
    return [Culprit(None, host, address, None, None, why)]


@method("listener")
def _listener(case: Case, weighed: Weighed) -> list[Culprit]:
    """Rank 0, where a program that makes its process group cannot listen: only this rank does (rendezvous.py, TCPStore)."""
    paths = [event.fields.get("path", "") for event in case.having("exception.frame", "path")]
    if not any(path.endswith("torch/distributed/rendezvous.py") for path in paths):
        return []
    if any("torch/distributed/elastic/" in path or path.endswith("torch/distributed/run.py") for path in paths):
        return []  # an agent listens in place of rank 0
    return [of_rank(case, 0, "the rank that listens for all others", "负责监听、供其他 rank 连接的那个 rank")]


@method("dead-worker")
def _dead_worker(case: Case, weighed: Weighed) -> list[Culprit]:
    """The worker of vLLM whose end its executor reports, by the rank in its name."""
    why = ("its executor reports this worker dead", "其 executor 报告该 worker 已死")
    for event in case.having("process.lost", "name"):
        named = _VLLM_WORKER.match(event.fields.get("name", ""))
        if named is not None:
            return [of_rank(case, int(named[1] or named[2]), *why)]
    return []


def _dead_actors(case: Case) -> list[Event]:
    """Return the lines in which Ray names the process of an actor or task that died."""
    return case.telling(names="actor")


@method("dead-actor")
def _dead_actor(case: Case, weighed: Weighed) -> list[Culprit]:
    """The Ray actor that Ray reports dead, by its pid."""
    for event in _dead_actors(case):
        pid = re.search(r"\bpid[:=] ?(\d{1,18})|PID: (\d{1,18})", event.text)
        if pid is None:
            continue
        number = int(pid[1] or pid[2])
        rank = case.identity.rank_of_pid(number)
        rank = rank if rank is not None else _rank_in_name(case, event, number)
        why = {"en": "Ray reports this process dead", "zh": "Ray 报告该进程已死"}
        if rank is not None:
            found = of_rank(case, rank, why["en"], why["zh"])
            found.pid = found.pid or number
            if found.host is None and found.address is None:
                found.address = event.fields.get("address") or _address_in_block(case, event)
                found.host = case.identity.host_of_address(found.address) if found.address else None
            return [found]
        # The driver that reports it may run elsewhere: better what the process itself has printed.
        own = next((one for one in case.events if one.context.pid == number and case.host(one) is not None), None)
        address = event.fields.get("address") or (_address_in_block(case, event) if own is None else None)
        host = case.identity.host_of_address(address) if address else case.host(own or event)
        return [Culprit(None, host, address, number, None, why)]
    return []


def _rank_in_name(case: Case, died: Event, pid: int) -> int | None:
    """Return the rank in the name of a dead actor of verl (WorkerDict_NODE:LOCAL_RANK), on the first node of its pool."""
    block = case.having("process.lost", "key2", "value")
    for event in block:
        named = _VERL_ACTOR.search(event.fields["value"]) if event.fields.get("key2") == "name" else None
        own = any(
            one.fields.get("key2") == "pid" and one.fields["value"] == str(pid)
            and one.source == event.source and abs(one.line - event.line) <= _BLOCK // 2
            for one in block
        )  # fmt: skip
        if named is not None and own:
            return int(named[1])
    return None


def _address_in_block(case: Case, died: Event) -> str | None:
    """Return the address in the block of lines that reports a dead actor."""
    for event in case.having("process.lost", key2="ip"):
        if event.source == died.source and abs(died.line - event.line) <= _BLOCK:
            return event.fields["value"]
    return None


@method("dead-actor-host")
def _dead_actor_host(case: Case, weighed: Weighed) -> list[Culprit]:
    """The host of an actor that died with its node: the address in the block of lines that reports the actor."""
    for died in case.of("node.lost"):
        for event in reversed(case.having("process.lost", key2="ip")):
            if event.source == died.source and 0 < died.line - event.line <= _BLOCK:
                address = event.fields["value"]
                why = {"en": "the node of the actor that died with it", "zh": "actor 随之死亡的节点"}
                return [Culprit(None, case.identity.host_of_address(address), address, None, None, why)]
    return []


@method("lost-node")
def _lost_node(case: Case, weighed: Weighed) -> list[Culprit]:
    """The Ray nodes that stopped because they were declared dead (they print it themselves), then those the GCS names."""
    why = {"en": "its raylet stopped after it was declared dead", "zh": "它的 raylet 被宣告死亡后自行退出"}
    own = [e for e in case.having("node.lost", names="itself") if case.host(e) is not None]
    found = {case.host(e): Culprit(None, case.host(e), e.context.address, None, None, why) for e in own}
    named = _named_host(case, weighed) if found else []
    return [*found.values(), *(culprit for culprit in named if culprit.host not in found)]
