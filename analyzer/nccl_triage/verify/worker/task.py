"""One rank that srun, torchrun or mpirun started: finds out which, runs it as a child, and writes down its progress.

There is no connection to the verifier, only a folder that every host sees. So this process enforces the deadlines that a
session would, and leaves the rank's marks and its end as JSON lines in OUT/LABEL/rank-R.jsonl and its output in
OUT/LABEL/rank-R.log. A failing rank is a result: the exit code is 0, or the launcher would end the others.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nccl_triage.hosts.probes import host, inventory

from . import children, control, rank_files
from .gathering import Gathering
from .progress import STAGES

#: Rank, world and rank on the host, as launchers set them. The shell of a batch job has SLURM_PROCID=0 and hands it to
#: all that mpirun starts there: Slurm's own come last.
LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)


class RefusedError(Exception):
    """This process cannot be a rank of the run; the text says why."""


def position(environment: Mapping[str, str], world: int, per_host: int) -> tuple[int, int]:
    """Return the rank and the rank on its host; raises RefusedError without any, or when the world is another.

    Without a rank on the host (MPICH has none), ranks count as placed host by host, ``per_host`` on each.
    """
    seen = []
    for names in LAUNCHERS:
        rank, size, local = (_number(environment.get(name)) for name in names)
        if rank is None or size is None:
            continue
        if size == world and rank < world:
            return rank, local if local is not None else rank % per_host
        seen.append(f"{names[0]}={rank} {names[1]}={size}")
    if seen:
        raise RefusedError(f"this run has {world} ranks, but the launcher says {', '.join(seen)}")
    raise RefusedError("unknown rank: start this with srun, torchrun or mpirun (none of their variables is set)")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def attempt(environment: Mapping[str, str]) -> str:
    """Return what tells this start of the run from an earlier one, the same on all ranks; empty where nothing does."""
    for name in ("TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE"):
        if environment.get(name):
            return environment[name]
    step = [environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_STEP_ID", "")]
    return ".".join(step) if any(step) else ""


#: Seconds between two looks at the child, or at the file that tells where the store is.
TICK = 0.05
#: The mark after which a rank waits for all others.
READY = "device"
#: Seconds for which rank 0 leaves its answer in the folder when the run does not take place.
LINGER = 2.0
#: Seconds that a rank gets to name its last collectives before it is killed.
INSPECTION = 0.25


def address(interface: str | None) -> tuple[str, str]:
    """Return an address of this host that others can be told, and its interface: the named one's, or the default route's.

    Raises LookupError for a named interface without an address.
    """
    found = host.interfaces()
    if interface is not None:
        named = next((entry for entry in found if entry["name"] == interface), None)
        if named is None:
            raise LookupError(f"{socket.gethostname()} has no interface {interface} with an IPv4 address")
        return str(named["address"]), interface
    outside = sorted(
        (entry for entry in found if entry["up"] and not entry["loopback"]), key=lambda entry: not entry["default"]
    )
    return (str(outside[0]["address"]), str(outside[0]["name"])) if outside else ("127.0.0.1", "lo")


def meet(spec: dict[str, Any], rank: int, folder: Path) -> dict[str, Any]:
    """Return host and port of the store; where ranks may be on several hosts, rank 0 chooses and tells in store.json.

    Only rank 0 knows whether its host has the address that the spec wants: where it has not, nobody contacts it.
    Raises TimeoutError when rank 0 has told nothing within the spec's ``store_wait`` seconds, and LookupError.
    """
    where = spec["store"]
    if where["host"] == host.LOOPBACK and where["port"]:
        return dict(where)
    path, own = folder / "store.json", attempt(os.environ)
    if rank == 0:
        wanted = where["host"]
        name = wanted if wanted != "auto" and host.has(wanted) else address(where.get("interface"))[0]
        chosen = {"host": name, "port": where["port"] or host.free_port(), "attempt": own}
        temporary = folder / f".store.{os.getpid()}"
        temporary.write_text(json.dumps(chosen))
        temporary.replace(path)
        return chosen
    deadline = time.monotonic() + float(spec["store_wait"])
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            told: dict[str, Any] = json.loads(path.read_text())
            if told["attempt"] == own:
                return told
        time.sleep(TICK)
    raise TimeoutError(f"rank 0 did not report within {spec['store_wait']:g} s where the store is ({path})")


def personal(spec: dict[str, Any], rank: int, local: int) -> dict[str, Any]:
    """Return the spec of one rank: its own variables, its place on the host, the interface that Gloo shall take."""
    env = {**spec["env"], **spec.get("per_rank_env", {}).get(str(rank), {})}
    if spec["backend"] == "gloo" and "GLOO_SOCKET_IFNAME" not in env:
        # Without it Gloo takes the address of the host's own name, which is often the loopback.
        loopback = spec["store"]["host"] == host.LOOPBACK
        env["GLOO_SOCKET_IFNAME"] = "lo" if loopback else address(spec["store"].get("interface"))[1]
    return {**spec, "env": env, "local_rank": local}


class Rank:
    """The child process of a rank, its marks as they arrive, and its deadlines."""

    def __init__(self, spec: dict[str, Any], rank: int, folder: Path) -> None:
        self.rank, self.spec = rank, spec
        self.end = math.inf
        self.since = 0.0
        self.stage = ""
        self.zero: float | None = None  # when the rank's own clock stood at 0
        self.signal: str | None = None
        self.why: str | None = None
        self.state: str | None = None
        self._rest = b""
        self._results = (folder / f"rank-{rank}.jsonl").open("w", encoding="utf-8")
        self._folder = folder
        self._gathering = Gathering(folder, rank, int(spec["world"]), attempt(os.environ))
        self._gathering.clear()
        self._waits = bool(spec.get("go"))

    def __enter__(self) -> Rank:
        return self

    def __exit__(self, *_: object) -> None:
        self._results.close()

    def say(self, stage: str, **details: Any) -> None:
        """Write one line of the result; it must not wait in a buffer, for this process may be killed, too."""
        self._results.write(json.dumps({"rank": self.rank, "stage": stage, **details}, default=str) + "\n")
        self._results.flush()

    def run(self) -> None:
        """Start the child, follow it to its end and write how it ended."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # a scheduler's end: the child's comes first
            signal.signal(number, self._hear)
        self.since = time.monotonic()
        self.end = self.since + float(self.spec["deadline"])
        marks, told = os.pipe()
        heard, pipe = os.pipe()
        os.set_blocking(marks, False)
        try:
            process = self._start(told, heard)
        except (OSError, ValueError) as error:
            self.say("error", t=0.0, type="NotStarted", text=str(error), own=True)
            return
        finally:
            os.close(told)
            os.close(heard)
        self._follow(process, marks, pipe)
        killed = self.why is not None and process.returncode == -signal.SIGKILL
        self.say("exit", t=self._clock(), code=process.returncode, killed=killed, state=self.state, why=self.why)

    def _hear(self, number: int, _: object) -> None:
        self.signal = signal.Signals(number).name

    def _start(self, told: int, heard: int) -> subprocess.Popen[bytes]:
        nccl = self.spec["backend"] == "nccl"
        files = rank_files.opened(self._folder, self.rank, carried=False, nccl=nccl)
        try:
            spec = {**self.spec, "nccl_log": files.nccl_name}
            return children.spawned(spec, self.rank, files.output, told, heard)
        finally:
            files.close()

    def _follow(self, process: subprocess.Popen[bytes], marks: int, pipe: int) -> None:
        while not _ended(process.pid):
            if not self._read(marks, TICK):
                time.sleep(TICK)  # the pipe is closed, the process not yet gone
            self.why = self._gathered(pipe) or self._why_stop()
            if self.why is not None:
                self._inspect(process.pid, marks, pipe)
                break
        # Before the child is waited for its number cannot belong to anything else: whatever it started goes with it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._read(marks, 0.0)

    def _gathered(self, pipe: int) -> str | None:
        """Let the rank go to the store once all are ready; returns why they will never be."""
        if not self._waits or self.stage != READY:
            return None
        answer = self._gathering.answer()
        if answer == "go":
            self._waits = False
            self.since = time.monotonic()
            with contextlib.suppress(OSError):
                os.write(pipe, control.GO)
            return None
        if answer is None and time.monotonic() > self.since + float(self.spec["gather_wait"]):
            late = ", ".join(str(rank) for rank in self._gathering.missing[:8]) or "0"
            return f"rank {late} was not ready within {self.spec['gather_wait']:g} s"
        return answer

    def part(self) -> None:
        """Let the others not wait for a rank that will never be ready."""
        if not self._waits:
            return
        self._gathering.give_up(self.why or f"rank {self.rank} ended before it was ready")
        if self.rank == 0:
            time.sleep(LINGER)
            self._gathering.clear()  # it must not mislead the next start

    def _inspect(self, pid: int, marks: int, pipe: int) -> None:
        self.state = host.state_of(pid)
        with contextlib.suppress(OSError):
            os.write(pipe, control.DUMP)
        until = time.monotonic() + INSPECTION
        while (left := until - time.monotonic()) > 0 and self._read(marks, left):
            pass

    def _why_stop(self) -> str | None:
        if self.signal is not None:
            return f"stopped by {self.signal}"
        now = time.monotonic()
        if self._waits and self.stage == READY:
            return None
        owed = STAGES[0] if not self.stage else [*STAGES, "end"][STAGES.index(self.stage) + 1]
        limit = float(self.spec["limits"].get(owed, math.inf))
        if now > self.since + limit:
            return f"deadline before {owed!r}: {limit:.0f} s"
        return "the time for this run is up" if now > self.end else None

    def _read(self, marks: int, timeout: float) -> bool:
        """Take what has been told, waiting for the first word; returns False when nothing can come any more."""
        ready, _, _ = select.select([marks], [], [], timeout)
        while ready:
            try:
                data = os.read(marks, 1 << 16)
            except BlockingIOError:
                break
            if not data:
                return False
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError):
                    self._take(json.loads(line))
        return True

    def _take(self, mark: dict[str, Any]) -> None:
        self.say(**{name: value for name, value in mark.items() if name != "rank"})
        self.zero = self.zero if self.zero is not None else time.monotonic() - mark["t"]
        if mark["stage"] in STAGES:
            self.stage = mark["stage"]
        if mark["stage"] in (*STAGES[1:], "iteration", "part", "size"):
            self.since = time.monotonic()
        if mark["stage"] == READY and self._waits:
            self._gathering.say("ready")

    def _clock(self) -> float:
        return round(time.monotonic() - self.zero, 4) if self.zero is not None else 0.0


def _ended(pid: int) -> bool:
    """Tell whether a child has ended, and leave it to be waited for."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _carry_out(spec: dict[str, Any], rank: int, local: int, folder: Path) -> None:
    with Rank(spec, rank, folder) as this:
        facts = host.facts()
        if local == 0 and spec["backend"] == "nccl":  # one rank tells it for all of its host
            facts["gpus"] = inventory.answer(imports=False, sampled=False)
        this.say("task", plan=spec["plan"], attempt=attempt(os.environ), started=time.time(), facts=facts)
        try:
            this.spec = personal({**spec, "store": {**spec["store"], **meet(spec, rank, folder)}}, rank, local)
        except (LookupError, TimeoutError) as error:
            this.say("error", t=0.0, type="NoStore", text=str(error), own=True)
            this.part()
            return
        this.say("env", env=this.spec["env"], store=this.spec["store"]["host"])
        try:
            this.run()
        finally:
            this.part()
            if rank == 0:
                (folder / "store.json").unlink(missing_ok=True)  # it must not mislead the next start


def run_task(spec_path: str, out_dir: str) -> int:
    """Run one rank of the run that a file describes and write its result below a folder; returns the exit code.

    0: the result is written, however the rank ended; 1: it cannot be written; 2: this is no rank of the run.
    """
    try:
        spec = json.loads(Path(spec_path).read_text(encoding="utf-8"))
        rank, local = position(os.environ, int(spec["world"]), int(spec["ranks_per_host"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"nccl-triage: {spec_path} cannot be read: {error}", file=sys.stderr)
        return 2
    except RefusedError as error:
        print(f"nccl-triage: {error}", file=sys.stderr)
        return 2
    folder = Path(out_dir) / spec["label"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _carry_out(spec, rank, local, folder)
    except OSError as error:
        print(f"nccl-triage: the result of rank {rank} cannot be written: {error}", file=sys.stderr)
        return 1
    return 0
