"""What a session leaves behind, however it ends: no process, no port, no file outside its folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from nccl_triage import resources
from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.processes import ProcessLauncher
from nccl_triage.verify import runner
from nccl_triage.verify.cluster import Cluster, worker
from nccl_triage.verify.collective_run import CollectiveMessage, CollectiveRun, Deadlines, RunResult, Slot
from tests.verify.whole_report import document

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

SOURCE = Path(runner.__file__).parents[2]
#: Seconds for processes to be gone after they were told to.
GONE = 20.0
LIMITS = Deadlines(start=30.0, store=4.0, group=4.0, entered=1.0, first=2.0, timed=8.0, grace=0.5)
#: The names of what torch, Gloo and NCCL put into shared memory.
SHARED = ("torch_", "nccl-", "sem.", "gloo")


def processes(word: str) -> list[int]:
    """Return the processes that have a word on their command line; forked ranks have that of their agent."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if word.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def in_sessions(leaders: set[int]) -> list[int]:
    """Return the processes of some sessions, whatever their command line says."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError):
                session = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[3])
                if session in leaders:
                    found.append(int(entry.name))
    return found


def listening() -> set[int]:
    """Return the ports that are listened on, in any state of IPv4 and IPv6."""
    ports = set()
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A":
                    ports.add(int(words[1].rsplit(":", 1)[1], 16))
    return ports


def shared_memory() -> set[str]:
    with suppress(OSError):
        return {entry.name for entry in Path("/dev/shm").iterdir() if entry.name.startswith(SHARED)}
    return set()


@dataclass
class Scene:
    """A folder for a session, a temporary folder and a home of its own, and what was there before."""

    root: Path
    shared: set[str]
    ports: set[int]

    @property
    def folder(self) -> Path:
        return self.root / "session"

    def assert_clean(self, *, folder: bool = True) -> None:
        """Nothing of the session is left but what lies in its folder."""
        until(lambda: not processes(str(self.root)))
        assert listening() & self.ports == set()
        assert shared_memory() <= self.shared
        for name in ("tmp", "home", "runtime", "cwd"):
            left = [str(path.relative_to(self.root)) for path in (self.root / name).rglob("*")]
            # The analyzer keeps its compiled signatures for the next time: that is its cache, not the session's.
            assert [path for path in left if not path.startswith("home/nccl-triage")] == []
        if not folder:
            assert not self.folder.exists() or list(self.folder.iterdir()) == []


def until(condition: Callable[[], Any], within: float = GONE) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    for name in ("tmp", "home", "runtime", "cwd", "session"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.chdir(tmp_path / "cwd")
    found = Scene(tmp_path, shared_memory(), set())
    yield found
    for pid in processes(str(tmp_path)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def run(cluster: Cluster, place: Scene, label: str, watch: runner.Watch | None = None, **changes: Any) -> RunResult:
    answer = cluster.ask("port", [0], 5.0)[0]
    place.ports.add(answer["port"])
    slots = tuple(Slot(rank, 0) for rank in range(3))
    made = CollectiveRun(
        label,
        slots,
        CollectiveMessage(numel=64),
        env={"GLOO_SOCKET_IFNAME": "lo"},
        timeout=60.0,
        port=answer["port"],
        **changes,
    )
    return runner.execute(cluster, made, place.folder / label, LIMITS, watch=watch)


def sessions(result: RunResult) -> set[int]:
    """Return the sessions of a run's ranks: each is the leader of its own."""
    return {trace.details["start"]["pid"] for trace in result.ranks.values() if "start" in trace.details}


@contextmanager
def opened(place: Scene) -> Iterator[Cluster]:
    with Cluster(ProcessLauncher([HostPlace("here", slots=8)], worker())) as cluster:
        cluster.greet(20.0)
        assert cluster.preload(120.0) == {}
        yield cluster


def interrupt(made: CollectiveRun, traces: Any) -> None:
    """Go wrong above the runner, when all ranks are in their group."""
    if all("group" in trace.times for trace in traces.values()):
        raise KeyboardInterrupt


def test_hangs_crashes_the_probe_and_an_interrupt_leave_nothing(place: Scene) -> None:
    begun: set[int] = set()
    with pytest.raises(KeyboardInterrupt), opened(place) as cluster:
        begun |= {link._process.pid for link in cluster._listener.links.values()}  # type: ignore[attr-defined]
        where = cluster.ask("listen", [0], 10.0, {0: {"ports": 2, "loopback": True}})[0]["where"]
        place.ports |= {port for entry in where for port in entry["ports"]}
        assert place.ports <= listening()
        for name in ("absent", "sigstop", "sigsegv", "oom", "wrong-size"):
            result = run(cluster, place, name, faults={"1": {"name": name}})
            assert not result.passed
            begun |= sessions(result)
            assert in_sessions(sessions(result)) == []
        assert run(cluster, place, "healthy").passed
        run(cluster, place, "interrupted", watch=interrupt, faults={"1": {"name": "absent"}})
    assert in_sessions(begun) == []
    place.assert_clean()
    assert not [path for path in place.folder.rglob("core*") if path.is_file()]


def test_an_agent_that_is_killed_in_a_run_leaves_nothing(place: Scene) -> None:
    with opened(place) as cluster:
        agent = cluster._listener.links[0]._process.pid  # type: ignore[attr-defined]
        cluster.ask("listen", [0], 10.0, {0: {"ports": 1, "loopback": True}})
        threading.Timer(0.6, os.kill, (agent, signal.SIGKILL)).start()
        started = time.monotonic()
        result = run(cluster, place, "killed", faults={"1": {"name": "absent"}})
        assert time.monotonic() - started < 0.6 + GONE
        assert result.outcome == "error"
        assert {trace.error["type"] for trace in result.ranks.values() if trace.error} == {"AgentLost"}
        until(lambda: in_sessions(sessions(result)) == [])
    place.assert_clean()


def report(place: Scene) -> Path:
    """Write a report whose experiment is a large message on four ranks."""
    path = place.root / "report.json"
    path.write_text(json.dumps(document("slow-thing", hosts=(), world=4, numel=1 << 20)))
    return path


def rules(place: Scene, iterations: int) -> Path:
    """Write a cause of the user's own, whose control runs as long as wanted (at most for the eight seconds of a run)."""
    shipped = Path(str(resources.rules_dir())) / "causes" / "collective" / "rank-divergence.yaml"
    text = shipped.read_text(encoding="utf-8").replace("id: rank-divergence", "id: slow-thing", 1)
    text = text.replace("experiment:\n", f"experiment:\n  iterations: {iterations}\n", 1)
    folder = place.root / "rules" / "causes"
    folder.mkdir(parents=True)
    (folder / "slow-thing.yaml").write_text(text, encoding="utf-8")
    return folder.parent


@contextmanager
def verifying(place: Scene, *words: str, iterations: int = 100_000) -> Iterator[subprocess.Popen[str]]:
    """Run the command itself, in a session of its own as under a terminal."""
    command = [
        sys.executable,
        "-m",
        "nccl_triage",
        "verify",
        str(report(place)),
        "--rules",
        str(rules(place, iterations)),
        "--backend",
        "gloo",
    ]
    # Where a process lingers, SIGABRT makes it tell what its threads do.
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1", "MARK": str(place.root),
                   "PYTHONFAULTHANDLER": "1"}  # fmt: skip
    with subprocess.Popen(
        [*command, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def heard(process: subprocess.Popen[str], word: str) -> list[str]:
    """Return the lines of progress up to one that has a word."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if word in line:
            return lines
    raise AssertionError("".join(lines))


def ended(process: subprocess.Popen[str]) -> None:
    """Wait until a process has ended; fail with the stacks of its threads where it does not."""
    try:
        process.wait(GONE)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        assert process.stderr is not None
        raise AssertionError(process.stderr.read()) from None


def ours(place: Scene) -> list[int]:
    """Return the processes that inherited the mark of a session, however they are called."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if f"MARK={place.root}\0".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


@pytest.mark.parametrize(("moment", "kept"), [("asking the hosts", True), ("run-01", False)])
def test_an_interrupt_leaves_nothing(place: Scene, moment: str, kept: bool) -> None:
    words = ["--workdir", str(place.folder)] if kept else []
    with verifying(place, *words) as process:
        heard(process, moment)
        if moment == "run-01":
            until(lambda: len(ours(place)) >= 6)  # the command, its agent, four ranks
        process.send_signal(signal.SIGINT)
        ended(process)
        assert process.returncode == 130
        assert process.stderr is not None
        assert process.stderr.read().splitlines()[-1:] == ["interrupted"]
        until(lambda: ours(place) == [])
    place.assert_clean(folder=kept)


def test_the_command_that_ends_by_itself_leaves_its_folder_only(place: Scene) -> None:
    with verifying(place, "--workdir", str(place.folder), iterations=3) as process:
        out, errors = process.communicate(timeout=60)
    assert process.returncode in (0, 4), errors
    assert "run-01" in errors and out
    until(lambda: ours(place) == [])
    place.assert_clean()
    assert {path.name for path in place.folder.iterdir()} >= {"run-01", "run-02"}


def test_a_controller_that_is_killed_takes_everything_with_it(place: Scene) -> None:
    """SIGKILL leaves nobody to clean up: the agents notice that their input has ended."""
    with verifying(place, "--workdir", str(place.folder)) as process:
        heard(process, "run-01")
        until(lambda: len(ours(place)) >= 6)
        process.kill()
        ended(process)
        until(lambda: ours(place) == [])
