"""NCCL's own host code over a stand-in for the CUDA driver: bootstrap, topology, transports, errors.

Kernels never run here, so a collective never finishes; whatever NCCL prints about hosts, networks, ranks and settings is
its own.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

from corpus.scenarios.acts import after, firewall, link, signal_rank
from corpus.scenarios.build import PORT, bare_ranks, torchrun
from corpus.scenarios.network import Lab, firewalled, flat, renamed, short_retries, two_subnets, with_bridge
from corpus.scenarios.scenario import Action, Culprit, Node, Scenario

JOB = "nccl_host.py"
NOBODY = Culprit()
Network = Callable[[], AbstractContextManager[Lab]]
ONE, TWO, THREE = "gpu-node-01", "gpu-node-02", "gpu-node-03"
NEWEST = "2.21.5"
INFO = {"NCCL_DEBUG": "INFO"}
WARN = {"NCCL_DEBUG": "WARN"}
READY = r"group \w+ ready"
PASSED = "communicator check passed"

#: The ports at which the ranks exchange NCCL's ids are open; those that NCCL chooses are not.
IDS = f"INPUT -p tcp --dport {PORT}:{PORT + 10} -j ACCEPT"
ANSWERS = "INPUT -p tcp -m state --state ESTABLISHED -j ACCEPT"
NEW = "INPUT -i eth0 -p tcp -j"


def finder(version: str, *options: str) -> str:
    """Return the shell that makes a node use a version of NCCL with the stand-ins."""
    return 'eval "$({python} {jobs}/../nccl_double/build.py ' + " ".join((version, *options)) + ')"'


def ranks(
    *arguments: str,
    world_size: int,
    hosts: int = 1,
    version: str = NEWEST,
    env: Mapping[str, str] = INFO,
    driver: tuple[str, ...] = (),
    versions: Mapping[int, str] | None = None,
    envs: Mapping[int, Mapping[str, str]] | None = None,
    own: Mapping[int, tuple[str, ...]] | None = None,
    limits: str = "",
    missing: tuple[int, ...] = (),
) -> tuple[Node, ...]:
    """Return one process a rank; ``versions``, ``envs`` and ``own`` (arguments) are for single ranks."""
    nodes = []
    for node in bare_ranks(JOB, *arguments, world_size=world_size, hosts=hosts, env=env, missing=missing):
        rank = int(node.env["RANK"])
        nodes.append(
            replace(
                node,
                command=(*node.command, *(own or {}).get(rank, ())),
                env={**node.env, **(envs or {}).get(rank, {})},
                prelude="; ".join(filter(None, (limits, finder((versions or {}).get(rank, version), *driver)))),
            )
        )
    return tuple(nodes)


def launched(
    *arguments: str,
    nproc: int,
    hosts: int = 1,
    version: str = NEWEST,
    env: Mapping[str, str] = INFO,
    envs: Mapping[int, Mapping[str, str]] | None = None,
    driver: tuple[str, ...] = (),
    limits: str = "",
    tee: bool = True,
) -> tuple[Node, ...]:
    """Return one torchrun a host; ``envs`` are for single hosts."""
    return tuple(
        torchrun(
            JOB,
            *arguments,
            nproc=nproc,
            host=host,
            nodes=hosts,
            tee=tee,
            env={**env, **(envs or {}).get(host, {})},
            prelude="; ".join(filter(None, (limits, finder(version, *driver)))),
        )
        for host in range(hosts)
    )


def scenario(
    name: str,
    cause: str,
    family: str,
    injected: str,
    nodes: tuple[Node, ...],
    world_size: int,
    expect: str,
    culprit: Culprit = NOBODY,
    also: tuple[str, ...] = (),
    determinable: str = "yes",
    telling: str | None = None,
    actions: tuple[Action, ...] = (),
    hosts: int = 1,
    network: Network | None = None,
    version: str = NEWEST,
    firewalls: bool = False,
) -> Scenario:
    """Return a scenario whose label says what is real in it and what is not."""
    return Scenario(
        id=f"nccl_{name}_w{world_size}",
        cause=cause,
        family=f"nccl-{family}",
        injected=f"{injected} (NCCL's own host code over a stand-in for the CUDA driver: kernels never run)",
        nodes=nodes,
        world_size=world_size,
        expect=expect,
        culprit=culprit,
        also=also,
        determinable=determinable,
        telling=telling,
        actions=actions,
        network=network or partial(flat, hosts),
        needs=("nccl-double", "firewall") if firewalls else ("nccl-double",),
        versions={"nccl": version},
        deadline=120.0,
    )


def rejecting(how: str, host: int | None = None) -> Network:
    """Return two hosts of which both (or one) let only the ids' ports in."""
    rules = (IDS, ANSWERS, f"{NEW} {how}")
    return partial(firewalled, 2, {0: rules, 1: rules} if host is None else {host: rules})


FIREWALL_TCP_RESET = "REJECT --reject-with tcp-reset"
FIREWALL_PROHIBITED = "REJECT --reject-with icmp-host-prohibited"

HEALTHY = (
    scenario("start", "healthy", "start", "nothing", ranks(world_size=2), 2, PASSED),
    scenario(
        "start_two_hosts", "healthy", "start", "nothing",
        ranks("--groups", "dp,tp", world_size=4, hosts=2, version="2.20.5"), 4, PASSED, hosts=2, version="2.20.5",
    ),
    scenario(
        "start_torchrun", "healthy", "start", "nothing",
        launched(nproc=2, hosts=2, version="2.19.3"), 4, PASSED, hosts=2, version="2.19.3",
    ),
    scenario(
        "start_no_p2p", "healthy", "start", "nothing; the chipset has no P2P, as NCCL says again and again",
        ranks(world_size=4, version="2.18.3", env={**INFO, "CUDA_DOUBLE_P2P_STATUS": "1"}), 4, PASSED, version="2.18.3",
    ),
    scenario(
        "start_plugin_settings", "healthy", "start",
        "nothing; settings for a network plugin and for InfiniBand, of which the machine has neither",
        launched(
            nproc=2, tee=False,
            env={**INFO, "NCCL_NET_PLUGIN": "ofi", "NCCL_IB_HCA": "mlx5_0,mlx5_1", "NCCL_IB_TIMEOUT": "22"},
        ), 2, PASSED,
    ),
    scenario(
        "start_bridge_excluded", "healthy", "start", "nothing; NCCL is told to leave the container bridge alone",
        ranks(world_size=4, hosts=2, env={**INFO, "NCCL_SOCKET_IFNAME": "^docker,lo,veth"}), 4, PASSED,
        network=with_bridge,
    ),
    scenario(
        "start_topo_missing", "healthy", "start", "nothing; NCCL_TOPO_FILE names no file, and NCCL goes on without",
        ranks(world_size=2, env={**INFO, "NCCL_TOPO_FILE": "/etc/nccl/topo.xml"}), 2, PASSED,
    ),
    scenario(
        "start_odd_settings", "healthy", "start", "nothing; settings that NCCL corrects or leaves out of account",
        launched(
            nproc=4, version="2.20.5",
            env={**WARN, "NCCL_NTHREADS": "1000", "NCCL_CGA_CLUSTER_SIZE": "9", "NCCL_ALGO": "Rings"},
        ), 4, PASSED, version="2.20.5",
    ),
    scenario(
        "start_slow_rank", "healthy", "start", "nothing; rank 5 joins 6 seconds after the others, within the time-out, and no host has a libcuda.so without version",
        ranks(world_size=6, hosts=3, driver=("--runtime-only",), env=WARN, version="2.20.5", own={5: ("--late", "5", "--pause", "6")}),
        6, PASSED, hosts=3, version="2.20.5",
    ),
    scenario(
        "start_four_hosts", "healthy", "start", "nothing",
        ranks("--groups", "dp,tp,pp", world_size=8, hosts=4, env={**WARN, "NCCL_DEBUG_SUBSYS": "INIT,NET"}),
        8, PASSED, hosts=4,
    ),
)  # fmt: skip

OUT_OF_MEMORY = r"Cuda failure '?out of memory|CUDA_ERROR_OUT_OF_MEMORY"
MEMORY = (
    scenario(
        "device_memory_in_init", "gpu-out-of-memory", "device-memory", "rank 2's device has only 2 MiB left",
        ranks(world_size=4, hosts=2, envs={2: {"CUDA_DOUBLE_IN_USE": "81557"}}), 4, OUT_OF_MEMORY,
        Culprit((2,), (TWO,), "rank 2"), hosts=2,
    ),
    scenario(
        "device_memory_in_second_group", "gpu-out-of-memory", "device-memory",
        "the devices of gpu-node-02 have room for one communicator, not for the second one",
        launched("--groups", "dp,tp", nproc=2, hosts=2, version="2.19.3", envs={1: {"CUDA_DOUBLE_IN_USE": "81551"}}),
        4, OUT_OF_MEMORY, Culprit((2, 3), (TWO,)), hosts=2, version="2.19.3",
    ),
    scenario(
        "device_memory_of_buffer", "gpu-out-of-memory", "device-memory", "rank 1's device has no room for the buffer",
        ranks(
            "--collective", "--mib", "512", "--timeout", "12", world_size=2,
            envs={1: {"CUDA_DOUBLE_IN_USE": "81200"}},
        ), 2, "CUDA_ERROR_OUT_OF_MEMORY", Culprit((1,)),
    ),
)  # fmt: skip

DUPLICATE = "Duplicate GPU detected"
DEVICES = (
    scenario("duplicate_gpu", "duplicate-gpu", "duplicate-gpu", "both ranks use device 0",
             ranks("--device", "0", world_size=2), 2, DUPLICATE, Culprit((0, 1))),
    scenario("duplicate_gpu_torchrun", "duplicate-gpu", "duplicate-gpu", "all ranks use device 0",
             launched("--device", "0", nproc=4, version="2.19.3", env=WARN), 4, DUPLICATE, Culprit((0, 1, 2, 3)),
             version="2.19.3"),
    scenario("duplicate_gpu_one_host", "duplicate-gpu", "duplicate-gpu", "ranks 4 and 5 on gpu-node-02 use device 0",
             ranks(world_size=8, hosts=2, version="2.18.3", own={5: ("--device", "0")}), 8, DUPLICATE,
             Culprit((4, 5), (TWO,)), hosts=2, version="2.18.3"),
)  # fmt: skip

NO_INTERFACE = "no socket interface found|No interface found|Bootstrap : no socket"
INTERFACES = (
    scenario("interface_nosuch", "network-wrong-interface", "interface-nosuch", "NCCL_SOCKET_IFNAME=ib0 does not exist",
             ranks(world_size=4, hosts=2, env={**INFO, "NCCL_SOCKET_IFNAME": "ib0"}), 4, NO_INTERFACE,
             Culprit((), (ONE, TWO)), hosts=2),
    scenario("interface_nosuch_torchrun", "network-wrong-interface", "interface-nosuch",
             "NCCL_SOCKET_IFNAME=ens5 does not exist",
             launched(nproc=2, version="2.18.3", env={**WARN, "NCCL_SOCKET_IFNAME": "=ens5"}), 2, NO_INTERFACE,
             Culprit((), (ONE,)), version="2.18.3"),
    scenario("interface_differs", "network-wrong-interface", "interface-nosuch",
             "NCCL_SOCKET_IFNAME=eth0, but gpu-node-02's interface is called ens5",
             ranks(world_size=4, hosts=2, version="2.20.5", env={**INFO, "NCCL_SOCKET_IFNAME": "eth0"}), 4, NO_INTERFACE,
             Culprit((2, 3), (TWO,)), network=partial(renamed, 2, 1, "ens5"), version="2.20.5"),
    scenario("interface_loopback", "network-wrong-interface", "interface-loopback",
             "NCCL_SOCKET_IFNAME=lo in a job of two hosts",
             ranks(world_size=4, hosts=2, env={**INFO, "NCCL_SOCKET_IFNAME": "lo"}), 4, r"Using lo:127\.0\.0\.1",
             Culprit((), (ONE, TWO)), hosts=2, telling=r"Using lo:127\.0\.0\.1"),
    scenario("interface_docker0", "network-wrong-interface", "interface-bridge",
             "NCCL_SOCKET_IFNAME=docker0, whose address is the same on both hosts",
             ranks(world_size=4, hosts=2, version="2.19.3", env={**INFO, "NCCL_SOCKET_IFNAME": "docker0"}), 4,
             r"Using docker0:172\.17\.0\.1", Culprit((), (ONE, TWO)), network=with_bridge, version="2.19.3",
             telling=r"Using docker0:172\.17\.0\.1"),
    scenario("interface_bridge_one_host", "network-wrong-interface", "interface-bridge",
             "NCCL_SOCKET_IFNAME=docker0 on gpu-node-02 only",
             launched(nproc=1, hosts=2, env=INFO, envs={1: {"NCCL_SOCKET_IFNAME": "docker0"}}), 2,
             r"Using docker0:172\.17\.0\.1", Culprit((1,), (TWO,)), network=with_bridge,
             telling=r"Using docker0:172\.17\.0\.1"),
    scenario("interface_veth", "network-wrong-interface", "interface-veth",
             "NCCL_SOCKET_IFNAME=^docker,lo leaves the containers' veth interfaces, which lead nowhere",
             ranks(world_size=4, hosts=2, env={**INFO, "NCCL_SOCKET_IFNAME": "^docker,lo"}), 4, r"\]veth0\w:",
             Culprit((), (ONE, TWO)), network=with_bridge, telling=r"\]veth0\w:", determinable="partly",
             also=("network-unreachable-subnet", "unknown")),
    scenario("interface_ipv6", "network-wrong-interface", "interface-family",
             "NCCL_SOCKET_FAMILY=AF_INET6 where only link-local IPv6 addresses exist",
             ranks(world_size=2, hosts=2, env={**INFO, "NCCL_SOCKET_FAMILY": "AF_INET6"}), 2,
             r"Using \S+:fe80|no socket interface", Culprit((), (ONE, TWO)), hosts=2, also=("nccl-env-misconfig",)),
)  # fmt: skip

#: NCCL tries again after a refusal, and the kernel then says that the connection was aborted.
REFUSED = r"Connect to \S+ failed : (Connection refused|No route to host|Software caused connection abort)"
#: NCCL 2.20 says no more than this about an ICMP message that a host cannot be reached.
FAILED = r"misc/socket\.cc:\d+ -> 2"
SUBNETS = tuple(
    scenario(f"subnets_{name}", "network-unreachable-subnet", "subnets",
             f"NCCL_SOCKET_IFNAME=eth1, and the hosts' eth1 lie in two subnets with {what}",
             ranks("--timeout", "30", world_size=2 * count, hosts=2, version=version,
                   env={**INFO, "NCCL_SOCKET_IFNAME": "eth1"}),
             2 * count, expect, Culprit((), (ONE, TWO)), network=partial(two_subnets, (0, 1), gateway),
             also=also, version=version, firewalls=True, determinable=determinable)
    for name, gateway, what, count, version, also, expect, determinable in (
        ("no_route", "none", "no route between them", 2, "2.21.5", ("network-wrong-interface",), "Network is unreachable",
         "yes"),
        ("rejected", "unreachable", "a router that knows no way", 1, "2.20.5",
         ("network-wrong-interface", "network-firewall-port", "unknown"), FAILED, "partly"),
        ("swallowed", "blackhole", "a router that swallows packets", 2, "2.21.5",
         ("network-wrong-interface", "network-firewall-port"), r"Using eth1:192\.168\.20", "partly"),
    )
)  # fmt: skip

FIREWALLS = (
    scenario("firewall_reset", "network-firewall-port", "firewall", "gpu-node-01 and gpu-node-02 refuse NCCL's ports",
             ranks("--timeout", "30", world_size=4, hosts=2), 4, REFUSED, Culprit((), (ONE, TWO)),
             network=rejecting(FIREWALL_TCP_RESET), firewalls=True, also=("rendezvous-failed",)),
    scenario("firewall_prohibited", "network-firewall-port", "firewall", "gpu-node-01 rejects NCCL's ports",
             launched("--timeout", "30", nproc=2, hosts=2, version="2.20.5"), 4, FAILED, Culprit((), (ONE,)),
             network=rejecting(FIREWALL_PROHIBITED, 0), firewalls=True, also=("network-unreachable-subnet", "unknown"), determinable="partly",
             version="2.20.5"),
    scenario("firewall_drop", "network-firewall-port", "firewall", "gpu-node-01 drops what comes to NCCL's ports",
             ranks("--timeout", "25", world_size=4, hosts=2), 4, "did not return within", Culprit((), (ONE,)),
             network=rejecting("DROP", 0), firewalls=True,
             also=("network-unreachable-subnet", "rendezvous-failed", "unknown"), determinable="partly"),
    scenario("firewall_second_host", "network-firewall-port", "firewall", "gpu-node-02 refuses NCCL's ports",
             ranks("--timeout", "30", world_size=2, hosts=2, env=WARN, version="2.19.3"), 2, REFUSED,
             Culprit((1,), (TWO,)), network=rejecting(FIREWALL_TCP_RESET, 1), firewalls=True,
             also=("rendezvous-failed", "process-crashed", "unknown"), determinable="partly", version="2.19.3"),
)  # fmt: skip

MEETING = (
    scenario("rank_never_joins", "rendezvous-failed", "meeting", "rank 3 was never started",
             ranks("--timeout", "12", world_size=4, hosts=2, missing=(3,)), 4, "did not ask for the id",
             Culprit((3,), (TWO,)), hosts=2),
    scenario("rank_does_not_enter", "rank-divergence", "meeting-late",
             "rank 3 takes the id and then does something else for longer than the time-out",
             ranks("--timeout", "12", world_size=4, hosts=2, version="2.20.5", own={3: ("--late", "3", "--pause", "40")}),
             4, "did not return within", Culprit((3,), (TWO,)), hosts=2, also=("rendezvous-failed", "straggler"),
             determinable="partly", version="2.20.5"),
    scenario("duplicate_rank", "rendezvous-failed", "duplicate-rank", "rank 3 says that it is rank 2",
             ranks("--timeout", "12", world_size=4, hosts=2, own={3: ("--rank", "2")}), 4,
             "has already checked in", Culprit((2, 3), (TWO,)), hosts=2),
    scenario("wrong_size", "rendezvous-failed", "wrong-size", "rank 3 believes that there are 5 ranks",
             ranks("--timeout", "12", world_size=4, hosts=2, version="2.19.3", own={3: ("--size", "5")}), 4,
             "mismatch in rank count", Culprit((3,), (TWO,)), hosts=2, version="2.19.3"),
    scenario("wrong_size_torchrun", "rendezvous-failed", "wrong-size", "gpu-node-02 believes that there are 3 ranks",
             (*launched("--timeout", "12", nproc=1, hosts=2, env=WARN)[:1],
              *launched("--timeout", "12", "--size", "3", nproc=1, hosts=2, env=WARN)[1:]), 2,
             "mismatch in rank count", Culprit((1,), (TWO,)), hosts=2),
)  # fmt: skip

VERSIONS = tuple(
    scenario(f"versions_{first}_{second}".replace(".", ""), "nccl-version-conflict", "versions",
             f"gpu-node-01 has NCCL {first}, gpu-node-02 has {second}",
             ranks("--timeout", "15", world_size=count, hosts=2, version=first,
                   versions=dict.fromkeys(range(count // 2, count), second)), count,
             r"(?s)NCCL version 2.*(mismatch|did not return|NCCL error)", Culprit((), (ONE, TWO)), hosts=2,
             version=f"{first} and {second}", telling="Message truncated")
    for first, second, count in (("2.21.5", "2.18.3", 4), ("2.19.3", "2.21.5", 2), ("2.20.5", "2.21.5", 4))
)  # fmt: skip

SETTINGS = tuple(
    scenario(f"setting_{name}", "nccl-env-misconfig", f"setting-{family}", what,
             ranks("--timeout", "15", world_size=count, hosts=hosts, env={**INFO, **env}, version=version), count, expect,
             Culprit((), (ONE,) if hosts == 1 else (ONE, TWO), what), hosts=hosts, version=version, also=also)
    for name, family, what, env, count, hosts, version, expect, also in (
        ("net_name", "net", "NCCL_NET=IB on hosts without InfiniBand", {"NCCL_NET": "IB"}, 4, 2, "2.21.5",
         "network IB not found", ("network-ib-misconfig", "network-plugin")),
        ("net_typo", "net", "NCCL_NET=Sockets is misspelt", {"NCCL_NET": "Sockets"}, 2, 1, "2.19.3",
         "network Sockets not found", ("network-plugin",)),
        ("topo_broken", "xml", "NCCL_TOPO_FILE names a file that is no topology", {"NCCL_TOPO_FILE": "/etc/hostname"},
         2, 1, "2.20.5", "XML Parse error", ()),
        ("graph_broken", "xml", "NCCL_GRAPH_FILE names a file that is no graph", {"NCCL_GRAPH_FILE": "/etc/hostname"},
         4, 2, "2.21.5", "XML Parse error", ()),
        ("comm_id", "comm-id", "NCCL_COMM_ID names an address that no host has", {"NCCL_COMM_ID": "192.168.99.1:5000"},
         2, 2, "2.20.5", "No interface found in the same subnet", ("network-wrong-interface",)),
        ("host_id", "host-id", "NCCL_HOSTID is the same on both hosts", {"NCCL_HOSTID": "worker"}, 4, 2, "2.21.5",
         "Duplicate GPU detected", ("duplicate-gpu",)),
    )
)  # fmt: skip

PLUGINS = tuple(
    scenario(f"plugin_{name}", "network-plugin", "plugin", what,
             ranks("--timeout", "15", world_size=count, hosts=hosts, version=version, driver=("--plugin", kind),
                   env={**INFO, "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV", "NCCL_NET": "Fabric"}), count, expect,
             Culprit((), (ONE,) if hosts == 1 else (ONE, TWO), what), hosts=hosts, version=version, also=also)
    for name, what, kind, count, hosts, version, expect, also in (
        ("no_provider", "the network plugin finds no provider", "NO_PROVIDER", 4, 2, "2.21.5", "No provider found", ()),
        ("missing_library", "the network plugin lacks a library", "MISSING_LIBRARY", 2, 1, "2.20.5",
         "undefined symbol: fi_getinfo", ()),
        ("old_interface", "the network plugin is too old for this NCCL", "OLD_INTERFACE", 2, 1, "2.21.5",
         "(?i)failed to find ncclNetPlugin|network Fabric not found", ("nccl-version-conflict",)),
    )
)  # fmt: skip

SMALL_SHM = "mount -t tmpfs -o size=1m tmpfs /dev/shm"
LIMITS = (
    scenario("shm_small", "shared-memory-exhausted", "shm", "/dev/shm of 1 MiB", launched(nproc=2, limits=SMALL_SHM), 2,
             "(?i)shm.*(No space|fail)|No space left", Culprit((), (ONE,))),
    scenario("shm_small_one_host", "shared-memory-exhausted", "shm", "/dev/shm of 1 MiB on gpu-node-02",
             (*launched(nproc=2, hosts=2, version="2.19.3", env=WARN)[:1],
              *launched(nproc=2, hosts=2, version="2.19.3", env=WARN, limits=SMALL_SHM)[1:]), 4,
             "(?i)shm.*(No space|fail)|No space left", Culprit((2, 3), (TWO,)), hosts=2, version="2.19.3"),
    scenario("descriptors", "os-limit", "descriptors-poll", "ulimit -n 40 on all hosts",
             ranks("--timeout", "15", world_size=4, hosts=2, limits="ulimit -n 40"), 4, "Poll failed: Invalid argument",
             Culprit((), (ONE, TWO)), hosts=2, determinable="partly", also=("unknown",)),
    scenario("descriptors_groups", "os-limit", "descriptors", "ulimit -n 72 and several communicators",
             ranks("--timeout", "15", "--groups", "dp,tp,pp,ep", world_size=3, version="2.20.5", limits="ulimit -n 72"),
             3, "Too many open files", Culprit((), (ONE,)), version="2.20.5"),
)  # fmt: skip

OLD_DRIVER = "CUDA driver version is insufficient"
DRIVERS = (
    scenario("no_driver", "driver-cuda-mismatch", "driver", "no CUDA driver on the host",
             ranks("--device", "-1", world_size=2, driver=("--without-driver",)), 2, OLD_DRIVER, Culprit((), (ONE,))),
    scenario("no_driver_new_nccl", "driver-cuda-mismatch", "driver", "no CUDA driver on gpu-node-01",
             launched("--device", "-1", nproc=2, version="2.27.5", driver=("--without-driver",), env=WARN), 2,
             OLD_DRIVER, Culprit((), (ONE,)), version="2.27.5"),
    scenario("old_driver", "driver-cuda-mismatch", "driver", "the hosts' drivers are for CUDA 11.4, NCCL was built for 12",
             ranks("--timeout", "15", world_size=4, hosts=2, version="2.27.5",
                   env={**INFO, "CUDA_DOUBLE_DRIVER": "11040"}), 4, OLD_DRIVER,
             Culprit((), (ONE, TWO), "all hosts"), hosts=2, version="2.27.5"),
    scenario("old_driver_cuda10", "driver-cuda-mismatch", "driver", "gpu-node-02's driver is one for CUDA 10.2",
             ranks("--timeout", "15", world_size=4, hosts=2, envs={r: {"CUDA_DOUBLE_DRIVER": "10020"} for r in (2, 3)}),
             4, OLD_DRIVER, Culprit((2, 3), (TWO,)), hosts=2),
)  # fmt: skip

ECC = {"CUDA_DOUBLE_FAULT": "214"}
HARDWARE = (
    scenario("ecc_in_init", "gpu-hardware-fault", "device-fault", "rank 3's device reports uncorrectable ECC errors",
             ranks("--timeout", "15", world_size=4, hosts=2, envs={3: {**ECC, "CUDA_DOUBLE_FAULT_AT": "0"}}), 4,
             "uncorrectable ECC error", Culprit((3,), (TWO,)), hosts=2),
    scenario("ecc_in_collective", "gpu-hardware-fault", "device-fault",
             "rank 1's device reports an uncorrectable ECC error in the all-reduce",
             ranks("--collective", "--timeout", "12", world_size=2, envs={1: ECC}), 2, "uncorrectable ECC error",
             Culprit((1,))),
    scenario("ecc_at_launch", "gpu-hardware-fault", "device-fault",
             "rank 2's device refuses the kernel with an uncorrectable ECC error",
             launched("--collective", "--timeout", "12", nproc=4, version="2.20.5",
                      envs={0: {**ECC, "CUDA_DOUBLE_FAULT_LATER": "0", "CUDA_DOUBLE_ONLY": "2"}}), 4,
             "uncorrectable ECC error", Culprit((2,)), version="2.20.5"),
    scenario("launch_failure", "gpu-hardware-fault", "device-fault",
             "rank 0's kernel ends with an unspecified launch failure",
             ranks("--collective", "--timeout", "12", world_size=4, hosts=2, envs={0: {"CUDA_DOUBLE_FAULT": "719"}}), 4,
             "unspecified launch failure", Culprit((0,), (ONE,)), hosts=2, also=("application-exception", "unknown"),
             determinable="partly"),
)  # fmt: skip

REMOTE = r"remote process exited|Connection reset|Connection closed"
CRASHES = (
    scenario("killed_in_init", "process-crashed", "killed", "SIGKILL of rank 3 while the communicator is set up",
             ranks("--timeout", "20", "--late", "2", "--pause", "3", world_size=4, hosts=2), 4, REMOTE,
             Culprit((3,), (TWO,)), actions=(Action("rank 3 nranks 4", signal_rank(3, signal.SIGKILL)),), hosts=2,
             also=("host-out-of-memory", "unknown")),
    scenario("killed_in_collective", "process-crashed", "killed", "SIGKILL of rank 1 in an all-reduce",
             ranks("--collective", "--timeout", "15", world_size=2, hosts=2, version="2.20.5"), 2, REMOTE,
             Culprit((1,), (TWO,)), actions=(Action("enqueued", signal_rank(1, signal.SIGKILL), 2),), hosts=2,
             also=("host-out-of-memory", "unknown"), version="2.20.5"),
    scenario("killed_torchrun", "process-crashed", "killed", "SIGKILL of rank 2 in an all-reduce",
             launched("--collective", "--timeout", "20", nproc=4, version="2.19.3", env=WARN), 4, r"exitcode: -9|Signal 9",
             Culprit((2,), (ONE,)), actions=(Action("enqueued", signal_rank(2, signal.SIGKILL), 4),),
             also=("host-out-of-memory",), version="2.19.3"),
    scenario("segfault_between_groups", "process-crashed", "killed", "SIGSEGV of rank 5 between two communicators",
             launched("--groups", "dp,tp", "--between", "3", nproc=3, hosts=2, env=WARN), 6, r"exitcode: -11|Signal 11",
             Culprit((5,), (TWO,)), actions=(Action("group dp ready", signal_rank(5, signal.SIGSEGV), 6),), hosts=2),
)  # fmt: skip

LINKS = (
    scenario("link_down_between_groups", "network-link-fault", "link", "gpu-node-02's link fails after the first group",
             ranks("--groups", "dp,tp", "--between", "5", "--timeout", "25", world_size=4, hosts=2), 4,
             r"(?s)group dp ready.*(No route|timed out|TimeoutError|unreachable)", Culprit((2, 3), (TWO,)),
             actions=(Action("group dp ready", link(1, "down"), 4),), network=partial(short_retries, 2, 3),
             also=("network-unreachable-subnet", "network-firewall-port"), telling="No route|unreachable|timed out"),
    scenario("link_drops_in_init", "network-link-fault", "link",
             "packets to gpu-node-02 are dropped while the second communicator is set up",
             ranks("--groups", "dp,tp", "--late", "1", "--pause", "4", "--timeout", "30", world_size=2, hosts=2), 2,
             r"(?s)group dp ready.*(timed out|did not return)", Culprit((1,), (TWO,)), determinable="partly",
             actions=(Action("group dp ready", after(1.5, firewall(1, "INPUT -i eth0 -j DROP")), 2),),
             network=partial(short_retries, 2, 3), firewalls=True, telling="timed out|did not return",
             also=("network-unreachable-subnet", "network-firewall-port", "unknown")),
    scenario("link_down_in_init", "network-link-fault", "link",
             "gpu-node-02's link goes down while the second communicator is set up",
             ranks("--groups", "dp,tp", "--late", "1", "--pause", "4", "--timeout", "20", world_size=2, hosts=2,
                   version="2.20.5"), 2,
             r"(?s)group dp ready.*NCCL WARN.*unreachable", Culprit((1,), (TWO,)), version="2.20.5",
             actions=(Action("group dp ready", after(1.5, link(1, "down")), 2),), hosts=2, telling="unreachable",
             also=("network-unreachable-subnet",)),
)  # fmt: skip

SCENARIOS = (
    *HEALTHY, *MEMORY, *DEVICES, *INTERFACES, *SUBNETS, *FIREWALLS, *MEETING, *VERSIONS, *SETTINGS, *PLUGINS, *LIMITS,
    *DRIVERS, *HARDWARE, *CRASHES, *LINKS,
)  # fmt: skip
