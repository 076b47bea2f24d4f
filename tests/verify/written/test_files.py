"""Experiments by files, from the report to the verdict: real ranks on Gloo, started by a stand-in for srun and by torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import UsageError
from nccl_triage.verify.written import files
from tests.verify.whole_report import document
from tests.verify.written.file_runs import settings, srun

ROOT = Path(__file__).parents[3]
HERE = os.uname().nodename
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


def environment(**extra: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "GLOO_", "SLURM_", "OMPI_", "PMI"))}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        kept.pop(name, None)
    return {**kept, "PYTHONPATH": str(ROOT / "analyzer"), "LC_ALL": "C.UTF-8", **extra}


def start(folder: Path, *words: str, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(folder / "run.sh"), *words],
        env=environment(**extra),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def triage(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nccl_triage", *map(str, words)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def records(folder: Path, label: str, rank: int) -> list[dict[str, Any]]:
    lines = (folder / "results" / label / f"rank-{rank}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def alive(pid: int, folder: Path) -> bool:
    """Tell whether a rank of the folder's runs still exists under this number."""
    try:
        return os.fsencode(folder) in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@needs_torch
def test_from_a_report_to_its_verdict_with_a_hostile_environment(tmp_path: Path) -> None:
    mark = tmp_path / "touched"
    hostile = {
        "NCCL_IB_HCA": "mlx5_0; touch touched | cat",
        "NCCL_NET": f"$(touch {mark})",
        "NCCL_ALGO": f"'; touch {mark}; echo '",
        "NCCL_PROTO": f"x\ntouch {mark}\n",
        "NCCL_IB_TC": f'"`touch {mark}`"',
    }
    report, folder = tmp_path / "report.json", tmp_path / "a folder; with $(words)"
    report.write_text(json.dumps(document("rank-divergence", hosts=[HERE], env=hostile)))
    said = triage("verify", report, "--launcher", "slurm", "--workdir", folder, "--backend", "gloo", "--trust-env")
    assert said.returncode == 0, said.stderr
    assert "not set as in the log: NCCL_PROTO." in said.stdout
    assert "without the anomalous rank or host" in said.stdout, "what cannot be covered must be said"

    ran = start(folder, PATH=srun(tmp_path / "bin"))
    assert ran.returncode == 0, ran.stderr
    env = next(record for record in records(folder, "run-01", 1) if record["stage"] == "env")["env"]
    assert {name: env[name] for name in hostile if name in env} == {
        name: value for name, value in hostile.items() if name != "NCCL_PROTO"
    }, "the rank gets the values as they are"
    assert not mark.exists()

    judged = triage("verify", "--collect", folder, "--format", "json")
    assert judged.returncode == 0, judged.stderr
    verification = json.loads(judged.stdout)["diagnoses"][0]["verification"]
    assert (verification["outcome"], verification["decided_by"]) == ("inconclusive", "variables-left-out")
    assert verification["differs"][-1] == "not set as in the log: NCCL_PROTO"
    assert [run["outcome"] for run in verification["runs"]] == ["passed", "passed"]
    assert [run["hosts"] for run in verification["runs"]] == [[HERE], [HERE]]


@needs_torch
def test_two_nodes_meet_through_the_folder(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("network-wrong-interface", hosts=[HERE, "node-b"])
    files.write(asked, rules, settings(tmp_path / "work"), "slurm")
    assert "--nodes=2 --ntasks=2 --ntasks-per-node=1" in (tmp_path / "work" / "run.sh").read_text()
    ran = start(tmp_path / "work", PATH=srun(tmp_path / "bin"), NCCL_TRIAGE_BUDGET="1")
    assert ran.returncode == 0, ran.stderr
    _, report = files.judge(asked, rules, tmp_path / "work")
    assert [trial.result.outcome for trial in report.trials] == ["passed"]
    told = [text["en"] for text in report.outcomes[0].planned.differs]
    assert "1 hosts instead of 2" in told, "both nodes of the stand-in are this host"
    assert report.outcomes[0].row.outcome == "inconclusive"
    assert not (tmp_path / "work" / "results" / "run-01" / "store.json").exists()


@needs_torch
def test_a_rank_that_is_killed_is_named(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("process-crashed", hosts=[HERE])
    faults = {"1": {"name": "sigkill"}}
    files.write(asked, rules, settings(tmp_path / "work", patience=0.2), "slurm", faults=faults)
    ran = start(tmp_path / "work", PATH=srun(tmp_path / "bin"))
    assert "exit code" not in ran.stderr, "a rank that fails must not look like a launcher that fails"
    changed, report = files.judge(asked, rules, tmp_path / "work")
    outcome = report.outcomes[0]
    assert [(f.cause, f.kind, f.ranks, f.hosts) for f in outcome.findings] == [
        ("process-crashed", "killed", (1,), (HERE,))
    ]
    assert (outcome.row.outcome, outcome.row.id) == ("supported", "fails-as-diagnosed")
    verification = changed["diagnoses"][0]["verification"]
    assert {error["exit_code"] for run in verification["runs"] for error in run["errors"]} == {-9, 3}
    assert any(symptom["path"] == "rank-0.log" for run in verification["runs"] for symptom in run["symptoms"])


@needs_torch
def test_a_rank_that_hangs_is_stopped_at_its_deadline(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("rank-divergence", hosts=[HERE])
    faults = {"1": {"name": "sigstop"}}
    work = tmp_path / "work"
    files.write(asked, rules, settings(work, patience=0.1), "slurm", faults=faults)
    ran = start(work, PATH=srun(tmp_path / "bin"), NCCL_TRIAGE_BUDGET="1")
    assert "run-02 is skipped: the budget of 1 s is used up" in ran.stderr
    end = records(work, "run-01", 1)[-1]
    assert (end["stage"], end["killed"], end["state"]) == ("exit", True, "T")
    assert end["why"] == "deadline before 'entered': 2 s"
    pids = [record["pid"] for rank in (0, 1) for record in records(work, "run-01", rank) if record["stage"] == "start"]
    assert len(pids) == 2
    assert not any(alive(pid, work) for pid in pids)
    _, report = files.judge(asked, rules, work)
    assert [(f.kind, f.ranks) for f in report.outcomes[0].findings] == [("stopped", (1,))]
    assert report.outcomes[0].row.outcome == "inconclusive", "one run proves nothing"


@needs_torch
@pytest.mark.parametrize(
    ("fault", "outcome"), [({"name": "imports-late", "seconds": 3.0}, "passed"), ({"name": "cannot-import"}, "not-run")]
)
def test_ranks_meet_when_all_have_imported_torch(
    tmp_path: Path, rules: RuleSet, fault: dict[str, Any], outcome: str
) -> None:
    """A store of one second would not wait for three; and for a rank without torch nobody waits."""
    asked = document("rank-divergence", hosts=[HERE])
    work = tmp_path / "work"
    files.write(asked, rules, settings(work, patience=0.15), "slurm", faults={"1": fault})
    start(work, PATH=srun(tmp_path / "bin"), NCCL_TRIAGE_BUDGET="1")
    _, report = files.judge(asked, rules, work)
    (trial,) = report.trials
    assert trial.result.outcome == outcome, trial.result
    assert trial.finding is None
    own = trial.result.own_failure
    assert (own is None) == (outcome == "passed")
    if own is not None:
        assert own["en"] == "rank 1 could not run: ModuleNotFoundError: No module named 'torch'"
        assert records(work, "run-01", 0)[-1]["why"] == "rank 1 ended before it was ready"
    left = {path.name for path in (work / "results" / "run-01").iterdir()}
    assert "store.json" not in left and not any(name.startswith(".") for name in left)


@needs_torch
def test_torchrun_starts_the_ranks(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("rank-divergence", hosts=[HERE])
    text = files.write(asked, rules, settings(tmp_path / "work"), "print")
    command = next(line.split() for line in text.splitlines() if line.endswith(" torchrun"))
    assert command == ["bash", str(tmp_path / "work" / "run.sh"), "torchrun"]
    ran = start(tmp_path / "work", "torchrun", NCCL_TRIAGE_BUDGET="1")
    _, report = files.judge(asked, rules, tmp_path / "work")
    assert [(trial.result.run.label, trial.result.outcome) for trial in report.trials] == [("run-01", "passed")], (
        ran.stderr
    )
    assert sorted(report.trials[0].result.ranks) == [0, 1]


def test_the_print_launcher_wants_to_know_by_what(tmp_path: Path, rules: RuleSet) -> None:
    files.write(document("rank-divergence"), rules, settings(tmp_path / "work"), "print")
    ran = start(tmp_path / "work")
    assert ran.returncode == 2
    assert "srun|torchrun|mpirun" in ran.stderr


def test_ranks_of_another_number_refuse_to_start(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("rank-divergence")
    files.write(asked, rules, settings(tmp_path / "work"), "slurm")
    script = tmp_path / "work" / "run.sh"
    script.write_text(script.read_text().replace("--ntasks=2 --ntasks-per-node=2", "--ntasks=3 --ntasks-per-node=3"))
    ran = start(tmp_path / "work", PATH=srun(tmp_path / "bin"))
    assert "this run has 2 ranks, but the launcher says SLURM_PROCID=2 SLURM_NTASKS=3" in ran.stderr
    assert "run-01: the launcher exited with code 2" in ran.stderr
    with pytest.raises(UsageError, match="contains no result"):
        files.judge(asked, rules, tmp_path / "work")


def test_a_folder_without_a_plan_is_said_on_the_command_line(tmp_path: Path) -> None:
    judged = triage("verify", "--collect", tmp_path)
    assert judged.returncode == 2
    assert "--workdir" in judged.stderr
    assert triage("verify").returncode == 2


def test_nothing_to_run_is_said_with_the_reason(tmp_path: Path, rules: RuleSet) -> None:
    with pytest.raises(UsageError) as caught:
        files.write(document("numerical-divergence"), rules, settings(tmp_path / "work"), "slurm")
    assert "diverging model" in (caught.value.cause or "")
    assert not (tmp_path / "work").exists()


def test_a_used_folder_is_left_alone_without_force(tmp_path: Path, rules: RuleSet) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        files.write(document("rank-divergence"), rules, settings(tmp_path), "slurm")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_names_of_a_log_reach_the_terminal_without_control_characters(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("network-link-fault", "rank-divergence", hosts=["evil\x1b[31m"])
    text = files.write(asked, rules, settings(tmp_path / "work"), "slurm")
    assert "evil?[31m" in text
    assert "\x1b" not in text


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
        *("srun", "--nodes=2", "--ntasks=16", "--ntasks-per-node=8", "--kill-on-bad-exit=0", "--time=0:16:00"),
        *("--overlap", "--comment=two words"),
        *("/opt/py thon", f"{work}/worker.pyz", "task", f"{work}/spec-run-01.json", f"{work}/results"),
    ]
    assert two[-2] == f"{work}/spec-run-02.json"


def test_nothing_of_paths_is_read_by_the_shell(tmp_path: Path, rules: RuleSet) -> None:
    mark = tmp_path / "touched"
    folder = tmp_path / f"$(touch {mark.name}) `touch {mark.name}`'; touch {mark.name}; '"
    asked = document("network-link-fault", hosts=["x", "y"], env={"NCCL_IB_HCA": f"a; touch {mark.name}"})
    run = script(folder, asked, rules, "slurm", hosts=("a", "root@b=sh"), python=f"py$(touch {mark})")
    calls = noted(tmp_path, run)
    assert "--nodelist=a,b" in calls[0]
    assert "--nodelist=a" in calls[-1], "inside one host"
    assert calls[0][-1] == f"{folder}/results"
    assert calls[0][-5] == f"py$(touch {mark})"
    assert not mark.exists()
    assert "NCCL_IB_HCA" not in (folder / "run.sh").read_text()
    assert [path.name for path in Path.cwd().glob(mark.name)] == []


@pytest.mark.parametrize(
    "name", ["a;touch x", "$(touch b)", "a,b", "a b", "a\nb", "-w", "--uid=0", "", "a/b", "n[1-4]"]
)
def test_a_node_that_is_no_name_is_refused(tmp_path: Path, rules: RuleSet, name: str) -> None:
    asked = document("network-link-fault", hosts=["x", "y"])
    with pytest.raises(UsageError, match="expected NAME or NAME=COMMAND"):
        files.write(asked, rules, settings(tmp_path / "work", hosts=("a", name)), "slurm")
    assert not (tmp_path / "work").exists()


def test_mpirun_and_torchrun_are_started_with_the_same_task(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("network-link-fault", hosts=["a", "b"], world=4)
    run = script(tmp_path / "work", asked, rules, "print", python="python-of-the-job")
    mpi = noted(tmp_path, run, "mpirun", "--hostfile", "hosts")
    assert mpi[0][:7] == ["mpirun", "-n", "4", "--map-by", "ppr:2:node", "--hostfile", "hosts"]
    head = {"HEAD": "a:29400", "ATTEMPT": "3"}
    first = noted(tmp_path, run, "torchrun", NODE_RANK="0", **head)
    second = noted(tmp_path, run, "torchrun", NODE_RANK="1", **head)
    assert '"torch.distributed.run"' in first[0][2]
    assert [first[0][1], *first[0][3:8]] == [
        *("-c", "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d"),
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


def test_a_log_of_too_many_ranks_gives_a_plan_of_fewer(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("rank-divergence", world=1 << 20)
    text = files.write(asked, rules, settings(tmp_path / "work", "nccl"), "slurm")
    assert "--nodes=512 --ntasks=4096 --ntasks-per-node=8" in (tmp_path / "work" / "run.sh").read_text()
    assert "4096 ranks instead of 1048576" in text


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


def test_a_timeout_of_hours_is_scaled_down(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("timeout-too-short")
    asked["collective"]["timeout_ms"] = 12 * 3_600_000
    script(tmp_path / "work", asked, rules, "slurm")
    plan = json.loads((tmp_path / "work" / "plan.json").read_text())
    specs = [json.loads((tmp_path / "work" / f"spec-{label}.json").read_text()) for label in plan["runs"]]
    assert {round(spec["timeout"], 3) for spec in specs} == {15.0}
    assert all(spec["deadline"] < 900 and spec["limits"]["warm"] < 30.1 for spec in specs)
    assert plan["experiments"][0]["treatments"] == [], "what was no limit cannot be one that was too short"


def test_what_is_said_of_the_time_is_what_the_deadlines_add_up_to(tmp_path: Path, rules: RuleSet) -> None:
    asked = document("rank-divergence", hosts=["a", "b"], world=16)
    text = files.write(asked, rules, settings(tmp_path / "work", "nccl"), "slurm")
    plan = json.loads((tmp_path / "work" / "plan.json").read_text())
    each = [json.loads((tmp_path / "work" / f"spec-{label}.json").read_text())["deadline"] for label in plan["runs"]]
    most = min(sum(each), 300.0 + max(each))
    assert f"together they take {most / 60:.0f} min at most" in text
    assert "budget=${NCCL_TRIAGE_BUDGET:-300}" in (tmp_path / "work" / "run.sh").read_text()


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
