"""Culprit methods that find a rank by what became of it: where it stands, how it ended, what it raised or failed to do."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_triage.diagnosis import placeholders
from nccl_triage.diagnosis.case import BLAMES, Case
from nccl_triage.diagnosis.culprit_base import FAMILIES, Culprit, by_weight, method, of_event, of_rank, strongest
from nccl_triage.diagnosis.facts import hang, stacks
from nccl_triage.diagnosis.facts.hang import Seen
from nccl_triage.diagnosis.facts.stacks import Stack
from nccl_triage.diagnosis.weigh import Contribution, Weighed
from nccl_triage.numbers import whole
from nccl_triage.observations.event import Event
from nccl_triage.recorder.lines import spans
from nccl_triage.story.devices import host_key, is_kernel, job_like
from nccl_triage.story.exceptions import tracebacks
from nccl_triage.story.kernel_log import names_victim
from nccl_triage.story.survived_failures import NUMBERS

#: The method that reads the facts on which the evidence rests.
BY_FACTS = "evidence-facts"
#: Names of facts that are lists of ranks end so.
RANKS = "_ranks"
#: Facts that name ranks which went away, most reliable first.
_GONE = (
    "process.killed_ranks", "progress.vanished_ranks", "collective.absent_ranks", "ras.silent_ranks",
    "collective.behind_ranks", "progress.stalled_ranks", "progress.silent_ranks",
)  # fmt: skip


def _standing(case: Case, found: Iterable[Stack], en: str, zh: str) -> list[Culprit]:
    """Return the processes of dumped stacks as culprits, except those that no line identifies."""
    culprits = [of_event(case, one.event, en.replace("{}", one.shown), zh.replace("{}", one.shown)) for one in found]
    return [one for one in culprits if (one.rank, one.host, one.address, one.pid) != (None, None, None, None)]


def _seen(case: Case, found: Iterable[Seen], en: str, zh: str) -> list[Culprit]:
    """Return processes as culprits, for what the kernel says of them."""
    culprits = [
        of_event(case, one.event, en.replace("{}", one.words("en")), zh.replace("{}", one.words("zh"))) for one in found
    ]
    for culprit, one in zip(culprits, found, strict=True):
        culprit.pid = culprit.pid or whole(one.event.fields.get("pid"))
    return culprits


@method("stands")
def _stands(case: Case, weighed: Weighed) -> list[Culprit]:
    """The processes that are stopped, whose dumped stack stands in what needs no other rank, or that wait unlike most.

    Where there are no stacks, what the kernel says of the processes decides.
    """
    still, _ = hang.stopped(case)
    away, _ = stacks.elsewhere(case)
    few, _ = hang.apart(case)
    minority, rest = stacks.apart(case)
    odd = minority or stacks.at_odds(case)
    unlike = (
        ("unlike most others", "与多数进程不同") if rest or len(odd) != 2 else ("unlike the other", "与另一个进程不同")
    )
    return (
        _seen(case, still, "is {}", "{}")
        or _standing(case, away, "is in {} while the others wait", "停在 {}，而其他进程在等待")
        or _standing(case, odd, f"waits in {{}}, {unlike[0]}", f"在 {{}} 等待，{unlike[1]}")
        or _seen(case, few, "is {}, unlike most others, as the kernel says", "内核显示它{}，与多数进程不同")
    )


# The victim of the kernel's out-of-memory killer may have a pid that is no rank's, since containers number their own
# processes. Its host, its name and the fates of the ranks there remain. If they leave a single rank, it is a *possible*
# culprit; if they leave several, one of them is, but no line tells which.


def _ranks_on(case: Case, host: str | None, address: str | None) -> list[int]:
    """Return the ranks of a host; all ranks if the host is unknown and the job has only one."""
    ranks = case.identity.ranks
    if host is None and address is not None:
        return sorted(rank for rank, info in ranks.items() if address in info.addresses)
    if host is None:
        return sorted(ranks) if len({host_key(info.host) for info in ranks.values()}) == 1 else []
    return sorted(rank for rank, info in ranks.items() if host_key(info.host) == host_key(host))


def _gone(case: Case, here: list[int]) -> list[int]:
    """Return the ranks of a host that went away, by the most reliable fact that names one of them."""
    for name in _GONE:
        value = case.value(name)
        found = sorted(set(value) & set(here)) if isinstance(value, list) else []
        if found:
            return found
    return here


def _victim(case: Case, weighed: Weighed) -> Event | None:
    """Return the line that names the victim, if the strongest evidence is a line of the out-of-memory killer."""
    events = strongest(weighed)
    if not events or events[0].kind != "memory.killed" or not is_kernel(events[0]):
        return None
    named = (event for event in events if names_victim(event) and job_like(event.fields.get("name")))
    return next(named, None)


@method("victim")
def _of_victim(case: Case, weighed: Weighed) -> list[Culprit]:
    """The rank that the out-of-memory killer probably hit, by host and by which rank disappeared; else its host."""
    event = _victim(case, weighed)
    if event is None:
        return []
    host = case.host(event)
    address = event.context.address if host is None else None
    here = _ranks_on(case, host, address)
    if not here:
        return []
    ranks = _gone(case, here)
    pid, name = whole(event.fields.get("pid")), event.fields.get("name") or "?"
    killed = f"process {pid} ({name}) was killed there, but its pid matches no rank (pids differ inside containers)"
    killed_zh = f"该主机上进程 {pid}（{name}）被杀死，其 pid 不属于任何 rank（容器内外 pid 不同）"
    if len(ranks) == 1:
        en = f"possibly: {killed}; on this host only this rank could be it"
        return [of_rank(case, ranks[0], en, f"可能是它：{killed_zh}；该主机上只有这个 rank 符合")]
    en = f"{killed}: one of ranks {spans(ranks)} on this host, or a child process"
    zh = f"{killed_zh}：是该主机上 rank {spans(ranks)} 之一或其子进程"
    return [Culprit(None, host, address, pid, None, {"en": en, "zh": zh})]


@method(BY_FACTS)
def _by_facts(case: Case, weighed: Weighed) -> list[Culprit]:
    """The ranks of the facts on which the evidence rests: those named in its words, then those to blame by themselves."""
    listed = FAMILIES[weighed.cause.family]
    asked = sorted(
        (
            (listed.index(name) if name in listed else len(listed), number, name, item)
            for number, item in enumerate(by_weight(weighed))
            if item.explained_by is None and item.evidence.when is not None
            for name in item.evidence.when.literals("fact")
        ),
        key=lambda one: one[:3],
    )
    most = max((item.evidence.log_odds for *_, item in asked), default=0.0)
    for *_, name, item in asked:
        words = item.evidence.says["en"] if item.evidence.log_odds == most else ""
        if f"{{fact:{name}}}" in words and (found := _told(case, name, item)):
            return found
    return next((found for *_, name, _ in asked if (found := blamed(case, name))), [])


def _told(case: Case, name: str, item: Contribution) -> list[Culprit]:
    """Return the ranks of a fact that a row of evidence mentions in its words.

    Only a minority is to blame: what the row says of a majority is what these ranks suffer.
    """
    if not name.endswith(RANKS):
        return []
    says = placeholders.fill_both(item.evidence.says, case, item.events)
    found = _ranks(case, name, says["en"], says.get("zh", says["en"]))
    world = max(case.identity.world_size or 0, len(case.identity.ranks))
    return found if len(found) == 1 or not world or 2 * len(found) < world else []


def blamed(case: Case, name: str) -> list[Culprit]:
    """Return the ranks or hosts that are the value of a fact, if the fact blames them."""
    return _ranks(case, name, *BLAMES[name]) if name in BLAMES else []


def _ranks(case: Case, name: str, en: str, zh: str) -> list[Culprit]:
    named = case.value(name)
    if not named or not isinstance(named, list):
        return []
    why = {"en": en, "zh": zh}
    hosts = [Culprit(None, host, None, None, None, why) for host in named if isinstance(host, str)]
    return hosts or [of_rank(case, rank, en, zh) for rank in named if isinstance(rank, int) and rank >= 0]


@method("evidence")
def _evidence(case: Case, weighed: Weighed) -> list[Culprit]:
    """The process that printed the strongest evidence first."""
    for event in strongest(weighed):
        if is_kernel(event):
            found = of_event(case, event, "its kernel log reports the fault", "其内核日志报告了该故障")
        else:
            found = of_event(case, event, "its own log reports the fault", "它自己的日志报告了该故障")
        if found.rank is not None:
            return [found]
    # The last line of a traceback that Ray relays carries no process, but the header of the traceback does.
    # Whoever asked for a result raises again what became of another process.
    for event in (event for event in strongest(weighed) if event.kind not in ("memory.killed", "process.lost")):
        for block in tracebacks(case):
            inside = block.source == event.source and block.line <= event.line <= block.last_line
            if inside and (case.rank(block) is not None or case.host(block) or block.context.address):
                return [of_event(case, block, "raised the exception", "抛出了该异常")]
    return []


@method("exception")
def _exception(case: Case, weighed: Weighed) -> list[Culprit]:
    """The rank that raised the first application exception."""
    found = _ranks(case, "exception.ranks", "raised the first exception", "最先抛出异常")
    if found and case.value("exception.all_ranks"):
        return []
    if not found and case.value("exception.application") is not None:
        # The traceback carries no rank, but the launcher says which one ended first of its own accord.
        first = case.value("process.first_exit_ranks") or []
        if len(first) == 1 and case.value("process.first_exit_code") == 1:
            return [
                of_rank(case, first[0], "exited first, as after an uncaught exception", "最先退出，与未捕获异常相符")
            ]
    return found[:1]


@method("bad-numbers")
def _bad_numbers(case: Case, weighed: Weighed) -> list[Culprit]:
    """The ranks whose own numbers were bad while others show none; exceptions about a mean over all ranks do not count."""
    raised = {(event.source, event.line) for event in case.of("exception")}
    ranks = case.ranks([e for e in case.of(NUMBERS) if (e.source, e.line) not in raised])
    if 2 * len(ranks) > len(case.identity.ranks):
        return []
    return [of_rank(case, rank, "its own values were not finite", "它自己的数值不是有限值") for rank in ranks]


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
            "long work without a rank prefix was running, and rank 0 is not among the ranks that timed out",
            "有未注明 rank 的耗时工作在进行，而 rank 0 不在超时的 rank 之中",
        )
    ]
