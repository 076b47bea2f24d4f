"""Hosts made of network namespaces: addresses, bridges and routes that exist only while a scenario runs."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

_SERIAL = itertools.count()
#: Names of the hosts as the logs show them.
HOSTS = tuple(f"gpu-node-{index + 1:02d}" for index in range(8))


def sh(command: str, *, check: bool = True) -> str:
    """Run a shell command and return what it printed; raises RuntimeError when it fails and ``check`` is set."""
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{command}: {done.stderr.strip()}")
    return done.stdout


def inside(namespace: str, command: str, *, check: bool = True) -> str:
    """Run a shell command in a namespace."""
    return sh(f"ip netns exec {namespace} {command}", check=check)


class Lab:
    """Some hosts and a switch; everything is deleted at the end, with the processes inside."""

    def __init__(self, hosts: int) -> None:
        self._prefix = f"nt{os.getpid()}-{next(_SERIAL)}"
        self.switch = f"{self._prefix}-sw"
        self.hosts = tuple(f"{self._prefix}-h{index}" for index in range(hosts))
        self._ports = itertools.count()

    def create(self) -> None:
        """Make the namespaces, each with its loopback up."""
        for name in (self.switch, *self.hosts):
            sh(f"ip netns add {name}; ip -n {name} link set lo up")
        for name in self.hosts:
            folder = Path("/etc/netns") / name
            folder.mkdir(parents=True, exist_ok=True)
            # No name server: a lookup must fail at once, not ask this machine's.
            (folder / "resolv.conf").write_text("options timeout:1 attempts:1\n")

    def bridge(self, name: str) -> None:
        """Add a switch for one more network."""
        sh(f"ip -n {self.switch} link add {name} type bridge; ip -n {self.switch} link set {name} up")

    def plug(self, host: int, interface: str, address: str, bridge: str = "br0", mtu: int | None = None) -> str:
        """Connect a host's interface to a switch; returns the name of the switch's port."""
        port = f"p{next(self._ports)}"
        namespace = self.hosts[host]
        sh(f"ip -n {self.switch} link add {port} type veth peer name {interface} netns {namespace}")
        if mtu is not None:
            sh(f"ip -n {namespace} link set {interface} mtu {mtu}; ip -n {self.switch} link set {port} mtu {mtu}")
        sh(f"ip -n {self.switch} link set {port} master {bridge} up")
        sh(f"ip -n {namespace} addr add {address} dev {interface}; ip -n {namespace} link set {interface} up")
        return port

    def names(self, host: int, entries: dict[str, str]) -> None:
        """Write a host's /etc/hosts: name -> address."""
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in entries.items())]
        (Path("/etc/netns") / self.hosts[host] / "hosts").write_text("\n".join(lines) + "\n")

    def firewall(self, host: int, *rules: str) -> None:
        """Add rules of iptables (the arguments of the command) on a host."""
        for rule in rules:
            inside(self.hosts[host], f"iptables -A {rule}")

    def pids(self, host: int) -> list[int]:
        """Return the processes of a host."""
        return [int(pid) for pid in sh(f"ip netns pids {self.hosts[host]}", check=False).split()]

    def destroy(self) -> None:
        """Kill what still runs inside and delete the namespaces."""
        for _ in range(20):
            alive = [pid for host in range(len(self.hosts)) for pid in self.pids(host)]
            if not alive:
                break
            for pid in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        for name in (self.switch, *self.hosts):
            sh(f"ip netns del {name}", check=False)
            folder = Path("/etc/netns") / name
            if folder.is_dir():
                for file in folder.iterdir():
                    file.unlink()
                folder.rmdir()


@contextlib.contextmanager
def lab(hosts: int) -> Iterator[Lab]:
    """Yield an empty lab and delete it afterwards."""
    made = Lab(hosts)
    try:
        made.create()
        yield made
    finally:
        made.destroy()


@contextlib.contextmanager
def flat(hosts: int = 1, address: str = "10.0.0.{}", names: bool = True) -> Iterator[Lab]:
    """Yield hosts in one healthy network: eth0 with 10.0.0.1 upwards, all names known everywhere."""
    with lab(hosts) as made:
        made.bridge("br0")
        known = {HOSTS[index]: address.format(index + 1) for index in range(hosts)}
        for index in range(hosts):
            made.plug(index, "eth0", address.format(index + 1) + "/24")
            made.names(index, known if names else {})
        yield made


#: What stands between the data networks of ``two_subnets``.
GATEWAYS = ("none", "dead", "blackhole", "unreachable")


@contextlib.contextmanager
def two_subnets(sides: tuple[int, ...] = (0, 1), gateway: str = "none", data_names: bool = False) -> Iterator[Lab]:
    """Yield hosts that reach each other over eth0, while eth1 lies in one of two subnets that do not.

    ``sides`` says for each host in which subnet its eth1 lies: 192.168.10.0/24 or 192.168.20.0/24. ``gateway``: there
    is no route at all ("none"), or one over an address that nobody has ("dead"), over a router that swallows packets
    ("blackhole") or over one that answers that it knows no way ("unreachable"). ``data_names``: a host's own name is
    the address of its eth1.
    """
    if gateway not in GATEWAYS:
        raise ValueError(gateway)
    with flat(len(sides)) as made:
        subnets = ("192.168.10", "192.168.20")
        for side, subnet in enumerate(subnets):
            made.bridge(f"data{side}")
            if gateway in ("blackhole", "unreachable"):
                sh(f"ip -n {made.switch} addr add {subnet}.254/24 dev data{side}")
        if gateway == "unreachable":
            inside(made.switch, "sysctl -qw net.ipv4.ip_forward=1")
            # Between the subnets only: frames of one bridge pass here, too, where br_netfilter is loaded.
            for way in ("-i data0 -o data1", "-i data1 -o data0"):
                inside(made.switch, f"iptables -A FORWARD {way} -j REJECT --reject-with icmp-host-unreachable")
        for index, side in enumerate(sides):
            made.plug(index, "eth1", f"{subnets[side]}.{index + 5}/24", f"data{side}")
            if gateway != "none":
                route = f"{subnets[1 - side]}.0/24 via {subnets[side]}.254 dev eth1"
                sh(f"ip -n {made.hosts[index]} route add {route}")
        if data_names:
            known = {HOSTS[index]: f"{subnets[side]}.{index + 5}" for index, side in enumerate(sides)}
            for index in range(len(sides)):
                made.names(index, known)
        yield made


@contextlib.contextmanager
def with_bridge(hosts: int = 2, name: str = "docker0", address: str = "172.17.0.1", own: bool = False) -> Iterator[Lab]:
    """Yield hosts that have, beside eth0, a container bridge with one and the same address everywhere.

    ``own``: that address is what a host takes for its own name's.
    """
    with flat(hosts) as made:
        if own:
            known = {HOSTS[index]: f"10.0.0.{index + 1}" for index in range(hosts)}
            for index in range(hosts):
                made.names(index, {**known, HOSTS[index]: address})
        for namespace in made.hosts:
            sh(
                f"ip -n {namespace} link add name {name} type bridge; ip -n {namespace} addr add {address}/16 dev {name}"
            )
            # A bridge without ports has no carrier; a container's end of a pair gives it one.
            sh(f"ip -n {namespace} link add veth0a type veth peer name veth0b")
            sh(f"ip -n {namespace} link set veth0a master {name} up; ip -n {namespace} link set veth0b up")
            sh(f"ip -n {namespace} link set {name} up")
        yield made


@contextlib.contextmanager
def renamed(hosts: int, host: int, interface: str) -> Iterator[Lab]:
    """Yield hosts of which one calls its only interface something else than eth0."""
    with flat(hosts) as made:
        namespace = made.hosts[host]
        sh(f"ip -n {namespace} link set eth0 down; ip -n {namespace} link set eth0 name {interface}")
        sh(f"ip -n {namespace} link set {interface} up")
        yield made


@contextlib.contextmanager
def own_names(hosts: int, own: Mapping[int, str]) -> Iterator[Lab]:
    """Yield hosts in one network, some of which take another address for their own name (host -> address)."""
    with flat(hosts) as made:
        for host, address in own.items():
            known = {HOSTS[index]: f"10.0.0.{index + 1}" for index in range(hosts)}
            made.names(host, {**known, HOSTS[host]: address})
        yield made


@contextlib.contextmanager
def firewalled(hosts: int, rules: Mapping[int, tuple[str, ...]]) -> Iterator[Lab]:
    """Yield hosts in one network with rules of iptables (host -> arguments) in force from the beginning."""
    with flat(hosts) as made:
        for host, lines in rules.items():
            made.firewall(host, *lines)
        yield made


@contextlib.contextmanager
def short_retries(hosts: int, retries: int) -> Iterator[Lab]:
    """Yield hosts whose kernels give up a silent TCP connection after few retransmissions (tcp_retries2)."""
    with flat(hosts) as made:
        for namespace in made.hosts:
            inside(namespace, f"sysctl -qw net.ipv4.tcp_retries2={retries}")
        yield made
