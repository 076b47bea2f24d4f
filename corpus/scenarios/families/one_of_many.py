"""One rank that validates, freezes or loads otherwise; ranks that watch each other; hosts that were set up otherwise."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from corpus.scenarios.build import torchrun
from corpus.scenarios.cgroups import Group
from corpus.scenarios.cluster import CONNECT_FAILED, cluster
from corpus.scenarios.families.collected import on_one, ranks, service
from corpus.scenarios.families.group_work import DISK, FOLDER, LOST, TIMED_OUT, _case
from corpus.scenarios.families.launchers import spawned
from corpus.scenarios.network import HOSTS, Lab, flat, sh
from corpus.scenarios.scenario import Action, Culprit, Node, Scenario

FAILED = rf"{TIMED_OUT}|{LOST}|Error"
KILLED = ("process-crashed", "unknown")
SMALL = Group("nccl-triage-small", "memory", 120 << 20)


@contextmanager
def wrong_neighbour(hosts: int, host: int, other: int) -> Iterator[Lab]:
    """Yield hosts in one network of which one has an old hardware address for another."""
    with flat(hosts) as made:
        sh(f"ip -n {made.hosts[host]} neigh replace 10.0.0.{other + 1} lladdr 02:00:5e:10:00:07 dev eth0 nud permanent")
        yield made


def second_host(*command: str, counts: int = 2) -> tuple[Node, ...]:
    """Return two hosts with one torchrun each; the command of the second is begun with other words."""
    first, second = cluster("workbench.py", "healthy", "--timeout", "12", counts=(counts, counts), tee=False,
                            options=("--rdzv-conf", "timeout=20"))  # fmt: skip
    return first, dataclasses.replace(second, command=(*command, *second.command[1:]))


MODELS = (
    _case(
        "repeated_batch", "rank-divergence", "spike", 3, 1, "--timeout", "8", how="torchrun",
        family="repeated-batch", injected="rank 1 alone computes a batch twice", expect=FAILED,
        telling=r"repeating the batch", also=("collective-mismatch",),
    ),
    _case(
        "full_tensor", "rank-divergence", "full_tensor", 4, 1, "--timeout", "8", "--console", "glog", how="tasks",
        family="full-tensor", injected="rank 1 alone puts a sharded tensor together", expect=FAILED,
        telling=r"in full_tensor|in look_at_norms|inspecting embedding", also=("collective-mismatch",),
    ),
    _case(
        "frozen_layers", "rank-divergence", "frozen", 3, 2, "--timeout", "8", "--console", "json", how="torchrun",
        family="frozen-layers", injected="rank 2 has one layer more frozen under FSDP2", expect=FAILED,
        telling=r"trainable parameters: 4160\b", also=("collective-mismatch",),
    ),
    _case(
        "older_checkpoint", "application-exception", "resume_width", 4, 2, *FOLDER, how="tee", prelude=DISK,
        family="older-checkpoint", injected="the checkpoint of rank 2 is of a narrower model", expect=r"size mismatch for",
        telling=r"Error\(s\) in loading state_dict", also=("parallel-layout-mismatch",),
    ),
)  # fmt: skip

WATCHED = (
    _case(
        "sync_counter", "straggler", "counter", 5, 3, "--timeout", "8", "--console", "pipes", how="tasks",
        family="own-barrier", injected="rank 3 comes four time-outs late to a barrier of the job's own", expect=r"TimeoutError",
        telling=r"still waiting for ranks \[3\]|ranks \[3\] missing", also=("rank-divergence", "timeout-too-short"),
    ),
    _case(
        "heartbeat", "straggler", "heartbeat", 4, 2, "--timeout", "30", how="torchrun",
        family="own-heartbeat", injected="rank 2 sleeps; rank 0 misses its heartbeat and ends the job",
        expect=r"no heartbeat from rank 2", telling=r"no heartbeat from rank 2", also=("rank-divergence", "process-crashed"),
    ),
    Scenario(
        id="run_folder_w4", cause="application-exception", family="shared-folder", world_size=4,
        injected="rank 3 makes a folder that rank 0 has made",
        nodes=(spawned("run_folder", 4, 3, *FOLDER, "--console", "pipes", prelude=DISK),), culprit=Culprit(ranks=(3,)),
        expect=r"FileExistsError", telling=r"FileExistsError", also=("storage-fault",),
    ),
    Scenario(
        id="stdout_closed_w3", cause="application-exception", family="stdout-closed", world_size=3,
        injected="whoever reads the standard output of rank 0 ends after some lines",
        nodes=tuple(
            dataclasses.replace(node, command=("bash", "-c", '"$@" | head -n 20', "rank.sh", *node.command)) if at == 0 else node
            for at, node in enumerate(ranks("chatty", 3, 0, "--timeout", "12"))
        ),
        culprit=Culprit(ranks=(0,)), expect=r"BrokenPipeError", telling=r"BrokenPipeError",
        also=("process-crashed", "terminal-hangup"), deadline=60.0,
    ),
)  # fmt: skip

SET_UP = (
    Scenario(
        id="debug_one_rank_w3", cause="collective-mismatch", family="own-debug", world_size=3,
        injected="TORCH_DISTRIBUTED_DEBUG=DETAIL on rank 1 only",
        nodes=on_one(ranks("healthy", 3, 1, "--timeout", "8"), 1, "export TORCH_DISTRIBUTED_DEBUG=DETAIL"),
        culprit=Culprit(ranks=(1,)), expect=FAILED, telling=FAILED,
        also=("rank-divergence", "rendezvous-failed", "straggler", "unknown"), determinable="partly",
    ),
    Scenario(
        id="memory_no_launcher_w4", cause="host-out-of-memory", family="memory-no-launcher", world_size=4,
        injected="the memory cgroup of rank 3 is too small; nobody reports its end",
        nodes=ranks("growing", 4, 3, "--timeout", "10"), network=SMALL.host,
        actions=(Action("iter 3", SMALL.take_rank(3)),), culprit=Culprit(ranks=(3,)), expect=LOST, telling=LOST,
        also=KILLED, determinable="partly", needs=("memory-cgroup",),
    ),
    Scenario(
        id="torchless_host_w4", cause="framework-version-incompatibility", family="other-python", world_size=4,
        injected="the second host's python has no torch",
        nodes=second_host("/usr/bin/python3", "-m", "torch.distributed.run"),
        network=partial(flat, 2), culprit=Culprit(hosts=(HOSTS[1],)), expect=r"No module named '?torch",
        telling=r"No module named '?torch", also=("application-exception", "rendezvous-failed"),
    ),
    Scenario(
        id="older_script_w4", cause="application-exception", family="other-script", world_size=4,
        injected="the second host's script knows an option less", network=partial(flat, 2),
        nodes=(
            torchrun("workbench.py", "healthy", "--timeout", "12", nproc=2, host=0, nodes=2),
            torchrun("workbench.py", "healthy", "--timeout", "12", "--grad-clip", "1.0", nproc=2, host=1, nodes=2),
        ),
        culprit=Culprit(ranks=(2, 3), hosts=(HOSTS[1],)), expect=r"unrecognized arguments", telling=r"unrecognized arguments",
        also=("framework-version-incompatibility",), deadline=100.0,
    ),
    Scenario(
        id="old_neighbour_w3", cause="network-link-fault", family="neighbour-entry", world_size=3,
        injected="the third host has an old hardware address for the second: its packets go nowhere",
        nodes=cluster("train.py", "--timeout", "15", counts=(1, 1, 1), tee=False), network=partial(wrong_neighbour, 3, 2, 1),
        culprit=Culprit(hosts=(HOSTS[1], HOSTS[2])), expect=CONNECT_FAILED, telling=CONNECT_FAILED,
        also=("network-unreachable-subnet", "network-firewall-port"), determinable="partly", deadline=120.0,
    ),
)  # fmt: skip


def _ray(name: str, cause: str, trouble: str, expect: str, injected: str, why: str) -> Scenario:
    return Scenario(
        id=f"ray_{name}_w2", cause=cause, family=f"ray-{name.replace('_', '-')}", injected=injected,
        nodes=service(trouble), world_size=2, expect=expect, telling=expect, needs=("ray",), culprit=Culprit(why=why),
        also=("straggler", "unknown") if trouble == "crossed" else (),
        deadline=150.0,
    )  # fmt: skip


RAY = (
    _ray(
        "named_actor",
        "application-exception",
        "named",
        r"Failed to look up actor",
        "an actor is looked up by a name that nobody has",
        "the driver",
    ),
    _ray(
        "crossed_calls",
        "rank-divergence",
        "crossed",
        r"GetTimeoutError",
        "two actors wait for each other's answer",
        "both actors",
    ),
)

SCENARIOS = (*MODELS, *WATCHED, *SET_UP, *RAY)
