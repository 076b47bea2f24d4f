"""Hosts behind a real sshd: the rank that hangs on one of them, hosts that cannot be reached, shells, and what is left there."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from nccl_triage import diagnose
from nccl_triage.hang.hosts import behind_commands
from nccl_triage.hosts.ssh import places_of
from tests.hang import namespaces
from tests.hang.hanging import ROOT, TRAIN, children, wait_for
from tests.hang.namespaces import Host, nothing_left

pytestmark = [
    pytest.mark.xdist_group("hang-ssh"),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]
NAMES = ("ha", "hb")
SHELLS = ("sh", "dash", "bash", "csh", "tcsh", "fish", "zsh", "ksh")
#: Whatever shell a user has: it says something without an end of line, as profiles do.
SSHD = """Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
MaxStartups 10:100:10
AcceptEnv SHELL_HERE
ForceCommand printf '{{not json\\n{{"answer": 1}}\\nquota: 98%% used'; echo maintenance tonight >&2; exec "${{SHELL_HERE:-sh}}" -c "$SSH_ORIGINAL_COMMAND"
"""
CLIENT = """Host unknown
 Port {ports[0]}
 HostKeyAlias unknown
Host locked
 Port {ports[0]}
 IdentityFile {folder}/other
Host closed
 Port {closed}
Host ha
 Port {ports[0]}
Host hb
 Port {ports[1]}
Host many*
 Port {ports[1]}
Host * !locked
 IdentityFile {folder}/user
Host *
 HostName 127.0.0.1
 HostKeyAlias known
 IdentitiesOnly yes
 UserKnownHostsFile {folder}/known
 GlobalKnownHostsFile /dev/null
 RequestTTY force
"""


class Site(NamedTuple):
    """Two hosts with a rank each that hang, and how this machine reaches them."""

    folder: Path
    hosts: list[Host]
    environment: dict[str, str]

    def command(self, *more: str) -> list[str]:
        """Return ``nccl-triage hang``, run on a third host."""
        return namespaces.words("login", [sys.executable, "-m", "nccl_triage", "hang", *more])

    def hang(self, *more: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run it."""
        return subprocess.run(
            self.command(*more), cwd=folder, env=self.environment, capture_output=True, text=True, check=False,
            timeout=120, stdin=subprocess.DEVNULL,
        )  # fmt: skip


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    sshd = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin")
    absent = namespaces.missing("ssh", "ssh-keygen") or (None if sshd else "sshd is not installed")
    if absent or sshd is None:
        pytest.skip(str(absent))
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host", "user", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "known").write_text("known " + (folder / "host.pub").read_text())
    ports = [_free_port() for _ in NAMES]
    (folder / "client").write_text(
        "".join(f"Host {shell}\n Port {ports[0]}\n SetEnv SHELL_HERE={shell}\n" for shell in SHELLS)
        + CLIENT.format(folder=folder, ports=ports, closed=_free_port())
    )
    tools = folder / "bin"
    tools.mkdir()
    # The configuration of the person who runs the tests stays out of it.
    (tools / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/client "$@"\n')
    (tools / "ssh").chmod(0o755)
    environment = namespaces.environment()
    environment["PATH"] = f"{tools}:{Path(sys.executable).parent}:{environment['PATH']}"
    hosts: list[Host] = []
    try:
        for name, port in zip(NAMES, ports, strict=True):
            (folder / f"sshd.{name}").write_text(SSHD.format(port=port, folder=folder))
            daemon = [sshd, "-D", "-e", "-f", str(folder / f"sshd.{name}")]
            hosts.append(Host(name, daemon, environment, folder / f"log.{name}"))
        for host in hosts:
            wait_for(lambda log=host.log: "Server listening" in log.read_text(), "sshd listens", 20)  # type: ignore[misc]
        made = Site(folder, hosts, environment)
        _start_ranks(made)
        yield made
    finally:
        for host in hosts:
            host.close()


def _start_ranks(site: Site) -> None:
    (site.folder / "train.py").write_text(TRAIN, "utf-8")
    common = f"WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT={_free_port()} GLOO_SOCKET_IFNAME=lo"
    for rank, host in enumerate(NAMES):
        start = f"cd {site.folder}; env RANK={rank} {common} nohup {sys.executable} train.py >train.{rank}.log 2>&1 </dev/null &"
        begun = subprocess.run(
            ["ssh", "-T", host, start], env=site.environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert begun.returncode == 0, begun.stderr
    wait_for(lambda: all((site.folder / f"ready.{rank}").exists() for rank in range(2)), "the job hangs")


def _hosts(*names: str) -> list[str]:
    return [word for name in names for word in ("--host", name)]


def test_the_rank_on_another_host_is_named(site: Site, tmp_path: Path) -> None:
    with nothing_left(site.hosts):
        result = site.hang(*_hosts(*NAMES), "--wait", "0.3", "--out", "evidence", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "Rank 1 on hb is in export_report (train.py:" in result.stdout.replace("\n  ", " ")
    assert "did not answer" not in result.stderr and "stopped answering" not in result.stderr
    made = json.loads((tmp_path / "evidence/hang.json").read_text("utf-8"))
    assert [(host["host"], [one["rank"] for one in host["ranks"]]) for host in made["hosts"]] == [
        ("ha", [0]),
        ("hb", [1]),
    ]
    assert [(site.folder / f"signals.{rank}").read_bytes() for rank in range(2)] == [b"", b""]
    shutil.copytree(tmp_path / "evidence", tmp_path / "elsewhere")
    again = diagnose(tmp_path / "elsewhere").to_dict()["diagnoses"][0]
    assert again["cause"] == "rank-divergence"
    assert [(one["rank"], one["host"]) for one in again["culprits"]] == [(1, "hb")]


def test_any_login_shell_will_do(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    shells = [shell for shell in SHELLS if shutil.which(shell)]
    monkeypatch.setenv("PATH", site.environment["PATH"])
    reach = behind_commands(places_of(shells), None)
    replies = reach.ask({at: {"do": "find"} for at in range(len(shells))}, 20.0)
    assert [(replies[at].name, replies[at].problem, replies[at].found.get("host")) for at in sorted(replies)] == [
        (shell, None, "ha") for shell in shells
    ]


def test_many_hosts_do_not_exhaust_a_jump_host(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where sshd has ten connections that have not logged in, it refuses the next, here always."""
    names = [f"many{number}" for number in range(20)]
    monkeypatch.setenv("PATH", site.environment["PATH"])
    reach = behind_commands(places_of(names), None)
    replies = reach.ask({at: {"do": "find"} for at in range(len(names))}, 20.0)
    assert [(reply.name, reply.problem) for reply in replies.values()] == [(name, None) for name in names]


def test_hosts_that_cannot_be_reached_are_noted_and_ask_nothing(site: Site, tmp_path: Path) -> None:
    """Nobody could answer ssh: it has no terminal here, but would ask on one."""
    start = time.monotonic()
    result = site.hang(*_hosts("ha", "unknown", "locked", "closed"), "--wait", "0", "--out", "out", folder=tmp_path)
    assert time.monotonic() - start < 40
    assert result.returncode == 0, result.stderr
    assert "unknown did not answer: Host key verification failed." in result.stderr
    assert "locked did not answer: " in result.stderr and "Permission denied (publickey" in result.stderr
    assert "closed did not answer: ssh: connect to host 127.0.0.1 port " in result.stderr
    assert "rank 1 has no process on any host that answered" in result.stderr
    none = site.hang(*_hosts("unknown", "closed"), "--wait", "0", folder=tmp_path)
    assert none.returncode == 2
    assert "unknown: Host key verification failed.; closed: ssh: connect" in none.stderr
    assert "try: check that ssh reaches the hosts" in none.stderr


def test_a_host_without_that_python(site: Site, tmp_path: Path) -> None:
    result = site.hang(*_hosts(*NAMES), "--python", "/nowhere/python", folder=tmp_path)
    assert result.returncode == 2
    assert "cause: ha, hb: " in result.stderr and "/nowhere/python: not found" in result.stderr
    assert "--python: the path of a Python there" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_no_temporary_folder_and_no_home_are_needed(site: Site, tmp_path: Path) -> None:
    full = (
        'for f in /tmp /var/tmp; do mount -t tmpfs -o size=4k tmpfs $f; head -c 4096 /dev/zero >$f/x; done; exec "$@"'
    )
    with tempfile.TemporaryDirectory(dir=ROOT) as kept:  # /tmp is covered
        own = Path(kept)
        for name in ("bin", "client", "user", "known"):
            copy = shutil.copytree if (site.folder / name).is_dir() else shutil.copy
            copy(site.folder / name, own / name)
        for name in ("bin/ssh", "client"):
            (own / name).write_text((own / name).read_text().replace(str(site.folder), kept))
        environment = {**site.environment, "HOME": "/nowhere", "PATH": f"{own}/bin:{site.environment['PATH']}"}
        words = [sys.executable, "-m", "nccl_triage", "hang", *_hosts(*NAMES), "--wait", "0", "--out", f"{own}/out"]
        result = subprocess.run(
            namespaces.words("login", ["sh", "-c", full, "sh", *words]), cwd="/", env=environment, capture_output=True,
            text=True, check=False, timeout=120,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        assert "evidence of 2 processes" in result.stdout


def _until_it_looks(site: Site) -> int:
    """Return the process that looks at the rank of the second host."""
    found: list[int] = []

    def looks() -> bool:
        pids = site.hosts[1].processes()
        found[:] = [pid for pid, line in pids.items() if "/fd/" in line]
        return bool(found) and (Path(f"/proc/{found[0]}/stat").read_text().rpartition(")")[2].split()[0] in "SR")

    wait_for(looks, "the program is there", 30)
    return found[0]


def _parents(pid: int) -> Iterator[int]:
    while pid > 1:
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("by", ["Ctrl-C", "kill"])
def test_an_interruption_leaves_nothing_there(site: Site, tmp_path: Path, by: str) -> None:
    with nothing_left(site.hosts):
        process = subprocess.Popen(
            site.command(*_hosts(*NAMES), "--wait", "60", "--out", "out"), cwd=tmp_path, env=site.environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            wait_for(lambda: (tmp_path / "out").exists(), "it takes", 60)
            _until_it_looks(site)
            [command] = children(process.pid)[:1]
            os.kill(command, signal.SIGINT if by == "Ctrl-C" else signal.SIGKILL)
            said = process.communicate(timeout=30)[0]
        finally:
            process.kill()
    if by == "Ctrl-C":
        assert process.returncode == 130, said
        assert list(tmp_path.iterdir()) == []


def test_a_connection_that_breaks_is_noted(site: Site, tmp_path: Path) -> None:
    with nothing_left(site.hosts):
        process = subprocess.Popen(
            site.command(*_hosts(*NAMES), "--wait", "4", "--out", "out"), cwd=tmp_path, env=site.environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            wait_for(lambda: (tmp_path / "out").exists(), "it takes", 60)
            pid = _until_it_looks(site)
            time.sleep(1.5)  # the first sample is on its way
            own = site.hosts[1].processes()
            session = next(above for above in _parents(pid) if own.get(above, "").startswith("sshd: "))
            os.kill(session, signal.SIGKILL)
            said, notes = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, notes
    assert "hb stopped answering: " in notes, notes
    made = json.loads((tmp_path / "out/hang.json").read_text("utf-8"))
    assert [len(one["samples"]) for host in made["hosts"] for one in host["ranks"]] == [2, 1]
    assert shlex.quote("out") in said
