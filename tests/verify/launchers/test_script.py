"""The script: what reaches a shell, who is started how, and that every word of it is quoted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.verify.launchers import files
from tests.verify.launchers.file_runs import settings
from tests.verify.whole_report import document

#: Notes its arguments instead of starting anything.
NOTE = """#!{python}
import json, os, sys
with open(os.environ["NOTES"], "a") as notes:
    print(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]), file=notes)
"""


def script(folder: Path, asked: dict[str, Any], rules: RuleSet, kind: str, **changes: Any) -> Path:
    wished = settings(folder, "nccl")
    files.write(asked, rules, replace(wished, **changes), kind)
    return folder / "run.sh"


def noted(tmp_path: Path, run: Path, *words: str, **extra: str) -> list[list[str]]:
    """Run a script with launchers that only note how they were called; returns their arguments."""
    binaries = tmp_path / "bin"
    binaries.mkdir(exist_ok=True)
    for name in ("srun", "mpirun", "python-of-the-job"):
        (binaries / name).write_text(NOTE.format(python=sys.executable))
        (binaries / name).chmod(0o700)
    notes = tmp_path / "notes"
    notes.write_text("")
    env = {**os.environ, "PATH": f"{binaries}:/usr/bin:/bin", "NOTES": str(notes), **extra}
    done = subprocess.run(["bash", str(run), *words], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in notes.read_text().splitlines()]


def test_srun_gets_nodes_tasks_time_and_the_options_of_the_user(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("rank-divergence", hosts=["a", "b"], world=16)
    run = script(tmp_path / "work", asked, rules, "slurm", python="/opt/py thon")
    one, two = noted(tmp_path, run, "--overlap", "--comment=two words")
    work = str(tmp_path / "work")
    assert one == [
        *("srun", "--nodes=2", "--ntasks=16", "--ntasks-per-node=8", "--kill-on-bad-exit=0", "--time=0:10:00"),
        *("--overlap", "--comment=two words"),
        *("/opt/py thon", f"{work}/worker.pyz", "task", f"{work}/spec-run-01.json", f"{work}/results"),
    ]
    assert two[-2] == f"{work}/spec-run-02.json"


def test_nothing_of_paths_and_names_is_read_by_the_shell(tmp_path: Path, rules: RuleSet) -> None:
    mark = tmp_path / "touched"
    folder = tmp_path / f"$(touch {mark.name}) `touch {mark.name}`'; touch {mark.name}; '"
    hosts = (f"a;touch {mark.name}", "$(touch b)")
    asked = document("network-link-fault", hosts=["x", "y"], env={"NCCL_IB_HCA": f"$(touch {mark})"})
    run = script(folder, asked, rules, "slurm", hosts=hosts, python=f"py$(touch {mark})")
    calls = noted(tmp_path, run)
    assert f"--nodelist={hosts[0]},{hosts[1]}" in calls[0]
    assert f"--nodelist={hosts[0]}" in calls[-1], "inside one host"
    assert calls[0][-1] == f"{folder}/results"
    assert calls[0][-5] == f"py$(touch {mark})"
    assert not mark.exists()
    assert str(mark) not in (folder / "run.sh").read_text().replace(f"py$(touch {mark})", "")
    assert [path.name for path in Path.cwd().glob(mark.name)] == []


def test_mpirun_and_torchrun_are_started_with_the_same_task(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("network-link-fault", hosts=["a", "b"], world=4)
    run = script(tmp_path / "work", asked, rules, "print", python="python-of-the-job")
    mpi = noted(tmp_path, run, "mpirun", "--hostfile", "hosts")
    assert mpi[0][:7] == ["mpirun", "-n", "4", "--map-by", "ppr:2:node", "--hostfile", "hosts"]
    head = {"HEAD": "a:29400", "ATTEMPT": "3"}
    first = noted(tmp_path, run, "torchrun", NODE_RANK="0", **head)
    second = noted(tmp_path, run, "torchrun", NODE_RANK="1", **head)
    assert first[0][1:8] == [
        *("-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d"),
        *("--rdzv-endpoint=a:29400", "--rdzv-id=run-01-3"),
    ]
    assert {call[-5] for call in mpi + first} == {"python-of-the-job"}
    inside = [call for call in first if "--standalone" in call]
    assert len(inside) == 2, "the ranks inside one host are started there alone"
    assert second == [call for call in first if call not in inside]


def test_torchrun_on_several_hosts_asks_where_they_meet(tmp_path: Path, rules: RuleSet) -> None:
    run = script(tmp_path / "work", document("network-link-fault", hosts=["a", "b"]), rules, "print")
    env = {k: v for k, v in os.environ.items() if k not in ("HEAD", "NODE_RANK")}
    done = subprocess.run(["bash", str(run), "torchrun"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "HEAD" in done.stderr


def test_a_run_that_would_begin_after_the_budget_is_left_out(tmp_path: Path, rules: RuleSet) -> None:
    run = script(tmp_path / "work", document("rank-divergence"), rules, "slurm")
    assert noted(tmp_path, run, NCCL_TRIAGE_BUDGET="0") == []


@pytest.mark.parametrize(
    ("given", "world", "hosts", "shape"),
    [
        ({}, None, [], (1, 4, 4)),
        ({}, 512, [], (64, 512, 8)),
        ({}, 512, ["a", "b"], (64, 512, 8)),
        ({"ranks_per_host": 4}, 16, [], (4, 16, 4)),
        ({"ranks_per_host": 4}, None, ["a", "b"], (1, 4, 4)),
        ({"hosts": ("a", "b")}, None, [], (2, 2, 1)),
        ({"hosts": ("a", "b"), "ranks_per_host": 2}, 512, [], (2, 4, 2)),
        ({}, 3, ["a", "b"], (2, 3, 2)),
    ],
)
def test_hosts_and_ranks_follow_the_log_and_the_options(
    tmp_path: Path, rules: RuleSet, given: Any, world: int | None, hosts: list[str], shape: tuple[int, int, int]
) -> None:
    asked = document("rank-divergence", hosts=hosts)
    asked["job"]["world_size"] = world
    text = script(tmp_path / "work", asked, rules, "slurm", **given).read_text()
    nodes, tasks, each = shape
    assert f"srun --nodes={nodes} --ntasks={tasks} --ntasks-per-node={each} " in text


def test_two_suspects_share_the_runs_that_are_alike(tmp_path: Path, rules: RuleSet) -> None:
    script(tmp_path / "work", document("rank-divergence", "sharded-generate"), rules, "slurm")
    plan = json.loads((tmp_path / "work" / "plan.json").read_text())
    one, two = plan["experiments"]
    assert one["control"] == two["control"] == plan["runs"] == ["run-01", "run-02"]


def test_a_treatment_differs_from_its_control_in_one_thing(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("nccl-env-misconfig", env={"NCCL_ALGO": "Nonsense", "NCCL_SOCKET_IFNAME": "eth0"})
    script(tmp_path / "work", asked, rules, "slurm")
    plan = json.loads((tmp_path / "work" / "plan.json").read_text())["experiments"][0]
    assert [item["variable"] for item in plan["treatments"]] == ["variables"]
    names = [plan["control"][0], plan["treatments"][0]["runs"][0]]
    control, treated = (json.loads((tmp_path / "work" / f"spec-{name}.json").read_text()) for name in names)
    assert {key for key in control if control[key] != treated[key]} == {"label", "changed", "env"}
    assert (control["env"], treated["env"]) == (
        {"NCCL_ALGO": "Nonsense", "NCCL_SOCKET_IFNAME": "eth0"},
        {"NCCL_SOCKET_IFNAME": "eth0"},
    )
