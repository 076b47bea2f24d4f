"""Groups, messages, objects, the store, sharded checkpoints and remote calls that go wrong."""

from __future__ import annotations

from collections.abc import Mapping

from corpus.scenarios.build import bare_ranks, torchrun
from corpus.scenarios.families.launchers import pods, spawned
from corpus.scenarios.scenario import Culprit, Node, Scenario

LOST = r"Connection (?:closed|reset) by peer"
TIMED_OUT = r"[Tt]imed out|wait timeout|Timeout"
#: A folder of its own for checkpoints, which goes with the mount namespace.
DISK = "mount -t tmpfs tmpfs /mnt && mkdir /mnt/checkpoints"
SMALL_DISK = f"{DISK} && mount -t tmpfs -o size=3m tmpfs /mnt/checkpoints"
FOLDER = ("--folder", "/mnt/checkpoints")


def _started(
    how: str, routine: str, world: int, odd: int, *words: str, env: Mapping[str, str] | None = None, prelude: str = ""
) -> tuple[Node, ...]:
    """Return the processes of a job: under torchrun, with ``--tee``, by mp.spawn, as srun's tasks, as pods."""
    arguments = (routine, "--odd", str(odd), *words)
    if how in ("torchrun", "tee"):
        return (torchrun("workbench.py", *arguments, nproc=world, tee=how == "tee", env=env, prelude=prelude),)
    if how == "spawn":
        return (spawned(routine, world, odd, *words, prelude=prelude),)
    tasks = bare_ranks("workbench.py", *arguments, world_size=world, env=env)
    if prelude:
        raise ValueError("each task would have a disk of its own")
    return pods(tasks) if how == "pods" else tasks


def _case(
    name: str,
    cause: str,
    routine: str,
    world: int,
    odd: int,
    *words: str,
    how: str,
    family: str,
    injected: str,
    expect: str,
    telling: str | None = None,
    culprit: Culprit | None = None,
    also: tuple[str, ...] = (),
    determinable: str = "yes",
    env: Mapping[str, str] | None = None,
    prelude: str = "",
) -> Scenario:
    return Scenario(
        id=f"{name}_w{world}",
        cause=cause,
        family=family,
        injected=injected,
        nodes=_started(how, routine, world, odd, *words, env=env, prelude=prelude),
        world_size=world,
        culprit=culprit or Culprit(ranks=(odd,)),
        expect=expect,
        telling=telling,
        also=also,
        determinable=determinable,
        deadline=100.0,
    )


GROUPS = (
    _case(
        "subset_new_group", "rank-divergence", "subset_group", 4, 3, "--timeout", "8", how="tasks",
        family="subset-new-group", injected="rank 3 does not call new_group", expect=TIMED_OUT,
        also=("collective-mismatch", "straggler", "unknown"), determinable="partly",
    ),
    _case(
        "pipeline_tags", "collective-mismatch", "tags", 4, 3, "--timeout", "8", "--console", "pipes", how="torchrun",
        family="message-tags", injected="rank 3 receives with another tag than rank 2 sends with", expect=TIMED_OUT,
        telling=TIMED_OUT, also=("rank-divergence", "straggler", "unknown"), determinable="partly",
        culprit=Culprit(ranks=(2, 3), why="the tags of ranks 2 and 3 differ"),
    ),
    _case(
        "join_throws", "rank-divergence", "join_throws", 3, 1, how="torchrun",
        family="join", injected="rank 1 has four batches fewer under DDP's join(throw_on_early_termination)",
        expect=r"Detected at least one rank that exhausted inputs", telling=r"Rank 1 exhausted all inputs",
    ),
    _case(
        "join_healthy", "healthy", "join", 3, 2, "--console", "json", how="pods",
        family="healthy-join", injected="nothing (one rank has fewer batches, under Join)", expect="done",
    ),
    _case(
        "object_not_picklable", "application-exception", "lock_in_object", 4, 0, "--console", "glog", how="tasks",
        family="object-broadcast", injected="rank 0 broadcasts an object that holds a lock",
        expect=r"cannot pickle", telling=r"cannot pickle",
    ),
    _case(
        "scatter_too_few", "application-exception", "scatter_short", 3, 0, "--timeout", "8", how="spawn",
        family="object-scatter", injected="rank 0 scatters a list that is one too short", expect=r"Error",
        also=("collective-mismatch",),
    ),
    _case(
        "gather_other_root", "collective-mismatch", "gather_root", 4, 2, "--timeout", "8", how="tee",
        family="gather-root", injected="rank 2 gathers to rank 1, the others to rank 0", expect=rf"{TIMED_OUT}|{LOST}|root",
        telling=TIMED_OUT, also=("rank-divergence", "straggler"), determinable="partly",
    ),
    _case(
        "broadcast_from_outside", "application-exception", "foreign_source", 4, 2, "--console", "pipes", how="spawn",
        family="foreign-root", injected="ranks 2 and 3 broadcast in their group from rank 0, which is not in it",
        expect=r"not part of group", culprit=Culprit(ranks=(2, 3)), also=("collective-mismatch",),
        telling=r"not part of group",
    ),
    _case(
        "store_key_never_set", "rank-divergence", "key_never_set", 4, 0, "--timeout", "8", how="tasks",
        family="store-key", injected="rank 0 takes another path and never sets the key that the others wait for",
        expect=r"wait timeout|Timeout", telling=r"wait timeout", also=("timeout-too-short", "straggler"),
    ),
    _case(
        "nan_leaves_epoch", "numerical-divergence", "break_on_nan", 4, 1, "--timeout", "8", how="torchrun",
        family="nan-leaves-epoch", injected="the loss of rank 1 becomes NaN and it alone leaves the epoch",
        expect=rf"loss is nan(?s:.*)(?:{TIMED_OUT}|{LOST}|Error)", telling=r"loss is nan",
        also=("rank-divergence", "collective-mismatch"),
    ),
    _case(
        "stale_lock", "straggler", "file_lock", 4, 3, "--timeout", "8", "--console", "glog", how="tee",
        family="stale-lock", injected="rank 3 waits for a lock file that a killed build left", expect=TIMED_OUT,
        telling=r"waiting for lock", also=("rank-divergence", "timeout-too-short", "storage-fault"),
    ),
    _case(
        "late_in_pair", "straggler", "late_group_member", 4, 2, "--timeout", "8", "--console", "pipes", how="tasks",
        family="late-in-pair", injected="rank 2 compiles for twice as long as its pair waits",
        expect=rf"compiling graph(?s:.*){TIMED_OUT}", telling=r"compiling graph", also=("timeout-too-short",),
    ),
)  # fmt: skip

CHECKPOINTS = (
    _case(
        "sharded_save_disk_full", "storage-fault", "sharded_save", 3, 0, *FOLDER, how="torchrun", prelude=SMALL_DISK,
        family="sharded-save-full", injected="torch.distributed.checkpoint saves onto a disk of 3 MiB",
        expect=r"No space left|PytorchStreamWriter|CheckpointException", culprit=Culprit(why="all ranks, one small disk"),
        telling=r"No space left|PytorchStreamWriter",
    ),
    _case(
        "sharded_missing_key", "application-exception", "sharded_missing_key", 2, 0, *FOLDER, how="tee", prelude=DISK,
        family="sharded-missing-key", injected="the checkpoint lacks a key that the job wants to load",
        expect=r"Missing key", culprit=Culprit(why="all ranks"), telling=r"Missing key",
    ),
    _case(
        "sharded_truncated", "storage-fault", "sharded_truncated", 3, 2, *FOLDER, how="torchrun", prelude=DISK,
        family="sharded-truncated", injected="the shard of rank 2 is cut to 1000 bytes before it is loaded",
        expect=r"CheckpointException|Error", also=("application-exception", "data-pipeline-failure"),
        culprit=Culprit(ranks=(2,), why="the file of rank 2"),
    ),
    _case(
        "optimizer_state_empty", "storage-fault", "own_empty", 4, 1, *FOLDER, "--console", "json", how="torchrun",
        prelude=DISK, family="own-checkpoint", injected="the optimizer state of rank 1 is an empty file",
        expect=r"EOFError|Error", also=("application-exception", "data-pipeline-failure"),
    ),
    _case(
        "optimizer_state_halved", "storage-fault", "own_halved", 3, 2, *FOLDER, "--console", "glog", how="spawn",
        prelude=DISK, family="own-checkpoint", injected="the optimizer state of rank 2 is cut in half",
        expect=r"PytorchStreamReader|Error", also=("application-exception", "data-pipeline-failure"),
    ),
    _case(
        "sharded_healthy", "healthy", "sharded_save", 2, 0, *FOLDER, "--console", "pipes", how="torchrun", prelude=DISK,
        family="healthy-sharded", injected="nothing", expect=r"saved step 200",
    ),
)  # fmt: skip

REMOTE = (
    _case(
        "rpc_raises", "application-exception", "remote_raises", 3, 2, how="torchrun",
        family="rpc-raises", injected="a remote call raises ValueError on worker 2", expect=r"no embedding for token",
        telling=r"no embedding for token",
    ),
    _case(
        "rpc_worker_killed", "process-crashed", "remote_vanishes", 3, 1, "--timeout", "12", how="tasks",
        family="rpc-vanishes", injected="SIGKILL of worker 1 in a remote call; nobody reports its exit",
        expect=r"(?i)error|EOF|broken", also=("host-out-of-memory", "unknown", "rank-divergence"), determinable="partly",
    ),
    _case(
        "rpc_slow", "straggler", "remote_slow", 3, 2, "--timeout", "6", "--console", "pipes", how="torchrun",
        family="rpc-slow", injected="a remote call takes a minute on worker 2, the time-out is 6 s",
        expect=r"(?i)time(d )?-?out", also=("timeout-too-short", "rank-divergence"), determinable="partly",
    ),
    _case(
        "rpc_healthy", "healthy", "remote", 3, 1, how="tasks", family="healthy-rpc", injected="nothing", expect="done",
    ),
)  # fmt: skip

SCENARIOS = (*GROUPS, *CHECKPOINTS, *REMOTE)
