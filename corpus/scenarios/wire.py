"""A long line between two hosts: frames arrive late (this machine's kernel may have no netem)."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from corpus.scenarios.network import HOSTS, Lab, lab, sh

_RELAY = Path(__file__).parent / "relay.py"


@contextlib.contextmanager
def distant(hosts: int, seconds: float) -> Iterator[Lab]:
    """Yield hosts in two places: frames of the last one arrive ``seconds`` / 2 late, and so do those sent to it."""
    with lab(hosts) as made:
        made.bridge("br0")
        known = {HOSTS[index]: f"10.0.0.{index + 1}" for index in range(hosts)}
        for index in range(hosts):
            made.plug(index, "eth0", f"10.0.0.{index + 1}/24")
            made.names(index, known)
        port = f"p{hosts - 1}"
        sh(f"ip -n {made.switch} link set {port} nomaster")
        # The relay stands between the last host's port and one more port of the switch.
        sh(
            f"ip -n {made.switch} link add near type veth peer name far; ip -n {made.switch} link set near master br0 up"
        )
        sh(f"ip -n {made.switch} link set far up")
        relay = subprocess.Popen(
            ["ip", "netns", "exec", made.switch, sys.executable, str(_RELAY), port, "far", str(seconds / 2)]
        )
        try:
            for namespace in made.hosts:
                sh(f"ip netns exec {namespace} {sys.executable} {_RELAY} --plain eth0")
            yield made
        finally:
            relay.kill()
            relay.wait()
