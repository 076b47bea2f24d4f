"""Ranks at another pace, groups of every second rank, calls too many, ends without words under several launchers."""

from __future__ import annotations

from functools import partial

from corpus.scenarios.build import torchrun
from corpus.scenarios.families.collected import collected
from corpus.scenarios.families.group_work import LOST, TIMED_OUT, _case
from corpus.scenarios.families.launchers import spawned
from corpus.scenarios.network import HOSTS, flat
from corpus.scenarios.scenario import Culprit, Scenario

FAILED = rf"{TIMED_OUT}|{LOST}|Error"
DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
TALKATIVE = {"TORCH_CPP_LOG_LEVEL": "INFO", "TORCH_DISTRIBUTED_DEBUG": "INFO"}

SCENARIOS = (
    _case(
        "mean_once_more", "rank-divergence", "second_mean", 6, 1, "--timeout", "8", "--console", "glog", how="torchrun",
        env=DETAIL, family="extra-call", injected="rank 1 makes one all-reduce more, DETAIL", expect=r"mismatch|Mismatch",
        telling=r"Detected mismatch", also=("collective-mismatch",),
    ),
    _case(
        "stripe_dtype_detail", "collective-mismatch", "stripe_exchange", 6, 5, "--timeout", "8", how="tasks", env=DETAIL,
        family="stripe-dtype", injected="rank 5 (rank 2 of the group 1, 3, 5) reduces another type, DETAIL",
        expect=r"Detected mismatch", telling=r"Detected mismatch",
    ),
    _case(
        "stripe_barrier_late", "straggler", "stripe_barrier", 6, 3, "--timeout", "10", "--console", "pipes", how="torchrun",
        family="stripe-barrier", injected="rank 3 (rank 1 of the group 1, 3, 5) comes late to a monitored barrier",
        expect=r"monitoredBarrier", telling=r"failed to pass|monitoredBarrier", also=("rank-divergence", "timeout-too-short"),
    ),
    _case(
        "own_step_time", "straggler", "own_step_time", 4, 2, "--timeout", "8", how="tasks", family="own-step-time",
        injected="each step of rank 2 takes twice as long as the one before", expect=FAILED,
        telling=r"r2 step \d+: forward and backward took [1-9]", also=("timeout-too-short", "rank-divergence"),
    ),
    _case(
        "stands_still_info", "straggler", "stands_still", 6, 3, "--timeout", "8", how="tee", env=TALKATIVE,
        family="stands-still", injected="rank 3 sleeps for four time-outs and says nothing", expect=TIMED_OUT,
        telling=TIMED_OUT, also=("rank-divergence", "timeout-too-short"), determinable="partly",
    ),
    Scenario(
        id="spawn_stands_still_w4", cause="straggler", family="spawn-stands-still", world_size=4,
        injected="rank 1 of torch.multiprocessing.spawn sleeps; the console names no ranks",
        nodes=(spawned("stands_still", 4, 1, "--timeout", "8", "--console", "bare"),), culprit=Culprit(ranks=(1,)),
        expect=TIMED_OUT, telling=TIMED_OUT, also=("rank-divergence", "collective-mismatch", "unknown"), determinable="partly",
    ),
    Scenario(
        id="processes_code_w5", cause="application-exception", family="processes-code", world_size=5,
        injected="rank 3 of a home-made launcher leaves with code 7 without a word",
        nodes=(spawned("leave_with_code", 5, 3, "--timeout", "8", "--patient", how="--processes"),),
        culprit=Culprit(ranks=(3,)), expect=r"Worker-3 exited with code 7", telling=r"Worker-3 exited with code 7",
        also=("process-crashed", "unknown", "rank-divergence"), determinable="partly",
    ),
    Scenario(
        id="compose_quiet_leave_w6", cause="rank-divergence", family="collected-quiet-hosts", world_size=6,
        injected="rank 3, on the second of three hosts, ends with os._exit(0); lines as docker compose writes them",
        nodes=tuple(
            collected(
                torchrun("workbench.py", "quiet_leave", "--odd", "3", "--timeout", "10", nproc=2, host=host, nodes=3, tee=False),
                "compose",
            )
            for host in range(3)
        ),
        network=partial(flat, 3), culprit=Culprit(ranks=(3,), hosts=(HOSTS[1],)), expect=LOST, telling=LOST,
        also=("process-crashed", "unknown", "host-out-of-memory"), determinable="partly", deadline=90.0,
    ),
)  # fmt: skip
