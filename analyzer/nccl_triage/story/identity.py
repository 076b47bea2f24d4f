"""The identity of ranks: one record per global rank, joined from whatever each line states.

A rank within a process group is not a global rank; it is taken for one only if nothing in the log says that the two
differ. A local rank is mapped to a global one by the job's own report, or if there is a single node.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from nccl_triage.lazy_regex import lazily
from nccl_triage.numbers import listed, whole
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.story import addresses

_WORLD_FIELDS = frozenset({"world_size", "nranks", "nRanks", "world", "dist_world_size", "total_workers"})
#: DeepSpeed ends its sentence with the name: "... * world_size 10 != 4 * 1 * 2", where 10 is the batch.
_WORLD_TEXT = lazily(r"\bworld[ _]?(?:size)?[ =:\"']{1,3}(?P<n>\d{1,7})\b(?! !=)", re.IGNORECASE)
#: World sizes above this are parsing errors.
MAX_WORLD = 1_000_000


@dataclass(slots=True)
class RankInfo:
    """What is known about one global rank."""

    rank: int
    hosts: Counter[str] = field(default_factory=Counter)
    addresses: Counter[str] = field(default_factory=Counter)
    local_rank: int | None = None
    pids: set[int] = field(default_factory=set)
    gpu: int | None = None

    @property
    def host(self) -> str | None:
        """The host named most often."""
        return self.hosts.most_common(1)[0][0] if self.hosts else None

    @property
    def address(self) -> str | None:
        """The address named most often."""
        return self.addresses.most_common(1)[0][0] if self.addresses else None


def _states_rank(event: Event) -> bool:
    """Tell whether the field ``rank`` is that of the process that printed the line, global or in the largest communicator."""
    return event.fields.get("rank_of") == "speaker"


class Identity:
    """What joins processes, hosts, addresses and ranks, built once from all events."""

    def __init__(self, observations: Observations, events: Iterable[Event]) -> None:
        self._events = list(events)
        self.ranks: dict[int, RankInfo] = {}
        self.host_addresses: dict[str, Counter[str]] = defaultdict(Counter)
        self._by_pid: dict[tuple[str | None, int], Counter[int]] = defaultdict(Counter)
        self._local_of_pid: dict[int, int | None] = {}
        self._by_local: dict[tuple[str | None, int], Counter[int]] = defaultdict(Counter)
        self._by_folder: dict[str, Counter[int]] = defaultdict(Counter)
        self._folders = _process_folders(observations)
        self._of_source = self._files_of_ranks()
        self._pid_host: dict[int, Counter[str]] = defaultdict(Counter)
        self._gpu_pids: dict[tuple[str | None, int], set[int]] = defaultdict(set)
        self._group_differs = False
        #: Sources in which a driver passes on what its actors print, and the numbers of tasks that speak.
        self._with_actors: set[str] = set()
        self._tasks: set[int] = set()
        self._rank_of_pid: dict[tuple[str | None, int], int | None] = {}
        self._largest_communicator = max(
            (n for event in self._events if (n := whole(event.fields.get("nranks"))) is not None and n < MAX_WORLD),
            default=0,
        )
        self._states_ranks = any(self._explicit_rank(event) is not None for event in self._events)
        self._task_ends = [e for e in self._events if e.fields.get("names") == "task" and e.fields.get("host")]
        #: Addresses of hosts for which no line states a name.
        self._unnamed_addresses = {e.context.address for e in self._events if e.context.address and not e.context.host}
        self._collect_samples()
        self.world_size = self._find_world_size()
        self.hosts = self._find_hosts(observations)
        self._fill_ranks()
        if self.world_size is None:
            self.world_size = self._gathered_size()
        dumps = observations.recorder.sources()
        if self.world_size is None and dumps and all(event.source in dumps for event in self._events):
            members = max(observations.recorder.groups.values(), key=len, default=())
            self.world_size = len(members) or None

    # -- building ---------------------------------------------------------------------------------------------

    def _files_of_ranks(self) -> dict[str, int]:
        """Return the rank of each source if every rank has one of its own, whatever the files are called."""
        named: dict[str, set[int]] = {event.source: set() for event in self._events}
        for event in self._events:
            if event.context.rank is not None:
                named[event.source].add(event.context.rank)
        ranks = [next(iter(found)) for found in named.values() if len(found) == 1]
        if len(ranks) < 2 or sorted(ranks) != list(range(len(named))):
            return {}
        return dict(zip(named, ranks, strict=True))

    def _explicit_rank(self, event: Event) -> int | None:
        """Return the global rank that the line itself states, or None."""
        if event.context.rank is not None:
            return event.context.rank
        if _states_rank(event):
            nranks = whole(event.fields.get("nranks"))
            if nranks is not None and nranks < self._largest_communicator:
                return None  # a rank in a sub-communicator
            return whole(event.fields.get("rank"))
        return None

    def _collect_samples(self) -> None:
        for event in self._events:
            context = event.context
            rank = self._explicit_rank(event)
            pid = context.pid
            field_pid = whole(event.fields.get("pid"))
            if _states_rank(event) and field_pid is not None:
                pid = field_pid
            if rank is not None and pid is not None:
                self._by_pid[(context.host, pid)][rank] += 1
                self._by_pid[(None, pid)][rank] += 1
            if event.fields.get("names") == "child" and "local_rank" in event.fields and field_pid is not None:
                self._local_of_pid[field_pid] = whole(event.fields.get("local_rank"))
            local = context.local_rank
            if local is None and _states_rank(event):
                local = whole(event.fields.get("local_rank"))
            if rank is not None and local is not None:
                self._by_local[(context.host, local)][rank] += 1
            if rank is not None and event.source in self._folders:
                self._by_folder[self._folders[event.source]][rank] += 1
            if context.host and pid is not None:
                self._pid_host[pid][context.host] += 1
            if context.host and context.address:
                self.host_addresses[context.host][context.address] += 1
            if context.host:
                for _, address in addresses.announced_by(event):
                    self.host_addresses[context.host][address] += 1
            if context.program == "nccl" and pid is not None and context.gpu is not None and context.gpu >= 0:
                self._gpu_pids[(context.host, context.gpu)].add(pid)
            if context.actor is not None:
                self._with_actors.add(event.source)
            if context.labelled and context.group_rank is not None:
                self._tasks.add(context.group_rank)
            if context.rank is not None and context.group_rank is not None and context.rank != context.group_rank:
                self._group_differs = True

    def _find_world_size(self) -> int | None:
        found: Counter[int] = Counter()
        highest = -1
        for event in self._events:
            rank = self._explicit_rank(event)
            highest = max(highest, rank if rank is not None and rank < MAX_WORLD else -1)
            if event.context.world_size:
                found[event.context.world_size] += 3
            stated = _WORLD_TEXT.search(event.text) if event.role != "cascade" else None
            if stated is not None and 0 < int(stated["n"]) < MAX_WORLD:
                found[int(stated["n"])] += 1
            for name in _WORLD_FIELDS.intersection(event.fields):
                value = whole(event.fields[name])
                if value is not None and 0 < value < MAX_WORLD:
                    found[value] += 1
        largest = max(found, default=None)
        if largest is not None:
            return max(largest, highest + 1) if highest + 1 <= 4 * largest else largest
        return None

    def _gathered_size(self) -> int | None:
        """Return the size of the group of an all-gather, if the ranks that printed something nearly fill it.

        NumelOut / NumelIn of an all-gather is the size of its group (PyTorch ``ProcessGroupNCCL.cpp``). A subgroup of
        a larger job has members of higher rank than its size; an excerpt of a few lines shows few of the ranks.
        """
        highest = max(self.ranks, default=-1)
        for event in self._events:
            taken, given = whole(event.fields.get("numel_in")), whole(event.fields.get("numel_out"))
            if "ALLGATHER" in (event.fields.get("op") or "") and taken and given and given % taken == 0:
                size = given // taken
                if 8 <= size < MAX_WORLD and highest < size and 4 * len(self.ranks) >= 3 * size:
                    return size
        return None

    def _find_hosts(self, observations: Observations) -> list[str]:
        hosts: Counter[str] = Counter()
        for event in self._events:
            if event.context.host:
                hosts[event.context.host] += 1
            elif event.fields.get("speaker") == "shell" and event.fields.get("host"):
                hosts[event.fields["host"]] += 1
        for info in observations.sources.values():
            if info.host:
                hosts[info.host] += 1
        return sorted(hosts)

    def _fill_ranks(self) -> None:
        for event in self._events:
            rank = self.rank_of(event)
            if rank is None:
                continue
            info = self.ranks.setdefault(rank, RankInfo(rank))
            context = event.context
            host = self.host_of(event)
            if host:
                info.hosts[host] += 1
            if context.address:
                info.addresses[context.address] += 1
            if context.local_rank is not None and info.local_rank is None:
                info.local_rank = context.local_rank
            if context.pid is not None and len(info.pids) < 8 and self._by_pid.get((context.host, context.pid)):
                info.pids.add(context.pid)
            if context.gpu is not None and context.gpu >= 0 and info.gpu is None:
                info.gpu = context.gpu
        for event in self._task_ends:
            host = event.fields["host"]
            several = "ranks" in event.fields
            if several and not _is_one(host):
                continue  # the line does not say which host ran which task
            for task in listed(event.fields["ranks"] if several else event.fields.get("rank")):
                rank = self.rank_of_task(task)
                if rank is not None:
                    self.ranks.setdefault(rank, RankInfo(rank)).hosts[host] += 1

    # -- questions --------------------------------------------------------------------------------------------

    @property
    def single_host(self) -> bool:
        """Whether nothing in the log mentions a second host."""
        return (
            len(self.hosts) <= 1
            and len(self._unnamed_addresses | {a for c in self.host_addresses.values() for a in c}) <= 1
        )

    def rank_of(self, event: Event) -> int | None:
        """Return the global rank that an event is from, or None."""
        explicit = self._explicit_rank(event)
        if explicit is not None:
            return explicit
        context = event.context
        if event.fields.get("names") == "child":
            return self._rank_of_child(whole(event.fields.get("pid")), context.host)
        pid = context.pid
        if pid is not None:
            found = self.rank_of_pid(pid, context.host)
            if found is not None:
                return found
        if context.local_rank is not None:
            folder = self._folders.get(event.source, "")
            if folder in self._by_folder:
                return self._by_folder[folder].most_common(1)[0][0]
            found_local = self.rank_of_local(context.local_rank, context.host)
            if found_local is not None:
                return found_local
        if context.group_rank is not None and not self._group_differs and not self._is_launcher(event):
            return context.group_rank
        alone = self._of_source.get(event.source)
        return alone if alone is not None else self._rank_of_gpu(event)

    def _is_launcher(self, event: Event) -> bool:
        """Tell whether the task that a line is labelled with starts the ranks: it is the only one, or passes on actors."""
        return event.context.labelled and (self._tasks == {0} or event.source in self._with_actors)

    def _rank_of_child(self, pid: int | None, host: str | None) -> int | None:
        """Return the rank of a child process that its launcher names."""
        found = self.rank_of_pid(pid, host) if pid is not None else None
        local = self._local_of_pid.get(pid) if pid is not None else None
        return found if found is not None or local is None else self.rank_of_local(local, host)

    def _rank_of_gpu(self, event: Event) -> int | None:
        """Return the rank by NCCL's device index: they are equal on a single host with one process per GPU."""
        context = event.context
        if context.program != "nccl" or context.gpu is None or context.gpu < 0 or len(self.hosts) != 1:
            return None
        if self._states_ranks or any(len(pids) > 1 for pids in self._gpu_pids.values()):
            return None
        return context.gpu

    def rank_of_pid(self, pid: int, host: str | None = None) -> int | None:
        """Return the rank that ran as a process, if the log says so unambiguously."""
        for key in ((host, pid), (None, pid)):
            if key not in self._rank_of_pid:
                self._rank_of_pid[key] = _certain(self._by_pid.get(key))
            if (rank := self._rank_of_pid[key]) is not None:
                return rank
        return None

    def rank_of_local(self, local_rank: int, host: str | None = None) -> int | None:
        """Return the global rank of a local rank on a host; on a single node they are equal."""
        ranks = self._by_local.get((host, local_rank))
        if ranks:
            return ranks.most_common(1)[0][0]
        others = {rank for (_, local), found in self._by_local.items() if local == local_rank for rank in found}
        if others:
            return others.pop() if len(others) == 1 and host is None else None
        return local_rank if self.single_host and not self._several_agents() else None

    def rank_of_task(self, task: int) -> int | None:
        """Return the rank that ran as a task of Slurm, if the ranks themselves are the tasks (``srun python``)."""
        if not self._tasks_are_ranks or (self.world_size is not None and task >= self.world_size):
            return None
        return task

    @cached_property
    def _tasks_are_ranks(self) -> bool:
        """Whether several tasks of one host ended, or one per rank: a separate launcher would be one task per host."""
        if any(event.signature.startswith(_LAUNCHERS) for event in self._events):
            return False
        tasks: dict[str, set[int]] = defaultdict(set)
        for event in self._task_ends:
            host = event.fields["host"]
            if "ranks" in event.fields and _is_one(host):
                return True
            if (task := whole(event.fields.get("rank"))) is not None:
                tasks[host].add(task)
        every = {task for found in tasks.values() for task in found}
        return len(every) > 1 and (any(len(found) > 1 for found in tasks.values()) or len(every) == self.world_size)

    def _several_agents(self) -> bool:
        """Tell whether two launchers wrote files of the same local rank: two nodes, or two runs in one folder."""
        folders = set(self._folders.values())
        return len({tuple(folder.split("/")[-2:]) for folder in folders}) < len(folders)

    def host_of(self, event: Event) -> str | None:
        """Return the host that an event is from, or None."""
        context = event.context
        if context.host:
            return context.host
        if context.pid is not None:
            hosts = self._pid_host.get(context.pid)
            if hosts and len(hosts) == 1:
                return next(iter(hosts))
        if context.address:
            return self.host_of_address(context.address)
        # A log that names a single host is about that host.
        return self.hosts[0] if len(self.hosts) == 1 else None

    def host_of_address(self, address: str) -> str | None:
        """Return the host that used an address, or None."""
        found = [host for host, addresses in self.host_addresses.items() if address in addresses]
        return found[0] if len(found) == 1 else None


def _certain(ranks: Counter[int] | None) -> int | None:
    """Return the rank that was counted alone, or far more often than any other."""
    if not ranks:
        return None
    (first, most), *others = ranks.most_common(2)
    return first if not others or most > 3 * others[0][1] else None


def _is_one(host: str) -> bool:
    """Tell whether Slurm's text names one host, not a list such as ``node[01-04]``."""
    return "[" not in host and "," not in host


def _process_folders(observations: Observations) -> dict[str, str]:
    """Return the folder of each source that torchrun's ``--log-dir`` gave to one process: RUN/attempt_N/LOCAL_RANK."""
    return {
        path: path.rpartition("/")[0]
        for path, info in observations.sources.items()
        if info.layout == "torchrun" and info.local_rank is not None
    }


#: Launchers that srun may have started instead of the ranks, so that its tasks are no ranks.
_LAUNCHERS = ("torchelastic.", "ray.", "deepspeed.", "huggingface.accelerate_called_process")
