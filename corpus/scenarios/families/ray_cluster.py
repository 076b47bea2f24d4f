"""Ray: actors, nodes and the head that die, clusters that never come up, Gloo among Ray actors."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from corpus.scenarios.network import HOSTS, Lab, flat, inside
from corpus.scenarios.recorder import Run
from corpus.scenarios.scenario import Action, Culprit, Node, Scenario

GCS_PORT = 6379
NOBODY = Culprit()
#: Environment of every Ray process: nothing is reported to anybody, a lost node is found within seconds.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_DEDUP_LOGS": "0",
    "RAY_agent_register_timeout_ms": "240000",
    "RAY_raylet_start_wait_time_s": "120",
}
IMPATIENT = {
    "RAY_health_check_initial_delay_ms": "5000",
    "RAY_health_check_period_ms": "2000",
    "RAY_health_check_timeout_ms": "4000",
    "RAY_health_check_failure_threshold": "3",
}
#: Ray's files lie in memory that only this host sees, and so does its shared memory. A raylet whose agents take longer
#: than half a minute gives up starting: on a busy machine Ray goes before others.
PRIVATE = (
    "renice -n -10 $$ >/dev/null; mkdir -p /tmp/ray; mount -t tmpfs tmpfs /tmp/ray; "
    "mount -t tmpfs -o size={shm} tmpfs /dev/shm"
)
#: Without a route to anywhere a cluster of one host takes 127.0.0.1 for its address.
ROUTE = "ip route add default dev eth0"


def _private(shm: str = "512m") -> str:
    return PRIVATE.replace("{shm}", shm)


def local(
    *arguments: str, env: Mapping[str, str] | None = None, prelude: str = "", shm: str = "512m", contained: bool = False
) -> tuple[Node, ...]:
    """Return a driver that starts a cluster of its own; contained, it sees its own processes only."""
    container = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child") if contained else ()
    return (
        Node(
            (*container, "{python}", "{jobs}/ray_train.py", *arguments),
            env={**QUIET, **(env or {})},
            prelude="; ".join(filter(None, (_private(shm), ROUTE, prelude))),
        ),
    )


#: A raylet need not wait for its agents to choose their ports; all lie below those that ``ports_closed`` closes.
PORTS = (
    "--node-manager-port=6380 --object-manager-port=6381 --runtime-env-agent-port=6382 --dashboard-agent-grpc-port=6383"
    " --dashboard-agent-listen-port=6384 --metrics-export-port=6385 --min-worker-port=10002 --max-worker-port=10100"
)


def _start(host: int, *options: str) -> str:
    address = f"--node-ip-address=10.0.0.{host + 1}"
    return " ".join(("ray start", address, "--object-store-memory=83886080 --disable-usage-stats", PORTS, *options))


def head(
    *arguments: str,
    cpus: int = 2,
    env: Mapping[str, str] | None = None,
    prelude: str = "",
    wait: int = 30,
) -> Node:
    """Return a host that starts the head and, when the others have had time to join, the driver."""
    start = _start(0, f"--head --port={GCS_PORT} --num-cpus={cpus} --include-dashboard=false")
    driver = f"python {{jobs}}/ray_train.py --address 10.0.0.1:{GCS_PORT} " + " ".join(arguments)
    return Node(
        ("bash", "-c", f"{start} && sleep {wait} && exec {driver}"),
        env={**QUIET, **IMPATIENT, **(env or {})},
        prelude=_private() + (f"; {prelude}" if prelude else ""),
    )


def worker(
    host: int,
    *,
    cpus: int = 2,
    address: str = f"10.0.0.1:{GCS_PORT}",
    env: Mapping[str, str] | None = None,
    delay: float = 25.0,
) -> Node:
    """Return a host that joins the cluster and stays until the job ends."""
    start = _start(host, f"--address={address} --num-cpus={cpus} --block")
    return Node(
        ("bash", "-c", f"exec {start}"),
        host=host,
        env={**QUIET, **IMPATIENT, **(env or {})},
        prelude=_private(),
        delay=delay,
    )


def _matching(run: Run, host: int, words: str) -> list[int]:
    """Return the processes of a host whose command line holds a text."""
    found = []
    for pid in run.lab.pids(host):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
        if words.encode() in line:
            found.append(pid)
    return found


def send(number: int, host: int, words: str) -> Callable[[Run], str]:
    """Return an action that sends a signal to the processes of a host whose command line holds a text."""

    def act(run: Run) -> str:
        found = _matching(run, host, words)
        if not found:
            raise LookupError(f"no process {words!r} on {HOSTS[host]}")
        for pid in found:
            os.kill(pid, number)
        return f"{signal.Signals(number).name} to {words} on {HOSTS[host]}"

    return act


def power_off(host: int) -> Callable[[Run], str]:
    """Return an action after which nothing is heard of a host any more."""

    def act(run: Run) -> str:
        inside(run.lab.hosts[host], "ip link set eth0 down")
        run.signal_host(host, signal.SIGKILL)
        return f"{HOSTS[host]} powered off"

    return act


def link_down(host: int) -> Callable[[Run], str]:
    """Return an action that takes a host's interface down."""

    def act(run: Run) -> str:
        inside(run.lab.hosts[host], "ip link set eth0 down")
        return f"eth0 of {HOSTS[host]} down"

    return act


@contextmanager
def two_data_subnets() -> Iterator[Lab]:
    """Two hosts whose eth0 reach each other while their eth1 lie in subnets without a router in between."""
    with flat(2) as made:
        made.bridge("br1")
        made.plug(0, "eth1", "192.168.10.5/24", "br1")
        made.plug(1, "eth1", "192.168.20.7/24", "br1")
        yield made


@contextmanager
def ports_closed() -> Iterator[Lab]:
    """Two hosts whose firewalls let Ray's own ports through and nothing else."""
    with flat(2) as made:
        for name in made.hosts:
            inside(name, "iptables -A INPUT -i eth0 -p tcp --syn --dport 20000:65535 -j REJECT --reject-with tcp-reset")
        yield made


#: Ray's memory monitor kills once 1.5 GiB more than now are in use.
TIGHT_MEMORY = (
    "export RAY_memory_usage_threshold=$(awk '/^MemTotal/{t=$2} /^MemAvailable/{a=$2} "
    'END{printf "%.3f", (t-a+1572864)/t}\' /proc/meminfo)'
)
TWO = ("--strategy", "STRICT_SPREAD", "--collect")
LONG = ("--steps", "600", "--timeout", "25")


def _scenario(
    name: str,
    cause: str,
    family: str,
    injected: str,
    nodes: tuple[Node, ...],
    expect: str,
    *,
    network: Callable[[], AbstractContextManager[Lab]] | None = None,
    culprit: Culprit = NOBODY,
    also: tuple[str, ...] = (),
    determinable: str = "yes",
    telling: str | None = None,
    actions: tuple[Action, ...] = (),
    needs: tuple[str, ...] = (),
    deadline: float = 300.0,
) -> Scenario:
    """Return a Ray scenario; its world size is the end of its name, and the first node's end is the job's."""
    return Scenario(
        id=f"ray_{name}",
        cause=cause,
        family=f"ray-{family}",
        injected=injected,
        nodes=nodes,
        world_size=int(name.rpartition("_w")[2]),
        expect=expect,
        culprit=culprit,
        also=also,
        determinable=determinable,
        telling=telling,
        actions=actions,
        network=network if network is not None or len(nodes) == 1 else partial(flat, 2),
        needs=("ray", "torch", *needs),
        deadline=deadline,
        ends_with=0,
    )


def _fault(name: str, rank: int, trainers: int = 2, engines: int = 0, *more: str) -> tuple[str, ...]:
    return ("--trainers", str(trainers), "--engines", str(engines), "--fault", name, "--fault-rank", str(rank), *more)


ACTORS = (
    _scenario(
        "actor_sigkill_w3",
        "process-crashed",
        "actor-killed",
        "SIGKILL of the actor of rank 2 between two steps",
        local(*_fault("sigkill", 2, 3)),
        r"ActorDiedError|actor died unexpectedly|worker died",
        culprit=Culprit(ranks=(2,)),
        also=("host-out-of-memory", "unknown"),
    ),
    _scenario(
        "actor_segfault_w2",
        "process-crashed",
        "actor-segfault",
        "the actor of rank 0 reads a null pointer",
        local(*_fault("segfault", 0)),
        r"Segmentation fault|SIGSEGV",
        culprit=Culprit(ranks=(0,)),
        telling=r"SIGSEGV|Segmentation fault",
    ),
    _scenario(
        "actor_exception_w4",
        "application-exception",
        "actor-exception",
        "KeyError in the reward function of rank 2",
        local(*_fault("exception", 2, 4)),
        r"KeyError: 'translation'",
        culprit=Culprit(ranks=(2,)),
    ),
    _scenario(
        "engine_context_w3",
        "application-exception",
        "engine-exception",
        "a rollout engine is asked for more tokens than its context holds",
        local(*_fault("engine_context", 2, 2, 1)),
        r"maximum context length is 4096",
        culprit=Culprit(ranks=(2,)),
    ),
    _scenario(
        "actor_exit_w2",
        "application-exception",
        "actor-exit",
        "sys.exit(3) in the actor of rank 1",
        local(*_fault("exit", 1)),
        r"licence server",
        culprit=Culprit(ranks=(1,)),
        also=("process-crashed",),
        telling=r"licence server",
    ),
    _scenario(
        "actor_no_weights_w2",
        "application-exception",
        "actor-init-exception",
        "the constructor of rank 1's actor opens a file that does not exist",
        local(*_fault("no_weights", 1)),
        r"FileNotFoundError: .*pytorch_model",
        culprit=Culprit(ranks=(1,)),
    ),
    _scenario(
        "memory_monitor_w2",
        "host-out-of-memory",
        "memory-monitor",
        "the actor of rank 1 allocates until Ray's memory monitor kills it",
        local(
            *_fault("memory", 1),
            "--timeout",
            "60",
            env={"RAY_memory_monitor_refresh_ms": "200"},
            prelude=TIGHT_MEMORY,
            contained=True,
        ),
        r"OutOfMemoryError|low on memory|memory pressure",
        culprit=Culprit(ranks=(1,)),
        telling=r"OutOfMemoryError|low on memory",
    ),
    _scenario(
        "nan_w2",
        "numerical-divergence",
        "nan",
        "rank 1's gradient becomes NaN and the job stops",
        local(*_fault("nan", 1)),
        r"Non-finite gradient norm",
    ),
    _scenario(
        "weight_sync_w3",
        "collective-mismatch",
        "weight-sync-size",
        "the engine receives 1024 elements fewer than trainer 0 sends",
        local(*_fault("other_vocabulary", 2, 2, 1)),
        r"preamble\.length|doesn't match",
        culprit=Culprit(ranks=(2,)),
    ),
)

TIMEOUTS = (
    _scenario(
        "stuck_gloo_w3",
        "rank-divergence",
        "actor-stuck",
        "the actor of rank 1 waits for ever and never enters the collective",
        local(*_fault("stuck", 1, 3), "--timeout", "10"),
        r"Timed out waiting \d+ms",
        culprit=Culprit(ranks=(1,)),
        also=("straggler", "unknown"),
        determinable="partly",
    ),
    _scenario(
        "late_w2",
        "straggler",
        "actor-late",
        "rank 1 writes its optimizer state for longer than the time-out before the collective",
        local(*_fault("late", 1), "--timeout", "10", "--collect"),
        r"Timed out waiting \d+ms",
        culprit=Culprit(ranks=(1,)),
        also=("timeout-too-short",),
        telling=r"writing 48 GiB",
    ),
    _scenario(
        "get_timeout_w2",
        "rank-divergence",
        "driver-get-timeout",
        "the actor of rank 1 waits for ever; the driver gives up before the process group does",
        local(*_fault("stuck", 1), "--timeout", "600", "--get-timeout", "20"),
        r"GetTimeoutError",
        culprit=Culprit(ranks=(1,)),
        also=("straggler", "timeout-too-short", "unknown"),
        determinable="partly",
    ),
    _scenario(
        "no_join_w2",
        "rendezvous-failed",
        "actor-never-joins",
        "the actor of rank 1 never comes to init_process_group",
        local(*_fault("no_join", 1), "--timeout", "15"),
        r"(?s)process group at.*([Tt]imed out|DistStoreError)",
        culprit=Culprit(ranks=(1,)),
        also=("rank-divergence", "straggler"),
        determinable="partly",
    ),
    _scenario(
        "gpus_never_w4",
        "parallel-layout-mismatch",
        "placement-impossible",
        "four bundles with one GPU each on a cluster without GPUs",
        local("--trainers", "4", "--gpus", "1", "--ready-timeout", "30"),
        r"GetTimeoutError",
        also=("rendezvous-failed",),
        telling=r"cannot be scheduled|bundles .*GPU",
    ),
)

HOST = (
    _scenario(
        "driver_sigint_w2",
        "job-preempted",
        "driver-interrupted",
        "Ctrl-C at the driver",
        local(*LONG),
        r"KeyboardInterrupt",
        actions=(Action("step 8/", send(signal.SIGINT, 0, "ray_train.py")),),
    ),
    _scenario(
        "driver_sigterm_w4",
        "job-preempted",
        "driver-terminated",
        "SIGTERM to the driver, as a scheduler sends at the time limit",
        local("--trainers", "4", *LONG),
        r"step 8/",
        actions=(Action("step 8/", send(signal.SIGTERM, 0, "ray_train.py")),),
        telling=r"SIGTERM|signal 15|Terminated",
    ),
    _scenario(
        "master_port_taken_w2",
        "port-in-use",
        "master-port",
        "another process listens on the port of the process group's store",
        local("--master-port", "29500", prelude="(python3 -m http.server 29500 >/dev/null 2>&1 &); sleep 1"),
        r"EADDRINUSE|address already in use",
        also=("rendezvous-failed",),
    ),
    _scenario(
        "shm_too_small_w2",
        "shared-memory-exhausted",
        "object-store-too-large",
        "the object store is larger than /dev/shm",
        local("--store-mib", "10240", shm="64m"),
        r"exceeds /dev/shm size",
    ),
    _scenario(
        "spill_disk_full_w2",
        "storage-fault",
        "spill-disk-full",
        "objects spill to a file system that has no space left",
        local(
            "--rollout-mib",
            "24",
            "--keep-rollouts",
            "--steps",
            "30",
            "--spill",
            "/tmp/ray/spill",
            prelude="mount -t tmpfs -o size=120m tmpfs /tmp/ray",
        ),
        r"OutOfDiskError|No space left",
        also=("shared-memory-exhausted",),
        telling=r"No space left|OutOfDisk",
    ),
    _scenario(
        "pip_offline_w2",
        "application-exception",
        "runtime-env",
        "the actors' runtime environment wants a package and there is no network",
        local("--pip", "flash-attn==2.8.3"),
        r"RuntimeEnvSetupError|runtime environment",
        also=("unknown",),
    ),
)

NODES = (
    _scenario(
        "raylet_killed_w2",
        "ray-node-lost",
        "raylet-killed",
        "SIGKILL of the raylet of gpu-node-02",
        (head(*TWO, *LONG), worker(1)),
        r"(?s)step 8/.*(marked dead|node has died|node died|NODE_DIED)",
        culprit=Culprit(hosts=("gpu-node-02",)),
        actions=(Action("step 8/", send(signal.SIGKILL, 1, "raylet/raylet ")),),
        telling=r"marked dead|node has died|has been marked dead",
    ),
    _scenario(
        "node_dropped_w2",
        "ray-node-lost",
        "node-dropped",
        "the interface of gpu-node-02 goes down during training",
        (head(*TWO, *LONG), worker(1)),
        r"(?s)step 8/.*(marked dead|node has died|node died)",
        culprit=Culprit(hosts=("gpu-node-02",)),
        also=("network-link-fault",),
        actions=(Action("step 8/", link_down(1)),),
        telling=r"marked dead|node has died",
    ),
    _scenario(
        "node_powered_off_w6",
        "ray-node-lost",
        "node-dropped",
        "gpu-node-03 is switched off during training",
        (head("--trainers", "6", "--strategy", "SPREAD", "--collect", *LONG), worker(1), worker(2, delay=0)),
        r"(?s)step 8/.*(marked dead|node has died|node died)",
        culprit=Culprit(hosts=("gpu-node-03",)),
        also=("network-link-fault",),
        network=partial(flat, 3),
        actions=(Action("step 8/", power_off(2)),),
        telling=r"marked dead|node has died",
    ),
    _scenario(
        "gcs_killed_w2",
        "ray-node-lost",
        "gcs-killed",
        "SIGKILL of the GCS on the head",
        (head(*TWO, *LONG, env={"RAY_gcs_rpc_server_reconnect_timeout_s": "15"}), worker(1)),
        r"(?s)step 8/.*(GCS|gcs)",
        culprit=Culprit(hosts=("gpu-node-01",)),
        actions=(Action("step 8/", send(signal.SIGKILL, 0, "gcs/gcs_server ")),),
        telling=r"GCS|gcs_server",
    ),
    _scenario(
        "worker_wrong_address_w2",
        "rendezvous-failed",
        "worker-wrong-address",
        "gpu-node-02 joins at an address where no head is; the driver waits for it in vain",
        (head(*TWO, "--ready-timeout", "40"), worker(1, address="10.0.0.7:6379")),
        r"GetTimeoutError|Failed to connect",
        culprit=Culprit(hosts=("gpu-node-02",)),
        telling=r"Failed to connect|10\.0\.0\.7",
    ),
    _scenario(
        "worker_wrong_name_w4",
        "rendezvous-failed",
        "worker-wrong-name",
        "gpu-node-02 joins at a name that nobody knows",
        (head("--trainers", "4", "--ready-timeout", "40"), worker(1, address="head-svc:6379")),
        r"GetTimeoutError|resolve|not known",
        culprit=Culprit(hosts=("gpu-node-02",)),
        telling=r"head-svc|resolve",
    ),
    _scenario(
        "gloo_two_subnets_w2",
        "network-unreachable-subnet",
        "gloo-two-subnets",
        "Ray works over eth0, but GLOO_SOCKET_IFNAME=eth1 lies in two subnets without a route between them",
        (
            head(*TWO, "--timeout", "15", env={"GLOO_SOCKET_IFNAME": "eth1"}),
            worker(1, env={"GLOO_SOCKET_IFNAME": "eth1"}),
        ),
        r"Network is unreachable|192\.168\.",
        network=two_data_subnets,
    ),
    _scenario(
        "gloo_ports_closed_w2",
        "network-firewall-port",
        "gloo-ports-closed",
        "firewalls refuse the ports from 20000 upwards; Ray's own ports lie below",
        (head(*TWO, "--timeout", "15", "--master-port", "15000"), worker(1)),
        r"(?s)process group at.*(refused|[Tt]imed? ?out)",
        network=ports_closed,
        needs=("firewall",),
        also=("network-wrong-interface",),
    ),
    _scenario(
        "gloo_no_interface_w2",
        "network-wrong-interface",
        "gloo-no-interface",
        "GLOO_SOCKET_IFNAME names an interface that no host has",
        (head(*TWO, env={"GLOO_SOCKET_IFNAME": "ib0"}), worker(1, env={"GLOO_SOCKET_IFNAME": "ib0"})),
        r"Unable to find address for: ib0",
    ),
)

HEALTHY = (
    _scenario("healthy_w2", "healthy", "healthy-local", "nothing", local(), "training finished"),
    _scenario(
        "healthy_two_hosts_w4",
        "healthy",
        "healthy-cluster",
        "nothing",
        (head("--trainers", "4"), worker(1)),
        "training finished",
    ),
    _scenario(
        "healthy_slow_storage_w2",
        "healthy",
        "healthy-slow-storage",
        "nothing; /dev/shm is smaller than the object store, which Ray only warns of",
        local("--store-mib", "160", shm="64m", env={"RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE": "1"}),
        "training finished",
    ),
    _scenario(
        "healthy_engines_w3",
        "healthy",
        "healthy-engines",
        "nothing; rollouts, evaluation and deprecated calls warn",
        local(*_fault("deprecated", -1, 2, 1), "--preprocess", "6", "--evaluate", env={"RAY_DEDUP_LOGS": "1"}),
        "training finished",
    ),
    _scenario(
        "healthy_spilling_w2",
        "healthy",
        "healthy-spilling",
        "nothing; kept rollouts spill to disk",
        local("--rollout-mib", "24", "--keep-rollouts", "--steps", "8", env={"RAY_verbose_spill_logs": "50000000"}),
        "training finished",
    ),
    _scenario(
        "healthy_late_host_w4",
        "healthy",
        "healthy-late-host",
        "nothing; the second host joins half a minute after the driver has asked for it",
        (head("--trainers", "4", "--ready-timeout", "200"), worker(1, delay=60)),
        "training finished",
    ),
)

SCENARIOS = (*ACTORS, *NODES, *TIMEOUTS, *HOST, *HEALTHY)
