"""Settings and versions that do not fit: rendezvous on one host, parallel layouts, DDP options, library releases."""

from __future__ import annotations

from collections.abc import Mapping

from corpus.scenarios.build import bare_ranks, torchrun
from corpus.scenarios.families.resources import DATA
from corpus.scenarios.scenario import Culprit, Node, Scenario


def _bare(world_size: int, *arguments: str, changed: Mapping[int, Mapping[str, str]] | None = None) -> tuple[Node, ...]:
    """Return ranks without a launcher, some with other variables."""
    nodes = bare_ranks("pretrain.py", "--steps", "5", *arguments, world_size=world_size)
    return tuple(
        Node(n.command, env={**n.env, **(changed or {}).get(rank, {})}, prelude=DATA, label=n.label)
        for rank, n in enumerate(nodes)
    )


def _without(nodes: tuple[Node, ...], variable: str, ranks: tuple[int, ...]) -> tuple[Node, ...]:
    """Take a variable away from some ranks."""
    return tuple(
        Node(n.command, env={k: v for k, v in n.env.items() if rank not in ranks or k != variable}, prelude=n.prelude, label=n.label)
        for rank, n in enumerate(nodes)
    )  # fmt: skip


RENDEZVOUS = (
    Scenario(
        id="rdzv_local_rank_missing_w4",
        cause="rendezvous-failed",
        family="rendezvous-rank-missing",
        injected="rank 3 of 4 is never started",
        nodes=_bare(4, "--timeout", "12")[:3],
        world_size=4,
        culprit=Culprit(ranks=(3,)),
        expect=r"(?i)timed out.*clients joined|DistStoreError|DistNetworkError",
        deadline=60,
    ),
    Scenario(
        id="rdzv_local_first_rank_missing_w3",
        cause="rendezvous-failed",
        family="rendezvous-store-host-missing",
        injected="rank 0, which hosts the store, is never started",
        nodes=_bare(3, "--timeout", "12")[1:],
        world_size=3,
        culprit=Culprit(ranks=(0,)),
        also=("network-firewall-port",),
        expect=r"(?i)DistNetworkError|timed out",
        deadline=60,
    ),
    Scenario(
        id="rdzv_local_world_size_w3",
        cause="rendezvous-failed",
        family="rendezvous-counts-differ",
        injected="rank 0 has WORLD_SIZE=4, the other two have 3",
        nodes=_bare(3, "--timeout", "10", changed={0: {"WORLD_SIZE": "4"}}),
        world_size=3,
        culprit=Culprit(ranks=(0,)),
        expect=r"(?i)timed out|DistStoreError|DistNetworkError|DistBackendError",
        deadline=70,
    ),
    Scenario(
        id="rdzv_local_duplicate_rank_w4",
        cause="rendezvous-failed",
        family="rendezvous-duplicate-rank",
        injected="the fourth process has RANK=2 as the third",
        nodes=_bare(4, "--timeout", "10", changed={3: {"RANK": "2"}}),
        world_size=4,
        culprit=Culprit(ranks=(2, 3)),
        expect=r"(?i)timed out|timeout|Connection reset|Connection closed|error",
        deadline=70,
    ),
    Scenario(
        id="rdzv_local_wrong_port_w3",
        cause="rendezvous-failed",
        family="rendezvous-wrong-port",
        injected="rank 2 has another MASTER_PORT",
        nodes=_bare(3, "--timeout", "10", changed={2: {"MASTER_PORT": "29501"}}),
        world_size=3,
        culprit=Culprit(ranks=(2,)),
        expect=r"(?i)timed out|DistStoreError|DistNetworkError",
        deadline=70,
    ),
    Scenario(
        id="rdzv_local_unresolvable_w2",
        cause="rendezvous-failed",
        family="rendezvous-unresolvable",
        injected="MASTER_ADDR is a name that does not resolve on rank 1's side",
        nodes=_bare(2, "--timeout", "12", changed={1: {"MASTER_ADDR": "train-head-0.train-svc"}}),
        world_size=2,
        culprit=Culprit(ranks=(1,)),
        expect=r"(?i)train-head-0.*(failed|could not|not known|resolution)|Name or service not known|Temporary failure",
        deadline=70,
    ),
    Scenario(
        id="rdzv_local_no_address_w2",
        cause="rendezvous-failed",
        family="rendezvous-variable-missing",
        injected="MASTER_ADDR is set for neither rank",
        nodes=_without(_bare(2, "--timeout", "12"), "MASTER_ADDR", (0, 1)),
        world_size=2,
        also=("application-exception",),
        expect=r"environment variable MASTER_ADDR expected, but not set",
        deadline=60,
    ),
)  # fmt: skip

LAYOUT = (
    Scenario(
        id="layout_mesh_too_big_w4",
        cause="parallel-layout-mismatch",
        family="layout-device-mesh",
        injected="a device mesh of 2 x 4 for a world of 4",
        nodes=(torchrun("train_tp.py", "--dp", "2", "--tp", "4"),),
        world_size=4,
        expect=r"Mesh should not be bigger than default world size",
    ),
    Scenario(
        id="layout_mesh_too_small_w6_plain",
        cause="parallel-layout-mismatch",
        family="layout-device-mesh",
        injected="a device mesh of 2 x 4 for a world of 6",
        nodes=(torchrun("train_tp.py", "--dp", "2", "--tp", "4", nproc=6, tee=False),),
        world_size=6,
        expect=r"Mesh should not be bigger than default world size",
    ),
    Scenario(
        id="layout_heads_indivisible_w4",
        cause="parallel-layout-mismatch",
        family="layout-heads-shape",
        injected="6 attention heads over tensor parallel size 4: the local view does not fit",
        nodes=(torchrun("train_tp.py", "--tp", "4", "--heads", "6"),),
        world_size=4,
        also=("application-exception",),
        determinable="partly",
        expect=r"is invalid for input of size",
    ),
    Scenario(
        id="layout_heads_assertion_bare_w4",
        cause="parallel-layout-mismatch",
        family="layout-heads-assertion",
        injected="6 attention heads over tensor parallel size 4, asserted by the job",
        nodes=bare_ranks("train_tp.py", "--tp", "4", "--heads", "6", "--check", "heads", world_size=4),
        world_size=4,
        also=("application-exception",),
        expect=r"AssertionError: 6 is not divisible by 4",
    ),
    Scenario(
        id="layout_world_indivisible_w6",
        cause="parallel-layout-mismatch",
        family="layout-world-size",
        injected="world size 6 with tensor parallel 2 x pipeline parallel 2",
        nodes=(torchrun("train_tp.py", "--tp", "2", "--pp", "2", "--check", "divisible", nproc=6),),
        world_size=6,
        expect=r"world_size \(6\) is not divisible",
    ),
    Scenario(
        id="layout_world_assertion_w2_plain",
        cause="parallel-layout-mismatch",
        family="layout-world-size",
        injected="parallel dimensions for 4 ranks, started with 2",
        nodes=(torchrun("train_tp.py", "--dp", "2", "--tp", "2", "--check", "assert", nproc=2, tee=False),),
        world_size=2,
        expect=r"Invalid parallel dims",
    ),
    Scenario(
        id="layout_group_beyond_world_w4",
        cause="parallel-layout-mismatch",
        family="layout-process-group",
        injected="pipeline groups with a stride for 8 ranks in a world of 4",
        nodes=(torchrun("train_tp.py", "--tp", "1", "--dp", "4", "--pp", "2", "--stride", "4"),),
        world_size=4,
        expect=r"(?i)ValueError: .*rank|RuntimeError: .*(rank|world)",
    ),
    Scenario(
        id="layout_checkpoint_other_tp_w2",
        cause="parallel-layout-mismatch",
        family="layout-checkpoint",
        injected="a checkpoint of tensor parallel size 4 loaded with size 2",
        nodes=(
            torchrun(
                "train_tp.py", "--tp", "2", "--saved-tp", "4", nproc=2,
                prelude="mount -t tmpfs tmpfs /mnt; mkdir /mnt/ckpt; {python} {jobs}/train_tp.py --write-shards --saved-tp 4",
            ),
        ),
        world_size=2,
        also=("application-exception",),
        expect=r"size mismatch for up.weight",
    ),
)  # fmt: skip

DDP = (
    Scenario(
        id="ddp_unused_all_w2",
        cause="ddp-unused-parameters",
        family="ddp-unused-parameters",
        injected="from step 2 on only one of two heads is used, on all ranks",
        nodes=(torchrun("multitask.py", "--phase", "classify-only", nproc=2),),
        world_size=2,
        expect=r"Expected to have finished reduction in the prior iteration",
    ),
    Scenario(
        id="ddp_unused_all_info_w4_plain",
        cause="ddp-unused-parameters",
        family="ddp-unused-parameters",
        injected="from step 2 on only one of two heads is used, on all ranks; TORCH_DISTRIBUTED_DEBUG=INFO",
        nodes=(
            torchrun("multitask.py", "--phase", "classify-only", tee=False, env={"TORCH_DISTRIBUTED_DEBUG": "INFO"}),
        ),
        world_size=4,
        expect=r"Parameters which did not receive grad",
    ),
    Scenario(
        id="ddp_unused_one_w4",
        cause="ddp-unused-parameters",
        family="ddp-unused-parameters-one-rank",
        injected="rank 2 does not use one of two heads from step 2 on",
        nodes=(torchrun("multitask.py", "--phase", "mixed", "--odd-rank", "2", "--timeout", "10"),),
        world_size=4,
        culprit=Culprit(ranks=(2,)),
        also=("collective-mismatch", "rank-divergence"),
        expect=r"(?i)Expected to have finished reduction|timed out",
    ),
    Scenario(
        id="ddp_unused_one_bare_w3",
        cause="ddp-unused-parameters",
        family="ddp-unused-parameters-one-rank",
        injected="rank 0 does not use one of two heads from step 2 on",
        nodes=bare_ranks("multitask.py", "--phase", "mixed", "--odd-rank", "0", "--timeout", "10", world_size=3),
        world_size=3,
        culprit=Culprit(ranks=(0,)),
        also=("collective-mismatch", "rank-divergence"),
        expect=r"(?i)Expected to have finished reduction|timed out",
    ),
    Scenario(
        id="ddp_unused_static_graph_w2",
        cause="ddp-unused-parameters",
        family="ddp-unused-static-graph",
        injected="static_graph=True, but from step 3 on only one of two heads is used",
        nodes=(torchrun("multitask.py", "--phase", "classify-only", "--static-graph", "--phase-step", "3", nproc=2),),
        world_size=2,
        expect=r"static_graph|training graph has changed",
    ),
)  # fmt: skip


def _old(name: str) -> str:
    """Put an older release of a package before the environment's own."""
    return f"export PYTHONPATH=$(dirname {{bin}})/extra/{name}"


VERSIONS = (
    Scenario(
        id="version_no_nccl_w2",
        cause="framework-version-incompatibility",
        family="version-no-nccl",
        injected="the nccl back end on a torch that was built without it",
        nodes=(torchrun("train.py", nproc=2, env={"BACKEND": "nccl"}),),
        world_size=2,
        also=("driver-cuda-mismatch",),
        expect=r"(?i)doesn't have NCCL built in|no NCCL",
    ),
    Scenario(
        id="version_transformers_w2",
        cause="framework-version-incompatibility",
        family="version-transformers",
        injected="transformers 4.30 with a newer release of tokenizers",
        nodes=(torchrun("finetune.py", "--back-end", "transformers", nproc=2, prelude=_old("transformers-4.30")),),
        world_size=2,
        also=("application-exception",),
        expect=r"is required for a normal functioning of this module, but found",
        needs=("extra:transformers-4.30",),
    ),
    Scenario(
        id="version_deepspeed_w4_plain",
        cause="framework-version-incompatibility",
        family="version-deepspeed",
        injected="deepspeed 0.8.3 with pydantic 2",
        nodes=(torchrun("finetune.py", "--back-end", "deepspeed", tee=False, prelude=_old("deepspeed-0.8")),),
        world_size=4,
        also=("application-exception",),
        expect=r"PydanticUserError",
        needs=("extra:deepspeed-0.8",),
    ),
    Scenario(
        id="version_torchvision_w4",
        cause="framework-version-incompatibility",
        family="version-torchvision",
        injected="torchvision 0.17, which belongs to another torch",
        nodes=(torchrun("finetune.py", "--back-end", "images", prelude=_old("torchvision-0.17")),),
        world_size=4,
        also=("application-exception",),
        expect=r"operator torchvision::nms does not exist",
        needs=("extra:torchvision-0.17",),
    ),
    Scenario(
        id="version_pandas_bare_w3",
        cause="framework-version-incompatibility",
        family="version-numpy-abi",
        injected="pandas 2.0, built for numpy 1, with numpy 2",
        nodes=tuple(
            Node(n.command, env=n.env, prelude=_old("pandas-2.0"), label=n.label)
            for n in bare_ranks("finetune.py", "--back-end", "table", world_size=3)
        ),
        world_size=3,
        also=("application-exception",),
        expect=r"numpy.dtype size changed|NumPy 1.x cannot be run",
        needs=("extra:pandas-2.0",),
    ),
    Scenario(
        id="version_float8_w2",
        cause="framework-version-incompatibility",
        family="version-float8",
        injected="all_reduce of float8 values, which gloo does not know",
        nodes=(torchrun("finetune.py", "--back-end", "float8", nproc=2),),
        world_size=2,
        also=("application-exception",),
        expect=r"(?i)invalid scalar type|not supported|unsupported",
    ),
)  # fmt: skip

SHARDED = (
    Scenario(
        id="generate_fsdp_w2",
        cause="sharded-generate",
        family="sharded-generate-fsdp2",
        injected="rank 1's answer ends 6 tokens earlier: unequal numbers of forwards under FSDP2",
        nodes=(torchrun("generate.py", "--shorter", "6", nproc=2),),
        world_size=2,
        culprit=Culprit(ranks=(1,)),
        also=("collective-mismatch", "rank-divergence"),
        expect=r"(?i)timed out waiting|timeout",
    ),
    Scenario(
        id="generate_fsdp_w4_plain",
        cause="sharded-generate",
        family="sharded-generate-fsdp2",
        injected="rank 3's answer ends 4 tokens earlier: unequal numbers of forwards under FSDP2",
        nodes=(torchrun("generate.py", "--shorter", "4", "--odd-rank", "3", tee=False),),
        world_size=4,
        culprit=Culprit(ranks=(3,)),
        also=("collective-mismatch", "rank-divergence"),
        expect=r"(?i)timed out waiting|timeout",
    ),
    Scenario(
        id="generate_fsdp_detail_w3",
        cause="sharded-generate",
        family="sharded-generate-fsdp2",
        injected="rank 0's answer ends 5 tokens earlier under FSDP2; TORCH_DISTRIBUTED_DEBUG=DETAIL",
        nodes=(
            torchrun(
                "generate.py", "--shorter", "5", "--odd-rank", "0", nproc=3, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
            ),
        ),
        world_size=3,
        culprit=Culprit(ranks=(0,)),
        also=("collective-mismatch", "rank-divergence"),
        expect=r"(?i)timed out waiting|timeout",
    ),
    Scenario(
        id="evaluate_fsdp_bare_w4",
        cause="sharded-generate",
        family="sharded-evaluate-fsdp2",
        injected="rank 2 has 3 evaluation batches fewer than the others under FSDP2",
        nodes=bare_ranks(
            "generate.py", "--mode", "evaluate", "--max-new-tokens", "18", "--shorter", "3", "--odd-rank", "2", world_size=4
        ),
        world_size=4,
        culprit=Culprit(ranks=(2,)),
        also=("collective-mismatch", "rank-divergence"),
        expect=r"Timed out waiting",
    ),
)  # fmt: skip

SCENARIOS = (*RENDEZVOUS, *LAYOUT, *DDP, *VERSIONS, *SHARDED)
