"""Jobs of several hosts that never become one job: wrong address, wrong port, missing hosts, contradicting counts."""

from __future__ import annotations

import signal
from functools import partial

from corpus.scenarios.acts import signal_agent
from corpus.scenarios.build import bare_ranks, torchrun, torchrun_c10d
from corpus.scenarios.network import flat
from corpus.scenarios.scenario import Action, Culprit, Node, Scenario

#: A static rendezvous that gives up soon (the default is 15 minutes).
SOON = ("--rdzv-conf", "timeout=25")


def _two(**changes: object) -> tuple[Node, ...]:
    """Return two hosts of two ranks whose second one differs in ``changes``."""
    return (
        torchrun("train.py", nproc=2, host=0, nodes=2, options=SOON),
        torchrun("train.py", nproc=2, host=1, **{"nodes": 2, "options": SOON, **changes}),  # type: ignore[arg-type]
    )


SCENARIOS = (
    Scenario(
        id="rdzv_wrong_address_w4",
        cause="rendezvous-failed",
        family="rendezvous-wrong-address",
        injected="the second host was given 10.0.0.99 as master address, which no host has",
        nodes=_two(address="10.0.0.99"),
        network=partial(flat, 2),
        world_size=4,
        culprit=Culprit(hosts=("gpu-node-02",), why="gpu-node-02: MASTER_ADDR=10.0.0.99"),
        expect=r"10\.0\.0\.99",
        telling=r"failed to connect to any network address|No route to host|timed out.*10\.0\.0\.99",
        also=("network-unreachable-subnet", "network-firewall-port"),
        determinable="partly",
        deadline=120,
    ),
    Scenario(
        id="rdzv_wrong_port_w4",
        cause="rendezvous-failed",
        family="rendezvous-wrong-port",
        injected="the second host was given port 29555 instead of 29500",
        nodes=_two(port=29555),
        network=partial(flat, 2),
        world_size=4,
        culprit=Culprit(hosts=("gpu-node-02",), why="gpu-node-02: MASTER_PORT=29555"),
        expect="29555",
        telling=r"29555.*(refused|timed out)|failed to connect.*29555",
        also=("network-firewall-port",),
        deadline=120,
    ),
    Scenario(
        id="rdzv_unresolvable_w3_plain",
        cause="rendezvous-failed",
        family="rendezvous-unresolvable",
        injected="the third host does not know the name of the master (trainer-0)",
        nodes=tuple(
            torchrun("train.py", nproc=1, host=host, nodes=3, address=name, tee=False, options=SOON)
            for host, name in enumerate(("10.0.0.1", "10.0.0.1", "trainer-0"))
        ),
        network=partial(flat, 3),
        world_size=3,
        culprit=Culprit(hosts=("gpu-node-03",), why="gpu-node-03: MASTER_ADDR=trainer-0"),
        expect="trainer-0",
        telling=r"trainer-0.*(gai error|Name or service|Temporary failure)",
        deadline=120,
    ),
    Scenario(
        id="rdzv_unresolvable_bare_w2",
        cause="rendezvous-failed",
        family="rendezvous-unresolvable",
        injected="MASTER_ADDR is a name that nobody knows",
        nodes=bare_ranks("sync_weights.py", world_size=2, hosts=2, env={"MASTER_ADDR": "head-svc.training.local"}),
        network=partial(flat, 2),
        world_size=2,
        culprit=Culprit(why="MASTER_ADDR=head-svc.training.local on all ranks"),
        expect=r"head-svc\.training\.local",
        telling=r"head-svc.*(gai error|Name or service|Temporary failure)",
        deadline=100,
    ),
    Scenario(
        id="rdzv_c10d_node_missing_w6",
        cause="rendezvous-failed",
        family="rendezvous-node-missing",
        injected="three hosts are wanted, the third was never started (c10d, join time-out 25 s)",
        nodes=tuple(torchrun_c10d("train.py", host=host, nodes="3") for host in range(2)),
        network=partial(flat, 3),
        world_size=6,
        culprit=Culprit(why="the third host was never started"),
        expect="RendezvousTimeoutError",
        telling="RendezvousTimeoutError",
        deadline=120,
    ),
    Scenario(
        id="rdzv_static_node_missing_w4",
        cause="rendezvous-failed",
        family="rendezvous-node-missing",
        injected="two hosts are wanted, the second was never started (static rendezvous, 25 s)",
        nodes=(torchrun("train.py", nproc=2, host=0, nodes=2, options=SOON),),
        network=partial(flat, 2),
        world_size=4,
        culprit=Culprit(why="the second host was never started"),
        expect=r"[Tt]imed out after|DistStoreError",
        telling=r"[Tt]imed out after|DistStoreError",
        deadline=120,
    ),
    Scenario(
        id="rdzv_two_masters_w4",
        cause="rendezvous-failed",
        family="rendezvous-duplicate-rank",
        injected="both hosts were started with node rank 0",
        nodes=(
            torchrun("train.py", nproc=2, host=0, nodes=2, options=SOON),
            Node(
                ("{bin}/torchrun", "--nproc-per-node", "2", "--nnodes", "2", "--node-rank", "0",
                 "--master-addr", "10.0.0.1", "--master-port", "29500", *SOON, "{jobs}/train.py"),
                host=1,
            ),
        ),
        network=partial(flat, 2),
        world_size=4,
        culprit=Culprit(hosts=("gpu-node-01", "gpu-node-02"), why="--node-rank 0 on both hosts"),
        expect="keys: /none/torchelastic/role_info",
        telling="keys: /none/torchelastic/role_info",
        determinable="partly",
        deadline=120,
    ),
    Scenario(
        id="rdzv_counts_differ_w6",
        cause="rendezvous-failed",
        family="rendezvous-counts-differ",
        injected="the first host was told --nnodes 3, the second --nnodes 2; there are two",
        nodes=(
            torchrun("train.py", nproc=2, host=0, nodes=3, options=SOON),
            torchrun("train.py", nproc=2, host=1, nodes=2, options=SOON),
        ),
        network=partial(flat, 2),
        world_size=6,
        culprit=Culprit(hosts=("gpu-node-01", "gpu-node-02"), why="--nnodes 3 on gpu-node-01, 2 on gpu-node-02"),
        expect=r"[Tt]imed out after|DistStoreError",
        telling=r"[Tt]imed out after|DistStoreError",
        determinable="partly",
        deadline=120,
    ),
    Scenario(
        id="rdzv_world_size_differs_bare_w4",
        cause="rendezvous-failed",
        family="rendezvous-counts-differ",
        injected="WORLD_SIZE is 4 on the first host and 6 on the second",
        nodes=tuple(
            Node(node.command, host=node.host, env={**node.env, **({"WORLD_SIZE": "6"} if node.host else {})},
                 label=node.label)
            for node in bare_ranks("train.py", "--timeout", "15", world_size=4, hosts=2)
        ),
        network=partial(flat, 2),
        world_size=4,
        culprit=Culprit(ranks=(2, 3), hosts=("gpu-node-02",), why="WORLD_SIZE=6 on gpu-node-02 (ranks 2 and 3)"),
        expect=r"rank 2/6",
        telling=r"rank 2/6|[Tt]imed out|wait timeout",
        deadline=120,
    ),
    Scenario(
        id="rdzv_run_id_differs_w4",
        cause="rendezvous-failed",
        family="rendezvous-run-id-differs",
        injected="the two hosts use different rendezvous ids on one endpoint",
        nodes=(
            torchrun_c10d("train.py", host=0, run_id="pretrain-7b"),
            torchrun_c10d("train.py", host=1, run_id="pretrain-7b-retry1"),
        ),
        network=partial(flat, 2),
        world_size=4,
        culprit=Culprit(hosts=("gpu-node-01", "gpu-node-02"), why="--rdzv-id differs between the hosts"),
        expect="RendezvousTimeoutError",
        telling="RendezvousTimeoutError",
        determinable="partly",
        deadline=120,
    ),
    Scenario(
        id="rdzv_store_host_agent_killed_w6",
        cause="rendezvous-failed",
        family="rendezvous-store-died",
        injected="SIGKILL of the agent that hosts the store, while two of three hosts wait for the third",
        nodes=tuple(torchrun_c10d("train.py", host=host, nodes="3", conf="join_timeout=60") for host in range(2)),
        actions=(Action(22.0, signal_agent(0, signal.SIGKILL)),),
        network=partial(flat, 3),
        world_size=6,
        culprit=Culprit(hosts=("gpu-node-01",), why="the agent on gpu-node-01 that hosted the store was killed"),
        expect=r"RendezvousConnectionError|Connection (reset|closed) by|DistNetworkError",
        telling=r"RendezvousConnectionError|DistNetworkError",
        also=("process-crashed",),
        deadline=120,
    ),
    Scenario(
        id="rdzv_too_late_w4",
        cause="rendezvous-failed",
        family="rendezvous-node-missing",
        injected="the second host starts 45 s later than the first, whose join time-out is 15 s",
        nodes=(
            torchrun_c10d("train.py", host=0, conf="join_timeout=15"),
            torchrun_c10d("train.py", host=1, conf="join_timeout=15", delay=45),
        ),
        network=partial(flat, 2),
        world_size=4,
        culprit=Culprit(hosts=("gpu-node-02",), why="gpu-node-02 came after the join time-out of gpu-node-01"),
        expect="RendezvousTimeoutError",
        telling="RendezvousTimeoutError",
        deadline=140,
    ),
    Scenario(
        id="rdzv_rank_missing_bare_w6",
        cause="rendezvous-failed",
        family="rendezvous-rank-missing",
        injected="rank 4 (on the second host) was never started",
        nodes=bare_ranks("train.py", "--timeout", "20", world_size=6, hosts=2, missing=(4,)),
        network=partial(flat, 2),
        world_size=6,
        culprit=Culprit(ranks=(4,), hosts=("gpu-node-02",), why="rank 4 was never started"),
        expect=r"[Tt]imed out|wait timeout",
        telling=r"[Tt]imed out|wait timeout",
        deadline=120,
    ),
)  # fmt: skip
