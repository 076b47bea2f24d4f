"""Which hosts a verification reaches, and by which command, is the user's word on the command line and nobody else's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from nccl_triage.cli import cli
from nccl_triage.errors import TriageError
from tests.verify.whole_report import document


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a log."""
    folder = tmp_path / "home" / "project"
    folder.mkdir(parents=True)
    (folder / "trainer.log").write_text(
        "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\n"
    )
    for name in list(os.environ):
        if name.startswith(("NCCL_TRIAGE_", "XDG_CONFIG")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(folder)
    return folder


def fails(*words: str) -> TriageError:
    with pytest.raises(TriageError) as caught:
        CliRunner().invoke(cli, list(words), catch_exceptions=False, standalone_mode=False)
    return caught.value


def plan(*words: str) -> str:
    """Return what is shown of a plan for a job on two hosts; nothing is contacted for it."""
    Path("report.json").write_text(json.dumps(document("network-link-fault", hosts=["gpu-a", "gpu-c"])))
    result = CliRunner().invoke(cli, ["verify", "report.json", "--dry-run", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("command", ["verify", "preflight"])
def test_a_command_is_not_taken_from_a_variable(project: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_TRIAGE_HOST", "a,b=touch marker")
    error = fails(command, *(["trainer.log", "--dry-run"] if command == "verify" else []))
    assert error.message == "--host b=touch marker: a COMMAND is taken from the command line only"
    assert not (project / "marker").exists()


def test_a_command_is_not_taken_from_the_users_file(project: Path) -> None:
    own = project.parent / ".config" / "nccl-triage" / "config.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("host: [a=touch marker]\n")
    assert "command line only" in fails("verify", "trainer.log", "--dry-run").message
    own.write_text("host: [gpu-a, gpu-b]\n")
    assert "gpu-a" in plan()


def test_a_command_is_taken_from_the_command_line_whatever_else_is_set(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_TRIAGE_HOST", "a,b")
    shown = plan("--host", "gpu-c=sh -c 'touch marker' sh", "--host", "gpu-d")
    assert "gpu-c" in shown and "gpu-d" in shown
    assert not (project / "marker").exists(), "a plan reaches nobody"


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=touch marker", "-w", "a b", "a;b", "a\nb", "$(x)", "@a", "u@", "a@b@c", ""]
)
def test_a_host_that_is_no_name_is_refused_in_one_sentence(project: Path, name: str) -> None:
    error = fails("verify", "trainer.log", "--dry-run", f"--host={name}")
    assert error.message.endswith(": expected NAME or NAME=COMMAND")


EVIL = [
    "-oProxyCommand=touch marker", "$(touch marker)", "`touch marker`", "a\nb", "\x1b[31mred", "a\x00b", "'; touch marker; '",
    "../../etc/passwd", "http://192.0.2.1/", "{0.__class__}", "\u202eabc", "--uid=0", "x" * 300_000, "192.0.2.1:1",
]  # fmt: skip


def hostile_report(folder: Path, evil: str) -> Path:
    """Write a report in which a text stands wherever a log can put one."""
    found = document("rendezvous-failed", "network-wrong-interface", hosts=[evil, "node-b"], world=1 << 20)
    found["job"]["hosts"][1]["addresses"] = [evil]
    names = (
        "NCCL_ALGO",
        "NCCL_NET_PLUGIN",
        "NCCL_TUNER_PLUGIN",
        "NCCL_CONF_FILE",
        "GLOO_SOCKET_IFNAME",
        "NCCL_RAS_ADDR",
    )
    found["job"]["env"] = {**dict.fromkeys((*names, "LD_PRELOAD", "PYTHONPATH"), evil), f"NCCL_{evil}": "1"}
    found["collective"] |= {"numel_in": 1 << 62, "timeout_ms": 1 << 60, "dtype": evil, "op": evil}
    text = f"MASTER_ADDR={evil} MASTER_PORT=22 NCCL_ALGO={evil}"
    found["excerpts"] = [{"path": "a.log", "first_line": 1, "lines": [text], "marks": [1]}]
    path = folder / "report.json"
    path.write_text(json.dumps(found))
    return path


@pytest.mark.parametrize("evil", EVIL, ids=range(len(EVIL)))
@pytest.mark.parametrize("launcher", ["local", "slurm", "print"])
def test_a_hostile_report_gives_a_harmless_plan(project: Path, launcher: str, evil: str) -> None:
    report = hostile_report(project, evil)
    words = ["--dry-run"] if launcher == "local" else ["--launcher", launcher, "--workdir", "work", "--backend", "gloo"]
    result = CliRunner().invoke(cli, ["verify", str(report), *words], catch_exceptions=False, standalone_mode=False)
    assert "not set as in the log: " in result.output
    assert all(character.isprintable() for character in result.output.replace("\n", ""))
    assert len(result.output) < 20_000
    if launcher != "local":
        assert evil not in (project / "work" / "run.sh").read_text()
        for path in (project / "work").glob("spec-*.json"):
            spec = json.loads(path.read_text())
            assert set(spec["env"]) <= {"NCCL_ALGO", "GLOO_SOCKET_IFNAME"}
            assert not set("".join(spec["env"].values())) & set("$`'/\\\n\x1b\0{<%\u202e")
            assert len(json.dumps(spec["env"])) < 5000
    assert not (project / "marker").exists()
