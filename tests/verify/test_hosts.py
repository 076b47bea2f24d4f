"""Two hosts made of network namespaces: the verifier reproduces seed S001, and refutes it where nothing is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from corpus.scenarios import network
from corpus.scenarios.network import Lab


def _namespaces() -> bool:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    made = subprocess.run(["ip", "netns", "add", f"nt-try-{os.getpid()}"], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", f"nt-try-{os.getpid()}"], capture_output=True, check=False)
    return made.returncode == 0


pytestmark = [
    # Not imported for this: every worker would do so.
    pytest.mark.skipif(find_spec("torch") is None, reason="needs torch"),
    pytest.mark.skipif(not _namespaces(), reason="needs root, iproute2 and network namespaces"),
    pytest.mark.xdist_group("verify-hosts"),
]
ROOT = Path(__file__).parents[2]
SEED = ROOT / "corpus" / "written" / "logs" / "S001-openrlhf-broadcast-two-networks.log"
ADDRESSES = {"gpu-a": "45.63.16.199", "gpu-b": "144.202.8.219"}


@contextlib.contextmanager
def two_clouds(joined: bool) -> Iterator[Lab]:
    """The hosts of the seed: enp1s0 with their public addresses, in one network or in two that do not meet."""
    with network.lab(2) as lab:
        for bridge in ("mgmt", "net0", "net1"):
            lab.bridge(bridge)
        for index, address in enumerate(ADDRESSES.values()):
            length = 0 if joined else 24
            lab.plug(index, "enp1s0", f"{address}/{length or 24}", "net0" if joined else f"net{index}")
            lab.plug(index, "tailscale0", f"100.64.0.{index + 1}/24", "mgmt")
            lab.names(index, ADDRESSES)
        if joined:
            for index, peer in ((0, "144.202.8.0"), (1, "45.63.16.0")):
                network.sh(f"ip -n {lab.hosts[index]} route add {peer}/24 dev enp1s0")
        yield lab


def verify(lab: Lab, *arguments: str) -> tuple[int, dict, str]:
    hosts = []
    for index, name in enumerate(ADDRESSES):
        command = f"""ip netns exec {lab.hosts[index]} unshare -u sh -c 'hostname {name}; exec "$@"' sh"""
        hosts += ["--host", f"{name}={command}"]
    done = subprocess.run(
        [sys.executable, "-m", "nccl_triage", "verify", *arguments, *hosts, "--patience", "0.3", "--wait", "120"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "analyzer")},
    )
    document = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    return done.returncode, document, done.stderr


def test_seed_s001_is_reproduced_and_confirmed(tmp_path):
    with two_clouds(joined=False) as lab:
        code, document, said = verify(lab, str(SEED), "--format", "json")
    assert code == 0, said
    best = document["diagnoses"][0]
    found = best["verification"]
    assert best["cause"] == "network-unreachable-subnet"
    assert found["outcome"] == "confirmed"
    assert found["before"]["status"] == "supported"
    assert found["after"]["status"] == "established"
    assert document["headline"].startswith("Confirmed by experiment")
    assert found["findings"][0]["hosts"] == ["gpu-a", "gpu-b"]
    between = [run for run in found["runs"] if len(run["hosts"]) == 2 and not run["changed"]]
    inside = [run for run in found["runs"] if len(run["hosts"]) == 1]
    assert len(between) == 2
    assert {run["op"] for run in found["runs"]} == {"BROADCAST"}
    assert all(run["outcome"] != "passed" for run in between)
    assert {tuple(run["hosts"]) for run in inside} == {("gpu-a",), ("gpu-b",)}
    assert all(run["outcome"] == "passed" for run in inside)


def test_the_matrix_says_who_reaches_what_and_by_which_interface():
    with two_clouds(joined=False) as lab:
        _, document, said = verify(lab, str(SEED), "--format", "json")
    paths = document["diagnoses"][0]["verification"]["reachability"]
    seen = {(path["from"], path["to"], path["address"], path["by_interface"], path["state"]) for path in paths}
    assert ("gpu-a", "gpu-b", "144.202.8.219", None, "no-route") in seen, said
    assert ("gpu-b", "gpu-a", "45.63.16.199", None, "no-route") in seen
    assert ("gpu-a", "gpu-b", "100.64.0.2", "tailscale0", "reachable") in seen
    assert all(path["port"] > 0 for path in paths)


def test_where_the_networks_meet_the_diagnosis_is_contradicted_with_exit_code_4():
    with two_clouds(joined=True) as lab:
        code, document, said = verify(lab, str(SEED), "--format", "json")
    assert code == 4, said
    found = next(d for d in document["diagnoses"] if d["cause"] == "network-unreachable-subnet")["verification"]
    assert found["outcome"] == "refuted"
    assert found["after"]["confidence"] < found["before"]["confidence"]
