"""Wrappers whose calls are collectives, called by some ranks only; and consoles that show a summary alone."""

from __future__ import annotations

from corpus.scenarios.build import torchrun
from corpus.scenarios.families.group_work import LOST, TIMED_OUT, _case
from corpus.scenarios.scenario import Culprit, Scenario

FAILED = rf"{TIMED_OUT}|{LOST}|Error|doesn't match expected size"
DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}

CALLS = (
    _case(
        "consolidate_on_main", "rank-divergence", "consolidate", 4, 0, "--timeout", "8", how="torchrun",
        family="consolidate-on-main", injected="rank 0 alone consolidates the sharded optimizer", expect=FAILED,
        telling=r"in save_optimizer", also=("collective-mismatch",),
    ),
    _case(
        "export_on_main", "rank-divergence", "full_state", 3, 0, "--timeout", "8", "--console", "glog", how="tasks",
        family="export-on-main", injected="rank 0 alone gathers the full weights of an FSDP2 model", expect=FAILED,
        telling=r"in export_weights", also=("collective-mismatch",),
    ),
    _case(
        "accumulation_differs", "rank-divergence", "no_sync", 4, 3, "--timeout", "8", how="tee",
        family="no-sync", injected="rank 3 exchanges gradients half as often (no_sync)", expect=FAILED,
        telling=rf"{TIMED_OUT}|{LOST}", also=("collective-mismatch", "straggler"), determinable="partly",
    ),
    _case(
        "empty_validation", "rank-divergence", "empty_metrics", 4, 2, "--timeout", "8", "--console", "pipes", how="tasks",
        family="empty-validation", injected="rank 2 has no validation sample and leaves out the all-reduce of the metric",
        expect=FAILED, telling=r"validation samples: 0", also=("collective-mismatch",),
    ),
    _case(
        "empty_validation_detail", "rank-divergence", "empty_metrics", 3, 1, "--timeout", "8", how="torchrun", env=DETAIL,
        family="empty-validation", injected="rank 1 has no validation sample and leaves out the all-reduce, DETAIL",
        expect=FAILED, telling=r"Detected mismatch|validation samples: 0", also=("collective-mismatch",),
    ),
    _case(
        "halo_not_received", "collective-mismatch", "unposted_receive", 4, 2, "--timeout", "8", how="tasks",
        family="halo", injected="rank 2 posts no receive for what rank 1 sends", expect=FAILED,
        telling=rf"{TIMED_OUT}|{LOST}", also=("rank-divergence", "straggler"), determinable="partly",
        culprit=Culprit(ranks=(1, 2)),
    ),
    _case(
        "other_mesh_dimension", "collective-mismatch", "other_dimension", 4, 3, "--timeout", "8", "--console", "json",
        how="pods", family="mesh-dimension", injected="rank 3 reduces over the other dimension of the mesh", expect=FAILED,
        telling=rf"{TIMED_OUT}|{LOST}", also=("rank-divergence", "straggler", "unknown"), determinable="partly",
    ),
    _case(
        "token_batches", "rank-divergence", "uneven_accumulation", 3, 0, "--timeout", "8", "--console", "glog", how="spawn",
        family="token-batches", injected="rank 0 has three batches fewer", expect=FAILED,
        telling=r"epoch 0 over after 9", also=("collective-mismatch", "data-pipeline-failure"),
    ),
    _case(
        "wrapped_healthy", "healthy", "wrapped_healthy", 3, 0, "--console", "glog", how="spawn",
        family="healthy-wrapped", injected="nothing", expect="done",
    ),
)  # fmt: skip

SUMMARIES = (
    Scenario(
        id="summary_with_traceback_w4", cause="application-exception", family="summary", world_size=4,
        injected="rank 2 raises; the console has torchrun's summary alone, with the recorded traceback",
        nodes=(
            torchrun(
                "collectives.py", "--exchange", "reward", "--odd-rank", "2", nproc=4, tee=False,
                options=("--log-dir", "{logs}", "--redirects", "3"),
            ),
        ),
        culprit=Culprit(ranks=(2,)), expect=r"reward model returned no score", telling=r"reward model returned no score",
    ),
    Scenario(
        id="summary_of_victims_w3", cause="rank-divergence", family="summary", world_size=3,
        injected="rank 1 leaves early with code 0; the console has torchrun's summary alone",
        nodes=(
            torchrun(
                "collectives.py", "--exchange", "early_destroy", "--odd-rank", "1", nproc=3, tee=False,
                options=("--log-dir", "{logs}", "--redirects", "3"),
            ),
        ),
        culprit=Culprit(ranks=(1,)), expect=rf"{LOST}|Error", also=("unknown", "process-crashed"), determinable="partly",
        telling=LOST,
    ),
)  # fmt: skip

SCENARIOS = (*CALLS, *SUMMARIES)
