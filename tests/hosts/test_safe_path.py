"""A folder of modules in the current folder, beside a log say, is never imported: not by agents, not by ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.hosts import safe_path
from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.processes import ProcessLauncher
from nccl_triage.verify import runner
from nccl_triage.verify.cluster import Cluster, worker
from nccl_triage.verify.collective_run import CollectiveMessage, CollectiveRun, Slot
from nccl_triage.verify.written import files
from tests.verify.gloo_cluster import QUICK
from tests.verify.whole_report import document
from tests.verify.worker_file import worker_file
from tests.verify.written.file_runs import settings, srun

pytestmark = pytest.mark.xdist_group("verify-remote")
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
#: What Python, the worker and torch import, sooner or later.
NAMES = (
    "torch",
    "runpy",
    "json",
    "resource",
    "zlib",
    "pathlib",
    "socket",
    "tempfile",
    "typing",
    "sitecustomize",
    "numpy",
)
SOON = 20.0


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, full of modules that leave a mark, and a PYTHONPATH with entries that mean it."""
    folder = tmp_path / "beside the log"
    folder.mkdir()
    mark = tmp_path / "imported"
    for name in NAMES:
        module = folder / name / "__init__.py" if name == "torch" else folder / f"{name}.py"
        module.parent.mkdir(exist_ok=True)
        module.write_text(f"open({str(mark)!r}, 'a').write({name!r} + ' ')\nraise SystemExit('not this one')\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", f":.:{folder}:")
    return mark


def test_the_trap_works(trap: Path) -> None:
    subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False)
    assert trap.exists()


@needs_torch
@pytest.mark.parametrize("command", [(), ("sh", "-c", 'exec "$@"', "sh")])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_agents_and_ranks_import_what_is_installed(
    tmp_path: Path, trap: Path, command: tuple[str, ...], method: str
) -> None:
    run = CollectiveRun("r", (Slot(0, 0), Slot(1, 0)), CollectiveMessage(numel=64), env={"GLOO_SOCKET_IFNAME": "lo"})
    (tmp_path / "work").mkdir()
    with Cluster(ProcessLauncher([HostPlace("here", command)], worker())) as cluster:
        cluster.greet(SOON)
        if method == "fork":
            assert cluster.preload(120.0) == {}
        assert cluster.ask("listen", [0], SOON, {0: {"ports": 1, "loopback": True}})[0]["where"]
        result = runner.execute(cluster, run, tmp_path / "work" / "r", QUICK, method=method)
    assert result.outcome == "passed", [trace.error for trace in result.ranks.values()]
    assert not trap.exists()


def test_a_worker_that_somebody_else_starts_defends_itself(tmp_path: Path, trap: Path) -> None:
    """As mpirun does on another host, whose PYTHONPATH nobody has looked at: Python itself imports by it, we do not."""
    worker = worker_file(tmp_path)
    for name in {*NAMES} - {"torch", "json", "resource", "socket", "tempfile"}:
        Path(f"{name}.py").unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-S", str(worker), "agent"], input=b'{"do": "preload"}\n', capture_output=True, check=False
    )
    assert b"No module named 'torch'" in done.stdout, done.stderr
    assert not trap.exists()


@needs_torch
@pytest.mark.parametrize("launcher", ["srun", "torchrun"])
def test_the_script_imports_what_is_installed(tmp_path: Path, trap: Path, rules: RuleSet, launcher: str) -> None:
    asked = document("rank-divergence", hosts=[os.uname().nodename])
    kind = "slurm" if launcher == "srun" else "print"
    files.write(asked, rules, settings(tmp_path / "work"), kind)
    environment = {**os.environ, "PATH": srun(tmp_path / "bin"), "NCCL_TRIAGE_BUDGET": "1"}
    words = [launcher] if kind == "print" else []
    ran = subprocess.run(
        ["bash", str(tmp_path / "work" / "run.sh"), *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    _, report = files.judge(asked, rules, tmp_path / "work")
    assert [trial.result.outcome for trial in report.trials] == ["passed"], ran.stderr
    assert not trap.exists()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("", ""),
        (":", ""),
        (".", ""),
        ("/a::/b", "/a:/b"),
        ("lib:/a:./x:../y", "/a"),
        ("{here}:/a", "/a"),
        ("/a/../b", "/a/../b"),
    ],
)
def test_a_path_keeps_its_absolute_entries(
    tmp_path: Path, given: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = safe_path.environment({"PYTHONPATH": given.format(here=tmp_path), "HOME": "/root"})
    assert found == {"PYTHONPATH": wanted, "HOME": "/root", "PYTHONSAFEPATH": "1"}
    assert "PYTHONPATH" not in safe_path.environment({})


def test_a_current_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert safe_path.environment({"PYTHONPATH": ".:/usr/lib"})["PYTHONPATH"] == "/usr/lib"
