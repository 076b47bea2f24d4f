"""The victim of the kernel's out-of-memory killer where its pid is that of no rank: a container has pids of its own.

Then only the host, the name and what became of the ranks there are left: a rank that they point at alone is a
*possible* culprit, and where several fit, one of them is, and nobody by name.
"""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.culprit_base import Culprit, method, of_rank, strongest
from nccl_triage.diagnosis.weigh import Weighed
from nccl_triage.numbers import whole
from nccl_triage.observations.event import Event
from nccl_triage.recorder.lines import spans
from nccl_triage.story.devices import host_key, is_kernel, job_like
from nccl_triage.story.kernel_log import names_victim

#: Facts that tell which rank went away, the surest first.
_GONE = (
    "process.killed_ranks", "progress.vanished_ranks", "collective.absent_ranks", "ras.silent_ranks",
    "collective.behind_ranks", "progress.stalled_ranks", "progress.silent_ranks",
)  # fmt: skip


def _ranks_on(case: Case, host: str | None, address: str | None) -> list[int]:
    """Return the ranks of a host; all of them where the host is not known and the job has only one."""
    ranks = case.identity.ranks
    if host is None and address is not None:
        return sorted(rank for rank, info in ranks.items() if address in info.addresses)
    if host is None:
        return sorted(ranks) if len({host_key(info.host) for info in ranks.values()}) == 1 else []
    return sorted(rank for rank, info in ranks.items() if host_key(info.host) == host_key(host))


def _gone(case: Case, here: list[int]) -> list[int]:
    """Return the ranks of a host that went away, by the surest fact that knows one of them."""
    for name in _GONE:
        value = case.value(name)
        found = sorted(set(value) & set(here)) if isinstance(value, list) else []
        if found:
            return found
    return here


def _victim(case: Case, weighed: Weighed) -> Event | None:
    """Return the line that names the victim, if the strongest evidence is that of the killer."""
    events = strongest(weighed)
    if not events or events[0].kind != "memory.killed" or not is_kernel(events[0]):
        return None
    named = (event for event in events if names_victim(event) and job_like(event.fields.get("name")))
    return next(named, None)


@method("victim")
def _of_victim(case: Case, weighed: Weighed) -> list[Culprit]:
    """The rank that the victim of the out-of-memory killer may have been, by host and by who went away; else its host."""
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
    killed = (
        f"process {pid} ({name}) was killed there and is the pid of no rank, as where containers have pids of their own"
    )
    killed_zh = f"该主机上进程 {pid}（{name}）被杀死，其 pid 不属于任何 rank（容器内外 pid 不同）"
    if len(ranks) == 1:
        en = f"possibly: {killed}; of the job's ranks on this host it is the only one that may have been it"
        return [of_rank(case, ranks[0], en, f"可能是它：{killed_zh}；该主机上只有这个 rank 符合")]
    en = f"{killed}: one of the ranks {spans(ranks)} on this host, or a child of one"
    zh = f"{killed_zh}：是该主机上 rank {spans(ranks)} 之一或其子进程"
    return [Culprit(None, host, address, pid, None, {"en": en, "zh": zh})]
