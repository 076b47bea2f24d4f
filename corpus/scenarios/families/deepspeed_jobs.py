"""DeepSpeed: batch sizes that do not fit, ZeRO ranks that diverge, wrong settings, its launcher."""

from __future__ import annotations

from collections.abc import Mapping

from corpus.scenarios.build import PORT, bare_ranks, torchrun
from corpus.scenarios.scenario import Culprit, Node, Scenario

JOB = "deepspeed_train.py"
ENVIRONMENT = {"DS_ACCELERATOR": "cpu"}
NOBODY = Culprit()


def launcher(*arguments: str, nproc: int, env: Mapping[str, str] | None = None) -> tuple[Node, ...]:
    """Return a host that runs the job under DeepSpeed's own launcher.

    It prints the command line, so the fault comes by the environment.
    """
    options = ("--num_gpus", str(nproc), "--master_port", str(PORT), "--no_local_rank")
    command = ("{bin}/deepspeed", *options, "{jobs}/" + JOB, *arguments)
    return (Node(command, env={**ENVIRONMENT, **(env or {})}),)


def run(*arguments: str, nproc: int, tee: bool = True, env: Mapping[str, str] | None = None) -> tuple[Node, ...]:
    """Return a host that runs the job under torchrun."""
    return (torchrun(JOB, *arguments, nproc=nproc, tee=tee, env={**ENVIRONMENT, **(env or {})}),)


def labelled(*arguments: str, world_size: int, env: Mapping[str, str] | None = None) -> tuple[Node, ...]:
    """Return the ranks without a launcher, as under ``srun --label``."""
    return bare_ranks(JOB, *arguments, world_size=world_size, env={**ENVIRONMENT, **(env or {})})


def _scenario(
    name: str,
    cause: str,
    family: str,
    injected: str,
    nodes: tuple[Node, ...],
    expect: str,
    *,
    culprit: Culprit = NOBODY,
    also: tuple[str, ...] = (),
    determinable: str = "yes",
    telling: str | None = None,
    deadline: float = 180.0,
) -> Scenario:
    """Return a DeepSpeed scenario; its world size is the end of its name."""
    return Scenario(
        id=f"deepspeed_{name}",
        cause=cause,
        family=f"deepspeed-{family}",
        injected=injected,
        nodes=nodes,
        world_size=int(name.rpartition("_w")[2]),
        expect=expect,
        culprit=culprit,
        also=also,
        determinable=determinable,
        telling=telling,
        needs=("deepspeed", "torch", "compiler"),
        deadline=deadline,
    )


CONFIGURATION = Culprit(why="the configuration, the same on all ranks")

BATCH = (
    _scenario(
        "batch_product_w2",
        "batch-size-mismatch",
        "batch-product",
        "train_batch_size 64 where 4 x 2 x 2 ranks is 16",
        run("--train-batch", "64", "--accumulate", "2", nproc=2),
        r"train_batch_size is not equal",
        culprit=CONFIGURATION,
    ),
    _scenario(
        "batch_product_w3",
        "batch-size-mismatch",
        "batch-product",
        "train_batch_size 32 from a run on 4 ranks, now started with 3 (micro batch 4, accumulation 2)",
        run("--train-batch", "32", "--accumulate", "2", "--stage", "2", nproc=3, tee=False),
        r"train_batch_size is not equal",
        culprit=CONFIGURATION,
    ),
    _scenario(
        "batch_resized_w4",
        "batch-size-mismatch",
        "batch-resized",
        "train_batch_size 20, micro batch 4: no accumulation count fits 4 ranks",
        labelled("--train-batch", "20", "--fault", "infer_accumulation", "--stage", "3", world_size=4),
        r"train_batch_size is not equal|batch",
        telling=r"AssertionError",
        culprit=CONFIGURATION,
    ),
    _scenario(
        "batch_none_w2",
        "batch-size-mismatch",
        "batch-none",
        "no batch size in the configuration",
        run("--fault", "no_batch", nproc=2),
        r"train_batch_size or train_micro_batch_size_per_gpu needs to be provided",
        culprit=CONFIGURATION,
    ),
    _scenario(
        "launcher_batch_w4",
        "batch-size-mismatch",
        "batch-product",
        "train_batch_size 48 where 4 x 2 x 4 ranks is 32, under DeepSpeed's launcher",
        launcher("--train-batch", "48", "--accumulate", "2", nproc=4),
        r"train_batch_size is not equal",
        culprit=CONFIGURATION,
    ),
)

DIVERGENCE = (
    _scenario(
        "zero3_generate_w2",
        "sharded-generate",
        "generate",
        "rank 1 generates 4 tokens, rank 0 12, under ZeRO-3 without synced_gpus",
        run("--stage", "3", "--gather", "--generate-at", "3", "--fault", "short_answer", nproc=2),
        r"generated 4 tokens",
        culprit=Culprit(ranks=(1,)),
        also=("collective-mismatch", "rank-divergence"),
        telling=r"generat",
    ),
    _scenario(
        "zero3_generate_w3",
        "sharded-generate",
        "generate",
        "rank 2 generates 4 tokens, the others 12, under ZeRO-3; DETAIL",
        run(
            "--stage",
            "3",
            "--gather",
            "--generate-at",
            "3",
            "--fault",
            "short_answer",
            "--fault-rank",
            "2",
            nproc=3,
            tee=False,
            env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
        ),
        r"generated 4 tokens",
        culprit=Culprit(ranks=(2,)),
        also=("collective-mismatch", "rank-divergence"),
        telling=r"generat",
    ),
    _scenario(
        "zero3_generate_w4",
        "sharded-generate",
        "generate",
        "rank 3 generates 4 tokens, the others 12, under ZeRO-3; labelled console",
        labelled(
            "--stage",
            "3",
            "--gather",
            "--generate-at",
            "2",
            "--fault",
            "short_answer",
            "--fault-rank",
            "3",
            world_size=4,
        ),
        r"generated 4 tokens",
        culprit=Culprit(ranks=(3,)),
        also=("collective-mismatch", "rank-divergence"),
        telling=r"generat",
    ),
    _scenario(
        "zero1_skip_w2",
        "rank-divergence",
        "skipped-step",
        "rank 1 leaves out a step under ZeRO-1",
        run("--fault", "skip", nproc=2),
        r"skipping it",
        culprit=Culprit(ranks=(1,)),
        also=("collective-mismatch", "straggler"),
        telling=r"skipping it",
    ),
    _scenario(
        "zero3_skip_w4",
        "rank-divergence",
        "skipped-step",
        "rank 2 leaves out a step under ZeRO-3",
        labelled("--stage", "3", "--gather", "--fault", "skip", "--fault-rank", "2", world_size=4),
        r"skipping it",
        culprit=Culprit(ranks=(2,)),
        also=("collective-mismatch", "straggler"),
        telling=r"skipping it",
    ),
    _scenario(
        "zero3_rank0_save_w2",
        "rank-divergence",
        "rank0-save",
        "save_checkpoint is called on rank 0 only under ZeRO-3",
        run(
            "--stage",
            "3",
            "--gather",
            "--fault",
            "save_here",
            "--fault-rank",
            "0",
            "--checkpoint",
            "{logs}/ckpt",
            nproc=2,
        ),
        r"Timed out|timed out|Connection closed|mismatch",
        culprit=Culprit(ranks=(0,)),
        also=("collective-mismatch", "straggler"),
        telling=r"save_checkpoint|is about to be saved|Saving",
    ),
    _scenario(
        "zero1_rank0_save_w3",
        "rank-divergence",
        "rank0-save",
        "save_checkpoint is called on rank 0 only under ZeRO-1",
        run("--fault", "save_here", "--fault-rank", "0", "--checkpoint", "{logs}/ckpt", nproc=3, tee=False),
        r"Timed out|timed out|Connection closed|mismatch",
        culprit=Culprit(ranks=(0,)),
        also=("collective-mismatch", "straggler"),
        telling=r"save_checkpoint|is about to be saved|Saving",
    ),
    _scenario(
        "zero3_slow_data_w2",
        "straggler",
        "slow-data",
        "rank 1 reads a shard for longer than the time-out",
        run("--stage", "3", "--gather", "--fault", "slow_data", nproc=2),
        r"[Tt]imed out",
        culprit=Culprit(ranks=(1,)),
        also=("data-pipeline-failure",),
        telling=r"not in the cache",
    ),
)

DEATHS = (
    _scenario(
        "zero3_sigkill_w3",
        "process-crashed",
        "sigkill",
        "SIGKILL of rank 1 under ZeRO-3",
        run("--stage", "3", "--fault", "sigkill", nproc=3),
        r"Signal 9|exitcode: -9",
        culprit=Culprit(ranks=(1,)),
        also=("host-out-of-memory", "unknown"),
        telling=r"Signal 9|exitcode: -9",
    ),
    _scenario(
        "launcher_sigkill_w2",
        "process-crashed",
        "launcher-sigkill",
        "SIGKILL of rank 0 under DeepSpeed's launcher",
        launcher("--stage", "2", nproc=2, env={"FAULT": "sigkill", "FAULT_RANK": "0"}),
        r"exits with return code = -9|Killing subprocess",
        culprit=Culprit(ranks=(0,)),
        also=("host-out-of-memory", "unknown"),
        telling=r"return code = -9",
    ),
    _scenario(
        "zero2_exception_w4",
        "application-exception",
        "exception",
        "ZeroDivisionError in the scoring of rank 3",
        run("--stage", "2", "--fault", "exception", "--fault-rank", "3", nproc=4),
        r"ZeroDivisionError",
        culprit=Culprit(ranks=(3,)),
    ),
    _scenario(
        "launcher_exception_w2",
        "application-exception",
        "exception",
        "ZeroDivisionError in the scoring of rank 1, DeepSpeed's launcher",
        launcher("--stage", "3", nproc=2, env={"FAULT": "exception"}),
        r"ZeroDivisionError",
        culprit=Culprit(ranks=(1,)),
    ),
    _scenario(
        "config_stage_w2",
        "application-exception",
        "config-invalid",
        "ZeRO stage 5 in the configuration",
        run("--fault", "stage_5", nproc=2),
        r"ValidationError|validation error",
        culprit=CONFIGURATION,
        also=("framework-version-incompatibility",),
    ),
    _scenario(
        "config_precision_w2",
        "application-exception",
        "config-invalid",
        "fp16 and bf16 both enabled",
        launcher(nproc=2, env={"FAULT": "both_precisions"}),
        r"AssertionError|Error",
        culprit=CONFIGURATION,
        telling=r"Error: ",
        also=("framework-version-incompatibility",),
    ),
    _scenario(
        "fp16_overflow_w2",
        "numerical-divergence",
        "loss-scale",
        "the loss is infinite from step 3 on until the loss scale is at its minimum",
        run("--precision", "fp16", "--fault", "overflow", "--steps", "40", nproc=2, tee=False),
        r"loss scale already at minimum|OVERFLOW",
        telling=r"minimum|OVERFLOW",
    ),
)

HEALTHY = (
    _scenario("healthy_zero1_w2", "healthy", "healthy-zero1", "nothing", run(nproc=2, tee=False), "training finished"),
    _scenario(
        "healthy_zero2_w4",
        "healthy",
        "healthy-zero2",
        "nothing; bf16 and a checkpoint",
        run("--stage", "2", "--precision", "bf16", "--checkpoint", "{logs}/ckpt", nproc=4),
        "training finished",
    ),
    _scenario(
        "healthy_zero3_generate_w3",
        "healthy",
        "healthy-zero3",
        "nothing; generation of equal lengths",
        labelled("--stage", "3", "--gather", "--generate-at", "3", world_size=3),
        "training finished",
    ),
    _scenario(
        "healthy_launcher_w2",
        "healthy",
        "healthy-launcher",
        "nothing; gradient accumulation, DeepSpeed's launcher",
        launcher("--stage", "3", "--accumulate", "2", nproc=2),
        "training finished",
    ),
    _scenario(
        "healthy_fp16_scaling_w2",
        "healthy",
        "healthy-loss-scale",
        "nothing; the loss scale finds its value by skipped steps",
        run("--precision", "fp16", "--learning-rate", "0.01", "--steps", "30", nproc=2),
        "training finished",
    ),
)

SCENARIOS = (*BATCH, *DIVERGENCE, *DEATHS, *HEALTHY)
