"""What can be done to hosts, links and processes while a job runs: the ``do`` of an ``Action``."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from corpus.scenarios.network import HOSTS, inside, sh
from corpus.scenarios.recorder import Run

Act = Callable[[Run], str]


def firewall(host: int, *rules: str) -> Act:
    """Add rules of iptables on a host."""

    def act(run: Run) -> str:
        run.lab.firewall(host, *rules)
        return f"{HOSTS[host]}: " + "; ".join(f"iptables -A {rule}" for rule in rules)

    return act


def open_firewall(host: int) -> Act:
    """Delete all rules of iptables on a host."""

    def act(run: Run) -> str:
        inside(run.lab.hosts[host], "iptables -F")
        return f"{HOSTS[host]}: iptables -F"

    return act


def link(host: int, state: str, interface: str = "eth0") -> Act:
    """Set a host's interface "up" or "down"."""

    def act(run: Run) -> str:
        sh(f"ip -n {run.lab.hosts[host]} link set {interface} {state}")
        return f"{HOSTS[host]}: ip link set {interface} {state}"

    return act


def throttle(host: int, rate: str, interface: str = "eth0") -> Act:
    """Limit what a host sends, e.g. to "1mbit"."""

    def act(run: Run) -> str:
        inside(run.lab.hosts[host], f"tc qdisc replace dev {interface} root tbf rate {rate} burst 32kbit latency 400ms")
        return f"{HOSTS[host]}: tc qdisc replace dev {interface} root tbf rate {rate}"

    return act


def signal_host(host: int, number: signal.Signals) -> Act:
    """Send a signal to all processes of a host at once."""

    def act(run: Run) -> str:
        run.signal_host(host, number)
        return f"{number.name} to all processes of {HOSTS[host]}"

    return act


def signal_agent(host: int, number: signal.Signals) -> Act:
    """Send a signal to the torchrun of a host, not to its ranks."""

    def act(run: Run) -> str:
        for pid in run.lab.pids(host):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if any(word.endswith(b"/torchrun") for word in words[:2]):
                os.kill(pid, number)
                return f"{number.name} to torchrun of {HOSTS[host]}"
        raise LookupError(f"no torchrun on {HOSTS[host]}")

    return act


def signal_rank(rank: int, number: signal.Signals) -> Act:
    """Send a signal to one rank."""

    def act(run: Run) -> str:
        os.kill(run.pid_of_rank(rank), number)
        return f"{number.name} to rank {rank}"

    return act


def after(seconds: float, act: Act) -> Act:
    """Return an act that waits before it acts."""

    def late(run: Run) -> str:
        time.sleep(seconds)
        return act(run)

    return late


def both(*acts: Act) -> Act:
    """Return an act that does several in their order."""

    def act(run: Run) -> str:
        return "; ".join(one(run) for one in acts)

    return act
