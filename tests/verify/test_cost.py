"""What planning and a session may cost, in things that can be counted: no clock is read here (see bench_verify.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from nccl_triage.hosts.links import HostPlace
from nccl_triage.hosts.processes import ProcessLauncher
from nccl_triage.verify import runner
from nccl_triage.verify.cluster import Cluster, worker
from nccl_triage.verify.collective_run import CollectiveMessage, CollectiveRun, Deadlines, Slot

SOURCE = Path(runner.__file__).parents[2]
HEAVY = {"torch", "numpy", "ray", "sklearn", "scipy", "pandas", "pynvml"}
LOG = (
    "node-a:101:101 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n"
    "[rank0]:[E302 10:30:00.000000000 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=7, OpType=ALLGATHER, NumelIn=1024, NumelOut=8192, Timeout(ms)=600000) ran for 600050 milliseconds "
    "before timing out.\n"
)
#: Notes the process that looks for torch, on PYTHONPATH of everything that is started.
SPY = """
import os, sys
class Spy:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            with open(os.environ["SPY_OUT"], "a") as out:
                out.write(f"{os.getpid()}\\n")
        return None
sys.meta_path.insert(0, Spy())
"""


def fresh(code: str) -> set[str]:
    """Return the packages that a fresh interpreter has imported after some code."""
    program = (
        f"import sys\nsys.path.insert(0, {str(SOURCE)!r})\n{code}\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return {name.split(".")[0] for name in done.stderr.split()}


def test_a_plan_imports_nothing_heavy(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(LOG)
    code = (
        "from nccl_triage.api import diagnose\n"
        "from nccl_triage.engine import load\n"
        "from nccl_triage.verify import api\nfrom nccl_triage.verify.record import plan_record\n"
        "rules = load.load()\n"
        f"document = diagnose([{str(log)!r}], rules=rules, model=None).to_dict()\n"
        "made = api.plan_of(document, rules, api.Settings())\n"
        "assert made.experiments and plan_record(made)"
    )
    assert not fresh(code) & HEAVY


def test_the_command_shows_its_plan_without_anything_heavy(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(LOG)
    code = (
        "from nccl_triage.cli import main\n"
        f"try:\n    main(['verify', {str(log)!r}, '--dry-run', '--format', 'json'])\nexcept SystemExit as end:\n    assert not end.code"
    )
    assert not fresh(code) & HEAVY


@pytest.mark.parametrize(
    "module",
    [
        *(f"verify.{name}" for name in ("runner", "cluster", "conduct", "judge", "feedback", "record")),
        "hosts.processes",
    ],
)
def test_the_controller_imports_nothing_heavy(module: str) -> None:
    """It has torch beside it, not in it: a crash of torch must not be one of the verifier."""
    assert not fresh(f"import nccl_triage.{module}") & HEAVY


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(LOG)
    for name in ("tmp", "home"):
        (tmp_path / name).mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(SOURCE),
        "TMPDIR": str(tmp_path / "tmp"),
        "HOME": str(tmp_path / "home"),
    }
    command = [
        sys.executable,
        "-m",
        "nccl_triage",
        "verify",
        str(log),
        "--dry-run",
        "--format",
        "json",
        "--workdir",
        str(tmp_path / "w"),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert json.loads(done.stdout)["experiments"]
    assert list((tmp_path / "tmp").iterdir()) == [] and not (tmp_path / "w").exists()


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_four_ranks_share_one_import_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "sitecustomize.py").write_text(SPY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    monkeypatch.setenv("SPY_OUT", str(tmp_path / "seen"))
    with Cluster(ProcessLauncher([HostPlace("here", slots=4)], worker())) as cluster:
        cluster.greet(20.0)
        assert not (tmp_path / "seen").exists(), "facts need no torch"
        importing = cluster.ask("preload", [0], 120.0)[0]["seconds"]
        for number in range(3):
            slots = tuple(Slot(rank, 0) for rank in range(4))
            run = CollectiveRun(f"run-{number}", slots, CollectiveMessage(numel=64), env={"GLOO_SOCKET_IFNAME": "lo"})
            result = runner.execute(cluster, run, tmp_path / run.label, Deadlines())
            assert result.passed
            for trace in result.ranks.values():
                assert trace.times["imported"] - trace.times["start"] < importing / 2, "nothing was left to import"
        agent = cluster._listener.links[0]._process.pid  # type: ignore[attr-defined]
    assert (tmp_path / "seen").read_text().split() == [str(agent)]
