"""Ranks that call different collectives, in another order, with other sizes or in other groups."""

from __future__ import annotations

from collections.abc import Mapping

from corpus.scenarios.build import bare_ranks, torchrun
from corpus.scenarios.scenario import Culprit, Node, Scenario

DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
#: What DETAIL finds out by comparing the calls before they run.
FOUND = r"Detected mismatch between collectives on ranks"
#: Gloo's own ways of noticing: a message of the wrong size, or a time-out.
STRUCK = rf"{FOUND}|Received data size doesn't match|[Tt]imed out waiting"
#: Another call at the same place may as well be another branch of the code.
BRANCH = ("rank-divergence",)


def _differing(rank: int, world_size: int) -> Culprit:
    """Of two ranks that disagree nobody can tell which one is wrong."""
    return Culprit(ranks=(rank,)) if world_size > 2 else Culprit(ranks=(0, 1))


def _nodes(
    job: str, words: tuple[str, ...], world_size: int, tee: bool, bare: bool, env: Mapping[str, str] | None
) -> tuple[Node, ...]:
    if bare:
        return bare_ranks(job, *words, world_size=world_size, env=env)
    return (torchrun(job, *words, nproc=world_size, tee=tee, env=env),)


def _mismatch(
    name: str,
    exchange: str,
    rank: int,
    world_size: int,
    injected: str,
    *,
    expect: str = STRUCK,
    telling: str | None = None,
    culprit: Culprit | None = None,
    also: tuple[str, ...] = (),
    determinable: str = "yes",
    tee: bool = True,
    bare: bool = False,
    env: Mapping[str, str] | None = None,
) -> Scenario:
    words = ("--exchange", exchange, "--odd-rank", str(rank), "--timeout", "12")
    return Scenario(
        id=f"mismatch_{name}_w{world_size}",
        cause="collective-mismatch",
        family=f"mismatch-{exchange.replace('_', '-')}",
        injected=injected,
        nodes=_nodes("collectives.py", words, world_size, tee, bare, env),
        world_size=world_size,
        culprit=culprit or _differing(rank, world_size),
        expect=expect,
        telling=telling,
        also=also,
        determinable=determinable,
        deadline=120.0,
    )


def _model(
    name: str,
    fault: str,
    rank: int,
    world_size: int,
    injected: str,
    *words: str,
    expect: str,
    telling: str | None = None,
    also: tuple[str, ...] = (),
    determinable: str = "yes",
    tee: bool = True,
    env: Mapping[str, str] | None = None,
) -> Scenario:
    arguments = ("--fault", fault, "--fault-rank", str(rank), "--timeout", "12", *words)
    return Scenario(
        id=f"mismatch_{name}_w{world_size}",
        cause="collective-mismatch",
        family=f"mismatch-{fault.replace('_', '-')}",
        injected=injected,
        nodes=_nodes("train.py", arguments, world_size, tee, False, env),
        world_size=world_size,
        culprit=_differing(rank, world_size),
        expect=expect,
        telling=telling,
        also=also,
        determinable=determinable,
        deadline=150.0,
    )


WITHOUT_DETAIL = (
    _mismatch("shape", "shape", 2, 4, "rank 2 reduces 1000 elements, the others 4000"),
    _mismatch("shape_plain", "shape", 0, 2, "rank 0 reduces 1000 elements, rank 1 4000; plain console", tee=False),
    _mismatch("small_shape", "small_shape", 1, 3, "rank 1 reduces 9 elements, the others 8"),
    _mismatch(
        "dtype", "dtype", 3, 4, "rank 3 reduces float64, the others float32",
        culprit=Culprit(ranks=(3,), why="rank 3; the abort is rank 2's, which gets too much from it"),
    ),
    _mismatch("op", "op", 2, 4, "rank 2 broadcasts while the others all_reduce", also=BRANCH),
    _mismatch("order", "order", 5, 6, "rank 5 reduces two buckets in the other order", tee=False),
    _mismatch("root", "root", 2, 4, "rank 2 broadcasts from rank 1, the others from rank 0", also=(*BRANCH, "straggler"), determinable="partly"),
    _mismatch("gather", "gather", 1, 4, "rank 1 gathers 100 rows, the others 4096"),
    _mismatch(
        "gather_list_bare", "gather_list", -1, 3,
        "every rank gathers as many elements as it has itself, each another number; no launcher",
        culprit=Culprit(why="all ranks"), bare=True,
    ),
    _mismatch("broadcast_shape", "broadcast_shape", 1, 2, "rank 1 receives 10 elements of a broadcast of 4096"),
    _mismatch("reduce_scatter", "scatter", 2, 4, "rank 2 reduce-scatters 1000 rows a rank, the others 1024"),
    _mismatch("splits", "splits", 1, 3, "rank 1 sends rank 0 more tokens than rank 0 expects"),
    _mismatch("membership", "membership", 2, 4, "rank 2 makes a group of ranks 0 to 2, the others of 0 and 1",
        also=(*BRANCH, "straggler", "unknown"), determinable="partly"),
    _mismatch(
        "group_order", "group_order", -1, 4, "each rank waits for another in its row or column group",
        culprit=Culprit(why="all ranks"),
    ),
    _mismatch(
        "ring", "ring", -1, 2, "every rank receives before it sends", culprit=Culprit(why="all ranks"),
    ),
    _mismatch(
        "ring_bare", "ring", -1, 4, "every rank receives before it sends; no launcher",
        culprit=Culprit(why="all ranks"), bare=True,
    ),
    _mismatch(
        "message_size", "message_size", -1, 2, "rank 1 receives 1024 of 4096 elements that rank 0 sends",
        culprit=Culprit(ranks=(0, 1)), tee=False,
    ),
)  # fmt: skip

WITH_DETAIL = (
    _mismatch("shape_detail", "shape", 3, 4, "rank 3 reduces 1000 elements, DETAIL", env=DETAIL),
    _mismatch("dtype_detail", "dtype", 1, 3, "rank 1 reduces float64, DETAIL", env=DETAIL, tee=False),
    _mismatch("op_detail", "op", 4, 6, "rank 4 broadcasts while the others all_reduce, DETAIL", env=DETAIL),
    _mismatch("order_detail", "order", 1, 2, "rank 1 reduces two buckets in the other order, DETAIL", env=DETAIL),
    _mismatch("root_detail", "root", 2, 4, "rank 2 broadcasts from rank 1, DETAIL", env=DETAIL, tee=False,
              also=(*BRANCH, "straggler"), determinable="partly"),
    _mismatch("gather_detail", "gather", 6, 8, "rank 6 gathers 100 rows, DETAIL", env=DETAIL),
    _mismatch("broadcast_shape_detail", "broadcast_shape", 2, 3, "rank 2 receives 10 elements, DETAIL", env=DETAIL),
    _mismatch("reduce_scatter_detail", "scatter", 0, 4, "rank 0 reduce-scatters 1000 rows, DETAIL", env=DETAIL),
    _mismatch(
        "membership_detail", "membership", 2, 6, "rank 2 makes a group of ranks 0 to 2, DETAIL", env=DETAIL, also=(*BRANCH, "straggler", "unknown"), determinable="partly",
    ),
    _mismatch(
        "shape_detail_bare", "shape", 1, 2, "rank 1 reduces 1000 elements, DETAIL; no launcher", env=DETAIL, bare=True,
    ),
)  # fmt: skip

MODELS = (
    _model(
        "model_width_ddp", "wider_model", 1, 4, "rank 1 builds a wider model", expect=r"Error",
        telling=r"appears not to match|expects same model",
    ),
    _model(
        "model_depth_ddp", "deeper_model", 0, 2, "rank 0 builds one layer more, plain console", expect=r"Error",
        telling=r"expects same model", tee=False,
    ),
    _model(
        "model_vocabulary_fsdp", "larger_vocabulary", 1, 2, "rank 1 builds a larger vocabulary, FSDP2",
        "--parallel", "fsdp", expect=r"Error",
    ),
    _model(
        "model_vocabulary_fsdp_detail", "larger_vocabulary", 2, 4, "rank 2 builds a larger vocabulary, FSDP2, DETAIL",
        "--parallel", "fsdp", expect=r"Error", env=DETAIL,
    ),
    _model(
        "extra_broadcast_ddp", "extra_broadcast", 3, 4, "rank 3 broadcasts between two steps of DDP", expect=r"Error",
        determinable="partly", also=("rank-divergence", "straggler", "unknown"),
    ),
)  # fmt: skip

SCENARIOS = (*WITHOUT_DETAIL, *WITH_DETAIL, *MODELS)
