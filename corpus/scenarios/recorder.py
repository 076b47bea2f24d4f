"""Run one scenario: start its processes, act, collect what they print, clean up whatever is left."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from corpus.scenarios import neutral
from corpus.scenarios.network import HOSTS, Lab, flat
from corpus.scenarios.scenario import Action, Node, Scenario

JOBS = Path(__file__).parent / "jobs"
#: Environment of every process: nothing of the recording user's.
ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}


class NotProvoked(Exception):
    """The fault did not show in the output: there is nothing to record."""


@dataclass
class Recording:
    """What a run printed, and how it ended."""

    combined: bytes
    files: dict[str, bytes]
    exit_codes: list[int]
    killed: bool
    commands: list[dict[str, object]]
    acted: list[dict[str, object]]
    seconds: float


@dataclass
class Run:
    """A scenario under way: what actions may look at and do."""

    scenario: Scenario
    lab: Lab
    folder: Path
    logs: Path
    started: float
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def saw(self, text: str) -> int:
        """Return how many lines have held a text so far."""
        wanted = text.encode()
        with self.lock:
            return sum(wanted in line for line in self.lines)

    def pid_of_rank(self, rank: int) -> int:
        """Return the process whose environment says RANK=rank; raises LookupError when there is none."""
        for host in range(len(self.lab.hosts)):
            for pid in self.lab.pids(host):
                try:
                    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                except OSError:
                    continue
                if b"RANK=%d" % rank in variables and b"LOCAL_WORLD_SIZE" in b"\0".join(variables):
                    return pid
        raise LookupError(f"no process of rank {rank}")

    def signal_host(self, host: int, number: int) -> None:
        """Send a signal to every process of a host."""
        for pid in self.lab.pids(host):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _command(node: Node, run: Run, python: Path) -> list[str]:
    places = {"python": str(python), "bin": str(python.parent), "jobs": str(JOBS), "logs": str(run.logs)}
    words = [re.sub(r"\{(python|bin|jobs|logs)\}", lambda m: places[m.group(1)], word) for word in node.command]
    script = f"hostname {HOSTS[node.host]}; "
    if node.prelude:
        script += re.sub(r"\{(python|bin|jobs|logs)\}", lambda m: places[m.group(1)], node.prelude) + "; "
    script += "exec " + shlex.join(words)
    return ["ip", "netns", "exec", run.lab.hosts[node.host], "unshare", "-u", "-m", "bash", "-c", script]


def _pump(run: Run, process: subprocess.Popen[bytes], label: bytes, sink: Path) -> None:
    assert process.stdout is not None
    with sink.open("wb", buffering=0) as own:
        for line in process.stdout:
            own.write(line)
            with run.lock:
                run.lines.append(label + line)


def _default_signals() -> None:
    """Undo what nohup or a shell's background job leaves ignored: a job that is recorded heeds Ctrl-C and hang-ups."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _start(run: Run, python: Path) -> list[threading.Thread]:
    threads = []
    several = len(run.scenario.nodes) > 1
    for index, node in enumerate(run.scenario.nodes):
        if node.delay:
            time.sleep(node.delay)
        variables = {**ENVIRONMENT, **node.env}
        variables["PATH"] = f"{python.parent}:{variables['PATH']}"
        if "LD_LIBRARY_PATH" in os.environ:
            # Where containers keep the GPU's driver.
            variables.setdefault("LD_LIBRARY_PATH", os.environ["LD_LIBRARY_PATH"])
        process = subprocess.Popen(
            _command(node, run, python),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=variables,
            cwd=JOBS,
            start_new_session=True,
            preexec_fn=_default_signals,
        )
        run.processes.append(process)
        label = (node.label if node.label is not None else f"{HOSTS[node.host]}: ") if several else (node.label or "")
        thread = threading.Thread(
            target=_pump, args=(run, process, label.encode(), run.folder / f"node{index}.log"), daemon=True
        )
        thread.start()
        threads.append(thread)
    return threads


def _due(action: Action, run: Run) -> bool:
    if isinstance(action.when, str):
        return run.saw(action.when) >= action.count
    return time.monotonic() - run.started >= action.when


def _goes_on(run: Run) -> bool:
    last = run.scenario.ends_with
    decisive = run.processes if last is None else [run.processes[last]]
    return any(process.poll() is None for process in decisive)


def _watch(run: Run) -> tuple[list[dict[str, object]], bool]:
    waiting = list(run.scenario.actions)
    acted: list[dict[str, object]] = []
    while _goes_on(run):
        if time.monotonic() - run.started > run.scenario.deadline:
            return acted, True
        # Actions come in their order: the second waits for the first.
        if waiting and _due(waiting[0], run):
            action = waiting.pop(0)
            acted.append({"after_s": round(time.monotonic() - run.started, 1), "what": action.do(run)})
        time.sleep(0.05)
    return acted, False


def _finish(run: Run, threads: list[threading.Thread]) -> list[int]:
    for process in run.processes:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    for host in range(len(run.lab.hosts)):
        run.signal_host(host, signal.SIGKILL)
    for thread in threads:
        thread.join(5)
    return [process.wait(10) for process in run.processes]


def _kept_files(run: Run) -> dict[str, bytes]:
    """Return the per-rank files under neutral names: torchrun's RUN/attempt_0/RANK/stdout.log becomes rankN.out.log."""
    kept: dict[str, bytes] = {}
    for path in sorted(run.logs.glob(run.scenario.keep)):
        if not path.is_file() or path.stat().st_size == 0:
            continue
        parts = path.relative_to(run.logs).parts
        if path.name in ("stdout.log", "stderr.log") and len(parts) >= 3:
            node = f"{parts[0]}_" if parts[0].startswith("gpu-node") else ""
            attempt = "" if parts[-3] == "attempt_0" else f"{parts[-3]}_"
            name = f"{node}{attempt}rank{parts[-2]}.{'out' if path.name == 'stdout.log' else 'err'}.log"
        else:
            name = "_".join(parts)
        kept[name] = path.read_bytes()
    return kept


@contextlib.contextmanager
def _lab(scenario: Scenario) -> Iterator[Lab]:
    with scenario.network() if scenario.network is not None else flat(1) as made:
        yield made


def record(scenario: Scenario, python: Path) -> Recording:
    """Run a scenario and return the recording; raises NotProvoked when its ``expect`` is not in the output.

    A healthy run must also end with the exit code 0.
    """
    with tempfile.TemporaryDirectory(prefix="nccl-triage-corpus-") as name, _lab(scenario) as lab:
        folder = Path(name)
        logs = folder / "logs"
        logs.mkdir()
        run = Run(scenario, lab, folder, logs, time.monotonic())
        threads = _start(run, python)
        try:
            acted, killed = _watch(run)
        finally:
            codes = _finish(run, threads)
        clean = neutral.for_machine(python, JOBS, logs, {str(folder): "/tmp/job", platform.node(): HOSTS[0]})
        with run.lock:
            combined = clean(b"".join(run.lines))
        files = {name: clean(data) for name, data in _kept_files(run).items()}
        if re.search(scenario.expect.encode(), combined, re.MULTILINE) is None:
            raise NotProvoked(
                f"{scenario.id}: {scenario.expect!r} was not printed:\n{combined[-1500:].decode(errors='replace')}"
            )
        decisive = codes if scenario.ends_with is None else [codes[scenario.ends_with]]
        if scenario.cause == "healthy" and any(decisive):
            raise NotProvoked(
                f"{scenario.id}: ended with {codes}, that is not healthy:\n{combined[-1500:].decode(errors='replace')}"
            )
        commands: list[dict[str, object]] = [
            {
                "host": HOSTS[node.host],
                "command": clean(shlex.join(_neutral_words(node, python)).encode()).decode(),
                **({"env": dict(node.env)} if node.env else {}),
                **({"prelude": node.prelude} if node.prelude else {}),
            }
            for node in scenario.nodes
        ]
        return Recording(combined, files, codes, killed, commands, acted, round(time.monotonic() - run.started, 1))


def _neutral_words(node: Node, python: Path) -> list[str]:
    places = {"python": "python", "bin": f"{neutral.ENVIRONMENT}/bin", "jobs": neutral.JOBS, "logs": "/var/log/train"}
    return [re.sub(r"\{(python|bin|jobs|logs)\}", lambda m: places[m.group(1)], word) for word in node.command]
