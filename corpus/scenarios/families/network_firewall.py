"""Firewalls between hosts."""

from __future__ import annotations

from functools import partial

from corpus.scenarios.build import PORT, bare_ranks, torchrun_c10d
from corpus.scenarios.cluster import (
    CONNECT_FAILED,
    ONE,
    SOON,
    TWO,
    cluster,
)
from corpus.scenarios.network import firewalled
from corpus.scenarios.scenario import Culprit, Scenario


def _closed(how: str) -> tuple[str, ...]:
    return (f"INPUT -i eth0 -p tcp ! --dport {PORT} -m conntrack --ctstate NEW -j {how}",)


BLOCKED_ALSO = ("network-unreachable-subnet", "rendezvous-failed")

SCENARIOS = (
    Scenario(
        id="net_firewall_drop_w4",
        cause="network-firewall-port",
        family="firewall-drop",
        injected="both hosts accept new connections to port 29500 only, the rest is dropped",
        nodes=cluster("train.py", "--timeout", "12"),
        network=partial(firewalled, 2, {0: _closed("DROP"), 1: _closed("DROP")}),
        world_size=4,
        culprit=Culprit(hosts=(ONE, TWO), why="firewall on gpu-node-01 and gpu-node-02"),
        also=BLOCKED_ALSO,
        needs=("firewall",),
        expect=CONNECT_FAILED,
        telling=CONNECT_FAILED,
        determinable="partly",
        deadline=160,
    ),
    Scenario(
        id="net_firewall_reset_w4_plain",
        cause="network-firewall-port",
        family="firewall-reset",
        injected="the first host refuses new connections to all ports but 29500 (tcp-reset); plain console",
        nodes=cluster("train.py", "--timeout", "12", tee=False),
        network=partial(firewalled, 2, {0: _closed("REJECT --reject-with tcp-reset")}),
        world_size=4,
        culprit=Culprit(hosts=(ONE,), why="firewall on gpu-node-01"),
        also=BLOCKED_ALSO,
        needs=("firewall",),
        expect=CONNECT_FAILED,
        telling=CONNECT_FAILED,
        determinable="partly",
        deadline=160,
    ),
    Scenario(
        id="net_firewall_prohibited_w3",
        cause="network-firewall-port",
        family="firewall-icmp",
        injected="the second of three hosts rejects new connections but to 29500 with icmp-host-prohibited (firewalld)",
        nodes=cluster("sync_weights.py", counts=(1, 1, 1)),
        network=partial(firewalled, 3, {1: _closed("REJECT --reject-with icmp-host-prohibited")}),
        world_size=3,
        culprit=Culprit(ranks=(1,), hosts=(TWO, "10.0.0.2"), why="firewall on gpu-node-02 (10.0.0.2)"),
        also=BLOCKED_ALSO,
        needs=("firewall",),
        expect=CONNECT_FAILED,
        telling=CONNECT_FAILED,
        deadline=160,
    ),
    Scenario(
        id="net_firewall_port_unreachable_w2",
        cause="network-firewall-port",
        family="firewall-icmp",
        injected="the first host rejects new connections but to 29500 with icmp-port-unreachable; bare ranks",
        nodes=bare_ranks("sync_weights.py", world_size=2, hosts=2),
        network=partial(
            firewalled,
            2,
            {0: _closed("REJECT --reject-with icmp-port-unreachable"), 1: _closed("REJECT")},
        ),
        world_size=2,
        culprit=Culprit(hosts=(ONE, TWO), why="firewall on both hosts"),
        also=BLOCKED_ALSO,
        needs=("firewall",),
        expect=CONNECT_FAILED,
        telling=CONNECT_FAILED,
        determinable="partly",
        deadline=160,
    ),
    Scenario(
        id="net_firewall_ephemeral_out_w3",
        cause="network-firewall-port",
        family="firewall-drop",
        injected="the second of three hosts may open connections to port 29500 only, the rest is dropped on its way out",
        nodes=cluster("pipeline.py", counts=(1, 1, 1), env={"TORCH_CPP_LOG_LEVEL": "INFO"}),
        network=partial(
            firewalled, 3, {1: (f"OUTPUT -o eth0 -p tcp ! --dport {PORT} -m conntrack --ctstate NEW -j DROP",)}
        ),
        world_size=3,
        culprit=Culprit(ranks=(1,), hosts=(TWO,), why="firewall on gpu-node-02"),
        also=BLOCKED_ALSO,
        needs=("firewall",),
        expect=CONNECT_FAILED,
        telling=CONNECT_FAILED,
        determinable="partly",
        deadline=160,
    ),
    Scenario(
        id="net_firewall_master_drop_w4",
        cause="network-firewall-port",
        family="firewall-master-port",
        injected="the first host drops packets to port 29500",
        nodes=cluster("train.py", options=SOON),
        network=partial(firewalled, 2, {0: (f"INPUT -i eth0 -p tcp --dport {PORT} -j DROP",)}),
        world_size=4,
        culprit=Culprit(hosts=(ONE,), why="firewall on gpu-node-01, port 29500"),
        also=("rendezvous-failed", "network-unreachable-subnet"),
        needs=("firewall",),
        expect=r"10\.0\.0\.1",
        telling=r"failed to connect|timed out.*10\.0\.0\.1|DistNetworkError",
        determinable="partly",
        deadline=160,
    ),
    Scenario(
        id="net_firewall_master_prohibited_w3_c10d",
        cause="network-firewall-port",
        family="firewall-master-port",
        injected="the first host rejects connections to the c10d endpoint's port 29400 with icmp-admin-prohibited",
        nodes=tuple(torchrun_c10d("train.py", nproc=1, host=host, nodes="3", tee=False) for host in range(3)),
        network=partial(
            firewalled, 3, {0: ("INPUT -i eth0 -p tcp --dport 29400 -j REJECT --reject-with icmp-admin-prohibited",)}
        ),
        world_size=3,
        culprit=Culprit(hosts=(ONE,), why="firewall on gpu-node-01, port 29400"),
        also=("rendezvous-failed", "network-unreachable-subnet"),
        needs=("firewall",),
        expect=r"29400",
        telling=r"No route to host|29400.*(failed|timed out)|failed to connect",
        deadline=160,
    ),
    Scenario(
        id="net_firewall_master_reset_w2",
        cause="network-firewall-port",
        family="firewall-master-port",
        injected="the first host refuses connections to port 29500 (tcp-reset); bare ranks",
        nodes=bare_ranks("train.py", "--timeout", "15", world_size=2, hosts=2),
        network=partial(
            firewalled, 2, {0: (f"INPUT -i eth0 -p tcp --dport {PORT} -j REJECT --reject-with tcp-reset",)}
        ),
        world_size=2,
        culprit=Culprit(hosts=(ONE,), why="firewall on gpu-node-01, port 29500"),
        also=("rendezvous-failed",),
        needs=("firewall",),
        expect=r"refused|[Tt]imed out",
        telling=r"refused|failed to connect",
        determinable="partly",
        deadline=160,
    ),
)
