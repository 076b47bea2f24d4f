"""Hosts that share no folder with this one: a stand-in for ssh that lands in another folder with another TMPDIR."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import UsageError
from nccl_triage.hosts import processes, programs
from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.processes import ProcessLauncher
from nccl_triage.hosts.programs import Program
from nccl_triage.hosts.ssh import places_of
from nccl_triage.verify import assess, runner
from nccl_triage.verify.cluster import Cluster, worker
from nccl_triage.verify.collective_run import CollectiveMessage, CollectiveRun, Deadlines, RunResult, Slot

pytestmark = pytest.mark.xdist_group("verify-remote")

SOON = 10.0
QUICK = Deadlines(start=20.0, store=4.0, group=4.0, entered=3.0, first=3.0, timed=8.0, grace=1.0)
#: As ssh does: options and the host's name are its own, the other words are joined for a shell.
SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift 2; done
shift 2
cd '{home}' || exit 255
TMPDIR='{temporary}' PYTHONPATH='{modules}' exec {shell} -c "$*"
"""
#: As ``kubectl exec -i POD --`` does: each word by itself, for no shell. ``{}`` is done first.
EXEC = "{}exec \"$@\""  # fmt: skip


class Away:
    """Another host: its home, its temporary folder, and modules that its Python finds."""

    def __init__(self, folder: Path, shell: str = "sh") -> None:
        self.driver, self.home, self.temporary, self.modules = (
            folder / name for name in ("driver", "home", "temporary", "modules")
        )
        for path in (self.driver, self.home, self.temporary, self.modules, folder / "bin"):
            path.mkdir()
        self.path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        script = folder / "bin" / "ssh"
        script.write_text(SSH.format(home=self.home, temporary=self.temporary, modules=self.modules, shell=shell))
        script.chmod(0o755)

    def cluster(self, python: str | None = None) -> Cluster:
        """Reach it as ``--host node-b`` does."""
        return Cluster(ProcessLauncher(places_of(("node-b",)), worker(), python))


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Away:
    host = Away(tmp_path)
    monkeypatch.setenv("PATH", host.path)
    return host


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Away, Cluster]]:
    """The other host with an agent that has imported torch."""
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    host = Away(tmp_path_factory.mktemp("away"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", host.path)
        with host.cluster() as cluster:
            cluster.greet(SOON)
            assert cluster.preload(120.0) == {}
            yield host, cluster


def carry_out(host: Away, cluster: Cluster, label: str, faults: dict[str, object]) -> RunResult:
    env = {"GLOO_SOCKET_IFNAME": "lo"}
    run = CollectiveRun(label, (Slot(0, 0), Slot(1, 0)), CollectiveMessage(numel=4096), env=env, faults=faults)
    return runner.execute(cluster, run, host.driver / label, QUICK)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_healthy_collective(warm: tuple[Away, Cluster]) -> None:
    host, cluster = warm
    result = carry_out(host, cluster, "healthy", {})
    assert result.outcome == "passed", [trace.error for trace in result.ranks.values()]
    logs = sorted((host.driver / "healthy").iterdir())
    assert [path.name for path in logs] == ["rank-0.log", "rank-1.log"]
    assert {path.stat().st_mode & 0o777 for path in logs} == {0o600}


def test_the_log_of_a_crash_arrives_and_is_read(warm: tuple[Away, Cluster], rules: RuleSet) -> None:
    host, cluster = warm
    result = carry_out(host, cluster, "crash", {"1": {"name": "raise"}})
    text = (host.driver / "crash" / "rank-1.log").read_text()
    assert "ValueError: reward function returned None for sample 1234" in text
    found = assess.diagnose_own_logs(result, rules)
    assert found is not None
    assert (found.cause, found.ranks) == ("application-exception", (1,))


def test_nothing_lies_on_the_host_while_ranks_run_nor_after_the_agent_was_killed(
    away: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = away.modules / "torch.py"
    stand_in.write_text("import time; print('waiting', flush=True); time.sleep(600)")
    with away.cluster() as cluster:
        cluster.greet(SOON)
        cluster.send(0, do="run", run="r", ranks=[0], spec={}, folder=str(away.driver / "r"), method="spawn")
        seen = []
        until(lambda: seen.extend(answer for _, answer in cluster.receive(0.1)) or seen)
        rank = next(answer["pid"] for answer in seen if answer["answer"] == "mark")
        until(lambda: os.stat(f"/proc/{rank}/fd/1").st_size)  # noqa: PTH116
        assert list(away.temporary.iterdir()) == list(away.home.iterdir()) == []
        os.kill(agent_of(rank), signal.SIGKILL)
        until(lambda: cluster.receive(0.1) and cluster.gone)
        until(lambda: not Path(f"/proc/{rank}").exists())
    assert list(away.temporary.iterdir()) == list(away.home.iterdir()) == []


def agent_of(rank: int) -> int:
    return int(Path(f"/proc/{rank}/stat").read_text().rsplit(")", 1)[1].split()[1])


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "csh", "tcsh", "fish", "zsh", "ksh"])
def test_login_shells_hand_the_words_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    if subprocess.run(["sh", "-c", f"command -v {shell}"], capture_output=True, check=False).returncode:
        pytest.skip(f"{shell} is not installed")
    host = Away(tmp_path, shell)
    monkeypatch.setenv("PATH", host.path)
    python = tmp_path / "my $HOME's py thon"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with host.cluster(str(python)) as cluster:
        cluster.greet(SOON)
        assert cluster.facts[0]["executable"] == sys.executable


def test_a_python_without_memfd_in_a_home_full_of_modules(away: Away) -> None:
    """Conda builds Python for a glibc that has no memfd_create; and people have files of any name in their home."""
    (away.modules / "sitecustomize.py").write_text("import os\ndel os.memfd_create\n")
    for name in ("tempfile", "random", "shutil", "json", "os"):
        (away.home / f"{name}.py").write_text("raise SystemExit('a file of the user')\n")
    with away.cluster() as cluster:
        cluster.greet(SOON)
        assert cluster.ask("listen", [0], SOON, {0: {"ports": 1, "loopback": True}})[0]["where"], (
            "its children start, too"
        )
        assert list(away.temporary.iterdir()) == []
    assert list(away.temporary.iterdir()) == []


def test_a_command_that_is_no_ssh_gets_the_words_one_by_one(tmp_path: Path) -> None:
    place = HostPlace("pod", ("sh", "-c", EXEC.format(""), "sh"))
    with Cluster(ProcessLauncher([place, HostPlace("here")], worker())) as cluster:
        cluster.greet(SOON)
        assert len(cluster.facts) == 2


def test_a_command_that_hands_no_input_on(tmp_path: Path) -> None:
    place = HostPlace("pod", ("sh", "-c", EXEC.format("exec </dev/null; "), "sh"))
    with Cluster(ProcessLauncher([place], worker())) as cluster, pytest.raises(UsageError) as caught:
        cluster.greet(SOON)
    assert caught.value.message == "no answer from pod"
    assert "exec -i" in str(caught.value.cause)


@pytest.mark.parametrize("command", [None, ("sh", "-c", EXEC.format(""), "sh")])
def test_a_python_that_does_not_exist(away: Away, command: tuple[str, ...] | None) -> None:
    (place,) = places_of(("node-b",)) if command is None else [HostPlace("node-b", command)]
    started = time.monotonic()
    with (
        Cluster(ProcessLauncher([place], worker(), "/nowhere/python")) as cluster,
        pytest.raises(UsageError) as caught,
    ):
        cluster.greet(60.0)
    assert time.monotonic() - started < SOON
    assert caught.value.message == "no answer from node-b"
    assert "/nowhere/python" in str(caught.value.cause)
    assert "not found" in str(caught.value.cause)
    assert "--python" in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("user@node-b: Permission denied (publickey).", "user@node-b: Permission denied (publickey)."),
        ("exec: python: no such file\n\ncommand terminated with exit code 127", "exec: python: no such file"),
        ("command terminated with exit code 137", "command terminated with exit code 137"),
    ],
)
def test_a_command_that_fails_at_once(away: Away, said: str, cause: str) -> None:
    ssh = Path(away.path.partition(os.pathsep)[0]) / "ssh"
    ssh.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 255\n")
    started = time.monotonic()
    with away.cluster() as cluster, pytest.raises(UsageError) as caught:
        cluster.greet(60.0)
    assert time.monotonic() - started < SOON
    assert caught.value.message == "no answer from node-b"
    assert caught.value.cause == cause


def test_a_host_that_takes_nothing_in_holds_nobody_up() -> None:
    """A worker larger than a pipe: what waits for a connection does not read it."""
    started = time.monotonic()
    place = HostPlace("far", ("sh", "-c", "sleep 600; true"))
    with Cluster(ProcessLauncher([place], Program(bytes(1 << 18)))) as cluster:
        with pytest.raises(UsageError) as caught:
            cluster.greet(0.3)
        group = cluster._listener.links[0]._process.pid  # type: ignore[attr-defined]
    assert "nothing within" in str(caught.value.cause)
    assert time.monotonic() - started < processes.FAREWELL + 3.0
    until(lambda: not members(group))


def members(group: int) -> list[str]:
    """Return the processes of a group that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, owner = path.read_text().rsplit(")", 1)[1].split()[:3]
            if int(owner) == group and state not in "ZX":
                found.append(path.parent.name)
    return found


def test_the_line_of_python_needs_no_care_in_any_shell() -> None:
    assert not set(programs.BOOT) & set("'\\$!`\n\t")
