"""The processes of this host, read from /proc: which of them are ranks, and of which job.

A rank is known by what its launcher gave it: RANK and LOCAL_RANK (torchrun, accelerate, DeepSpeed), the variables of Open MPI,
PMI and Slurm, or the title ``ray::``. /proc shows the variables that a process was started with, not those that it has set;
workers of Ray and children of multiprocessing number themselves, so that theirs are read as they are now, where that is allowed.
Children inherit them, so the topmost Python process is the rank, and those below it (data loader workers) are its workers.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nccl_triage.hang import environment

#: Clock ticks of a second, in which /proc counts.
TICKS = os.sysconf("SC_CLK_TCK")
#: Variables of a rank, of the number of ranks and of the rank on its host, by launcher. The first that is found counts.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""),
)
#: The ranks of a step on this host, whatever order they have.
_SLURM_RANKS = re.compile(r"\d{1,7}(?:,\d{1,7}){0,1023}")
#: Variables that are kept, by their beginning; no other value of an environment is looked at or leaves the host.
KEPT = re.compile(
    r"(?:(?:TORCH|NCCL|GLOO|TORCHELASTIC|UCX|FI|OMPI_COMM_WORLD|PMI|RCCL|HCCL)_\w+|(?:LOCAL_|GROUP_|NODE_)?RANK"
    r"|(?:LOCAL_|GROUP_)?WORLD_SIZE|MASTER_(?:ADDR|PORT)|CUDA_(?:VISIBLE_DEVICES|LAUNCH_BLOCKING|DEVICE_MAX_CONNECTIONS)"
    r"|SLURM_(?:JOB_ID|STEP_ID|PROCID|NTASKS|LOCALID|NODEID|GTIDS)|MPI_LOCAL(?:RANKID|NRANKS)|RAY_JOB_ID|OMP_NUM_THREADS"
    r"|OMPI_MCA_ess_base_jobid|PMIX_NAMESPACE|PYTHONFAULTHANDLER|XDG_CACHE_HOME|HOME)"
)
#: Of the variables that are kept, those that are only used here: they say where files are.
_INTERNAL = frozenset({"HOME", "XDG_CACHE_HOME"})
#: Bytes read of a file, and characters kept of a command.
_MOST, _COMMAND = 1 << 20, 300
_SHELLS = frozenset({"bash", "sh", "dash", "zsh", "fish", "tini", "dumb-init", "sleep", "sshd", "srun", "mpirun", "mpiexec", "orted", "prted"})  # fmt: skip
_RAY = "ray::"
#: A word of the command line of children that multiprocessing starts anew.
_SPAWNED = "--multiprocessing-fork"
_PYTHON = re.compile(r"python|pypy|ray::")
#: Titles of Ray's workers that do nothing, and of what reads this.
_IDLE = re.compile(r"ray::(?:IDLE|Prober\b|Relay\b)")


@dataclass(slots=True)
class HostProcess:
    """A process. ``started`` is in clock ticks since boot; ``variables`` are those of ``KEPT``."""

    pid: int
    parent: int
    started: int
    name: str
    words: list[str]
    variables: dict[str, str]
    python: bool

    @property
    def command(self) -> str:
        """The command line in one line, cut."""
        return " ".join(" ".join(self.words or [self.name]).split())[:_COMMAND]

    @property
    def title(self) -> str:
        """The first word of the command line, which programs may replace."""
        return self.words[0] if self.words else ""


@dataclass(slots=True)
class JobRank:
    """A rank of a job, as far as its launcher told it: ``local`` is its number on this host, ``here`` how many it has.

    ``beside``: the ranks of this host, its own among them. ``by``: the variable that told its rank.
    """

    process: HostProcess
    rank: int | None = None
    local: int | None = None
    world: int | None = None
    here: int | None = None
    workers: list[HostProcess] = field(default_factory=list)
    by: str | None = None
    beside: list[int] = field(default_factory=list)


def read_process(pid: int, root: Path = Path("/proc")) -> HostProcess | None:
    """Return a process, or None when it is gone or is the kernel's."""
    folder = root / str(pid)
    stat = _read(folder / "stat")
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    if len(fields) < 20:
        return None
    words = [word for word in _read(folder / "cmdline").split("\0") if word]
    if not words:
        return None
    exe = ""
    with contextlib.suppress(OSError):
        exe = (folder / "exe").readlink().name
    variables = dict(_kept(entry.partition("=")[::2] for entry in _read(folder / "environ").split("\0")))
    if words[0].startswith(_RAY) or _SPAWNED in words:
        variables.update(_kept(environment.current(pid)))
    python = bool(_PYTHON.match(exe) or _PYTHON.match(words[0].rpartition("/")[2]))
    return HostProcess(pid, int(fields[1]), int(fields[19]), name, words, variables, python)


#: Fields of /proc/PID/stat behind the name: state, parent, start, where the code is (1 or 0 where that is not shown), exit code.
_STATE, _PARENT, _STARTED, _CODE, _EXIT = 0, 1, 19, 23, 49


def _stat(pid: int | str, root: Path) -> tuple[str, list[str]]:
    """Return name and fields of a process, no fields where it is gone."""
    name, _, rest = _read(root / str(pid) / "stat").partition("(")[2].rpartition(")")
    fields = rest.split()
    return name, fields if len(fields) > _EXIT else []


def ended(
    ranks: Iterable[JobRank], processes: Mapping[int, HostProcess], root: Path = Path("/proc")
) -> dict[int, int | None]:
    """Return the ranks of a job that have ended beside those that live here, each with its exit code (negative: a signal).

    A process that ended stays, without its variables, until its parent asks how. Its place among the children of the parent
    tells its rank, as long as those that live have theirs in order. A parent that asks and ends the job if any rank fails, as
    torchrun does, and that is still there, tells that the ranks it has no more ended with 0.
    """
    by_parent: dict[int, list[JobRank]] = defaultdict(list)
    for one in ranks:
        if one.rank is not None:
            by_parent[one.process.parent].append(one)
    found: dict[int, int | None] = {}
    for parent, those in by_parent.items():
        launcher = processes.get(parent)
        if launcher is None:
            continue
        found.update(_unasked(parent, those, root))
        if launcher.python and all("TORCHELASTIC_RUN_ID" in one.process.variables for one in those):
            found.update({rank: 0 for rank in _ranks_of_agent(those) if rank not in found})
    return found


def _unasked(parent: int, those: list[JobRank], root: Path) -> Iterator[tuple[int, int | None]]:
    """Yield the ranks whose end their parent has not asked for."""
    living = {one.process.pid: one for one in those}
    names = {one.process.name for one in those}
    children: list[tuple[int, int, list[str]]] = []
    for entry in root.iterdir() if len({one.world for one in those}) == 1 else ():
        name, fields = _stat(entry.name, root) if entry.name.isdigit() else ("", [])
        ours = bool(fields) and int(fields[_PARENT]) == parent and name in names
        if ours and (int(entry.name) in living or fields[_STATE] == "Z"):
            children.append((int(fields[_STARTED]), int(entry.name), fields))
    children.sort(key=lambda child: child[:2])
    bases = {living[pid].rank - at for at, (_, pid, _) in enumerate(children) if pid in living}  # type: ignore[operator]
    if len(bases) != 1:
        return
    # What hides where the code of those that live is hides exit codes, too.
    shown = all(int(fields[_CODE]) > 1 for _, pid, fields in children if pid in living)
    world, base = those[0].world, bases.pop()
    for at, (_, pid, fields) in enumerate(children):
        if pid not in living and 0 <= base + at < (world or 1 << 20):
            status = int(fields[_EXIT])
            yield base + at, (-(status & 0x7F) if status & 0x7F else status >> 8) if shown else None


def _ranks_of_agent(those: list[JobRank]) -> list[int]:
    """Return the ranks that an agent has started and that are no more among its processes."""
    here, first = those[0].here or 0, those[0]
    if first.local is None or first.rank is None or here > 1024:
        return []
    base, living = first.rank - first.local, {one.rank for one in those}
    return [rank for rank in range(base, base + here) if rank not in living]


def _read(path: Path, most: int = _MOST) -> str:
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def _kept(variables: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    return ((name, value) for name, value in variables if KEPT.fullmatch(name))


def shown_variables(process: HostProcess) -> dict[str, str]:
    """Return the variables that may be kept in a file."""
    return {name: value[:_COMMAND] for name, value in sorted(process.variables.items()) if name not in _INTERNAL}


def own_processes(root: Path = Path("/proc")) -> dict[int, HostProcess]:
    """Return the processes of this user, of everybody for root. This one, and what has started it, are no ranks."""
    found = {}
    user = os.geteuid()
    for entry in root.iterdir():
        with contextlib.suppress(OSError, ValueError):
            if entry.name.isdigit() and user in (0, entry.stat().st_uid):
                process = read_process(int(entry.name), root)
                if process is not None:
                    found[process.pid] = process
    own = found.get(os.getpid())
    for process in (own, *ancestors(found, own)) if own is not None else ():
        process.variables, process.python = {}, False
    return found


def ancestors(processes: Mapping[int, HostProcess], process: HostProcess) -> Iterator[HostProcess]:
    """Yield the processes above one, the nearest first."""
    seen = {process.pid}
    while (process := processes.get(process.parent, process)).pid not in seen:
        seen.add(process.pid)
        yield process


def jobs(processes: Mapping[int, HostProcess]) -> dict[str, list[JobRank]]:
    """Return the ranks by job; the key names the job alike on all of its hosts."""
    identities = {pid: own for pid, one in processes.items() if (own := _identity(one, processes)) is not None}
    launchers = set()
    for pid, own in identities.items():
        for above in ancestors(processes, processes[pid]):
            if identities.get(above.pid, own) != own:
                launchers.add(above.pid)
    members: dict[_Identity, list[HostProcess]] = defaultdict(list)
    for pid, own in identities.items():
        if pid not in launchers:
            members[own].append(processes[pid])
    found: dict[str, list[JobRank]] = defaultdict(list)
    for own, those in members.items():
        found[own.job] += _ranks(own, those, processes)
    for job in found:
        # In a pod of Kubernetes, everything has the RANK of the pod; torchrun gives the ranks a LOCAL_RANK besides. Of Ray's
        # workers, those that direct the others have no number.
        numbered = [one for one in found[job] if one.rank is not None or not one.process.title.startswith(_RAY)]
        found[job] = numbered or found[job]
        found[job] = [one for one in found[job] if one.local is not None] or found[job]
    return {job: sorted(ranks, key=_order) for job, ranks in sorted(found.items()) if ranks}


def _order(one: JobRank) -> tuple[int, int]:
    return one.rank if one.rank is not None else 1 << 30, one.process.pid


@dataclass(frozen=True, slots=True)
class _Identity:
    """What the processes of one rank have in common."""

    job: str
    source: str
    rank: int | None
    local: int | None
    world: int | None
    here: int | None


def _identity(process: HostProcess, processes: Mapping[int, HostProcess]) -> _Identity | None:
    given = process.variables
    if process.title.startswith(_RAY):
        # The program itself numbers them, if at all: each worker may be a rank. Forked children keep title and variables.
        top = [process, *(one for one in ancestors(processes, process) if one.title.startswith(_RAY))][-1]
        if _IDLE.match(top.title) or "RAY_JOB_ID" not in given:  # the agents of a node belong to no job
            return None
        own, size, place, beside = (_number(given.get(name)) for name in _LAUNCHERS[0])
        return _Identity(_ray_job(top, processes), f"{_RAY}{top.pid}", own, place, size, beside)
    for rank, world, local, here in _LAUNCHERS:
        number = _number(given.get(rank))
        if number is not None:
            # A batch script is task 0 of itself, whatever the number of tasks that its steps will have.
            batch = rank == "SLURM_PROCID" and "SLURM_JOB_ID" in given and "SLURM_STEP_ID" not in given
            numbers = [_number(given.get(name)) for name in (local, "" if batch else world, here)]
            return _Identity(_job(given, rank), rank, number, *numbers)
    # PyTorch Lightning gives its children the rank on the host only.
    number = _number(given.get("LOCAL_RANK"))
    if number is not None:
        return _Identity(_job(given, "RANK"), "LOCAL_RANK", None, number, _number(given.get("WORLD_SIZE")), None)
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 7 else None


def ray_job(session: str) -> str:
    """Return the name of the job of a Ray cluster, by the name of its session, which is the same on all nodes."""
    return f"Ray {session}"


def _ray_job(process: HostProcess, processes: Mapping[int, HostProcess]) -> str:
    """Return the job of a worker: its raylet was started with the session. RAY_JOB_ID is not set for prestarted workers."""
    words = (word for above in ancestors(processes, process) for word in above.words)
    return ray_job(next((word.partition("=")[2] for word in words if word.startswith("--session-name=")), "job"))


def _job(given: Mapping[str, str], rank: str) -> str:
    """Return the name of the job: what all of its ranks were told alike."""
    # The batch script has a SLURM_PROCID, too, and so has each other step; none of them is a rank of this one.
    if rank == "SLURM_PROCID" and given.get("SLURM_JOB_ID") and given.get("SLURM_STEP_ID"):
        return f"Slurm job {given['SLURM_JOB_ID']}.{given['SLURM_STEP_ID']}"
    if rank == "RANK" and given.get("MASTER_PORT"):
        return f"{given.get('MASTER_ADDR', '')}:{given['MASTER_PORT']}"
    for names, word in (
        (("SLURM_JOB_ID",), "Slurm job"),
        (("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"), "MPI job"),
    ):
        value = next((given[name] for name in names if given.get(name)), None)
        if value is not None:
            return f"{word} {value}"
    return "job"


def _ranks(own: _Identity, members: Iterable[HostProcess], processes: Mapping[int, HostProcess]) -> Iterator[JobRank]:
    """Yield the topmost Python processes of one identity with those below them; of other programs the lowest one."""
    members = list(members)
    pythons = {one.pid: one for one in members if one.python}
    if pythons:
        above = {one.pid: [other.pid for other in ancestors(processes, one)] for one in pythons.values()}
        tops = [one for one in pythons.values() if pythons.keys().isdisjoint(above[one.pid])]
        for top in sorted(tops, key=lambda one: one.started)[:1] if own.local is not None else tops:
            below = [one for one in pythons.values() if top.pid in above[one.pid]]
            yield JobRank(top, own.rank, own.local, own.world, own.here, below, own.source, _beside(top, own))
        return
    parents = {one.parent for one in members}
    for one in members:
        if one.pid not in parents and one.name not in _SHELLS:
            yield JobRank(one, own.rank, own.local, own.world, own.here, [], own.source, _beside(one, own))


def _beside(process: HostProcess, own: _Identity) -> list[int]:
    """Return the ranks that Slurm has started on this host."""
    told = process.variables.get("SLURM_GTIDS", "") if own.source == "SLURM_PROCID" else ""
    return [int(number) for number in told.split(",")] if _SLURM_RANKS.fullmatch(told) else []


def of_pids(processes: Mapping[int, HostProcess], pids: Iterable[int]) -> dict[str, list[JobRank]]:
    """Return the jobs to which processes belong: as ranks, as workers of ranks, as launchers above them, or as drivers of Ray.

    A process that belongs to none, such as the parent of ``multiprocessing``, is taken with the Python processes below it.
    """
    every = jobs(processes)
    found: dict[str, list[JobRank]] = {}
    for pid in pids:
        if pid not in processes:
            continue
        driven = _driven(processes[pid], every)
        if driven is not None:
            found.update(driven)
            continue
        own = next((job for job, ranks in every.items() if any(_belongs(pid, one, processes) for one in ranks)), None)
        if own is not None:
            found[own] = every[own]
            continue
        below = [one for one in processes.values() if any(pid == above.pid for above in ancestors(processes, one))]
        found[f"pid {pid}"] = [JobRank(one) for one in (processes[pid], *below) if one.python or one.pid == pid]
    return found


def _belongs(pid: int, one: JobRank, processes: Mapping[int, HostProcess]) -> bool:
    members = [one.process, *one.workers, *ancestors(processes, one.process)]
    return any(pid == each.pid for each in members)


#: The log of a program that has called ``ray.init``: its name begins with the number of the job, as the driver's own id does.
_DRIVER = re.compile(r"/(?P<session>session_[^/]+)/logs/python-core-driver-(?P<job>[0-9a-f]{8})f{16,}_\d+\.log$")
#: A worker may have been started before any job. What it prints begins with the job that it was given then.
_NO_JOB, _GIVEN = "f" * 8, re.compile(r"^:job_id:([0-9a-f]{8})$", re.M)


def _driven(process: HostProcess, every: Mapping[str, list[JobRank]]) -> dict[str, list[JobRank]] | None:
    """Return the job of Ray that a process drives, with the workers of this job here; None where it drives none."""
    for entry in _entries(f"/proc/{process.pid}/fd"):
        with contextlib.suppress(OSError):
            log = _DRIVER.search(str(entry.readlink()))
            if log is not None:
                job = ray_job(log["session"])
                ranks = [one for one in every.get(job, ()) if _ray_number(one.process) in (None, log["job"])]
                return {job: ranks} if ranks else None
    return None


def _ray_number(process: HostProcess) -> str | None:
    """Return the number of the job for which a worker of Ray works, if it is known."""
    number = process.variables.get("RAY_JOB_ID", _NO_JOB)
    if number != _NO_JOB:
        return number
    output = Path(f"/proc/{process.pid}/fd/1")
    # To open a pipe may take long, and to read it takes what is in it.
    given = _GIVEN.search(_read(output, 4096)) if output.is_file() else None
    return given[1] if given is not None else None


def _entries(folder: str) -> list[Path]:
    try:
        return list(Path(folder).iterdir())
    except OSError:
        return []
