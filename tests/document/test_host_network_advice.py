"""The first advice on hosts and networks is for this incident: its scheduler, its message, its names."""

from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

HOG = (
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB "
    "of which 1.25 GiB is free. {other}Including non-PyTorch memory, this process has 19.70 GiB memory in use. Of the allocated "
    "memory 18.25 GiB is allocated by PyTorch, and {unused} is reserved by PyTorch but unallocated.\n"
)
ANOTHER = "Process 4121 has 58.20 GiB memory in use. "
ITSELF = (
    "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 336.00 MiB. GPU 0 has a total capacity of 79.15 GiB "
    "of which 141.25 MiB is free. Process 18074 has 78.99 GiB memory in use. Of the allocated memory 77.21 GiB is allocated by "
    "PyTorch, and 283.51 MiB is reserved by PyTorch but unallocated.\n"
)
STEPS = "".join(f"[rank0]: epoch 0 step {n} loss 2.31\n[rank1]: epoch 0 step {n} loss 2.31\n" for n in (100, 101, 102))
FAILED = "E1123 10:22:31.418000 40112 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {code}) local_rank: 1 (pid: 40233) of binary: /opt/conda/bin/python3.10\n"
CANCELLED = "slurmstepd: error: *** STEP 4711.0 ON node001 CANCELLED AT 2025-06-03T18:00:00 {why}***\n"
CTRL_C = (
    "W1123 10:22:31.018000 40112 torch/distributed/elastic/agent/server/api.py:704] Received 2 death signal, shutting down workers\n"
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 40112 got signal: 2\n"
)
EXITED = "srun: error: gpu-b: task 1: Exited with exit code 1\n"
LISTEN = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
    "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"
)


def advice(text: str, rules: RuleSet) -> tuple[str, str, dict[str, Any]]:
    """Return the cause, everything that its first fix says, and the whole diagnosis."""
    found = diagnose_text(text, rules).to_dict()["diagnoses"][0]
    first = found["fixes"][0]
    return found["cause"], "\n".join([first["title"], *first["commands"], *map(str, first["env"])]), found


def everything(found: dict[str, Any]) -> str:
    """Return all commands and titles of a diagnosis."""
    fixes = [
        part for fix in found["fixes"] for part in (fix["title"], *fix["commands"], *fix["env"], fix["caution"] or "")
    ]
    steps = [step["command"] or "" for step in found["stages"]]
    return "\n".join([*fixes, *steps, found["next_check"]["command"] or ""])


@pytest.mark.parametrize(
    ("text", "cause", "first"),
    [
        (HOG.format(other=ANOTHER, unused="1.10 GiB"), "gpu-out-of-memory", "ps -o pid,user,lstart,args -p 4121"),
        (HOG.format(other="", unused="3.10 GiB"), "gpu-out-of-memory", "PYTORCH_CUDA_ALLOC_CONF"),
        (HOG.format(other="", unused="1.10 GiB"), "gpu-out-of-memory", "Lower the peak of one step"),
        (ITSELF, "gpu-out-of-memory", "Lower the peak of one step"),
        (CANCELLED.format(why="DUE TO TIME LIMIT "), "job-preempted", "sacct -X -j 4711"),
        (CANCELLED.format(why="DUE TO PREEMPTION "), "job-preempted", "requeues"),
        ("Job exceeded its walltime limit. Job was aborted\n", "job-preempted", "qstat -xf JOBID"),
        (CTRL_C, "job-preempted", "it was interrupted by hand"),
        (STEPS + FAILED.format(code="-9"), "process-crashed", "Find out who sent SIGKILL"),
        (STEPS + FAILED.format(code="-11"), "process-crashed", "PYTHONFAULTHANDLER"),
        (STEPS + FAILED.format(code="-4"), "process-crashed", "Install a build for this processor"),
        (LISTEN, "port-in-use", "ss -ltnp sport = :29500"),
        (CTRL_C.replace("2 death", "15 death") + LISTEN + EXITED, "port-in-use", "once a node"),
        (
            'SafetensorError: Error while serializing: IoError(Os { code: 122, message: "Disk quota exceeded" })\n',
            "storage-fault",
            "the quota is used up",
        ),
        ("OSError: [Errno 28] No space left on device: '/ckpt/step 1/a.pt'\n", "storage-fault", "df -h $(dirname '/ckpt/step 1/a.pt')"),
        (
            "node1:120:388 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to ib7\n"
            "node1:120:388 [0] NCCL WARN Bootstrap : no socket interface found\n",
            "network-wrong-interface",
            "Correct NCCL_SOCKET_IFNAME=ib7",
        ),
        (
            "E rank0 [c10d] The client socket has timed out after 25000ms while trying to connect to (10.0.0.1, 29555).\n",
            "rendezvous-failed",
            "nc -vz -w 3 10.0.0.1 29555",
        ),
    ],
)  # fmt: skip
def test_the_first_advice_is_for_this_incident(text: str, cause: str, first: str, rules: RuleSet) -> None:
    found, says, _ = advice(text, rules)
    assert found == cause
    assert first in says


def test_the_headline_names_who_holds_the_gpu(rules: RuleSet) -> None:
    assert "pid 4121" in diagnose_text(HOG.format(other=ANOTHER, unused="1.10 GiB"), rules).to_dict()["headline"]
    assert "18074" not in diagnose_text(ITSELF, rules).to_dict()["headline"]


@pytest.mark.parametrize(
    ("text", "never"),
    [
        (HOG.format(other="", unused="1.10 GiB"), ["expandable_segments", "ps -o"]),
        (ITSELF, ["18074"]),
        (CTRL_C, ["sacct", "--time", "more time"]),
        (CANCELLED.format(why=""), ["--time=", "more time"]),
        ("Job exceeded its walltime limit. Job was aborted\n", ["sacct", "SBATCH", "bjobs", "kubectl"]),
        (CTRL_C.replace("2 death", "15 death") + LISTEN, ["srun", "SLURM"]),
        (STEPS + FAILED.format(code="-9"), ["FAULTHANDLER", "coredumpctl", "--exclude"]),
        (STEPS + FAILED.format(code="-11"), ["oom-kill"]),
    ],
)
def test_nothing_is_advised_that_does_not_fit(text: str, never: list[str], rules: RuleSet) -> None:
    _, _, found = advice(text, rules)
    assert [word for word in never if word in everything(found)] == []


def test_an_adapter_is_excluded_by_its_exact_name(rules: RuleSet) -> None:
    text = STEPS + (
        "gpu07:4120:4388 [2] transport/net_ib.cc:1042 NCCL WARN NET/IB : Got completion from peer 10.12.0.47<51326> with "
        "status=12 opcode=0 len=0 vendor err 129 (Recv) localGid ::ffff:10.12.0.7 remoteGids::ffff:10.12.0.47 hca mlx5_1\n"
    )
    cause, _, found = advice(text, rules)
    assert cause == "network-ib-link-fault"
    assert "export NCCL_IB_HCA=^=mlx5_1" in everything(found)


@pytest.mark.parametrize(
    ("host", "suffix", "command"),
    [
        ("gpu-b", EXITED, "sbatch --exclude=gpu-b job.sh"),
        ("10.8.0.15", EXITED, None),
        ("gpu-b", "", None),
    ],
)
def test_a_host_is_excluded_only_by_its_name_and_only_in_slurm(
    host: str, suffix: str, command: str | None, rules: RuleSet
) -> None:
    text = (
        "gpu-a:4120:4388 [0] NCCL INFO comm 0x55aa01 rank 0 nranks 2 cudaDev 0 busId ab000 - Init COMPLETE\n"
        "gpu-b:4121:4389 [0] NCCL INFO comm 0x55aa01 rank 1 nranks 2 cudaDev 0 busId ab000 - Init COMPLETE\n"
        "gpu-b:4121:4389 [0] transport/net_ib.cc:90 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error\n"
    ).replace("gpu-b", host) + suffix
    cause, _, found = advice(text, rules)
    assert cause == "network-ib-link-fault"
    commands = [step["command"] for step in found["stages"] if "suspect host" in step["what"]]
    assert [one for one in commands if one and "exclude" in one] == ([command] if command else [])


@pytest.mark.parametrize(
    ("held", "size", "own", "blamed"),
    [
        ("58.20 GiB", "2.00 GiB", "", True),
        ("414.00 MiB", "2.00 GiB", "", False),  # less than was missing
        ("1.13 GiB", "80.00 GiB", "", False),  # more than the GPU has
        ("58.20 GiB", "2.00 GiB", "[rank1] pid=4121 starts on gpu-a\n", True),  # nobody says that this is its pid
        (
            "58.20 GiB",
            "2.00 GiB",
            "gpu-a:4121:4121 [0] NCCL INFO comm 0x55 rank 0 nranks 2 cudaDev 0 - Init COMPLETE\n",
            False,
        ),
    ],
)
def test_another_process_is_blamed_only_if_it_can_be_at_fault(
    rules: RuleSet, held: str, size: str, own: str, blamed: bool
) -> None:
    text = own + HOG.format(other=ANOTHER.replace("58.20 GiB", held), unused="3.10 MiB").replace("2.00 GiB", size)
    cause, first, _ = advice(text, rules)
    assert cause == "gpu-out-of-memory"
    assert ("4121" in first) is blamed, first
    assert ("pid 4121" in diagnose_text(text, rules).to_dict()["headline"]) is blamed
