"""Samples that cannot be read, workers that die, losses that are no numbers any more."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from corpus.scenarios.build import bare_ranks, torchrun
from corpus.scenarios.families.resources import DATA
from corpus.scenarios.recorder import Run
from corpus.scenarios.scenario import Action, Culprit, Node, Scenario

JSON = DATA + " --format jsonl"


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


def _signal_worker(rank: int, number: int) -> Callable[[Run], str]:
    """Return an action that sends a signal to a DataLoader worker of a rank."""

    def send(run: Run) -> str:
        worker = _children(run.pid_of_rank(rank))[-1]
        os.kill(worker, number)
        return f"signal {number} to a DataLoader worker of rank {rank}"

    return send


def _bare(world_size: int, *arguments: str, prelude: str) -> tuple[Node, ...]:
    nodes = bare_ranks("pretrain.py", *arguments, world_size=world_size)
    return tuple(Node(n.command, n.host, n.env, prelude, n.delay, n.label) for n in nodes)


PIPELINE = (
    Scenario(
        id="loader_worker_killed_w4",
        cause="data-pipeline-failure",
        family="loader-worker-killed",
        injected="SIGKILL of a DataLoader worker of rank 2",
        nodes=(
            torchrun(
                "pretrain.py", "--workers", "2", "--steps", "30", "--step-time", "0.3", "--timeout", "20", prelude=DATA
            ),
        ),
        world_size=4,
        culprit=Culprit(ranks=(2,)),
        also=("host-out-of-memory", "process-crashed"),
        expect=r"is killed by signal: Killed",
        actions=(Action("step 4/", _signal_worker(2, signal.SIGKILL)),),
    ),
    Scenario(
        id="loader_worker_segfault_w2_plain",
        cause="data-pipeline-failure",
        family="loader-worker-segfault",
        injected="SIGSEGV of a DataLoader worker of rank 0",
        nodes=(
            torchrun(
                "pretrain.py", "--workers", "2", "--steps", "30", "--step-time", "0.3", "--timeout", "20",
                "--log-style", "megatron", nproc=2, tee=False, prelude=DATA,
            ),
        ),
        world_size=2,
        culprit=Culprit(ranks=(0,)),
        also=("process-crashed",),
        expect=r"Segmentation fault",
        actions=(Action("step 4/", _signal_worker(0, signal.SIGSEGV)),),
    ),
    Scenario(
        id="loader_timeout_w2",
        cause="data-pipeline-failure",
        family="loader-timeout",
        injected="a shard of rank 1 whose read never returns (a pipe without a writer); DataLoader(timeout=6)",
        nodes=(
            torchrun(
                "pretrain.py", "--workers", "2", "--loader-timeout", "6", "--timeout", "30", nproc=2,
                prelude=DATA + "; rm /mnt/data/train-00001.npz; mkfifo /mnt/data/train-00001.npz",
            ),
        ),
        world_size=2,
        culprit=Culprit(ranks=(1,)),
        expect=r"DataLoader timed out after",
    ),
    Scenario(
        id="shard_truncated_w4",
        cause="data-pipeline-failure",
        family="shard-corrupted-npz",
        injected="a shard of rank 3 cut after 20 kB",
        nodes=(
            torchrun("pretrain.py", "--workers", "1", prelude=DATA + "; truncate -s 20000 /mnt/data/train-00003.npz"),
        ),
        world_size=4,
        culprit=Culprit(ranks=(3,)),
        also=("application-exception", "storage-fault"),
        expect=r"BadZipFile",
    ),
    Scenario(
        id="shard_bad_crc_w2_plain",
        cause="data-pipeline-failure",
        family="shard-corrupted-npz",
        injected="bytes overwritten inside a shard of rank 1",
        nodes=(
            torchrun(
                "pretrain.py", "--log-style", "colons", nproc=2, tee=False,
                prelude=DATA + "; dd if=/dev/zero of=/mnt/data/train-00001.npz bs=1 seek=4000 count=64 conv=notrunc"
                " status=none",
            ),
        ),
        world_size=2,
        culprit=Culprit(ranks=(1,)),
        also=("application-exception", "storage-fault"),
        expect=r"Bad CRC-32",
    ),
    Scenario(
        id="shard_truncated_gzip_bare_w3",
        cause="data-pipeline-failure",
        family="shard-corrupted-gzip",
        injected="a gzipped shard of rank 2 cut in the middle",
        nodes=_bare(
            3, "--format", "jsonl", "--timeout", "10", prelude=JSON + "; truncate -s 9000 /mnt/data/train-00002.jsonl.gz"
        ),
        world_size=3,
        culprit=Culprit(ranks=(2,)),
        also=("application-exception", "storage-fault"),
        expect=r"EOFError: Compressed file ended",
    ),
    Scenario(
        id="shard_bad_json_w2",
        cause="data-pipeline-failure",
        family="shard-bad-text",
        injected="a shard of rank 0 with half a JSON line at its end",
        nodes=(
            torchrun(
                "pretrain.py", "--format", "jsonl", "--workers", "1", nproc=2,
                prelude=JSON + "; cd /mnt/data; gunzip train-00000.jsonl.gz; truncate -s -300 train-00000.jsonl;"
                " gzip train-00000.jsonl; cd -  >/dev/null",
            ),
        ),
        world_size=2,
        culprit=Culprit(ranks=(0,)),
        also=("application-exception",),
        expect=r"JSONDecodeError",
    ),
    Scenario(
        id="shard_bad_utf8_w6",
        cause="data-pipeline-failure",
        family="shard-bad-text",
        injected="a shard of rank 5 with bytes that are no UTF-8",
        nodes=(
            torchrun(
                "pretrain.py", "--format", "jsonl", nproc=6,
                prelude=JSON + r"; printf '{\"id\": 1, \"text\": \"caf\351\"}\n' | gzip > /mnt/data/train-00005.jsonl.gz",
            ),
        ),
        world_size=6,
        culprit=Culprit(ranks=(5,)),
        also=("application-exception",),
        expect=r"UnicodeDecodeError",
    ),
    Scenario(
        id="shard_missing_w4",
        cause="data-pipeline-failure",
        family="shard-missing",
        injected="a shard of rank 1 is not there",
        nodes=(torchrun("pretrain.py", "--workers", "2", prelude=DATA + "; rm /mnt/data/train-00001.npz"),),
        world_size=4,
        culprit=Culprit(ranks=(1,)),
        also=("application-exception", "storage-fault"),
        expect=r"FileNotFoundError.*train-00001",
    ),
    Scenario(
        id="download_refused_w2_plain",
        cause="data-pipeline-failure",
        family="download-fails",
        injected="nothing listens at the data server's address; downloads are tried 20 times",
        nodes=(
            torchrun(
                "pretrain.py", "--data", "http://127.0.0.1:8080/c4", "--timeout", "90", "--steps", "3", nproc=2, tee=False,
                prelude=DATA,
            ),
        ),
        world_size=2,
        expect=r"could not download",
        deadline=110,
    ),
)  # fmt: skip

DIVERGENCE = (
    Scenario(
        id="nan_raise_all_w2",
        cause="numerical-divergence",
        family="nan-raise",
        injected="learning rate of 1e6: the loss explodes and becomes NaN on all ranks",
        nodes=(torchrun("pretrain.py", "--lr", "1e6", "--nonfinite", "raise", nproc=2, prelude=DATA),),
        world_size=2,
        expect=r"FloatingPointError: Loss is",
    ),
    Scenario(
        id="nan_raise_one_w4_plain",
        cause="numerical-divergence",
        family="nan-raise",
        injected="infinite values in a shard of rank 2: its loss alone is not finite",
        nodes=(
            torchrun(
                "pretrain.py", "--nonfinite", "raise", "--log-style", "megatron", tee=False, prelude=DATA + " --overflow 2"
            ),
        ),
        world_size=4,
        culprit=Culprit(ranks=(2,)),
        expect=r"FloatingPointError: Loss is",
    ),
    Scenario(
        id="nan_exit_w4",
        cause="numerical-divergence",
        family="nan-exit",
        injected="learning rate of 1e6; the training script prints 'stopping training' and exits with 1",
        nodes=(torchrun("pretrain.py", "--lr", "1e6", "--nonfinite", "exit", prelude=DATA),),
        world_size=4,
        expect=r"Loss is (nan|inf), stopping training",
    ),
    Scenario(
        id="nan_assert_one_bare_w3",
        cause="numerical-divergence",
        family="nan-assert",
        injected="infinite values in a shard of rank 1; assertion on the local loss",
        nodes=_bare(3, "--nonfinite", "assert", "--timeout", "10", prelude=DATA + " --overflow 1"),
        world_size=3,
        culprit=Culprit(ranks=(1,)),
        expect=r"found NaN in local forward loss",
    ),
    Scenario(
        id="nan_clip_w2",
        cause="numerical-divergence",
        family="nan-gradient-norm",
        injected="infinite values in a shard of rank 1; clip_grad_norm_(error_if_nonfinite=True) after the average",
        nodes=(torchrun("pretrain.py", "--nonfinite", "clip", nproc=2, prelude=DATA + " --overflow 1"),),
        world_size=2,
        expect=r"norm of order 2.0 for gradients from `parameters` is non-finite",
    ),
    Scenario(
        id="nan_anomaly_w2_plain",
        cause="numerical-divergence",
        family="nan-anomaly-mode",
        injected="infinite values in a shard of rank 1; autograd's anomaly mode",
        nodes=(
            torchrun("pretrain.py", "--nonfinite", "anomaly", nproc=2, tee=False, prelude=DATA + " --overflow 1"),
        ),
        world_size=2,
        culprit=Culprit(ranks=(1,)),
        expect=r"returned nan values in its",
    ),
    Scenario(
        id="nan_loss_scale_w4",
        cause="numerical-divergence",
        family="nan-loss-scale",
        injected="infinite values in a shard of rank 0: the loss scale falls to its minimum",
        nodes=(
            torchrun(
                "pretrain.py", "--loss-scale", "1024", "--min-loss-scale", "1", "--lr", "0", "--batch", "8", "--steps", "30",
                "--step-time", "0.05", prelude=DATA + " --shards 8; {python} -c \"import numpy; p='/mnt/data/train-00000.npz';"
                " a=dict(numpy.load(p)); a['x'][24:]=numpy.inf; numpy.savez(p, **a)\"",
            ),
        ),
        world_size=4,
        expect=r"Minimum loss scale reached",
    ),
    Scenario(
        id="nan_loss_scale_w2_plain",
        cause="numerical-divergence",
        family="nan-loss-scale",
        injected="learning rate of 1e6 with dynamic loss scaling: every step overflows, the scale falls to its minimum",
        nodes=(
            torchrun(
                "pretrain.py", "--loss-scale", "256", "--lr", "1e6", "--steps", "30", "--log-style", "bare", nproc=2,
                tee=False, prelude=DATA,
            ),
        ),
        world_size=2,
        expect=r"Minimum loss scale reached",
    ),
)  # fmt: skip

SCENARIOS = (*PIPELINE, *DIVERGENCE)
