"""Culprit methods that read which process or node of Ray, or worker of vLLM, died."""

from __future__ import annotations

import re

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.culprit_base import Culprit, method, of_rank, strongest
from nccl_triage.diagnosis.culprit_named import named_host
from nccl_triage.diagnosis.weigh import Weighed
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event

#: Lines of Ray's report of a dead actor.
_BLOCK = 16
#: How verl names its actors: group of bundles (one a node) and local rank (verl/single_controller/ray/base.py).
_VERL_ACTOR = lazily(r"\w_0:(\d{1,4})$")
#: How vLLM names its workers: VllmWorker-RANK (multiproc_executor.py), or a list of ranks (ray_executor_v2.py).
_VLLM_WORKER = lazily(r"VllmWorker-(\d{1,6})$|\[(\d{1,6})\]$")


@method("dead-actor")
def _of_actor(case: Case, weighed: Weighed) -> list[Culprit]:
    """The actor that Ray reports dead, by its pid, or the worker whose end vLLM's executor reports, by its name."""
    return _dead_actor(case) or _dead_worker(case)


def _dead_worker(case: Case) -> list[Culprit]:
    """Return the worker of vLLM whose end its executor reports, by the rank in its name."""
    why = ("its executor reports this worker dead", "其 executor 报告该 worker 已死")
    for event in case.having("process.lost", "name"):
        named = _VLLM_WORKER.match(event.fields.get("name", ""))
        if named is not None:
            return [of_rank(case, int(named[1] or named[2]), *why)]
    return []


def _dead_actor(case: Case) -> list[Culprit]:
    """Return the Ray actor that Ray reports dead, by its pid."""
    for event in case.telling(names="actor"):
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


def _node_of_actor(case: Case) -> list[Culprit]:
    """Return the host of an actor that died with its node: the address in the block of lines that reports the actor."""
    for died in case.of("node.lost"):
        for event in reversed(case.having("process.lost", key2="ip")):
            if event.source == died.source and 0 < died.line - event.line <= _BLOCK:
                address = event.fields["value"]
                why = {"en": "the node of the actor that died with it", "zh": "actor 随之死亡的节点"}
                return [Culprit(None, case.identity.host_of_address(address), address, None, None, why)]
    return []


@method("lost-node")
def _lost_node(case: Case, weighed: Weighed) -> list[Culprit]:
    """The Ray nodes that stopped because they were declared dead: they print it, another names them, or an actor's report."""
    lost = [event for event in strongest(weighed) if event.kind == "node.lost"]
    found: dict[str | None, Culprit] = {}
    for event in lost:
        if event.fields.get("names") == "itself" and case.host(event) is not None:
            why = {"en": "its raylet stopped after it was declared dead", "zh": "它的 raylet 被宣告死亡后自行退出"}
            found[case.host(event)] = Culprit(None, case.host(event), event.context.address, None, None, why)
    if not lost:
        return []
    named = [culprit for culprit in named_host(case, weighed) if culprit.host not in found]
    return [*found.values(), *named] or _node_of_actor(case)
