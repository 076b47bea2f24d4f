"""Who did it: methods by which a cause finds its rank, host or pair of hosts.

A cause lists method names; the first that finds somebody wins. A new method is one function here, or one row of
``culprit_facts.BY_FACT`` where a fact already names the ranks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from nccl_triage.diagnosis.addresses import parse
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.culprit_facts import BY_FACT
from nccl_triage.diagnosis.facts.network import announced
from nccl_triage.diagnosis.facts.progress import failures
from nccl_triage.diagnosis.weigh import Weighed
from nccl_triage.engine.schema import WEIGHTS
from nccl_triage.events import Event

#: More ranks than this are a property of the job, not culprits.
MAX_CULPRITS = 8
#: Lines in which Ray names the process of an actor or task that died.
DEAD_ACTOR = (
    "ray.actor_died_detail", "ray.worker_killed_unexpected", "ray.oom_task_killed", "ray.actor_creation_failed",
)  # fmt: skip


@dataclass(slots=True)
class Culprit:
    """A suspect and why it is one."""

    rank: int | None
    host: str | None
    address: str | None
    pid: int | None
    gpu: int | None
    why: dict[str, str]


Method = Callable[[Case, Weighed], list[Culprit]]
METHODS: dict[str, Method] = {}


def method(name: str) -> Callable[[Method], Method]:
    """Register a culprit method."""

    def register(function: Method) -> Method:
        METHODS[name] = function
        return function

    return register


def find(case: Case, weighed: Weighed) -> list[Culprit]:
    """Return the culprits by the first method of the cause that finds any."""
    for name in (*weighed.cause.culprit, *(() if "none" in weighed.cause.culprit else ("evidence-host",))):
        found = METHODS[name](case, weighed)[:MAX_CULPRITS]
        for culprit in found:
            # A host of which only the address is known goes by its address.
            culprit.host = culprit.host or culprit.address
        if found:
            return found
    return []


def _of_rank(case: Case, rank: int, en: str, zh: str) -> Culprit:
    info = case.identity.ranks.get(rank)
    pid = next(iter(info.pids)) if info is not None and len(info.pids) == 1 else None
    return Culprit(
        rank=rank,
        host=info.host if info is not None else None,
        address=info.address if info is not None else None,
        pid=pid,
        gpu=info.gpu if info is not None else None,
        why={"en": en, "zh": zh},
    )


def _dead_rank(case: Case, event: Event) -> int | None:
    """Return the rank of the process that the line is about (a pid in its text), not of the one that printed it."""
    pid = event.fields.get("pid", "")
    return case.identity.rank_of_pid(int(pid), case.host(event)) if pid.isdigit() else None


def _sole_failing_rank(case: Case) -> int | None:
    """Return the only rank that fails, where one process at most fails without naming its rank: then they are one."""
    failed = failures(case)
    ranks = set(case.ranks(failed))
    pids = {event.context.pid for event in failed if case.rank(event) is None}
    return ranks.pop() if len(ranks) == 1 and len(pids) == 1 and None not in pids else None


def _of_event(case: Case, event: Event, en: str, zh: str) -> Culprit:
    rank = _dead_rank(case, event)
    rank = rank if rank is not None else case.rank(event)
    if rank is None and event.context.pid is not None and event.role != "context":
        rank = _sole_failing_rank(case)
    if rank is not None:
        found = _of_rank(case, rank, en, zh)
        found.host = found.host or case.host(event)
        return found
    context = event.context
    return Culprit(None, case.host(event), context.address, context.pid, context.gpu, {"en": en, "zh": zh})


def _ranks(case: Case, name: str, en: str, zh: str) -> list[Culprit]:
    ranks = case.value(name)
    if not ranks or not isinstance(ranks, list):
        return []
    return [_of_rank(case, rank, en, zh) for rank in ranks if isinstance(rank, int) and rank >= 0]


def _strongest(weighed: Weighed) -> list[Event]:
    items = sorted(weighed.rule_items, key=lambda c: -WEIGHTS[c.evidence.weight])
    return [event for item in items for event in item.events]


def _by_fact(facts: tuple[str, ...], en: str, zh: str) -> Method:
    def find_ranks(case: Case, weighed: Weighed) -> list[Culprit]:
        return next((found for name in facts if (found := _ranks(case, name, en, zh))), [])

    find_ranks.__doc__ = f"The ranks of {' or else '.join(f'`{name}`' for name in facts)}: {en}."
    return find_ranks


METHODS.update((name, _by_fact(*row)) for name, row in BY_FACT.items())


@method("none")
def _none(case: Case, weighed: Weighed) -> list[Culprit]:
    return []


@method("evidence")
def _evidence(case: Case, weighed: Weighed) -> list[Culprit]:
    """The process that printed the strongest evidence first."""
    for event in _strongest(weighed):
        if (
            case.rank(event) is not None
            or _dead_rank(case, event) is not None
            or case.host(event)
            or event.context.address
        ):
            return [_of_event(case, event, "printed the deciding line", "打印了决定性的那一行")]
    return []


@method("evidence-host")
def _evidence_host(case: Case, weighed: Weighed) -> list[Culprit]:
    """The host (not the rank) that printed the strongest evidence."""
    for event in _strongest(weighed):
        host = case.host(event)
        if host or event.context.address:
            why = {"en": "the deciding line comes from this host", "zh": "决定性的那一行来自这台主机"}
            return [Culprit(None, host, event.context.address, None, event.context.gpu, why)]
    return []


@method("named-rank")
def _named(case: Case, weighed: Weighed) -> list[Culprit]:
    """The rank that the strongest evidence names in its text."""
    for event in _strongest(weighed):
        for name in ("culprit_rank", "rank", "lagging_rank"):
            number = event.number(name)
            if number is not None:
                return [_of_rank(case, int(number), "named by the deciding line", "决定性的那一行点名了它")]
    return []


@method("named-ranks")
def _named_list(case: Case, weighed: Weighed) -> list[Culprit]:
    """The list of ranks that the strongest evidence names in its text (``ranks`` field: "1, 3")."""
    for event in _strongest(weighed):
        text = event.fields.get("ranks")
        if text:
            ranks = [
                int(part)
                for part in text.replace("[", " ").replace("]", " ").replace(",", " ").split()
                if part.isdigit()
            ]
            if ranks:
                return [_of_rank(case, rank, "named by the deciding line", "决定性的那一行点名了它") for rank in ranks]
    return []


@method("named-host")
def _named_host(case: Case, weighed: Weighed) -> list[Culprit]:
    """The host or address that the strongest evidence names in its text."""
    for event in _strongest(weighed):
        for name in ("host", "node", "address", "ip", "peer", "nodes"):
            value = event.fields.get(name)
            if value:
                why = {"en": "named by the deciding line", "zh": "决定性的那一行点名了它"}
                address = value if parse(value) is not None else None
                host = case.identity.host_of_address(value) if address else value
                return [Culprit(None, host or value, address, None, None, why)]
    return []


@method("exception")
def _exception(case: Case, weighed: Weighed) -> list[Culprit]:
    """The rank that raised the first application exception."""
    found = _ranks(case, "exception.ranks", "raised the first exception", "最先抛出异常")
    if found and case.value("exception.all_ranks"):
        return []
    if not found and case.value("exception.application") is not None:
        # The traceback carries no rank; the launcher says which one ended first, and by itself.
        first = case.value("process.first_exit_ranks") or []
        if len(first) == 1 and case.value("process.first_exit_code") == 1:
            return [
                _of_rank(case, first[0], "ended first, as after an uncaught exception", "最先退出，与未捕获异常相符")
            ]
    return found[:1]


@method("peer")
def _peer(case: Case, weighed: Weighed) -> list[Culprit]:
    """The host that most error lines name as their peer."""
    counted: Counter[str] = Counter()
    for item in weighed.rule_items:
        for event in item.events:
            peer = event.fields.get("peer") or event.fields.get("remote") or event.fields.get("address")
            if peer:
                counted[peer.strip("[]")] += 1
    if not counted:
        return []
    peer = counted.most_common(1)[0][0]
    address = peer if parse(peer) is not None else None
    host = case.identity.host_of_address(peer) if address else peer
    why = {"en": "the peer that the error lines name", "zh": "报错行所指的对端"}
    return [Culprit(None, host, address, None, None, why)]


@method("two-networks")
def _two(case: Case, weighed: Weighed) -> list[Culprit]:
    """The hosts whose addresses share no network."""
    seen: dict[str, str] = {}
    for host, _, ip, _ in announced(case):
        address = parse(ip)
        if host and address is not None and not address.is_loopback and not address.is_link_local:
            seen[host] = ip
    why = {"en": "its address shares no network with the other side", "zh": "其地址与对端不在同一网络"}
    if len(seen) < 2:
        return []
    # The side that could not connect first: it is the one that needs another way.
    complaining = {
        host for item in weighed.rule_items for e in item.events if e.role != "context" and (host := case.host(e))
    }
    ordered = sorted(seen.items(), key=lambda pair: (pair[0] not in complaining, pair[0]))
    return [Culprit(None, host, ip, None, None, why) for host, ip in ordered][:4]


@method("lone-host")
def _lone_host(case: Case, weighed: Weighed) -> list[Culprit]:
    """The one host among several whose ranks print the evidence."""
    hosts = Counter(host for item in weighed.rule_items for e in item.events if (host := case.host(e)) is not None)
    if len(hosts) != 1 or len(case.identity.hosts) < 2:
        return []
    host = next(iter(hosts))
    why = {"en": "only this host prints the deciding lines", "zh": "只有这台主机打印了决定性的行"}
    return [Culprit(None, host, None, None, None, why)]


@method("dead-actor")
def _dead_actor(case: Case, weighed: Weighed) -> list[Culprit]:
    """The Ray actor that Ray reports dead, by its pid."""
    for event in case.of(*DEAD_ACTOR):
        pid = re.search(r"\bpid[:=] ?(\d+)|PID: (\d+)", event.text)
        if pid is None:
            continue
        number = int(pid[1] or pid[2])
        rank = case.identity.rank_of_pid(number)
        why = {"en": "Ray reports this process dead", "zh": "Ray 报告该进程已死"}
        if rank is not None:
            return [_of_rank(case, rank, why["en"], why["zh"])]
        address = event.fields.get("address")
        host = case.identity.host_of_address(address) if address else case.host(event)
        return [Culprit(None, host, address, number, None, why)]
    return []


@method("lost-node")
def _lost_node(case: Case, weighed: Weighed) -> list[Culprit]:
    """The Ray nodes that stopped because they were declared dead (they print it themselves), then those the GCS names."""
    why = {"en": "its raylet stopped after it was declared dead", "zh": "它的 raylet 被宣告死亡后自行退出"}
    own = [e for e in case.of("ray.raylet_marked_dead_self") if case.host(e) is not None]
    found = {case.host(e): Culprit(None, case.host(e), e.context.address, None, None, why) for e in own}
    named = _named_host(case, weighed) if found else []
    return [*found.values(), *(culprit for culprit in named if culprit.host not in found)]


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
    return [_of_rank(case, rank, "named by the deciding lines", "决定性的几行点名了它") for rank in ordered[:2]]


@method("named-gpu")
def _named_gpu(case: Case, weighed: Weighed) -> list[Culprit]:
    """On a single node without rank prefixes: the GPU index that the evidence names, taken for the rank."""
    if len(case.identity.hosts) > 1 or max(case.identity.ranks, default=0) >= 16:
        return []
    for event in _strongest(weighed):
        if case.rank(event) is not None:
            return []
        gpu = event.number("gpu") if event.number("gpu") is not None else event.number("device")
        if gpu is not None:
            why = {
                "en": f"the line names GPU {int(gpu)}; on one node that is usually the rank",
                "zh": f"该行点名 GPU {int(gpu)}；单节点上它通常就是 rank",
            }
            return [Culprit(int(gpu), case.host(event), None, None, int(gpu), why)]
    return []


@method("duplicate-rank")
def _duplicate_rank(case: Case, weighed: Weighed) -> list[Culprit]:
    """The rank that two processes claim."""
    for event in case.of("nccl.bootstrap_rank_dup"):
        number = event.number("rank")
        if number is not None:
            return [_of_rank(case, int(number), "two processes claim this rank", "两个进程声称是同一个 rank")]
    return []


@method("unnamed-ranks")
def _unnamed(case: Case, weighed: Weighed) -> list[Culprit]:
    """The ranks that wait for nobody: others gave up waiting for the communicator, these were not there."""
    waiting = set(case.ranks(case.of("training.collective_deadline")))
    others = sorted(set(case.identity.ranks) - waiting)
    if not waiting or not others or len(others) > len(waiting):
        return []
    return [_of_rank(case, rank, "was not among the ranks that waited", "不在等待的 rank 之中") for rank in others]


@method("stalled-actor")
def _stalled_actor(case: Case, weighed: Weighed) -> list[Culprit]:
    """Where a driver gave up on actors: the rank that shows no progress while others do."""
    if not case.of("ray.get_timeout"):
        return []
    moving = {r for e in case.events if e.role == "progress" and "step" in e.fields and (r := case.rank(e)) is not None}
    still = sorted(set(case.identity.ranks) - moving)
    if not moving or not still or len(still) > len(moving):
        return []
    return [
        _of_rank(case, rank, "made no progress while the others did", "其他 rank 有进展时它没有进展") for rank in still
    ]


@method("main-rank")
def _main_rank(case: Case, weighed: Weighed) -> list[Culprit]:
    """Rank 0, where the others timed out during long work that no line ties to a rank and rank 0 did not."""
    timed_out = case.value("collective.timed_out_ranks") or []
    unnamed = case.value("progress.long_task_ranks") == [-1] or case.value("progress.long_bar")
    if not timed_out or 0 in timed_out or not unnamed:
        return []
    return [
        _of_rank(
            case,
            0,
            "long work without a rank prefix was under way, and rank 0 is not among those that timed out",
            "有未注明 rank 的耗时工作在进行，而 rank 0 不在超时的 rank 之中",
        )
    ]
