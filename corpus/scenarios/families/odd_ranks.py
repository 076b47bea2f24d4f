"""One rank of several that stops by its own measure, has other settings, other rights, other files, or less of a host."""

from __future__ import annotations

import dataclasses
import signal
from functools import partial

from corpus.scenarios.acts import after, both, signal_rank
from corpus.scenarios.build import bare_ranks, torchrun
from corpus.scenarios.cgroups import Group
from corpus.scenarios.cluster import CONNECT_FAILED, DATA, cluster
from corpus.scenarios.families.collected import on_one, ranks
from corpus.scenarios.families.group_work import DISK, FOLDER, LOST, TIMED_OUT, _case
from corpus.scenarios.families.launchers import pods, spawned
from corpus.scenarios.network import HOSTS, firewalled, flat
from corpus.scenarios.scenario import Action, Culprit, Node, Scenario

FAILED = rf"{TIMED_OUT}|{LOST}|Error"
#: Less than a fiftieth of a processor is too little for these steps.
SLOW = Group("nccl-triage-quota", "cpu", 1000)


def as_user(nodes: tuple[Node, ...], index: int, user: int = 1000) -> tuple[Node, ...]:
    """Let one process run without the rights of root; each has a /srv of its own."""
    command = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")
    return tuple(
        dataclasses.replace(
            node,
            command=(*command, *node.command) if at == index else node.command,
            prelude="mount -t tmpfs tmpfs /srv",
        )
        for at, node in enumerate(nodes)
    )


def _vocabulary(host: int, there: bool) -> Node:
    made = "; echo '{\"a\": 1}' > /mnt/checkpoints/vocab.json" if there else ""
    return torchrun(
        "workbench.py",
        "vocabulary",
        *FOLDER,
        "--timeout",
        "12",
        nproc=2,
        host=host,
        nodes=2,
        tee=False,
        prelude=DISK + made,
    )


OWN_MEASURE = (
    _case(
        "patience", "rank-divergence", "patience", 6, 4, "--timeout", "8", how="torchrun",
        family="own-patience", injected="rank 4 stops by its own validation loss", expect=FAILED,
        telling=r"no improvement in 3", also=("collective-mismatch",),
    ),
    _case(
        "budget", "rank-divergence", "budget", 3, 1, "--timeout", "8", "--console", "glog", how="tasks",
        family="own-clock", injected="the clock of rank 1 ends its training earlier", expect=FAILED,
        telling=r"time budget used up", also=("collective-mismatch",),
    ),
    Scenario(
        id="setting_differs_w4", cause="rank-divergence", family="own-setting", world_size=4,
        injected="GRAD_ACCUM=4 on rank 3, 2 on the others",
        nodes=on_one(ranks("settings", 4, 3, "--timeout", "8", "--console", "pipes"), 3, "export GRAD_ACCUM=4"),
        culprit=Culprit(ranks=(3,)), expect=FAILED, telling=r"accumulation 4", also=("collective-mismatch",), deadline=100.0,
    ),
    _case(
        "short_group", "timeout-too-short", "short_group", 4, 2, "--timeout", "4", "--console", "json", how="torchrun",
        family="own-timeout", injected="the group of rank 2 has a time-out of 4 s, while rank 0 evaluates for 10 s",
        expect=TIMED_OUT, telling=r"evaluating 1200", also=("straggler",), culprit=Culprit(ranks=(0, 2)),
    ),
)  # fmt: skip

SLOWED = (
    Scenario(
        id="cpu_quota_w4", cause="straggler", family="cpu-quota", world_size=4,
        injected="rank 2 gets 1 % of a processor (cpu cgroup) from step 6 on",
        nodes=(torchrun("train.py", "--steps", "200", "--timeout", "3", tee=False),), network=SLOW.host,
        actions=(Action("step 6/", SLOW.take_rank(2)),), culprit=Culprit(ranks=(2,)), expect=FAILED, telling=TIMED_OUT,
        also=("rank-divergence",), determinable="partly", deadline=100.0,
    ),
    Scenario(
        id="stopped_continued_w3", cause="straggler", family="stopped-continued", world_size=3,
        injected="SIGSTOP of rank 0, SIGCONT 20 s later", nodes=pods(bare_ranks("train.py", "--steps", "200", "--timeout", "8", world_size=3)),
        actions=(Action("step 6/", both(signal_rank(0, signal.SIGSTOP), after(20, signal_rank(0, signal.SIGCONT)))),),
        culprit=Culprit(ranks=(0,)), expect=TIMED_OUT, telling=TIMED_OUT, also=("rank-divergence",), determinable="partly",
        deadline=70.0,
    ),
    _case(
        "stage_late", "straggler", "stages", 4, 1, "--timeout", "8", how="tee",
        family="stage-late", injected="stage 1 of 4 needs three time-outs for one micro batch", expect=FAILED,
        telling=TIMED_OUT, also=("rank-divergence",), determinable="partly",
    ),
    _case(
        "overlapped", "collective-mismatch", "overlapped", 4, 3, "--timeout", "8", how="tasks",
        family="async-size", injected="rank 3 starts an asynchronous all-reduce of another size", expect=FAILED,
        telling=FAILED, also=("rank-divergence",), determinable="partly",
    ),
)  # fmt: skip

FILES = (
    Scenario(
        id="vocabulary_second_host_w4", cause="application-exception", family="file-on-one-host", world_size=4,
        injected="the vocabulary lies on the first host's disk only", nodes=(_vocabulary(0, True), _vocabulary(1, False)),
        network=partial(flat, 2), culprit=Culprit(ranks=(2, 3), hosts=(HOSTS[1],)), expect=r"FileNotFoundError",
        telling=r"FileNotFoundError", also=("data-pipeline-failure", "storage-fault"), deadline=100.0,
    ),
    Scenario(
        id="half_config_w3", cause="application-exception", family="read-while-written", world_size=3,
        injected="rank 2 reads the configuration while rank 0 still writes it",
        nodes=(spawned("shared_config", 3, 2, *FOLDER, "--console", "glog", prelude=DISK),), culprit=Culprit(ranks=(2,)),
        expect=r"JSONDecodeError", telling=r"JSONDecodeError", also=("data-pipeline-failure",),
    ),
    Scenario(
        id="not_permitted_w4", cause="application-exception", family="other-user", world_size=4,
        injected="rank 1 runs as another user, who may not write the checkpoint",
        nodes=as_user(ranks("own_checkpoint", 4, 1, "--folder", "/srv"), 1), culprit=Culprit(ranks=(1,)),
        expect=r"PermissionError", telling=r"PermissionError", also=("storage-fault",),
    ),
    _case(
        "scorer_class", "application-exception", "share_scorer", 3, 2, "--console", "json", how="torchrun",
        family="object-class", injected="rank 2 cannot import the class of an object that rank 0 sends",
        expect=r"No module named", telling=r"No module named", also=("framework-version-incompatibility",),
    ),
    _case(
        "alarm", "process-crashed", "alarm", 4, 3, how="tee", family="alarm",
        injected="SIGALRM ends rank 3", expect=r"exitcode\s*: -14", telling=r"failed \(exitcode: -14\)",
    ),
    Scenario(
        id="firewall_pair_w3", cause="network-firewall-port", family="firewall-pair", world_size=3,
        injected="the second and third host drop each other's packets, both reach the first",
        nodes=cluster("train.py", "--timeout", "15", counts=(1, 1, 1), tee=False),
        network=partial(firewalled, 3, {2: (f"INPUT -i eth0 -s 10.0.0.2 {DATA} -j DROP",), 1: (f"INPUT -i eth0 -s 10.0.0.3 {DATA} -j DROP",)}),
        culprit=Culprit(hosts=(HOSTS[1], HOSTS[2])), expect=CONNECT_FAILED, telling=CONNECT_FAILED,
        also=("network-unreachable-subnet", "network-link-fault"), determinable="partly", needs=("firewall",), deadline=120.0,
    ),
)  # fmt: skip

SCENARIOS = (*OWN_MEASURE, *SLOWED, *FILES)
