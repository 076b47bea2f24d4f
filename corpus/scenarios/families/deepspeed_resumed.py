"""DeepSpeed: checkpoints that are resumed otherwise than they were saved, pipelines that do not fit, hosts without ssh."""

from __future__ import annotations

from corpus.scenarios.build import torchrun
from corpus.scenarios.families.group_work import DISK
from corpus.scenarios.scenario import Culprit, Node, Scenario

JOB = "deepspeed_resume.py"
ENVIRONMENT = {"DS_ACCELERATOR": "cpu"}


def resumed(*words: str, nproc: int, saved_by: int = 0, tee: bool = False) -> tuple[Node, ...]:
    """Return the job, after one that saved a checkpoint with another number of ranks."""
    earlier = f"{{bin}}/torchrun --nproc-per-node {saved_by} --master-port 29501 {{jobs}}/{JOB} --save >/dev/null 2>&1"
    prelude = f"{DISK}; {earlier}" if saved_by else DISK
    return (torchrun(JOB, *words, nproc=nproc, tee=tee, env=ENVIRONMENT, prelude=prelude),)


def _case(
    name: str, cause: str, injected: str, nodes: tuple[Node, ...], expect: str, *, culprit: Culprit | None = None,
    also: tuple[str, ...] = (), telling: str | None = None, determinable: str = "yes",
) -> Scenario:  # fmt: skip
    return Scenario(
        id=f"deepspeed_{name}", cause=cause, family=f"deepspeed-resumed-{name.rpartition('_')[0]}", injected=injected,
        nodes=nodes, world_size=int(name.rpartition("_w")[2]), expect=expect, culprit=culprit or Culprit(why="all ranks"),
        also=also, telling=telling, determinable=determinable, needs=("deepspeed", "torch"), deadline=150.0,
    )  # fmt: skip


SCENARIOS = (
    _case(
        "other_world_w3", "parallel-layout-mismatch", "a ZeRO-1 checkpoint of 2 ranks is resumed by 3",
        resumed("--resume", nproc=3, saved_by=2), r"DP world size", telling=r"DP world size", also=("application-exception",),
    ),
    _case(
        "pipeline_stages_w4", "parallel-layout-mismatch", "a pipeline of 3 stages on 4 ranks",
        resumed("--stages", "3", "--stage", "0", nproc=4, tee=True), r"Error", also=("application-exception",),
        telling=r"Error: ",
    ),
    _case(
        "tag_differs_w3", "rank-divergence", "rank 2 names its checkpoint otherwise",
        resumed("--save", "--odd-tag", "2", nproc=3), r"not consistent across all ranks",
        culprit=Culprit(ranks=(2,)), also=("application-exception", "collective-mismatch", "storage-fault"),
        telling=r"not consistent across all ranks",
    ),
    _case(
        "fresh_start_w2", "healthy", "nothing: there is no checkpoint to resume from yet",
        resumed("--resume", nproc=2), r"Unable to find latest(?s:.*)training finished",
    ),
    _case(
        "no_ssh_w4", "launch-failed", "the launcher of two hosts finds neither pdsh nor ssh to the other",
        (
            Node(
                ("{bin}/deepspeed", "--hostfile", "/mnt/hosts", "--master_addr", "10.0.0.1", "{jobs}/" + JOB),
                env=ENVIRONMENT,
                prelude="mount -t tmpfs tmpfs /mnt; printf 'gpu-node-01 slots=2\\ngpu-node-02 slots=2\\n' > /mnt/hosts",
            ),
        ),
        r"ssh|pdsh", telling=r"not reachable via ssh", also=("unknown", "rendezvous-failed", "network-firewall-port"),
    ),
)  # fmt: skip
