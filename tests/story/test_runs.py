"""Several runs in one input: which one the verdict is about."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

GOOD = "".join(f"step {n}/5 loss 2.{n}\n" for n in range(1, 6)) + "Training completed.\n"
OOM = "step 1/5 loss 2.1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
PORT = "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"  # fmt: skip
BOUNDARIES = [
    "nohup: ignoring input\n",
    "+ torchrun --nproc_per_node=2 train.py\n",
    "+ srun --ntasks=8 python train.py\n",
    "user@gpu-17:~/exp$ CUDA_VISIBLE_DEVICES=0 python3 train.py\n",
    "Sender: LSF System <lsfadmin@node12>\n",
    "STARTING TIMING RUN AT 2025-09-29 03:10:42 PM\n",
]


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_the_last_run_decides(boundary: str, rules: RuleSet) -> None:
    healthy = diagnose_text(OOM + boundary + GOOD, rules)
    assert (healthy.verdict, len(healthy.case.story.runs)) == ("healthy", 2)
    failed = diagnose_text(GOOD + boundary + OOM, rules)
    assert (failed.cause, failed.candidates[0].weighed.for_items[0].events[0].line) == ("gpu-out-of-memory", 9)
    later = diagnose_text(OOM + boundary + PORT, rules)
    assert later.cause == "port-in-use"


def test_a_run_that_only_began_leaves_the_verdict_to_the_one_before(rules: RuleSet) -> None:
    assert diagnose_text(OOM + "nohup: ignoring input\n", rules).cause == "gpu-out-of-memory"


def test_twelve_runs_in_one_file(rules: RuleSet) -> None:
    text = "".join("nohup: ignoring input\n" + OOM for _ in range(11)) + "nohup: ignoring input\n" + GOOD
    assert diagnose_text(text, rules).verdict == "healthy"


@pytest.mark.parametrize(
    "line",
    [
        "+ nvidia-smi\n",
        "user@gpu-17:~/exp$ dmesg | tail\n",
        "Error: failed to run torchrun --nproc_per_node=4 --nnodes=1 --node_rank=0 train.py on 127.0.0.1, is localhost: True, exception: Encountered a bad command exit code!\n",
    ],
)
def test_what_starts_no_job_joins(line: str, rules: RuleSet) -> None:
    found = diagnose_text(OOM + line, rules)
    assert (found.cause, len(found.case.story.runs)) == ("gpu-out-of-memory", 1)


def test_launchers_of_several_hosts_start_one_run(rules: RuleSet) -> None:
    launch = "n{n}: [2025-06-03 14:00:01,000] [INFO] [launch.py:146:main] WORLD INFO DICT: {{'n1': [0], 'n2': [0]}}\n"
    step = "n1: step 1/5 loss 2.1\n"
    found = diagnose_text(launch.format(n=1) * 2 + step + launch.format(n=2) * 2 + step, rules)
    assert len(found.case.story.runs) == 1
