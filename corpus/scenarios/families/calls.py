"""Calls that one rank makes otherwise, two ranks that fail alike, signals under collectors of several hosts."""

from __future__ import annotations

import signal
from functools import partial

from corpus.scenarios.acts import signal_rank
from corpus.scenarios.build import torchrun
from corpus.scenarios.families.collected import collected, on_one, ranks
from corpus.scenarios.families.group_work import LOST, TIMED_OUT, _case
from corpus.scenarios.families.launchers import pods
from corpus.scenarios.network import HOSTS, flat
from corpus.scenarios.scenario import Action, Culprit, Node, Scenario

FAILED = rf"{TIMED_OUT}|{LOST}|Error"
DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}


def collected_hosts(style: str, *words: str, hosts: int = 2) -> tuple[Node, ...]:
    """Return hosts of two ranks each whose lines a collector of logs has prefixed."""
    return tuple(
        collected(torchrun("train.py", *words, nproc=2, host=host, nodes=hosts, tee=False), style)
        for host in range(hosts)
    )


CALLS = (
    _case(
        "scatter_by_other", "application-exception", "scatter_settings", 4, 2, "--timeout", "8", how="torchrun",
        family="scatter-list", injected="rank 2, which is not the root, gives a list to scatter", expect=r"scatter_list",
        telling=r"scatter_list", also=("collective-mismatch",),
    ),
    _case(
        "reduce_before_group", "application-exception", "statistics_first", 4, 3, "--timeout", "8", "--console", "glog",
        how="tasks", family="before-group", injected="rank 3 reduces before it has made the process group",
        expect=r"has not been initialized", telling=r"has not been initialized",
    ),
    _case(
        "group_twice", "application-exception", "second_setup", 3, 1, "--timeout", "8", "--console", "json", how="pods",
        family="group-twice", injected="rank 1 makes the default process group twice", expect=r"twice", telling=r"twice",
        env=DETAIL,
    ),
    _case(
        "clip_reader_exits", "data-pipeline-failure", "clips", 5, 4, "--timeout", "8", "--console", "pipes", how="torchrun",
        family="loader-worker-exits", injected="a data loader's worker of rank 4 leaves with code 3",
        expect=r"exited unexpectedly", telling=r"exited unexpectedly",
    ),
    _case(
        "two_tables", "application-exception", "two_tables", 6, 2, "--timeout", "8", how="tee", family="two-raise",
        injected="ranks 2 and 5 raise KeyError", expect=r"KeyError: 'fr'", telling=r"KeyError: 'fr'",
        culprit=Culprit(ranks=(2, 5)),
    ),
    Scenario(
        id="own_limit_w5", cause="rank-divergence", family="own-max-steps", world_size=5,
        injected="MAX_STEPS=25 on rank 3, 40 on the others; who is done leaves with code 0 without a word",
        nodes=pods(on_one(ranks("own_limit", 5, 3, "--timeout", "8"), 3, "export MAX_STEPS=25")),
        culprit=Culprit(ranks=(3,)), expect=LOST, telling=LOST, also=("process-crashed", "unknown", "host-out-of-memory"),
        determinable="partly", deadline=60.0,
    ),
)  # fmt: skip

COLLECTED = (
    Scenario(
        id="journal_stopped_w4", cause="straggler", family="collected-stopped-hosts", world_size=4,
        injected="SIGSTOP of rank 3 on the second host; lines as journald writes them",
        nodes=collected_hosts("journal", "--steps", "300", "--timeout", "8"), network=partial(flat, 2),
        actions=(Action("step 6/", signal_rank(3, signal.SIGSTOP)),), culprit=Culprit(ranks=(3,), hosts=(HOSTS[1],)),
        expect=TIMED_OUT, telling=TIMED_OUT, also=("rank-divergence",), determinable="partly", deadline=60.0,
    ),
    Scenario(
        id="compose_killed_w6", cause="process-crashed", family="collected-killed-hosts", world_size=6,
        injected="SIGKILL of rank 2 on the second of three hosts; lines as docker compose writes them",
        nodes=collected_hosts("compose", "--steps", "300", "--timeout", "10", hosts=3), network=partial(flat, 3),
        actions=(Action("step 6/", signal_rank(2, signal.SIGKILL)),), culprit=Culprit(ranks=(2,), hosts=(HOSTS[1],)),
        expect=r"exitcode\s*: -9", telling=r"failed \(exitcode: -9\)", also=("host-out-of-memory",), deadline=60.0,
    ),
)  # fmt: skip

SCENARIOS = (*CALLS, *COLLECTED)
