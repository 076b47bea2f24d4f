"""Which processes of a host are ranks, and of which job, by what launchers of every kind leave in /proc."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from nccl_triage.hang.processes import KEPT, HostProcess, ended, jobs, of_pids, own_processes, shown_variables
from tests.hang.hanging import alive, children, running, wait_for

TORCHRUN = {"MASTER_ADDR": "gn01", "MASTER_PORT": "29500", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}


def table(*rows: tuple[int, int, str, dict[str, str]]) -> dict[int, HostProcess]:
    """Return processes: pid, parent, command, variables."""
    found = {}
    for pid, parent, command, variables in rows:
        words = command.split()
        name = words[0].rpartition("/")[2]
        python = name.startswith(("python", "ray::"))
        found[pid] = HostProcess(pid, parent, pid, name[:15], words, variables, python)
    return found


def shown(processes: dict[int, HostProcess]) -> dict[str, dict[int | None, int]]:
    """Return the pid of each rank, by job."""
    return {job: {one.rank: one.process.pid for one in ranks} for job, ranks in jobs(processes).items()}


def torchrun(*ranks: int) -> dict[int, HostProcess]:
    """Return torchrun under srun with ranks, each with a data loader worker."""
    slurm = {"SLURM_JOB_ID": "77", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
    rows = [(10, 1, "bash run.sh", slurm), (11, 10, "/env/bin/python /env/bin/torchrun train.py", slurm)]
    for local, rank in enumerate(ranks):
        own = {**slurm, **TORCHRUN, "RANK": str(rank), "LOCAL_RANK": str(local)}
        rows += [
            (100 + rank, 11, "/env/bin/python train.py", own),
            (200 + rank, 100 + rank, "/env/bin/python train.py", own),
        ]
    return table(*rows)


def test_ranks_of_torchrun_are_neither_their_launcher_nor_their_workers() -> None:
    processes = torchrun(2, 3)
    assert shown(processes) == {"gn01:29500": {2: 102, 3: 103}}
    [ranks] = jobs(processes).values()
    assert [(one.local, one.world, one.here) for one in ranks] == [(0, 4, 2), (1, 4, 2)]
    assert [[worker.pid for worker in one.workers] for one in ranks] == [[202], [203]]


def test_tasks_of_slurm_are_ranks_where_nothing_else_numbers_them() -> None:
    own = {"SLURM_JOB_ID": "77", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"}
    processes = table((10, 1, "bash -c train", own), (11, 10, "python train.py", own), (12, 11, "python train.py", own))
    assert shown(processes) == {"Slurm job 77": {5: 11}}


def test_the_batch_script_and_other_steps_are_other_jobs() -> None:
    job = {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}
    step = {**job, "SLURM_STEP_ID": "0", "SLURM_GTIDS": "1,3"}
    processes = table(
        (10, 1, "python monitor.py", {**job, "SLURM_PROCID": "0", "SLURM_GTIDS": "0"}),
        (11, 1, "python train.py", {**step, "SLURM_PROCID": "1"}),
        (12, 1, "python train.py", {**step, "SLURM_PROCID": "3", "SLURM_LOCALID": "1"}),
        (13, 1, "python", {**step, "SLURM_STEP_ID": "7", "SLURM_PROCID": "0"}),
    )
    assert shown(processes) == {"Slurm job 77": {0: 10}, "Slurm job 77.0": {1: 11, 3: 12}, "Slurm job 77.7": {0: 13}}
    found = jobs(processes)
    assert [(one.world, one.beside) for one in found["Slurm job 77.0"]] == [(4, [1, 3])] * 2
    assert found["Slurm job 77"][0].world is None, "how many tasks its steps will have says nothing of it"


def test_programs_that_are_no_python_are_ranks_of_mpi() -> None:
    mpi = {"OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "prte-9@1"}
    first = {**mpi, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    second = {**mpi, "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    processes = table(
        (10, 1, "mpirun all_reduce_perf", {}),
        (11, 10, "bash wrap.sh", first),
        (12, 11, "all_reduce_perf", first),
        (13, 10, "all_reduce_perf", second),
    )
    assert shown(processes) == {"MPI job prte-9@1": {0: 12, 1: 13}}


def test_in_a_pod_only_what_torchrun_started_is_a_rank() -> None:
    """Kubeflow gives every process of a pod the RANK of the pod."""
    pod = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}
    processes = table(
        (1, 0, "python -m torch.distributed.run train.py", pod),
        (20, 1, "python train.py", {**pod, "RANK": "8", "LOCAL_RANK": "0", "WORLD_SIZE": "16"}),
        (30, 0, "bash", pod),
        (31, 30, "python -m http.server", pod),
    )
    assert shown(processes) == {"job-master-0:23456": {8: 20}}


def test_workers_of_ray_belong_to_the_session_of_their_raylet() -> None:
    ray = {"RAY_JOB_ID": "ffffffff"}
    processes = table(
        (5, 1, "raylet --session-name=session_a", {}),
        (6, 5, "ray::DashboardAgent", {}),
        (7, 5, "ray::IDLE", ray),
        (8, 5, "ray::Trainer.fit", ray),
        (9, 8, "ray::Trainer.fit", ray),
        (10, 5, "ray::Trainer.fit", {"RAY_JOB_ID": "01000000"}),
        (11, 5, "ray::Prober.look", ray),
    )
    found = jobs(processes)
    assert {job: [one.process.pid for one in ranks] for job, ranks in found.items()} == {"Ray session_a": [8, 10]}
    assert [[worker.pid for worker in one.workers] for one in found["Ray session_a"]] == [[9], []]


def test_workers_of_ray_that_direct_the_others_are_no_ranks() -> None:
    ray = {"RAY_JOB_ID": "01000000"}
    processes = table(
        (5, 1, "raylet --session-name=session_a", {}),
        (6, 5, "ray::TrainController.run", ray),
        (7, 5, "ray::RayTrainWorker.execute", {**ray, "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}),
        (8, 5, "ray::RayTrainWorker.execute", {**ray, "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}),
    )
    assert shown(processes) == {"Ray session_a": {0: 8, 1: 7}}


def test_any_process_of_a_job_leads_to_it() -> None:
    other = {"MASTER_ADDR": "gn01", "MASTER_PORT": "29999", "RANK": "0", "LOCAL_RANK": "0"}
    processes = {**torchrun(0, 1), **table((300, 1, "python other.py", other))}
    assert len(jobs(processes)) == 2
    for pid in (10, 11, 101, 201):
        assert [one.process.pid for one in of_pids(processes, [pid])["gn01:29500"]] == [100, 101]
    assert of_pids(processes, [4711]) == {}


def test_a_parent_of_multiprocessing_is_taken_with_its_children() -> None:
    processes = table((10, 1, "python train.py", {}), (11, 10, "python -c spawn_main", {}), (12, 10, "sh -c x", {}))
    assert jobs(processes) == {}
    assert {job: [one.process.pid for one in ranks] for job, ranks in of_pids(processes, [10]).items()} == {
        "pid 10": [10, 11]
    }


def test_only_variables_of_the_list_are_kept() -> None:
    names = ["NCCL_DEBUG", "RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCH_NCCL_BLOCKING_WAIT", "MASTER_PORT"]
    assert all(KEPT.fullmatch(name) for name in names)
    assert not any(
        KEPT.fullmatch(name) for name in ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "PATH", "MY_RANK", "RANK_KEY")
    )
    [process] = table((1, 0, "python x.py", {"HOME": "/home/amy", "NCCL_DEBUG": "INFO"})).values()
    assert shown_variables(process) == {"NCCL_DEBUG": "INFO"}


#: A launcher that waits for its rank 0 before it asks how the others ended.
LAUNCHER = """
import os, subprocess, sys
ends = sys.argv[1:]
ranks = [
    subprocess.Popen([sys.executable, "-S", "-c", code], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(len(ends))})
    for rank, end in enumerate(ends)
    for code in [f"import os, time; open('ready.{rank}', 'w').close(); {end}"]
]
for one in ranks:
    one.wait()
"""
LIVES = "time.sleep(600)"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_how_ranks_ended_is_known_until_their_parent_asks(tmp_path: Path) -> None:
    ends = [LIVES, "os._exit(0)", LIVES, "os._exit(3)", "os.kill(os.getpid(), 9)"]
    environment = {**os.environ, "MASTER_ADDR": "here", "MASTER_PORT": "1"}
    with running([sys.executable, "-S", "-c", LAUNCHER, *ends], tmp_path, environment) as launcher:
        wait_for(lambda: len(list(tmp_path.glob("ready.*"))) == len(ends), "all began")
        wait_for(lambda: sum(map(alive, children(launcher.pid))) == 2, "three ended")
        every = own_processes()
        [ranks] = of_pids(every, [launcher.pid]).values()
        assert [one.rank for one in ranks] == [0, 2]
        assert ended(ranks, every) == {1: 0, 3: 3, 4: -9}
        ranks[0].rank = 5  # in another order than that in which they were started
        assert ended(ranks, every) == {}


def test_an_agent_that_would_end_the_job_tells_that_who_is_missing_ended_well(tmp_path: Path) -> None:
    processes = torchrun(2, 3)
    del processes[103]
    [ranks] = jobs(processes).values()
    assert ended(ranks, processes, tmp_path) == {}, "srun lets the others wait"
    for one in ranks:
        one.process.variables["TORCHELASTIC_RUN_ID"] = "none"
    assert ended(ranks, processes, tmp_path) == {3: 0}
    del processes[11]
    assert ended(ranks, processes, tmp_path) == {}, "the agent has died, too"
