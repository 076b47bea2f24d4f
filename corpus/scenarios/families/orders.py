"""Messages and failures whose order tells who was first; hosts that find no names; healthy runs that name ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

from corpus.scenarios.cluster import SOON, cluster
from corpus.scenarios.families.collected import on_one, ranks
from corpus.scenarios.families.group_work import LOST, TIMED_OUT, _case
from corpus.scenarios.families.launchers import pods
from corpus.scenarios.network import HOSTS, Lab, flat
from corpus.scenarios.scenario import Culprit, Scenario

FAILED = rf"{TIMED_OUT}|{LOST}|Error"
UNMET = ("rank-divergence", "straggler", "unknown")


@contextmanager
def nameless(hosts: int, host: int) -> Iterator[Lab]:
    """Yield hosts in one network of which one knows no names but its own."""
    with flat(hosts) as made:
        made.names(host, {HOSTS[host]: f"10.0.0.{host + 1}"})
        yield made


MESSAGES = (
    _case(
        "stage_counts_less", "collective-mismatch", "one_forward", 4, 2, "--timeout", "8", how="tee", family="stage-counts",
        injected="stage 2 expects one micro batch less than the others", expect=FAILED, telling=TIMED_OUT, also=UNMET,
        determinable="partly",
    ),
    _case(
        "stage_skips_one", "collective-mismatch", "skip_connection", 4, 3, "--timeout", "8", "--console", "glog", how="tasks",
        family="stage-skips", injected="stage 3 receives from stage 1, which sends to stage 2", expect=FAILED,
        telling=TIMED_OUT, also=UNMET, determinable="partly", culprit=Culprit(ranks=(3, 2)),
    ),
)  # fmt: skip

FIRST = (
    _case(
        "summary_fails_too", "application-exception", "summary_at_end", 6, 4, "--timeout", "8", how="torchrun",
        family="second-exception", injected="ValueError on rank 4; the others' cleaning up raises KeyError",
        expect=r"50257 is not in list|is not in list", telling=r"ValueError",
    ),
    _case(
        "summary_fails_too_tasks", "application-exception", "summary_at_end", 4, 1, "--timeout", "8", "--console", "json",
        how="tasks", family="second-exception", injected="ValueError on rank 1; the others' cleaning up raises KeyError",
        expect=r"is not in list", telling=r"ValueError",
    ),
    _case(
        "main_without_settings", "application-exception", "settings_before", 4, 0, "--timeout", "8", "--console", "pipes",
        how="tasks", family="main-fails-first", injected="a variable is not set on rank 0, which hosts the store",
        expect=r"KeyError: 'TRAIN_SETTINGS_FILE'", telling=r"KeyError: 'TRAIN_SETTINGS_FILE'",
    ),
    Scenario(
        id="one_rank_too_late_w5", cause="rendezvous-failed", family="rank-too-late", world_size=5,
        injected="rank 2 starts 20 s after the others, who wait 8 s",
        nodes=pods(on_one(ranks("healthy", 5, 2, "--timeout", "8"), 2, "sleep 20")), culprit=Culprit(ranks=(2,)),
        expect=r"4/5 clients joined|[Tt]imed out", telling=r"4/5 clients joined|[Tt]imed out",
        also=("straggler", "timeout-too-short"), deadline=80.0,
    ),
    Scenario(
        id="nameless_host_w3", cause="rendezvous-failed", family="names-one-host", world_size=3,
        injected="the third host cannot resolve the first one's name",
        nodes=tuple(
            dataclasses.replace(node, command=tuple(HOSTS[0] if word == "10.0.0.1" else word for word in node.command))
            for node in cluster("train.py", "--timeout", "12", counts=(1, 1, 1), tee=False, options=SOON)
        ),
        network=lambda: nameless(3, 2), culprit=Culprit(hosts=(HOSTS[2],), ranks=(2,)),
        expect=r"(?i)cannot be retrieved|not known|resolve|EAI_|gai error", telling=r"not known|resolve|gai error|gaierror",
        also=("network-unreachable-subnet",), deadline=90.0,
    ),
)  # fmt: skip

HEALTHY = (
    _case(
        "healthy_waits_named", "healthy", "impatient_barrier", 4, 2, how="torchrun", family="healthy-own-barrier",
        injected="nothing that stays: rank 2 comes late to a barrier that names it", expect=r"still waiting for(?s:.*)done",
    ),
    _case(
        "healthy_unequal_shards", "healthy", "unequal_shards", 3, 1, "--console", "glog", how="tasks",
        family="healthy-unequal", injected="nothing: rank 1 has fewer samples, and all know it", expect=r"done",
    ),
)  # fmt: skip

SCENARIOS = (*MESSAGES, *FIRST, *HEALTHY)
