"""Jobs that end well, most of them with output that looks like trouble."""

from __future__ import annotations

from collections.abc import Mapping

from corpus.scenarios.build import PORT, bare_ranks, torchrun
from corpus.scenarios.families.resources import DATA, IMAGES
from corpus.scenarios.scenario import Node, Scenario

OUTPUT_FOLDER = "mount -t tmpfs -o size=64m tmpfs /mnt; mkdir /mnt/out"


def _healthy(
    name: str, family: str, injected: str, world_size: int, *nodes: Node, expect: str, deadline: float = 120.0
) -> Scenario:
    """Return a scenario in which nothing fails; ``expect`` is what makes it worth recording."""
    return Scenario(
        id=f"healthy_{name}",
        cause="healthy",
        family=f"healthy-{family}",
        injected=injected,
        nodes=nodes,
        world_size=world_size,
        expect=expect,
        deadline=deadline,
    )


def _bare(
    job: str, *arguments: str, world_size: int, prelude: str = "", env: Mapping[str, str] | None = None
) -> tuple[Node, ...]:
    made = bare_ranks(job, *arguments, world_size=world_size, env=env)
    return tuple(Node(n.command, env=n.env, prelude=prelude, label=n.label) for n in made)


def _late_first(nodes: tuple[Node, ...], seconds: float) -> tuple[Node, ...]:
    """Start rank 0, which hosts the store, after all others: they connect again and again."""
    first = nodes[0]
    return (*nodes[1:], Node(first.command, env=first.env, prelude=first.prelude, delay=seconds, label=first.label))


def _agent(number: int, delay: float = 0.0) -> Node:
    """Return one of two elastic agents on one host that find each other by the c10d rendezvous."""
    command = (
        "{bin}/torchrun", "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "pretrain-7b",
        "--rdzv-endpoint", "127.0.0.1:29400", "--log-dir", f"{{logs}}/agent{number}", "--tee", "3", "{jobs}/pretrain.py",
        "--steps", "6",
    )  # fmt: skip
    env = {"LOGLEVEL": "INFO", "TORCH_CPP_LOG_LEVEL": "INFO"}
    return Node(command, env=env, prelude=DATA, delay=delay, label=f"agent{number}| ")


SCENARIOS = (
    _healthy("ddp_w4", "ddp", "nothing", 4, torchrun("train.py"), expect="training finished"),
    _healthy(
        "ddp_cpp_info_w2", "cpp-log-level", "nothing; TORCH_CPP_LOG_LEVEL=INFO", 2,
        torchrun("train.py", "--steps", "8", nproc=2, env={"TORCH_CPP_LOG_LEVEL": "INFO"}), expect="training finished",
    ),
    _healthy(
        "ddp_debug_info_w3_plain", "distributed-debug", "nothing; TORCH_DISTRIBUTED_DEBUG=INFO", 3,
        torchrun(
            "train.py", "--steps", "8", nproc=3, tee=False,
            env={"TORCH_DISTRIBUTED_DEBUG": "INFO", "TORCH_CPP_LOG_LEVEL": "INFO"},
        ),
        expect="training finished",
    ),
    _healthy(
        "detail_w4", "distributed-debug", "nothing; TORCH_DISTRIBUTED_DEBUG=DETAIL", 4,
        torchrun(
            "pretrain.py", prelude=DATA, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "TORCH_CPP_LOG_LEVEL": "INFO"}
        ),
        expect="training finished",
    ),
    _healthy(
        "omp_warning_w4_plain", "omp-threads", "nothing; OMP_NUM_THREADS is not set", 4,
        torchrun("pretrain.py", "--log-style", "megatron", tee=False, prelude=DATA + "; unset OMP_NUM_THREADS"),
        expect="Setting OMP_NUM_THREADS",
    ),
    _healthy(
        "find_unused_w2", "ddp-find-unused", "find_unused_parameters=True where none is unused", 2,
        torchrun("multitask.py", "--find-unused", nproc=2), expect="find_unused_parameters=True was specified",
    ),
    _healthy(
        "find_unused_needed_w4_plain", "ddp-find-unused", "a head is unused, find_unused_parameters=True copes", 4,
        torchrun(
            "multitask.py", "--find-unused", "--phase", "mixed", "--odd-rank", "3", tee=False,
            env={"TORCH_DISTRIBUTED_DEBUG": "INFO"},
        ),
        expect="done",
    ),
    _healthy(
        "bucket_view_w2", "ddp-bucket-strides", "channels-last weights: gradient strides do not match the buckets", 2,
        torchrun("multitask.py", "--channels-last", nproc=2), expect="Grad strides do not match bucket view strides",
    ),
    _healthy(
        "many_workers_w2", "dataloader-workers", "more DataLoader workers than cores", 2,
        torchrun("pretrain.py", "--workers", "4", "--format", "images", nproc=2, prelude=IMAGES),
        expect="DataLoader will create 4 worker processes",
    ),
    _healthy(
        "late_first_rank_w3", "store-retries", "rank 0 starts 12 s after the others", 3,
        *_late_first(
            _bare("pretrain.py", "--timeout", "60", world_size=3, prelude=DATA, env={"TORCH_CPP_LOG_LEVEL": "INFO"}), 12.0
        ),
        expect="training finished",
    ),
    _healthy(
        "late_first_rank_warn_w4", "store-retries", "rank 0 starts 15 s after the others", 4,
        *_late_first(
            _bare("pretrain.py", "--timeout", "60", "--log-style", "colons", world_size=4, prelude=DATA), 15.0
        ),
        expect="training finished",
    ),
    _healthy(
        "loss_scale_w4", "loss-scale", "dynamic loss scaling from 2^26: some steps overflow, then it fits", 4,
        torchrun("pretrain.py", "--loss-scale", "67108864", "--steps", "20", prelude=DATA),
        expect="OVERFLOW! Skipping step",
    ),
    _healthy(
        "loss_scale_w2_plain", "loss-scale", "dynamic loss scaling from 2^22: some steps overflow, then it fits", 2,
        torchrun(
            "pretrain.py", "--loss-scale", "4194304", "--steps", "16", "--log-style", "bare", nproc=2, tee=False, prelude=DATA
        ),
        expect="OVERFLOW! Skipping step",
    ),
    _healthy(
        "nan_batch_skipped_w4", "bad-batch-skipped", "infinite values in a shard: those batches are skipped", 4,
        torchrun(
            "pretrain.py", "--nonfinite", "skip", "--steps", "12", "--timeout", "30", prelude=DATA + " --overflow 2"
        ),
        expect="skipping this batch",
    ),
    _healthy(
        "nan_spike_w2_plain", "bad-batch-skipped", "one NaN loss, whose batch is dropped", 2,
        torchrun("finetune_lora.py", "--spike", nproc=2, tee=False), expect="non-finite loss",
    ),
    _healthy(
        "bad_shard_skipped_w3", "bad-shard-skipped", "a truncated shard, which the reader skips with a traceback", 3,
        torchrun(
            "pretrain.py", "--skip-bad-shards", "--workers", "1", "--batch", "16", "--steps", "14", "--step-time", "0.05",
            nproc=3, prelude=DATA + "; truncate -s 20000 /mnt/data/train-00004.npz",
        ),
        expect="skipping it",
    ),
    _healthy(
        "download_retried_w2", "download-retried", "the data server starts 35 s late, downloads are tried again", 2,
        torchrun(
            "pretrain.py", "--data", "http://127.0.0.1:8080/data", "--timeout", "90", nproc=2,
            prelude=DATA + "; (cd /mnt; (sleep 35; exec {python} -m http.server 8080 --bind 127.0.0.1) >/dev/null 2>&1 &)",
        ),
        expect="retrying in 2 s",
    ),
    _healthy(
        "disk_cleaned_w2", "checkpoint-retried", "the checkpoint disk fills; old checkpoints are deleted, saving goes on", 2,
        torchrun(
            "pretrain.py", "--checkpoint", "/mnt/ckpt", "--checkpoint-every", "2", "--keep-checkpoints", "1", "--steps", "14",
            "--timeout", "30", nproc=2,
            prelude=DATA + "; mkdir /mnt/ckpt; mount -t tmpfs -o size=1m tmpfs /mnt/ckpt",
        ),
        expect="saved after the second attempt",
    ),
    _healthy(
        "distributed_checkpoint_w4", "checkpoint-distributed", "nothing; torch.distributed.checkpoint", 4,
        torchrun(
            "pretrain.py", "--checkpoint", "/mnt/cache", "--checkpoint-format", "distributed", "--timeout", "60",
            prelude=DATA,
        ),
        expect="training finished", deadline=150,
    ),
    _healthy(
        "old_style_w2", "deprecations", "deprecated calls and a schedule stepped before the optimizer", 2,
        torchrun("finetune_lora.py", "--old-style", "--optional", nproc=2), expect="FutureWarning",
    ),
    _healthy(
        "resume_w2_plain", "checkpoint-load-warnings", "a checkpoint that needs weights_only=False and lacks a key", 2,
        torchrun("finetune_lora.py", "--resume", "/mnt/out", nproc=2, tee=False, prelude=OUTPUT_FOLDER),
        expect="weights_only=True failed",
    ),
    _healthy(
        "batch_size_finder_w3", "batch-size-finder", "the batch size finder's first tries do not fit into memory", 3,
        torchrun("finetune_lora.py", "--find-batch-size", nproc=3), expect="can't allocate memory",
    ),
    _healthy(
        "tracker_retried_w2", "exception-retried", "the first registration at the tracker is refused, the next works", 2,
        torchrun("finetune_lora.py", "--retry", "--skip-destroy", nproc=2), expect="ConnectionRefusedError",
    ),
    _healthy(
        "metrics_port_taken_w2", "port-taken-elsewhere", "the metrics server's port is taken, the next one is used", 2,
        torchrun(
            "finetune_lora.py", "--metrics-port", "9090", nproc=2,
            prelude="({python} -m http.server 9090 --bind 127.0.0.1 >/dev/null 2>&1 &); sleep 2",
        ),
        expect="Address already in use",
    ),
    _healthy(
        "long_wait_w3", "long-wait", "rank 0 prepares data for 9 s, well within the time-out", 3,
        torchrun("finetune_lora.py", "--slow-parts", "6", nproc=3), expect="all ranks arrived",
    ),
    _healthy(
        "early_stop_bare_w3", "early-stopping", "all ranks stop early together", 3,
        *_bare("finetune_lora.py", "--patience", "4", "--optional", world_size=3), expect="early stopping",
    ),
    _healthy(
        "subgroups_detail_w6", "sub-groups", "nothing; sub-groups, TORCH_DISTRIBUTED_DEBUG=DETAIL", 6,
        torchrun(
            "finetune_lora.py", "--subgroups", nproc=6,
            env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "TORCH_CPP_LOG_LEVEL": "INFO"},
        ),
        expect="sub-group of rank",
    ),
    _healthy(
        "tensor_parallel_w4", "device-mesh", "nothing; data and tensor parallel on a device mesh", 4,
        torchrun("train_tp.py", "--dp", "2", "--tp", "2"), expect="finished",
    ),
    _healthy(
        "fsdp_w2", "fsdp", "nothing; FSDP2 on gloo", 2,
        torchrun("train.py", "--parallel", "fsdp", "--steps", "8", nproc=2, env={"TORCH_CPP_LOG_LEVEL": "INFO"}),
        expect="training finished",
    ),
    _healthy(
        "fsdp_generate_w4_plain", "fsdp-generate", "nothing; FSDP2 generation, as many forwards on every rank", 4,
        torchrun("generate.py", "--shorter", "4", "--synced", tee=False), expect="score",
    ),
    _healthy(
        "elastic_info_w3", "elastic-info", "nothing; LOGLEVEL=INFO and prefixes of the launcher's own", 3,
        torchrun(
            "pretrain.py", nproc=3, options=("--max-restarts", "2"),
            env={"LOGLEVEL": "INFO", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[${role_name}${rank}|${local_rank}]: "},
            prelude=DATA,
        ),
        expect="training finished",
    ),
    _healthy(
        "two_agents_w2", "elastic-info", "nothing; two elastic agents, c10d rendezvous, the second comes 6 s later", 2,
        _agent(0), _agent(1, delay=6.0), expect="training finished",
    ),
    _healthy(
        "bare_w8", "bare", "nothing", 8,
        *_bare("pretrain.py", "--timeout", "60", "--steps", "10", world_size=8, prelude=DATA), expect="training finished",
    ),
    _healthy(
        "two_jobs_w2", "two-jobs", "nothing; two jobs on one host with different ports", 2,
        Node(torchrun("pretrain.py", nproc=2, tee=False).command, prelude=DATA, label="[job 5121] "),
        Node(
            torchrun("pretrain.py", "--lr", "0.003", nproc=2, tee=False, port=PORT + 1).command, prelude=DATA, delay=3.0,
            label="[job 5122] ",
        ),
        expect="training finished",
    ),
)  # fmt: skip
