"""Culprit methods that find hosts: the host of the evidence, hosts that differ from the others, or both ends of a path."""

from __future__ import annotations

from collections import Counter

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.culprit_base import MAX_CULPRITS, Culprit, method, strongest
from nccl_triage.diagnosis.facts.network import announced, targets
from nccl_triage.diagnosis.weigh import Weighed
from nccl_triage.story import differences
from nccl_triage.story.addresses import parse
from nccl_triage.story.differences import Difference


@method("evidence-host")
def _evidence_host(case: Case, weighed: Weighed) -> list[Culprit]:
    """The host (not the rank) that printed the strongest evidence; none where hosts blame each other equally."""
    told = [event for item in weighed.rule_items for event in item.events if event.is_failure]
    hosts = {info.host for rank in case.ranks(told) if (info := case.identity.ranks.get(rank)) is not None}
    if weighed.cause.between_sides and len(hosts) > 2:
        return []
    if weighed.cause.victims_speak and len(case.identity.hosts) > 1:
        return []
    for event in strongest(weighed):
        host = case.host(event)
        if host or event.context.address:
            why = {"en": "the error lines come from this host", "zh": "错误信息来自这台主机"}
            return [Culprit(None, host, event.context.address, event.context.pid, event.context.gpu, why)]
    return []


@method("lone-host")
def _lone_host(case: Case, weighed: Weighed) -> list[Culprit]:
    """The one host among several whose ranks print the evidence."""
    hosts = Counter(host for item in weighed.rule_items for e in item.events if (host := case.host(e)) is not None)
    if len(hosts) != 1 or len(case.identity.hosts) < 2:
        return []
    host = next(iter(hosts))
    why = {"en": "only this host reports the error", "zh": "只有这台主机报告了该错误"}
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


@method("silent-host")
def _silent_host(case: Case, weighed: Weighed) -> list[Culprit]:
    """The only host without any failure while the others' processes timed out waiting for it."""
    failed = {case.host(event) for event in case.failures} - {None}
    silent = [host for host in case.identity.hosts if host not in failed]
    if not failed or len(silent) != 1 or not case.value("collective.timeouts"):
        return []
    why = {"en": "reported no error while the others timed out", "zh": "其他主机超时，它没有任何报错"}
    return [Culprit(None, silent[0], None, None, None, why)]


@method("pair")
def _pair(case: Case, weighed: Weighed) -> list[Culprit]:
    """Both hosts that report a failing path, if there are only two: their lines do not show which end is broken."""
    if not weighed.cause.between_sides:
        return []
    events = [event for item in weighed.rule_items for event in item.events if event.is_failure]
    hosts = {host for event in events if (host := case.host(event)) is not None}
    if len(hosts) != 2:
        return []
    first = case.identity.ranks.get(0)
    why = {
        "en": "one end of the failed path; the log does not show which end is at fault",
        "zh": "故障链路的一端；日志看不出是哪一端有问题",
    }
    # Rank 0's host comes last, because logs show its lines even if nothing is wrong with it.
    ordered = sorted(hosts, key=lambda host: (first is not None and host == first.host, host))
    return [Culprit(None, host, None, None, None, why) for host in ordered]


@method("two-networks")
def _two(case: Case, weighed: Weighed) -> list[Culprit]:
    """The hosts whose addresses share no network, where the lines that offer them are evidence."""
    seen: dict[str, str] = {}
    told = {id(event) for item in weighed.rule_items for event in item.events}
    if not any(id(event) in told for _, _, _, event in announced(case)):
        return []
    for host, _, ip, _ in announced(case):
        address = parse(ip)
        if host and address is not None and not address.is_loopback and not address.is_link_local:
            seen[host] = ip
    why = {"en": "its address shares no network with the other side", "zh": "其地址与对端不在同一网络"}
    if len(seen) < 2:
        return []
    # The side that could not connect comes first, because it is the one that needs another path.
    complaining = {
        host for item in weighed.rule_items for e in item.events if e.role != "context" and (host := case.host(e))
    }
    ordered = sorted(seen.items(), key=lambda pair: (pair[0] not in complaining, pair[0]))
    return [Culprit(None, host, ip, None, None, why) for host, ip in ordered][:4]


@method("loopback-announcer")
def _announcer(case: Case, weighed: Weighed) -> list[Culprit]:
    """The hosts that announced their loopback address, where others could not connect to it."""
    tried = [event for ip, event in targets(case) if (address := parse(ip)) is not None and address.is_loopback]
    complaining = {case.host(event) for event in tried}
    offered = {
        host: ip
        for host, _, ip, event in announced(case)
        if tried and host not in {None, *complaining} and (address := parse(ip)) is not None and address.is_loopback
    }
    why = {"en": "it announced its loopback address to the other hosts", "zh": "向其他主机提供了自己的回环地址"}
    return [Culprit(None, host, None, None, None, why) for host in sorted(h for h in offered if h)][:4]
