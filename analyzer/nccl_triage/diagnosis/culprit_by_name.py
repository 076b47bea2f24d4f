"""Culprit methods that read a name: the rank, host, GPU, process, actor or node that a line of the evidence names."""

from __future__ import annotations

import ipaddress
import re
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
from nccl_triage.story.devices import Place

#: PyTorch prints such an address for the peer of an IPv4 connection, from uninitialised memory.
_NO_ADDRESS = ipaddress.ip_network("fdff:ffff::/32")
#: The device in a tensor that Python printed.
_TENSOR = lazily(r"\bdevice='cuda:(\d{1,2})'")
#: Fields with the rank that a line blames, with a rank that may only be the speaker, and with a list of ranks.
_RANK, _SPEAKER, _RANK_LIST = ("culprit_rank", "lagging_rank"), "rank", "ranks"


@method("named-rank")
def _named(case: Case, weighed: Weighed) -> list[Culprit]:
    """The ranks that the strongest evidence names in its text: one, a list (``ranks``: "1, 3"), or those of its pairs."""
    why = ("named in the error lines", "错误信息中点名了它")
    fields = _RANK if weighed.cause.victims_speak else (_RANK[0], _SPEAKER, *_RANK[1:])
    for item in by_weight(weighed):
        pairs: Counter[int] = Counter()
        for event in item.events:
            if "src_rank" in event.fields:
                continue  # the line names the waiting rank and, apart from it, the rank that it waits for
            # The number of a scheduler's task need not be a rank.
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


#: The method that reads ``culprit`` of signatures.
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


#: Fields with the host or address that a line names.
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
    # A dual-stack socket writes IPv4 addresses as ::ffff:10.0.0.5.
    address = None if known is None else str(known) if known.version == 4 else name
    host = _owner(case, weighed, address) if address else name
    why = {"en": "named by the deciding line", "zh": "决定性的那一行点名了它"}
    return Culprit(_task(case, event), host or address or name, address, None, None, why)


def _task(case: Case, event: Event) -> int | None:
    """Return the rank that belongs to the task which a scheduler's line names."""
    number = whole(event.fields.get("rank")) if event.fields.get("names") == "task" else None
    return None if number is None else case.identity.rank_of_task(number)


def _names_somebody(value: str) -> bool:
    """Tell whether a name or address belongs to one host, unlike a loopback address."""
    known = parse(value)
    if known is None:
        return not value.isdigit()
    return not (known.is_loopback or known.is_unspecified or known in _NO_ADDRESS)


def _owner(case: Case, weighed: Weighed, address: str) -> str | None:
    """Return the host of an address.

    If no line tells it, this is the only host that does not complain about the address.
    """
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
                "en": f"the line names GPU {int(gpu)}; on a single node this is usually the rank",
                "zh": f"该行点名 GPU {int(gpu)}；单节点上它通常就是 rank",
            }
            return [Culprit(int(gpu), case.host(event), None, None, int(gpu), why)]
    return []


@method("listener")
def _listener(case: Case, weighed: Weighed) -> list[Culprit]:
    """Rank 0, if a program that creates its process group cannot listen: only this rank does (rendezvous.py, TCPStore)."""
    if not any(event.kind == "port.taken" for event in strongest(weighed)):
        return []
    paths = [event.fields.get("path", "") for event in case.having("exception.frame", "path")]
    if not any(path.endswith("torch/distributed/rendezvous.py") for path in paths):
        return []
    if any("torch/distributed/elastic/" in path or path.endswith("torch/distributed/run.py") for path in paths):
        return []  # the agent listens instead of rank 0
    return [of_rank(case, 0, "the rank that all others connect to", "负责监听、供其他 rank 连接的那个 rank")]


#: Length of Ray's report of a dead actor, in lines.
_BLOCK = 16
#: verl names its actors by the group of bundles (one per node) and the local rank (verl/single_controller/ray/base.py).
_VERL_ACTOR = lazily(r"\w_0:(\d{1,4})$")
#: vLLM names its workers VllmWorker-RANK (multiproc_executor.py) or by a list of ranks (ray_executor_v2.py).
_VLLM_WORKER = lazily(r"VllmWorker-(\d{1,6})$|\[(\d{1,6})\]$")


@method("dead-actor")
def _of_actor(case: Case, weighed: Weighed) -> list[Culprit]:
    """The actor that Ray reports dead, by its pid, or the worker whose death vLLM's executor reports, by its name."""
    return _dead_actor(case) or _dead_worker(case)


def _dead_worker(case: Case) -> list[Culprit]:
    """Return the vLLM worker that its executor reports dead, by the rank in its name."""
    why = ("reported dead by its executor", "其 executor 报告该 worker 已死")
    for event in case.having("process.lost", "name"):
        named = _VLLM_WORKER.match(event.fields.get("name", ""))
        if named is not None:
            return [of_rank(case, int(named[1] or named[2]), *why)]
    return []


def _dead_actor(case: Case) -> list[Culprit]:
    """Return the actor that Ray reports dead, by its pid."""
    for event in case.telling(names="actor"):
        pid = re.search(r"\bpid[:=] ?(\d{1,18})|PID: (\d{1,18})", event.text)
        if pid is None:
            continue
        number = int(pid[1] or pid[2])
        rank = case.identity.rank_of_pid(number)
        rank = rank if rank is not None else _rank_in_name(case, event, number)
        why = {"en": "reported dead by Ray", "zh": "Ray 报告该进程已死"}
        if rank is not None:
            found = of_rank(case, rank, why["en"], why["zh"])
            found.pid = found.pid or number
            if found.host is None and found.address is None:
                found.address = event.fields.get("address") or _address_in_block(case, event)
                found.host = case.identity.host_of_address(found.address) if found.address else None
            return [found]
        # The reporting driver may run on another host, so prefer lines of the process itself.
        own = next((one for one in case.events if one.context.pid == number and case.host(one) is not None), None)
        address = event.fields.get("address") or (_address_in_block(case, event) if own is None else None)
        host = case.identity.host_of_address(address) if address else case.host(own or event)
        return [Culprit(None, host, address, number, None, why)]
    return []


def _rank_in_name(case: Case, died: Event, pid: int) -> int | None:
    """Return the rank in the name of a dead verl actor (WorkerDict_NODE:LOCAL_RANK) on the first node of its pool."""
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
    """Return the address in Ray's report of a dead actor."""
    for event in case.having("process.lost", key2="ip"):
        if event.source == died.source and abs(died.line - event.line) <= _BLOCK:
            return event.fields["value"]
    return None


def _node_of_actor(case: Case) -> list[Culprit]:
    """Return the host of an actor that died with its node, by the address in Ray's report of the actor."""
    for died in case.of("node.lost"):
        for event in reversed(case.having("process.lost", key2="ip")):
            if event.source == died.source and 0 < died.line - event.line <= _BLOCK:
                address = event.fields["value"]
                why = {"en": "the node that died with its actor", "zh": "actor 随之死亡的节点"}
                return [Culprit(None, case.identity.host_of_address(address), address, None, None, why)]
    return []


@method("lost-node")
def _lost_node(case: Case, weighed: Weighed) -> list[Culprit]:
    """The Ray nodes that stopped because they were declared dead: they print it, another names them, or an actor's report."""
    lost = [event for event in strongest(weighed) if event.kind == "node.lost"]
    found: dict[str | None, Culprit] = {}
    for event in lost:
        if event.fields.get("names") == "itself" and case.host(event) is not None:
            why = {
                "en": "its raylet stopped after Ray declared the node dead",
                "zh": "它的 raylet 被宣告死亡后自行退出",
            }
            found[case.host(event)] = Culprit(None, case.host(event), event.context.address, None, None, why)
    if not lost:
        return []
    named = [culprit for culprit in named_host(case, weighed) if culprit.host not in found]
    return [*found.values(), *named] or _node_of_actor(case)


#: How a GPU or process was matched with a rank, in words.
_HOW = {
    "pid": ("this process is rank {rank}", "该进程属于 rank {rank}"),
    "pci": ("NCCL lists it as rank {rank}'s GPU", "NCCL 显示它是 rank {rank} 的 GPU"),
}


def _of_host(event: Event) -> bool:
    return event.signature.partition(".")[0] in ("kernel", "nvidia-driver")


def _gpu_or_process(event: Event, place: Place) -> tuple[str, str]:
    """Return the switch, device, GPU or process that a line names, in English and Chinese words."""
    if place.address is not None and "sxid" in event.fields:
        return f"NVSwitch {place.address}", f"NVSwitch {place.address}"
    if place.address is not None and event.signature.startswith("kernel."):
        return f"PCI device {place.address}", f"PCI 设备 {place.address}"
    index = f" (GPU {place.gpu})" if place.gpu is not None else ""
    if place.address is not None:
        return f"GPU {place.address}{index}", f"GPU {place.address}{index}"
    return (f"process {place.pid}", f"进程 {place.pid}") if place.pid is not None else ("", "")


@method("device")
def _device(case: Case, weighed: Weighed) -> list[Culprit]:
    """The rank whose GPU (by its PCI address) or process the strongest evidence of a host's log names, or the GPU's host."""
    events = strongest(weighed)
    if not events or not _of_host(events[0]):
        return []
    told = [event for event in events if _of_host(event) and event.role != "context"] or events[:1]
    for event in sorted(told, key=lambda e: (e.role != "root", case.position(e))):
        place = case.devices.place(event)
        en, zh = _gpu_or_process(event, place)
        on, on_zh = (f" on {place.host}", f"（{place.host}）") if place.host else ("", "")
        if place.rank is not None and place.how:
            why, why_zh = (text.format(rank=place.rank) for text in _HOW[place.how])
            culprit = of_rank(case, place.rank, f"{en}{on} is named; {why}", f"点名 {zh}{on_zh}：{why_zh}")
            culprit.host = culprit.host or place.host
            culprit.gpu = place.gpu if place.gpu is not None else culprit.gpu
            return [culprit]
        if place.address is not None and place.host:
            why = f"{en}{on} is named, but no line says which rank used it"
            why_zh = f"点名 {zh}{on_zh}；没有信息表明是哪个 rank 使用它"
            return [Culprit(None, place.host, None, None, place.gpu, {"en": why, "zh": why_zh})]
    return []
