"""Groups that do not begin with rank 0, signals to one rank, and what one host or one rank alone lacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from corpus.scenarios.build import bare_ranks, torchrun
from corpus.scenarios.cluster import cluster
from corpus.scenarios.families.collected import on_one, ranks
from corpus.scenarios.families.group_work import DISK, FOLDER, LOST, TIMED_OUT, _case
from corpus.scenarios.families.launchers import pods
from corpus.scenarios.network import HOSTS, flat, sh
from corpus.scenarios.recorder import Run
from corpus.scenarios.scenario import Action, Culprit, Node, Scenario

FAILED = rf"{TIMED_OUT}|{LOST}|Error"
DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
SECOND = Culprit(ranks=(2, 3), hosts=(HOSTS[1],))


def address_gone(host: int) -> Callable[[Run], str]:
    """Take the address away from a host's interface."""

    def act(run: Run) -> str:
        address = f"10.0.0.{host + 1}/24"
        sh(f"ip -n {run.lab.hosts[host]} addr del {address} dev eth0")
        return f"{HOSTS[host]}: ip addr del {address} dev eth0"

    return act


def two_hosts(routine: str, *words: str, first: str = "", second: str = "", tee: bool = False) -> tuple[Node, ...]:
    """Return two hosts of two ranks each with one torchrun each, started after some shell of their own."""
    arguments = (routine, "--timeout", "12", *words)
    return tuple(
        torchrun("workbench.py", *arguments, nproc=2, host=host, nodes=2, tee=tee, prelude=prelude)
        for host, prelude in enumerate((first, second))
    )


HALVES = (
    _case(
        "half_shape_detail", "collective-mismatch", "expert_exchange", 6, 4, "--timeout", "10", how="torchrun", env=DETAIL,
        family="half-shape", injected="rank 4 (rank 1 of the second half's group) reduces another size, DETAIL",
        expect=r"mismatch", telling=r"Detected mismatch",
    ),
    _case(
        "half_barrier", "rank-divergence", "expert_barrier", 6, 5, "--timeout", "12", "--console", "glog", how="tasks",
        family="half-barrier", injected="rank 5 (rank 2 of the second half's group) leaves out a monitored barrier",
        expect=r"monitoredBarrier|failed to pass", telling=r"failed to pass|monitoredBarrier",
        also=("straggler", "collective-mismatch"),
    ),
    _case(
        "stage_beyond", "collective-mismatch", "next_stage", 4, 3, "--timeout", "8", "--console", "pipes", how="spawn",
        family="invalid-peer", injected="rank 3 sends to a rank that does not exist", expect=TIMED_OUT,
        telling=r"Timed out waiting|waitForInput", also=("rank-divergence", "straggler", "application-exception"), determinable="partly",
    ),
)  # fmt: skip

SIGNALS = (
    _case(
        "interrupt_one", "job-preempted", "interrupt", 4, 2, "--timeout", "10", "--console", "glog", how="tasks",
        family="interrupt-one-rank", injected="SIGINT of rank 2 alone", expect=r"KeyboardInterrupt", telling=r"KeyboardInterrupt",
        also=("application-exception", "process-crashed", "rank-divergence"),
    ),
    _case(
        "quit_one", "process-crashed", "quit", 3, 1, how="torchrun", family="sigquit", injected="SIGQUIT of rank 1 alone",
        expect=r"exitcode\s*: -3", telling=r"failed \(exitcode: -3\)", also=("job-preempted",),
    ),
    _case(
        "endless_lookup", "process-crashed", "nested_settings", 4, 0, how="tee", family="stack-overflow",
        injected="rank 0 overflows its stack", expect=r"exitcode\s*: -11", telling=r"failed \(exitcode: -11\)",
        also=("application-exception",),
    ),
)  # fmt: skip

HOSTS_APART = (
    Scenario(
        id="disk_full_second_host_w4", cause="storage-fault", family="disk-full-one-host", world_size=4,
        injected="the disk of the second host has 3 MiB", network=partial(flat, 2), culprit=SECOND,
        nodes=two_hosts("rotating", *FOLDER, "--console", "pipes", first=DISK,
                        second=f"{DISK} && mount -t tmpfs -o size=3m tmpfs /mnt/checkpoints"),
        expect=r"No space left|PytorchStreamWriter|unexpected pos", telling=r"No space left|PytorchStreamWriter|unexpected pos",
        deadline=90.0,
    ),
    Scenario(
        id="shm_small_second_host_w4", cause="shared-memory-exhausted", family="shm-one-host", world_size=4,
        injected="/dev/shm of the second host has 4 MiB", network=partial(flat, 2), culprit=SECOND,
        nodes=two_hosts("loader", second="mount -t tmpfs -o size=4m tmpfs /dev/shm", tee=True),
        expect=r"shared memory|Bus error|No space left", telling=r"out of shared memory|insufficient shared memory|unable to",
        deadline=90.0,
    ),
    Scenario(
        id="handles_one_rank_w4", cause="os-limit", family="files-one-rank", world_size=4,
        injected="ulimit -n 96 on rank 1 alone", culprit=Culprit(ranks=(1,)),
        nodes=pods(on_one(ranks("handles", 4, 1, "--timeout", "10", "--folder", "/mnt", "--console", "json"), 1, "ulimit -n 96")),
        expect=r"Too many open files", telling=r"Too many open files",
    ),
    _case(
        "local_loss_nan", "numerical-divergence", "local_loss", 4, 2, how="torchrun", family="local-nan",
        injected="the loss of rank 2 is NaN; all notice it in the mean", expect=r"FloatingPointError",
        telling=r"r2 step 12 local loss nan|FloatingPointError",
    ),
    _case(
        "index_first", "straggler", "index_first", 6, 4, "--timeout", "6", how="tasks", family="busy-before-join",
        injected="rank 4 builds an index for four time-outs before it joins", expect=FAILED, telling=r"indexing 48210",
        also=("rendezvous-failed", "timeout-too-short"),
    ),
    Scenario(
        id="localhost_master_w4", cause="rendezvous-failed", family="localhost-address", world_size=4,
        injected="MASTER_ADDR=localhost on both hosts", network=partial(flat, 2), culprit=SECOND,
        nodes=bare_ranks("workbench.py", "healthy", "--timeout", "8", world_size=4, hosts=2, env={"MASTER_ADDR": "localhost"}),
        expect=r"localhost|127\.0\.0\.1", telling=r"localhost|127\.0\.0\.1", also=("network-wrong-interface",), deadline=60.0,
    ),
    Scenario(
        id="address_removed_w4", cause="network-link-fault", family="address-removed", world_size=4,
        injected="the second host loses its address while the job runs", network=partial(flat, 2),
        nodes=cluster("train.py", "--steps", "200", "--timeout", "10", tee=False), actions=(Action("step 6/", address_gone(1)),),
        culprit=Culprit(hosts=(HOSTS[1],), ranks=(2, 3)), expect=FAILED, telling=FAILED,
        also=("network-unreachable-subnet", "network-firewall-port", "straggler"), determinable="partly", deadline=90.0,
    ),
)  # fmt: skip

SCENARIOS = (*HALVES, *SIGNALS, *HOSTS_APART)
