"""Who did it: methods by which a cause finds its rank, host or pair of hosts.

A cause lists method names; the first that finds somebody wins. A new method is one function: in ``culprit_named`` where
the evidence names somebody, else here; or one row of ``culprit_facts.BY_FACT`` where a fact already names the ranks.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from nccl_triage.diagnosis import culprit_device, culprit_named, culprit_stacks, culprit_victim, placeholders  # noqa: F401  (their methods register themselves)
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.culprit_base import METHODS, Culprit, Method, dead_rank, method, of_event, of_rank, strongest
from nccl_triage.diagnosis.culprit_facts import BY_FACT
from nccl_triage.diagnosis.culprit_named import BY_MESSAGE
from nccl_triage.diagnosis.facts.network import announced, targets
from nccl_triage.diagnosis.weigh import Weighed
from nccl_triage.events import Event
from nccl_triage.story import devices, differences
from nccl_triage.story.addresses import parse
from nccl_triage.story.differences import Difference
from nccl_triage.story.exceptions import is_communication, tracebacks
from nccl_triage.story.fates import NUMBERS

__all__ = ["METHODS", "Culprit", "find"]

#: Methods that name whoever said it or ended first: where all said the same, that is chance.
BY_SPEAKER = ("exception", "evidence", "evidence-host", "exit", "dead-actor", "lone-host")
#: Of these, those by which all that said it are to blame.
BY_WORDS = ("exception", "evidence")
#: The method that reads the evidence of every cause but of those that blame nobody.
BY_EVIDENCE = "named-by-evidence"
#: How facts end that are lists of ranks.
RANKS = "_ranks"
#: Families of causes that lie in what all ranks share.
OF_THE_JOB = ("application", "configuration", "collective")
#: Characters by which errors of ranks are the same; one number of another value, and they are not.
WORDS = 400
#: Who speaks of itself says the same as the others.
_OF_RANK = re.compile(r"\brank[ :=]?\d+\b", re.IGNORECASE)
#: More ranks than this are a property of the job, not culprits.
MAX_CULPRITS = 8


def find(case: Case, weighed: Weighed) -> list[Culprit]:
    """Return the culprits by the first method of the cause that finds any."""
    return found_by(case, weighed)[1]


def found_by(case: Case, weighed: Weighed) -> tuple[str | None, list[Culprit]]:
    """Return the first method of the cause that finds any culprits, and these; None where nobody is found."""
    together = raised_alike(case, weighed)
    alike = weighed.cause.family in OF_THE_JOB and len(together) > 1 and together >= set(case.identity.ranks)
    hosts = case.identity.hosts
    last = () if "none" in weighed.cause.culprit else ("evidence-host",)
    methods = weighed.cause.culprit
    first = tuple(name for name in (BY_MESSAGE, BY_EVIDENCE) if not {"none", name} & set(methods))
    for name in (*first, *weighed.cause.culprit, *last):
        if alike and name in BY_SPEAKER:
            continue
        found = METHODS[name](case, weighed)
        if name in BY_WORDS and 1 < len(together) <= MAX_CULPRITS and found and found[0].rank in together:
            # Which of them came first is chance.
            host = _host_of_all(case, together)
            why = {"en": "every rank of this host raised the same", "zh": "这台主机上的所有 rank 都抛出了同样的异常"}
            found = (
                [Culprit(None, host, None, None, None, why)]
                if host is not None
                else [of_rank(case, rank, found[0].why["en"], found[0].why["zh"]) for rank in sorted(together)]
            )
        found = found[:MAX_CULPRITS]
        for culprit in found:
            if _is_loopback(culprit.host):
                culprit.host = None  # everybody's own
            # A host of which only the address is known goes by its address; the only host of a job is everybody's.
            culprit.host = culprit.host or culprit.address or (hosts[0] if len(hosts) == 1 else None)
        found = [one for one in found if (one.rank, one.host, one.pid, one.gpu) != (None, None, None, None)]
        if found:
            return name, found
    return None, []


def _is_loopback(name: str | None) -> bool:
    """Tell whether a name stands for the machine of whoever says it."""
    if name is None:
        return False
    address = parse(name)
    return name.split(".")[0].lower() in ("localhost", "ip6-localhost") or (address is not None and address.is_loopback)


def raised_alike(case: Case, weighed: Weighed) -> set[int]:
    """Return the ranks that by themselves raised what the evidence rests on, in the same words.

    All of them: a setting or an input of all, and nobody's fault.
    """
    if len(case.identity.ranks) < 2:
        return set()
    raised = [event for event in case.of("exception") if not is_communication(event)]
    lines = {(event.source, event.line): _words(event) for event in raised}
    words = {lines[place] for event in strongest(weighed) if (place := (event.source, event.line)) in lines}
    # An assembled traceback knows whose it is, where another process only hands it on.
    ranks = {(event.source, event.line): case.rank(event) for event in [*raised, *tracebacks(case)]}
    by_words: dict[str, set[int]] = defaultdict(set)
    for place, said in lines.items():
        if (rank := ranks[place]) is not None:
            by_words[said].add(rank)
    return max((by_words[said] for said in sorted(words)), key=len, default=set())


def _host_of_all(case: Case, ranks: set[int]) -> str | None:
    """Return the host whose ranks these are, all of them and nobody else, where the job has other hosts."""
    hosts: dict[str | None, set[int]] = defaultdict(set)
    for rank, info in case.identity.ranks.items():
        hosts[info.host or info.address].add(rank)
    return next((host for host, own in hosts.items() if own == ranks and host is not None and len(hosts) > 1), None)


def _words(event: Event) -> str:
    return _OF_RANK.sub("rank", event.fields.get("message") or event.text)[:WORDS]


@method(BY_EVIDENCE)
def _by_evidence(case: Case, weighed: Weighed) -> list[Culprit]:
    """The ranks of which the strongest evidence tells in words, where it rests on a fact that is a list of ranks.

    Fewer than half of those that are known: of a majority it tells what they suffer.
    """
    items = [item for item in weighed.rule_items if item.explained_by is None]
    most = max((item.evidence.log_odds for item in items), default=0.0)
    for item in items:
        if item.evidence.log_odds < most or item.evidence.when is None:
            continue
        for name in item.evidence.when.literals("fact"):
            if name.endswith(RANKS) and f"{{fact:{name}}}" in item.evidence.says.get("en", ""):
                says = placeholders.fill_both(item.evidence.says, case, item.events)
                found = _ranks(case, name, says["en"], says.get("zh", says["en"]))
                world = max(case.identity.world_size or 0, len(case.identity.ranks))
                return found if len(found) == 1 or not world or 2 * len(found) < world else []
    return []


def _ranks(case: Case, name: str, en: str, zh: str) -> list[Culprit]:
    ranks = case.value(name)
    if not ranks or not isinstance(ranks, list):
        return []
    return [of_rank(case, rank, en, zh) for rank in ranks if isinstance(rank, int) and rank >= 0]


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
    for event in strongest(weighed):
        if (
            case.rank(event) is not None
            or dead_rank(case, event) is not None
            or case.host(event)
            or event.context.address
        ):
            if devices.is_kernel(event):
                return [of_event(case, event, "its kernel reports the fault", "其内核报告了该故障")]
            return [of_event(case, event, "its own lines report the fault", "它自己的日志报告了该故障")]
    # The last line of a traceback that Ray hands on carries no process; the traceback's header does.
    for event in strongest(weighed):
        for block in tracebacks(case):
            inside = block.source == event.source and block.line <= event.line <= block.last_line
            if inside and (case.rank(block) is not None or case.host(block) or block.context.address):
                return [of_event(case, block, "raised the deciding exception", "抛出了决定性的异常")]
    return []


@method("evidence-host")
def _evidence_host(case: Case, weighed: Weighed) -> list[Culprit]:
    """The host (not the rank) that printed the strongest evidence; nobody where hosts complain of each other alike."""
    told = [event for item in weighed.rule_items for event in item.events if event.is_failure]
    hosts = {info.host for rank in case.ranks(told) if (info := case.identity.ranks.get(rank)) is not None}
    if weighed.cause.between_hosts and len(hosts) > 2:
        return []
    if weighed.cause.victims_speak and len(case.identity.hosts) > 1:
        return []
    for event in strongest(weighed):
        host = case.host(event)
        if host or event.context.address:
            why = {"en": "the deciding line comes from this host", "zh": "决定性的那一行来自这台主机"}
            return [Culprit(None, host, event.context.address, None, event.context.gpu, why)]
    return []


@method("silent-host")
def _silent_host(case: Case, weighed: Weighed) -> list[Culprit]:
    """The only host without any failure, while the others' processes timed out: they waited for it."""
    failed = {case.host(event) for event in case.failures} - {None}
    silent = [host for host in case.identity.hosts if host not in failed]
    if not failed or len(silent) != 1 or not case.value("collective.timeouts"):
        return []
    why = {"en": "reported no error while the others timed out", "zh": "其他主机超时，它没有任何报错"}
    return [Culprit(None, silent[0], None, None, None, why)]


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
                of_rank(case, first[0], "ended first, as after an uncaught exception", "最先退出，与未捕获异常相符")
            ]
    return found[:1]


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


@method("loopback-announcer")
def _announcer(case: Case, weighed: Weighed) -> list[Culprit]:
    """The hosts that offered their loopback address to others, where those could not connect to it."""
    tried = [event for ip, event in targets(case) if (address := parse(ip)) is not None and address.is_loopback]
    complaining = {case.host(event) for event in tried}
    offered = {
        host: ip
        for host, _, ip, event in announced(case)
        if tried and host not in {None, *complaining} and (address := parse(ip)) is not None and address.is_loopback
    }
    why = {"en": "it offered its loopback address to the others", "zh": "向其他主机提供了自己的回环地址"}
    return [Culprit(None, host, None, None, None, why) for host in sorted(h for h in offered if h)][:4]


@method("lone-host")
def _lone_host(case: Case, weighed: Weighed) -> list[Culprit]:
    """The one host among several whose ranks print the evidence."""
    hosts = Counter(host for item in weighed.rule_items for e in item.events if (host := case.host(e)) is not None)
    if len(hosts) != 1 or len(case.identity.hosts) < 2:
        return []
    host = next(iter(hosts))
    why = {"en": "only this host prints the deciding lines", "zh": "只有这台主机打印了决定性的行"}
    return [Culprit(None, host, None, None, None, why)]


@method("odd-host")
def _odd_host(case: Case, weighed: Weighed) -> list[Culprit]:
    """The hosts that differ from most others in what is evidence; all of them where no value has a majority."""
    said = {id(event) for item in weighed.rule_items for event in item.events}
    found = [one for one in case.differences if id(one.event) in said]
    aspects = [one.aspect for one in found]
    odd = [one for one in found if one.aspect == aspects[0]]
    hosts = {one.host for one in odd}
    if len(hosts) > MAX_CULPRITS:
        return []
    return [Culprit(None, one.host, None, None, None, _unlike(one, odd)) for one in odd]


def _unlike(one: Difference, odd: list[Difference]) -> dict[str, str]:
    others = one.usual or " / ".join(sorted({other.value for other in odd} - {one.value}))
    name, _, rest = one.aspect.partition(":")
    en, zh = {
        differences.MODULE: ("network module", "网络模块"),
        differences.SOURCE: ("NCCL's source file of the same message", "同一消息所在的 NCCL 源文件"),
        "nccl": ("NCCL version", "NCCL 版本"),
    }.get(name, (rest or name, rest or name))
    return {"en": f"{en} {one.value} here, {others} elsewhere", "zh": f"{zh}：此处 {one.value}，其他主机 {others}"}


@method("bad-numbers")
def _bad_numbers(case: Case, weighed: Weighed) -> list[Culprit]:
    """The ranks whose own numbers were bad, while others show none: what is raised of a mean of all tells nobody apart."""
    raised = {(event.source, event.line) for event in case.of("exception")}
    ranks = case.ranks([e for e in case.of(NUMBERS) if (e.source, e.line) not in raised])
    if 2 * len(ranks) > len(case.identity.ranks):
        return []
    return [of_rank(case, rank, "its own numbers were bad", "它自己的数值异常") for rank in ranks]


@method("stranded-host")
def _stranded_host(case: Case, weighed: Weighed) -> list[Culprit]:
    """The hosts that did not reach the store which the others had found."""
    why = {"en": "did not reach the store that the others had found", "zh": "没有连上其他主机已找到的 store"}
    return [Culprit(None, host, None, None, None, why) for host in case.value("rendezvous.stranded_hosts") or []]


@method("both-ends")
def _both_ends(case: Case, weighed: Weighed) -> list[Culprit]:
    """Both of two hosts that complain of the path between them: which end is broken, their lines do not show."""
    events = [event for item in weighed.rule_items for event in item.events if event.is_failure]
    hosts = {host for event in events if (host := case.host(event)) is not None}
    if len(hosts) != 2 or len(case.identity.hosts) != 2:
        return []
    first = case.identity.ranks.get(0)
    why = {
        "en": "one end of the path that failed; the lines do not show which",
        "zh": "出故障的链路的一端；日志行看不出是哪一端",
    }
    # Rank 0's host comes last: it is the one whose lines a log shows even where nothing is wrong with it.
    ordered = sorted(hosts, key=lambda host: (first is not None and host == first.host, host))
    return [Culprit(None, host, None, None, None, why) for host in ordered]


@method("failing-pair")
def _failing_pair(case: Case, weighed: Weighed) -> list[Culprit]:
    """The only two of several hosts that fail to connect: each to the other, as all reach the rest."""
    failed = [e for item in weighed.rule_items for e in item.events if e.kind == "connection.refused"]
    hosts = sorted({host for event in failed if (host := case.host(event)) is not None})
    if len(hosts) != 2 or len(case.identity.hosts) < 3:
        return []
    why = {
        "en": "one of the only two hosts that fail to connect, so to each other",
        "zh": "只有这两台主机连接失败，即彼此不通",
    }
    return [Culprit(None, host, None, None, None, why) for host in hosts]


@method("unnamed-ranks")
def _unnamed(case: Case, weighed: Weighed) -> list[Culprit]:
    """The ranks that wait for nobody: others gave up waiting for the communicator, these were not there."""
    waiting = set(case.ranks(case.having("collective.timeout", "seconds")))
    others = sorted(set(case.identity.ranks) - waiting)
    if not waiting or not others or len(others) > len(waiting):
        return []
    return [of_rank(case, rank, "was not among the ranks that waited", "不在等待的 rank 之中") for rank in others]


@method("stalled-actor")
def _stalled_actor(case: Case, weighed: Weighed) -> list[Culprit]:
    """Where a driver gave up on actors: the rank that shows no progress while others do."""
    if not case.of("call.timeout"):
        return []
    moving = {r for e in case.events if e.role == "progress" and "step" in e.fields and (r := case.rank(e)) is not None}
    still = sorted(set(case.identity.ranks) - moving)
    if not moving or not still or len(still) > len(moving):
        return []
    return [
        of_rank(case, rank, "made no progress while the others did", "其他 rank 有进展时它没有进展") for rank in still
    ]


@method("main-rank")
def _main_rank(case: Case, weighed: Weighed) -> list[Culprit]:
    """Rank 0, where the others timed out during long work that no line ties to a rank and rank 0 did not."""
    timed_out = case.value("collective.timed_out_ranks") or []
    unnamed = case.value("progress.long_task_ranks") == [-1] or case.value("progress.long_bar")
    if not timed_out or 0 in timed_out or not unnamed:
        return []
    return [
        of_rank(
            case,
            0,
            "long work without a rank prefix was under way, and rank 0 is not among those that timed out",
            "有未注明 rank 的耗时工作在进行，而 rank 0 不在超时的 rank 之中",
        )
    ]
