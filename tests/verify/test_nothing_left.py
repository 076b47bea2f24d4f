"""After a session, however it ends, nothing of it is left: no process, no port, no file, no shared memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")

from corpus.verifier.documents import document

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.xdist_group("verify-live")
#: Runs ``api.verify`` with a fault; argv: report, fault, seconds.
PROGRAM = """
import json, sys
from nccl_triage.engine import load
from nccl_triage.verify import api
from nccl_triage.verify.plan import Wishes
report, fault = sys.argv[1:]
settings = api.Settings(wait=120.0, wishes=Wishes(backend="gloo", patience=float(0.2), budget=100.0))
faults = {"1": {"name": fault, "seconds": 2.0}} if fault != "none" else {}
changed, _ = api.verify(json.load(open(report)), load.load(()), settings, faults=faults, say=lambda text: print(text, flush=True))
print("VERDICT", changed["diagnoses"][0]["verification"]["outcome"], flush=True)
"""


def shared_memory() -> set[str]:
    """Return what NCCL and torch have in /dev/shm."""
    return {entry.name for entry in Path("/dev/shm").iterdir() if entry.name.startswith(("nccl-", "torch_"))}


class Watched:
    """A verifier with a temporary folder of its own, by which everything that it starts is known."""

    def __init__(self, folder: Path, fault: str, patience: float = 0.2) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.working = folder / "cwd"
        self.working.mkdir()
        report = folder / "report.json"
        report.write_text(json.dumps(document("rank-divergence", world=3)))
        self.shared = shared_memory()
        self.mark = f"NT_MARK_{os.getpid()}_{id(self)}"
        environment = {
            **os.environ,
            "TMPDIR": str(self.temporary),
            "XDG_RUNTIME_DIR": str(self.temporary),
            "PYTHONPATH": str(ROOT / "analyzer"),
            "PYTHONDONTWRITEBYTECODE": "1",
            self.mark: "1",
        }
        program = PROGRAM.replace("float(0.2)", str(patience))
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, str(report), fault],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.working,
            env=environment,
        )

    def wait_for(self, words: str) -> None:
        """Read the output until it speaks of something."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if words in line:
                return
        raise AssertionError(f"never said {words!r}: {self.process.stderr.read() if self.process.stderr else ''}")

    def processes(self) -> list[int]:
        """Return the processes that carry this verifier's mark in their environment, itself left out."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.process.pid:
                try:
                    if self.mark.encode() in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def ports(self) -> int:
        """Return how many sockets its processes listen on."""
        inodes = set()
        for pid in self.processes():
            for entry in Path(f"/proc/{pid}/fd").glob("*"):
                try:
                    inodes.add(str(entry.readlink()))
                except OSError:
                    continue
        listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(words[3] == "0A" and f"socket:[{words[9]}]" in inodes for words in listening)

    def left(self, patience: float = 3.0) -> dict[str, object]:
        """Return what is left after at most ``patience`` seconds; empty values when nothing is."""
        deadline = time.monotonic() + patience
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        return {
            "processes": self.processes(),
            "ports": self.ports(),
            "temporary files": sorted(str(path) for path in self.temporary.rglob("*")),
            "working folder": sorted(str(path) for path in self.working.rglob("*")),
            "shared memory": sorted(shared_memory() - self.shared),
        }


def nothing(left: dict[str, object]) -> bool:
    return not any(left.values())


@pytest.mark.parametrize("fault", ["absent", "sigstop", "sigsegv", "none"])
def test_after_a_session(tmp_path, fault):
    watched = Watched(tmp_path, fault)
    out, err = watched.process.communicate(timeout=120)
    assert "VERDICT" in out, err
    assert nothing(watched.left()), watched.left(0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_after_the_controller_was_ended_in_the_middle_of_a_run(tmp_path, number):
    watched = Watched(tmp_path, "absent", patience=5.0)
    watched.wait_for("run-01")
    deadline = time.monotonic() + 20
    while len(watched.processes()) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(watched.processes()) >= 4, "an agent and three ranks must be running"
    watched.process.send_signal(number)
    watched.process.communicate(timeout=20)
    left = watched.left()
    if number == signal.SIGKILL:
        # Nobody could remove the folder; what ran in it is gone all the same.
        left.pop("temporary files")
    if number == signal.SIGTERM:
        left.pop("temporary files")
    assert nothing(left), left


def test_after_an_agent_was_killed_the_ranks_die_and_the_session_says_so(tmp_path):
    watched = Watched(tmp_path, "absent", patience=2.0)
    watched.wait_for("run-01")
    deadline = time.monotonic() + 20
    while len(watched.processes()) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(min(watched.processes()), signal.SIGKILL)
    out, err = watched.process.communicate(timeout=120)
    assert "VERDICT inconclusive" in out, (out, err)
    assert nothing(watched.left()), watched.left(0)
