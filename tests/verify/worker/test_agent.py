"""The agent's protocol over real pipes; torch is a stand-in whose store never answers, so that ranks wait for ever."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.probes.test_ras import DIAGNOSTICS, STATUS, Server, listening
from tests.verify.worker_file import worker_file

#: Seconds for anything to happen on a busy machine.
SOON = 5.0
#: What a rank imports; its first wait is the store.
TORCH = {
    "__init__.py": """
import time
__version__ = "0.0-stand-in"
float32 = "float32"
class version:
    cuda = None
def set_num_threads(number): pass
def device(name): return name
class _C: pass
class cuda:
    class nccl:
        version = staticmethod(lambda: (2, 31, 2))
""",
    "distributed/__init__.py": """
import os, sys, time
def is_nccl_available(): return True
def TCPStore(*args):
    print("waiting for the store", flush=True)
    if os.environ.get("STAND_IN_CHILD"):
        import subprocess
        subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)  # grandchild " + os.environ["STAND_IN_CHILD"]])
    time.sleep(600)
""",
    "distributed/distributed_c10d.py": "",
}


def allow_cores() -> None:
    """Let processes dump cores, as on the machine of a user who asked for them."""
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))


class Agent:
    """An agent behind its pipes, with what it says as it comes."""

    def __init__(self, worker: Path, folder: Path, **environment: str) -> None:
        self.folder, self.heard = folder, b""
        self.process = subprocess.Popen(
            [sys.executable, str(worker), "agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(folder / "lib"), **environment},
            start_new_session=True,
            preexec_fn=allow_cores,
        )
        assert self.expect("hello")["pid"] == self.process.pid

    def send(self, **command: Any) -> None:
        self.write(json.dumps(command).encode() + b"\n")

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def expect(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return the next answer of a kind, past others."""
        deadline = time.monotonic() + SOON
        while True:
            while b"\n" in self.heard:
                line, self.heard = self.heard.split(b"\n", 1)
                answer: dict[str, Any] = json.loads(line)
                if answer["answer"] == kind and fields.items() <= answer.items():
                    return answer
            assert self.process.stdout is not None and self.process.stderr is not None
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no answer {kind}"
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, f"the agent ended: {self.process.stderr.read().decode()}"
            self.heard += data

    def start(self, ranks: int = 2, run: str = "r", method: str = "fork", **spec: Any) -> list[int]:
        """Start ranks that wait in the store and return their process ids."""
        if method == "fork":
            self.send(do="preload")
            assert self.expect("preload")["error"] is None
        whole = {
            "op": "ALLREDUCE", "numel": 8, "dtype": "float32", "world": ranks, "backend": "gloo", "iterations": 1,
            "store": {"host": "127.0.0.1", "port": 1}, "store_timeout": 1, "timeout": 1, **spec,
        }  # fmt: skip
        folder = str(self.folder / run)
        self.send(do="run", run=run, ranks=list(range(ranks)), spec=whole, folder=folder, method=method)
        pids, ready = {}, 0
        while ready < ranks:
            mark = self.expect("mark", run=run)
            if mark["stage"] == "start":
                pids[mark["rank"]] = mark["pid"]
            ready += mark["stage"] == "device"
        return [pids[rank] for rank in range(ranks)]


@pytest.fixture
def lib(tmp_path: Path) -> Path:
    for name, text in TORCH.items():
        path = tmp_path / "lib" / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "lib"


@pytest.fixture
def agent(tmp_path: Path, lib: Path) -> Iterator[Agent]:
    found = Agent(worker_file(tmp_path), tmp_path)
    yield found
    end(found)


def end(agent: Agent) -> None:
    with contextlib.suppress(OSError):
        os.killpg(agent.process.pid, signal.SIGKILL)
    for pipe in (agent.process.stdin, agent.process.stdout, agent.process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    agent.process.wait()


def runs(pid: int) -> bool:
    """Tell whether a process runs: a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def assert_gone(pids: list[int], within: float = SOON) -> None:
    deadline = time.monotonic() + within
    while any(runs(pid) for pid in pids):
        assert time.monotonic() < deadline, f"{[pid for pid in pids if runs(pid)]} still run"
        time.sleep(0.01)


NO_COMMANDS = [
    b"not json", b"", b"\xff\xfe\x00", b"[1, 2]", b"null", b"17", b'"facts"', b'{"do": 5}', b"{}", b'{"do": "nothing"}',
    b'{"do": "run"}', b'{"do": "run", "ranks": 5, "run": "r", "spec": 1}', b'{"do": "inspect"}', b'{"do": "__init__"}',
    b'{"do": "listen", "ports": "many"}', b'{"do": "check_port", "port": "x"}', b'{"do": "check_port", "port": 99999}',
    b'{"do": "resolve", "name": "a-name-of-a-log"}', b"[" * 100_000,
]  # fmt: skip


def test_ranks_wait_until_they_are_let_go(agent: Agent, tmp_path: Path) -> None:
    agent.start(2, go=True)
    agent.start(1, run="other", go=True)
    logs = [tmp_path / run / f"rank-{rank}.log" for run, rank in (("r", 0), ("r", 1), ("other", 0))]
    time.sleep(0.3)
    assert [log.read_text() for log in logs] == ["", "", ""]
    agent.send(do="go", run="r")
    deadline = time.monotonic() + SOON
    while not all("waiting for the store" in log.read_text() for log in logs[:2]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert logs[2].read_text() == ""


def test_what_is_no_command_is_answered_and_ends_nothing(agent: Agent) -> None:
    (rank,) = agent.start(1)
    for line in NO_COMMANDS:
        agent.write(line + b"\n")
        assert agent.expect("error")["error"], line[:60]
        agent.send(do="port")
        assert 0 < agent.expect("port")["port"] < 65536
    assert runs(rank)


def test_a_command_may_come_in_pieces_and_several_at_once(agent: Agent) -> None:
    agent.write(b'{"do": "po')
    time.sleep(0.05)
    agent.write(b'rt"}\n{"do": "port"}\n{"do": "end_li')
    agent.expect("port")
    agent.expect("port")
    agent.write(b'sten"}\n')
    agent.expect("end_listen")


def test_facts_need_no_torch(agent: Agent) -> None:
    agent.send(do="facts")
    facts = agent.expect("facts")["facts"]
    assert any(entry["loopback"] for entry in facts["interfaces"])
    assert facts["executable"] == sys.executable


def test_only_variables_of_the_communication_leave_the_host(tmp_path: Path, lib: Path) -> None:
    agent = Agent(
        worker_file(tmp_path),
        tmp_path,
        NCCL_DEBUG="INFO",
        HF_TOKEN="hf_secret",
        AWS_KEY="x",
        XNCCL_A="y",
    )
    try:
        agent.send(do="facts")
        assert agent.expect("facts")["facts"]["env"] == {"NCCL_DEBUG": "INFO"}
    finally:
        end(agent)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_closing_the_input_kills_the_ranks(agent: Agent, method: str) -> None:
    pids = agent.start(3, method=method)
    assert all(runs(pid) for pid in pids)
    assert agent.process.stdin is not None
    agent.process.stdin.close()
    assert agent.process.wait(SOON) == 0
    assert_gone(pids, 2.0)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ranks_do_not_outlive_an_agent_that_is_killed(agent: Agent, method: str, number: signal.Signals) -> None:
    pids = agent.start(2, method=method)
    agent.process.send_signal(number)
    assert_gone(pids, 2.0)


def test_a_run_is_stopped_with_everything_it_started_and_no_other(agent: Agent, tmp_path: Path) -> None:
    others = agent.start(1, run="other")
    word = f"{tmp_path.name}-{os.getpid()}"
    pids = agent.start(2, env={"STAND_IN_CHILD": word})
    deadline = time.monotonic() + SOON
    while len(children := with_argument(f"grandchild {word}")) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    agent.send(do="stop", run="r")
    assert {agent.expect("exit", run="r")["code"] for _ in pids} == {-signal.SIGKILL}
    agent.expect("stopped", run="r")
    assert_gone(pids + children, 2.0)
    assert all(runs(pid) for pid in others)
    agent.send(do="stop", run="other")
    agent.expect("exit", run="other")


def with_argument(word: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if word.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def test_a_stopped_rank_is_seen_and_killed(agent: Agent) -> None:
    one, two = agent.start(2)
    os.kill(one, signal.SIGSTOP)
    deadline = time.monotonic() + SOON
    while True:
        agent.send(do="inspect", run="r")
        if agent.expect("state", rank=0)["state"] == "T":
            break
        assert time.monotonic() < deadline
    agent.send(do="stop", run="r")
    assert agent.expect("exit", rank=0)["code"] == -signal.SIGKILL
    assert_gone([one, two], 2.0)


def test_how_a_rank_ends_is_told(agent: Agent) -> None:
    one, two = agent.start(2)
    os.kill(two, signal.SIGSEGV)
    assert agent.expect("exit", rank=1)["code"] == -signal.SIGSEGV
    os.kill(one, signal.SIGTERM)
    assert agent.expect("exit", rank=0)["code"] == -signal.SIGTERM


def test_ranks_dump_no_core(agent: Agent) -> None:
    """A core of torch has gigabytes, and the kernel puts it into the user's folder."""
    (pid,) = agent.start(1)
    limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    core = next(line for line in limits if line.startswith("Max core file size")).split()
    assert core[4] == "0"


def test_a_rank_holds_no_pipe_of_another_nor_of_the_agent(agent: Agent) -> None:
    pids = agent.start(2)
    held = []
    for pid in (agent.process.pid, *pids):
        links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        held.append({link for link in links if link.startswith("pipe:")})
    assert held[1] and not held[1] & held[2]
    told = {str(Path(f"/proc/{agent.process.pid}/fd/{number}").readlink()) for number in (0, 1, 2)}
    assert not told & (held[1] | held[2])


def test_each_rank_writes_to_its_own_log_which_only_the_user_reads(agent: Agent, tmp_path: Path) -> None:
    agent.start(2)
    for rank in range(2):
        log = tmp_path / "r" / f"rank-{rank}.log"
        deadline = time.monotonic() + SOON
        while "waiting for the store" not in log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert log.stat().st_mode & 0o777 == 0o600


def test_a_folder_that_cannot_be_written_is_the_ranks_end_not_the_agents(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    agent.send(do="run", run="r", ranks=[0, 1], spec={}, folder=str(tmp_path / "file" / "below"), method="spawn")
    for rank in range(2):
        answer = agent.expect("exit", rank=rank)
        assert answer["code"] is None and "Not a directory" in answer["error"]
    agent.send(do="port")
    agent.expect("port")


@pytest.mark.parametrize("env", [{"NCCL_X": 5}, {"NCCL_X": "a\x00b"}, {"NCCL=X": "a"}])
def test_a_variable_that_cannot_be_set_is_the_ranks_end(agent: Agent, tmp_path: Path, env: dict[str, Any]) -> None:
    before = len(list(Path(f"/proc/{agent.process.pid}/fd").iterdir()))
    agent.send(do="run", run="r", ranks=[0], spec={"env": env}, folder=str(tmp_path / "r"), method="spawn")
    assert agent.expect("exit", rank=0)["error"]
    agent.send(do="port")
    agent.expect("port")
    assert len(list(Path(f"/proc/{agent.process.pid}/fd").iterdir())) == before


def test_a_torch_that_does_not_import_is_told(tmp_path: Path, lib: Path) -> None:
    (lib / "torch" / "__init__.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object file')")
    agent = Agent(worker_file(tmp_path), tmp_path)
    try:
        agent.send(do="preload")
        assert "libcudart" in agent.expect("preload")["error"]
        agent.send(do="run", run="r", ranks=[0], spec={"backend": "gloo"}, folder=str(tmp_path / "r"), method="fork")
        assert agent.expect("mark", stage="error")["type"] == "ImportError"
        assert agent.expect("exit")["code"] == 3
    finally:
        end(agent)


def driver(tmp_path: Path, lib: Path, script: str) -> Agent:
    """An agent on a host whose nvidia-smi is a script."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    (lib / "pynvml.py").write_text("raise ImportError('none here')")
    return Agent(worker_file(tmp_path), tmp_path, PATH=f"{tool.parent}:{os.environ['PATH']}")


def test_a_driver_that_hangs_holds_up_nobody_and_is_left_by_the_end(tmp_path: Path, lib: Path) -> None:
    word = "60.0417"
    found = driver(tmp_path, lib, f"exec sleep {word}")
    try:
        found.send(do="gpus")
        deadline = time.monotonic() + SOON
        while not with_argument(word):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        hung = with_argument(word)
        found.send(do="port")
        assert found.expect("port")["port"]
        assert found.process.stdin is not None
        found.process.stdin.close()
        assert_gone(hung)
    finally:
        end(found)


def test_gpus_are_told_with_what_a_fresh_torch_says(tmp_path: Path, lib: Path) -> None:
    row = "0, GPU-aa, H100, 81559, 4, 81555, 0, Default, 0, 00000000:4F:00.0, 550.127.05"
    busy = (
        'case "$1" in --query-gpu=index,uuid,*) echo "{}" ;; --query-gpu=index,util*) echo "0, 40" ;; *) exit 1 ;; esac'
    )
    (lib / "torch" / "distributed" / "__init__.py").write_text(
        "print('a banner')\ndef is_available(): return True\ndef is_nccl_available(): return False\n"
    )
    found = driver(tmp_path, lib, busy.format(row))
    try:
        found.send(do="gpus")
        results = found.expect("gpus")["results"]
        (gpu,) = results["gpus"]
        assert (gpu["uuid"], gpu["bus"], gpu["busy"]) == ("GPU-aa", "0000:4f:00", [0, 40, 40])
        assert results["torch"] == {"version": "0.0-stand-in", "cuda": None, "hip": None, "has_nccl": False}
        found.send(do="gpus", imports=False)
        assert found.expect("gpus")["results"]["torch"] == {"version": "unknown"}
    finally:
        end(found)


def test_a_host_without_a_driver_answers_at_once(agent: Agent) -> None:
    agent.send(do="gpus")
    results = agent.expect("gpus")["results"]
    assert results["gpus"] == [] and results["problem"]


def test_a_port_that_something_listens_on_is_taken(agent: Agent) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        port = server.getsockname()[1]
        agent.send(do="check_port", port=port)
        assert agent.expect("check_port", port=port)["taken"]
    agent.send(do="check_port", port=port)
    assert not agent.expect("check_port", port=port)["taken"]


def test_the_listener_ends_with_its_command_and_with_the_agent(agent: Agent) -> None:
    agent.send(do="listen", ports=1, loopback=True)
    first = agent.expect("listen")["where"][0]
    socket.create_connection((first["address"], first["ports"][0]), 5).close()
    agent.send(do="end_listen")
    assert agent.expect("end_listen")["half_open"] == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((first["address"], first["ports"][0]), 5)
    agent.send(do="listen", ports=1, loopback=True)
    again = agent.expect("listen")["where"][0]
    agent.process.kill()
    agent.process.wait()
    deadline = time.monotonic() + SOON
    while True:
        try:
            socket.create_connection((again["address"], again["ports"][0]), 5).close()
        except ConnectionRefusedError:
            break
        assert time.monotonic() < deadline, "the listener outlives its agent"
        time.sleep(0.02)


def test_the_probe_runs_beside_the_commands(agent: Agent) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(8)  # accepts, and never answers
        where = {"host": "a", "interface": "lo", "address": "127.0.0.1", "ports": [server.getsockname()[1]]}
        agent.send(do="probe", targets=[where], timeout=1.0)
        agent.send(do="port")
        agent.expect("port")
        (result,) = agent.expect("probe")["results"]
        assert result["state"] == "no-data"


def test_ranks_of_nccl_are_asked_for_what_ras_knows_while_they_hang(agent: Agent) -> None:
    with listening(Server()) as address:
        agent.start(1, env={"NCCL_RAS_ADDR": address}, backend="nccl")
        agent.send(do="ras", run="r")
        assert agent.expect("ras", run="r")["results"] == STATUS + DIAGNOSTICS
    agent.send(do="ras", run="unknown")
    assert agent.expect("ras", run="unknown")["results"] == ""


def test_ranks_of_gloo_have_no_ras(agent: Agent) -> None:
    agent.start(1)
    agent.send(do="ras", run="r")
    assert agent.expect("ras", run="r")["results"] == ""
