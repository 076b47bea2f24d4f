"""Lines as collectors of logs hand them over, limits of hosts, attempts that come after others, small Ray services."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from corpus.scenarios.acts import signal_host, signal_rank
from corpus.scenarios.build import bare_ranks, torchrun, torchrun_c10d
from corpus.scenarios.cluster import CONNECT_FAILED, DATA, NO_ROUTE, cluster
from corpus.scenarios.families.group_work import DISK, FOLDER, LOST, TIMED_OUT
from corpus.scenarios.families.launchers import pods, spawned
from corpus.scenarios.families.ray_cluster import QUIET, ROUTE, _private
from corpus.scenarios.network import HOSTS, Lab, firewalled, flat, sh
from corpus.scenarios.scenario import Action, Culprit, Node, Scenario

KILLED = ("host-out-of-memory", "unknown")


def collected(node: Node, style: str) -> Node:
    """Send what a process prints through a collector of logs."""
    script = f'set -o pipefail; "$@" 2>&1 | {{python}} {{jobs}}/collect.py {style} {HOSTS[node.host]}'
    return dataclasses.replace(node, command=("bash", "-c", script, "collect", *node.command), label="")


def tagged(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Label processes as ``mpirun --tag-output`` does."""
    return pods(nodes, "[1,{}]<stderr>:")


def single(
    routine: str, world: int, odd: int, *words: str, env: Mapping[str, str] | None = None, prelude: str = ""
) -> Node:
    """Return the workbench under torchrun with its plain console."""
    arguments = (routine, "--odd", str(odd), *words)
    return torchrun("workbench.py", *arguments, nproc=world, tee=False, env=env, prelude=prelude)


def ranks(routine: str, world: int, odd: int, *words: str, hosts: int = 1) -> tuple[Node, ...]:
    """Return the workbench as one process a rank."""
    return bare_ranks("workbench.py", routine, "--odd", str(odd), *words, world_size=world, hosts=hosts)


def on_one(nodes: tuple[Node, ...], index: int, prelude: str) -> tuple[Node, ...]:
    """Let one process be started after a line of shell."""
    return tuple(dataclasses.replace(node, prelude=prelude) if at == index else node for at, node in enumerate(nodes))


@contextmanager
def narrow_mask(hosts: int, host: int) -> Iterator[Lab]:
    """Yield hosts in one network of which one believes that it is alone in its own."""
    with flat(hosts) as made:
        address = f"10.0.0.{host + 1}"
        sh(
            f"ip -n {made.hosts[host]} addr del {address}/24 dev eth0; ip -n {made.hosts[host]} addr add {address}/32 dev eth0"
        )
        yield made


COLLECTED = (
    Scenario(
        id="cri_shape_w4", cause="application-exception", family="collected-exception",
        injected="a wrong shape on rank 3; lines as containerd writes them", world_size=4,
        nodes=(collected(single("features", 4, 3), "cri"),), culprit=Culprit(ranks=(3,)),
        expect=r"mat1 and mat2 shapes",
    ),
    Scenario(
        id="journal_killed_w3", cause="process-crashed", family="collected-signal",
        injected="SIGKILL of rank 1; lines as journald writes them", world_size=3,
        nodes=(collected(single("vanish", 3, 1), "journal"),), culprit=Culprit(ranks=(1,)), also=KILLED,
        expect=r"exitcode\s*: -9", telling=r"failed \(exitcode: -9\)",
    ),
    Scenario(
        id="compose_leaves_w4", cause="rank-divergence", family="collected-leaves",
        injected="rank 2 stops early; lines as docker compose writes them, one service a host", world_size=4,
        nodes=tuple(
            collected(torchrun("workbench.py", "leave", "--odd", "2", nproc=2, host=host, nodes=2, tee=False), "compose")
            for host in range(2)
        ),
        network=partial(flat, 2), culprit=Culprit(ranks=(2,), hosts=(HOSTS[1],)), also=("process-crashed",),
        expect=rf"target loss reached(?s:.*){LOST}", telling=r"target loss reached",
    ),
    Scenario(
        id="stamps_firewall_w4", cause="network-firewall-port", family="collected-firewall",
        injected="the second host drops everything but the store's port; lines with time stamps of ts", world_size=4,
        nodes=tuple(
            collected(torchrun("workbench.py", "healthy", "--timeout", "15", nproc=2, host=host, nodes=2, tee=False), "stamps")
            for host in range(2)
        ),
        network=partial(firewalled, 2, {1: (f"INPUT -i eth0 {DATA} -j REJECT --reject-with tcp-reset",)}),
        culprit=Culprit(hosts=(HOSTS[1],)), expect=CONNECT_FAILED, also=("network-unreachable-subnet", "network-wrong-interface"),
        determinable="partly", needs=("firewall",), deadline=120.0,
    ),
    Scenario(
        id="tags_stopped_w4", cause="straggler", family="collected-stopped",
        injected="SIGSTOP of rank 1; lines as mpirun --tag-output writes them", world_size=4,
        nodes=tagged(bare_ranks("train.py", "--steps", "300", "--timeout", "8", world_size=4)),
        actions=(Action("step 6/", signal_rank(1, signal.SIGSTOP)),), culprit=Culprit(ranks=(1,)),
        expect=TIMED_OUT, also=("rank-divergence",), determinable="yes", deadline=60.0, ends_with=0,
    ),
    Scenario(
        id="elapsed_healthy_w2", cause="healthy", family="collected-healthy", injected="nothing; seconds since the start",
        world_size=2, nodes=(collected(single("healthy_worried", 2, 1, "--console", "json"), "elapsed"),), expect="done",
    ),
    Scenario(
        id="pods_firewall_w4", cause="network-firewall-port", family="pods-firewall",
        injected="the second host answers every port but the store's with host-prohibited; one pod a rank", world_size=4,
        nodes=pods(ranks("healthy", 4, 0, "--timeout", "15", "--console", "glog", hosts=2)),
        network=partial(firewalled, 2, {1: (f"INPUT -i eth0 {DATA} -j REJECT --reject-with icmp-host-prohibited",)}),
        culprit=Culprit(hosts=(HOSTS[1],), ranks=(2, 3)), expect=rf"{CONNECT_FAILED}|{NO_ROUTE}", also=("network-unreachable-subnet", "network-wrong-interface"),
        determinable="partly", needs=("firewall",), deadline=120.0,
    ),
)  # fmt: skip

LIMITS = (
    Scenario(
        id="cpu_time_limit_w3", cause="os-limit", family="cpu-time", world_size=3,
        injected="ulimit -t 9 on every rank; rank 2 works most", nodes=(single("busy", 3, 2, prelude="ulimit -St 9"),),
        culprit=Culprit(ranks=(2,)), expect=r"exitcode\s*: -24|SIGXCPU", telling=r"exitcode\s*: -24|SIGXCPU",
        also=("process-crashed",), deadline=120.0,
    ),
    Scenario(
        id="cpu_time_limit_bare_w2", cause="os-limit", family="cpu-time", world_size=2,
        injected="ulimit -t 9 on rank 1, in a shell that reports how it ended",
        nodes=on_one(
            tuple(
                dataclasses.replace(node, command=("bash", "-c", '"$@"; exit $?', "rank.sh", *node.command))
                for node in ranks("busy", 2, 1)
            ), 1, "ulimit -St 9",
        ),
        culprit=Culprit(ranks=(1,)), expect=r"(?i)CPU time limit exceeded", also=("process-crashed",), deadline=120.0,
    ),
    Scenario(
        id="file_size_limit_w4", cause="os-limit", family="file-size", world_size=4,
        injected="ulimit -f 2048 (2 MiB) on the ranks", culprit=Culprit(why="all ranks"),
        nodes=(single("large_file", 4, 0, *FOLDER, prelude=f"{DISK}; ulimit -f 2048"),),
        expect=r"File too large", also=("storage-fault",), telling=r"File too large",
    ),
    Scenario(
        id="semaphores_shm_full_w2", cause="shared-memory-exhausted", family="semaphores", world_size=2,
        injected="/dev/shm has no room for a semaphore", culprit=Culprit(why="all ranks"),
        nodes=(spawned("semaphores", 2, 0, prelude="mount -t tmpfs -o size=4k,nr_inodes=2 tmpfs /dev/shm"),),
        expect=r"No space left on device", also=("storage-fault", "os-limit"), telling=r"No space left on device",
    ),
    Scenario(
        id="stands_in_read_w4", cause="straggler", family="own-watchdog", world_size=4,
        injected="rank 2 waits in a read for ever; its own watchdog prints its stack", culprit=Culprit(ranks=(2,)),
        nodes=(single("hang_dump", 4, 2, "--timeout", "8", "--console", "pipes"),), expect=TIMED_OUT,
        also=("rank-divergence", "data-pipeline-failure", "storage-fault"), telling=r"in read_with_watchdog",
    ),
    Scenario(
        id="maintenance_one_host_w4", cause="job-preempted", family="maintenance", world_size=4,
        injected="rank 3 is told of maintenance and ends by SIGTERM", culprit=Culprit(ranks=(3,)),
        nodes=(single("terminate_itself", 4, 3, "--console", "glog"),), expect=r"maintenance notice",
        telling=r"maintenance notice", also=("process-crashed",),
    ),
)  # fmt: skip

ATTEMPTS = (
    Scenario(
        id="retries_healthy_w4", cause="healthy", family="healthy-retries", world_size=4,
        injected="nothing that stays: rank 2 needs four attempts for a download",
        nodes=pods(ranks("retries", 4, 2, "--console", "json")), expect=r"attempt 3(?s:.*)done",
    ),
    Scenario(
        id="elastic_host_lost_w4", cause="process-crashed", family="elastic-host-lost", world_size=4,
        injected="SIGKILL of everything on the second host of an elastic job that needs both",
        nodes=tuple(
            torchrun_c10d("train.py", "--steps", "200", "--timeout", "15", host=host, tee=False) for host in range(2)
        ),
        network=partial(flat, 2), actions=(Action("step 6/", signal_host(1, signal.SIGKILL)),),
        culprit=Culprit(hosts=(HOSTS[1],), ranks=(2, 3)), also=("unknown", "host-out-of-memory", "rank-divergence"),
        determinable="partly", expect=LOST, deadline=90.0,
    ),
)  # fmt: skip

HOSTS_APART = (
    Scenario(
        id="mask_too_narrow_w4", cause="network-unreachable-subnet", family="narrow-mask", world_size=4,
        injected="the second host's address has the mask /32: it has no route to the first",
        nodes=cluster("train.py", "--timeout", "15", tee=False, options=("--rdzv-conf", "timeout=25")),
        network=partial(narrow_mask, 2, 1), culprit=Culprit(hosts=(HOSTS[1],)), also=("rendezvous-failed",),
        expect=NO_ROUTE, deadline=90.0,
    ),
)  # fmt: skip


def service(trouble: str, *words: str) -> tuple[Node, ...]:
    """Return the driver of the rollout service, with a Ray of its own."""
    command = ("{python}", "{jobs}/ray_service.py", "--trouble", trouble, *words)
    return (Node(command, env=QUIET, prelude=f"{_private()}; {ROUTE}"),)


def _ray(
    name: str, cause: str, trouble: str, expect: str, injected: str, *, telling: str | None = None,
    also: tuple[str, ...] = (), culprit: Culprit | None = None, determinable: str = "yes",
) -> Scenario:  # fmt: skip
    return Scenario(
        id=f"ray_service_{name}_w2", cause=cause, family=f"ray-service-{name}", injected=injected,
        nodes=service(trouble), world_size=2, expect=expect, telling=telling, also=also, needs=("ray",),
        culprit=culprit or Culprit(why="generator 1"), determinable=determinable, deadline=150.0,
    )  # fmt: skip


RAY = (
    _ray("constructor", "application-exception", "constructor", r"lm_head", "the constructor of an actor raises KeyError",
         telling=r"KeyError: 'lm_head'"),
    _ray("argument", "application-exception", "argument", r"[Cc]ould not serialize|cannot pickle",
         "an argument of a call holds a lock", telling=r"[Cc]ould not serialize|cannot pickle"),
    _ray("module", "application-exception", "module", r"flash_attn_interface",
         "a module is missing in the actors", telling=r"No module named", also=("framework-version-incompatibility",)),
    _ray("vanishes", "process-crashed", "vanish", r"ActorDiedError|ActorUnavailable", "SIGKILL of an actor by itself",
         telling=r"ActorDiedError|ActorUnavailable", also=(*KILLED, "application-exception")),
    _ray("owner", "process-crashed", "owner", r"OwnerDied|ObjectLost|ReferenceCounting", "the owner of an object is killed by the driver",
         telling=r"OwnerDied|ObjectLost", also=("application-exception", "unknown", "ray-node-lost"), determinable="partly"),
    _ray("recovers", "healthy", "recover", r"all steps done", "nothing that stays: an actor is killed and restarted"),
)  # fmt: skip

SCENARIOS = (*COLLECTED, *LIMITS, *ATTEMPTS, *HOSTS_APART, *RAY)
