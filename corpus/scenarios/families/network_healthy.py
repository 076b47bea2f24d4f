"""Jobs over several hosts that end well in spite of the network."""

from __future__ import annotations

from functools import partial

from corpus.scenarios.acts import (
    after,
    link,
    open_firewall,
)
from corpus.scenarios.build import PORT, bare_ranks, torchrun_c10d
from corpus.scenarios.cluster import (
    RUNNING,
    cluster,
)
from corpus.scenarios.network import firewalled, flat
from corpus.scenarios.scenario import Action, Scenario
from corpus.scenarios.wire import distant

SCENARIOS = (
    Scenario(
        id="healthy_two_hosts_w4",
        cause="healthy",
        family="healthy-hosts",
        injected="nothing",
        nodes=cluster("train.py", "--timeout", "60"),
        network=partial(flat, 2),
        world_size=4,
        expect="training finished",
        deadline=160,
    ),
    Scenario(
        id="healthy_short_link_flap_w4",
        cause="healthy",
        family="healthy-bad-network",
        injected="eth0 of the second host down for 2 s in training, which TCP survives",
        nodes=cluster("train.py", "--steps", "40", "--timeout", "60"),
        network=partial(flat, 2),
        actions=(Action(RUNNING, link(1, "down")), Action(RUNNING, after(2.0, link(1, "up")))),
        world_size=4,
        expect="training finished",
        deadline=160,
    ),
    Scenario(
        id="healthy_distant_hosts_w2",
        cause="healthy",
        family="healthy-bad-network",
        injected="the two hosts are 100 ms apart",
        nodes=cluster("sync_weights.py", "--iterations", "6", "--timeout", "60", counts=(1, 1)),
        network=partial(distant, 2, 0.1),
        world_size=2,
        expect="done after 6 iterations",
        deadline=160,
    ),
    Scenario(
        id="healthy_loss_5_percent_w3_plain",
        cause="healthy",
        family="healthy-bad-network",
        injected="5 % of the packets to the third host are lost from the beginning; plain console",
        nodes=cluster("pipeline.py", "--timeout", "60", "--steps", "15", counts=(1, 1, 1), tee=False),
        network=partial(firewalled, 3, {2: ("INPUT -i eth0 -m statistic --mode random --probability 0.05 -j DROP",)}),
        world_size=3,
        needs=("firewall",),
        expect="training finished",
        deadline=160,
    ),
    Scenario(
        id="healthy_uneven_nproc_w5",
        cause="healthy",
        family="healthy-hosts",
        injected="the first host runs two ranks, the second three",
        nodes=cluster("train.py", "--timeout", "60", "--parallel", "fsdp", counts=(2, 3), tee=False),
        network=partial(flat, 2),
        world_size=5,
        expect="training finished",
        deadline=200,
    ),
    Scenario(
        id="healthy_late_second_host_w2",
        cause="healthy",
        family="healthy-late-host",
        injected="the second host starts 25 s after the first, within the join time-out",
        nodes=(
            torchrun_c10d("pipeline.py", "--timeout", "60", nproc=1, host=0, conf="join_timeout=120"),
            torchrun_c10d("pipeline.py", "--timeout", "60", nproc=1, host=1, conf="join_timeout=120", delay=25),
        ),
        network=partial(flat, 2),
        world_size=2,
        expect="training finished",
        deadline=160,
    ),
    Scenario(
        id="healthy_weight_sync_four_hosts_w4_debug",
        cause="healthy",
        family="healthy-hosts",
        injected="nothing; four hosts, DETAIL, C++ INFO messages",
        nodes=bare_ranks(
            "sync_weights.py",
            "--timeout",
            "60",
            "--iterations",
            "5",
            world_size=4,
            hosts=4,
            env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "TORCH_CPP_LOG_LEVEL": "INFO"},
        ),
        network=partial(flat, 4),
        world_size=4,
        expect="done after 5 iterations",
        deadline=160,
    ),
    Scenario(
        id="healthy_pipeline_after_firewall_opened_w3",
        cause="healthy",
        family="healthy-bad-network",
        injected="new connections to the master port are dropped for the first 20 s, then the firewall is opened",
        nodes=cluster("pipeline.py", "--timeout", "60", counts=(1, 1, 1), options=("--rdzv-conf", "timeout=120")),
        network=partial(firewalled, 3, {0: (f"INPUT -i eth0 -p tcp --dport {PORT} -j DROP",)}),
        actions=(Action(20.0, open_firewall(0)),),
        world_size=3,
        needs=("firewall",),
        expect="training finished",
        deadline=160,
    ),
)
