"""Ranks that compare what they have and print it, ranks that give up, hosts of which one of several is cut off."""

from __future__ import annotations

import dataclasses
from functools import partial

from corpus.scenarios.acts import firewall, link
from corpus.scenarios.cluster import CONNECT_FAILED, DATA, DROP_DATA_IN, cluster
from corpus.scenarios.families.collected import ranks
from corpus.scenarios.families.group_work import LOST, TIMED_OUT, _case
from corpus.scenarios.families.launchers import pods
from corpus.scenarios.network import HOSTS, firewalled, flat
from corpus.scenarios.scenario import Action, Culprit, Node, Scenario

FAILED = rf"{TIMED_OUT}|{LOST}|Error"
DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "TORCH_CPP_LOG_LEVEL": "INFO"}
CUT_OFF = ("network-unreachable-subnet", "network-firewall-port")


def met_by_file(nodes: tuple[Node, ...], index: int) -> tuple[Node, ...]:
    """Let processes meet over a file in the current folder, one of them over a file of another name."""
    return tuple(
        dataclasses.replace(
            node,
            command=("bash", "-c", 'exec "$@" --endpoint file:///tmp/rdzv/$MEET', "rank.sh", *node.command),
            env={**node.env, "MEET": "run-0412b" if at == index else "run-0412"},
        )
        for at, node in enumerate(nodes)
    )


COMPARED = (
    _case(
        "seeds_differ", "application-exception", "same_seed", 4, 2, "--console", "glog", how="tasks", family="own-check",
        injected="rank 2 has another seed; all notice it", expect=r"seeds differ between ranks", telling=r"seeds differ between",
        also=("rank-divergence",),
    ),
    _case(
        "vocabulary_differs", "application-exception", "same_vocabulary", 4, 3, how="torchrun", family="own-checksum",
        injected="rank 3 has another vocabulary; rank 0 notices it and ends", expect=r"vocabulary of rank 3 differs",
        telling=r"vocabulary of rank 3 differs", also=("rank-divergence", "data-pipeline-failure", "unknown"),
    ),
    _case(
        "times_by_rank", "straggler", "step_times", 4, 1, "--timeout", "8", "--console", "pipes", how="torchrun",
        family="times-by-rank", injected="rank 1 gets slower, at last for four time-outs", expect=FAILED,
        telling=r"seconds by rank \[0\.\d+, 0\.5", also=("rank-divergence",),
    ),
    _case(
        "flags_by_rank", "numerical-divergence", "finite_flags", 5, 3, "--console", "json", how="torchrun",
        family="flags-by-rank", injected="gradients of rank 3 are not finite; all ranks leave with code 3",
        expect=r"not finite on ranks \[3\]", telling=r"not finite on ranks \[3\]", also=("application-exception",),
    ),
)  # fmt: skip

ALONE = (
    _case(
        "rate_limited", "straggler", "rate_limit", 6, 4, "--timeout", "8", how="tasks", family="rate-limited",
        injected="rank 4 waits for an object store that limits requests", expect=rf"429 Too Many(?s:.*)(?:{TIMED_OUT})",
        telling=r"429 Too Many Requests", also=("data-pipeline-failure", "timeout-too-short", "rank-divergence"),
    ),
    _case(
        "transposed", "application-exception", "transposed", 4, 1, "--timeout", "8", how="tee", env=DETAIL,
        family="not-contiguous", injected="rank 1 reduces a tensor that is not contiguous, DETAIL",
        expect=r"contiguous|Error", telling=r"contiguous", also=("collective-mismatch",),
    ),
    _case(
        "record_without_label", "data-pipeline-failure", "records", 6, 5, "--timeout", "8", "--console", "glog", how="spawn",
        family="record-key", injected="a worker of rank 5 finds a record without its label", expect=r"Caught KeyError",
        telling=r"Caught KeyError|KeyError: 'label'", also=("application-exception",),
    ),
    _case(
        "damaged_weights", "application-exception", "give_up", 4, 2, how="torchrun", family="gives-up",
        injected="rank 2 prints errors and leaves with code 4", expect=r"exitcode\s*: 4", telling=r"file looks damaged|giving up",
        also=("storage-fault", "data-pipeline-failure"),
    ),
    Scenario(
        id="own_meeting_file_w3", cause="rendezvous-failed", family="meeting-file", world_size=3,
        injected="rank 2 meets over a file of another name",
        nodes=met_by_file(
            pods(
                tuple(
                    dataclasses.replace(node, prelude="mkdir -p /tmp/rdzv")
                    for node in ranks("healthy", 3, 2, "--timeout", "8", "--console", "pipes")
                )
            ),
            2,
        ),
        culprit=Culprit(ranks=(2,)), expect=r"(?i)time(?:d )?-?out", telling=r"(?i)wait timeout|timed out|Timeout",
        also=("straggler", "rank-divergence", "unknown"), determinable="partly", deadline=80.0,
    ),
)  # fmt: skip

ONE_OF_MANY = (
    Scenario(
        id="link_down_one_of_four_w4", cause="network-link-fault", family="link-one-of-many", world_size=4,
        injected="the link of the third of four hosts goes down while the job runs", network=partial(flat, 4),
        nodes=cluster("train.py", "--steps", "200", "--timeout", "10", counts=(1, 1, 1, 1), tee=False),
        actions=(Action("step 6/", link(2, "down")),), culprit=Culprit(ranks=(2,), hosts=(HOSTS[2],)), expect=FAILED,
        telling=FAILED, also=(*CUT_OFF, "straggler"), determinable="partly", deadline=90.0,
    ),
    Scenario(
        id="dropped_one_of_three_w3", cause="network-link-fault", family="link-one-of-many", world_size=3,
        injected="the second of three hosts drops all data that comes in, while the job runs", network=partial(flat, 3),
        nodes=pods(ranks("healthy", 3, 1, "--timeout", "10", "--steps", "300", hosts=3)), needs=("firewall",),
        actions=(Action("iter 9 ", firewall(1, DROP_DATA_IN)),), culprit=Culprit(ranks=(1,), hosts=(HOSTS[1],)), expect=FAILED,
        telling=FAILED, also=(*CUT_OFF, "straggler"), determinable="partly", deadline=90.0,
    ),
    Scenario(
        id="firewall_one_of_four_w4", cause="network-firewall-port", family="firewall-one-of-many", world_size=4,
        injected="the fourth of four hosts refuses every port but the store's, from the beginning",
        nodes=cluster("train.py", "--timeout", "15", counts=(1, 1, 1, 1), tee=False),
        network=partial(firewalled, 4, {3: (f"INPUT -i eth0 {DATA} -j REJECT --reject-with icmp-port-unreachable",)}),
        culprit=Culprit(hosts=(HOSTS[3],), ranks=(3,)), expect=CONNECT_FAILED, telling=CONNECT_FAILED,
        also=("network-unreachable-subnet", "network-wrong-interface"), determinable="partly", needs=("firewall",),
        deadline=120.0,
    ),
)  # fmt: skip

SCENARIOS = (*COMPARED, *ALONE, *ONE_OF_MANY)
