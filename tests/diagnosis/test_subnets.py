"""The map of networks: who announced which address where, and what could not be reached."""

from __future__ import annotations

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

USING = "{0}:10:10 [0] NCCL INFO Bootstrap : Using {1}:{2}<0>\n"
REFUSED = (
    "{0}:10:20 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to {1}<51873> failed : Connection refused\n"
)


def test_networks_kinds_and_the_failed_connection(rules: RuleSet) -> None:
    text = (
        USING.format("gpu-a", "eth0", "10.0.0.1")
        + USING.format("gpu-b", "eth0", "10.0.0.2")
        + USING.format("gpu-c", "docker0", "172.17.0.1")
        + USING.format("gpu-d", "ens3", "45.63.16.199")
        + REFUSED.format("gpu-a", "45.63.16.199") * 3
    )
    found = diagnose_text(text, rules).to_dict()["network"]
    kinds = {n["network"]: (n["kind"], n["total"]) for n in found["networks"]}
    assert kinds == {
        "10.0.0.0/24": ("private", 2), "172.17.0.0/24": ("container", 1), "45.63.16.0/24": ("public", 1)
    }  # fmt: skip
    assert found["networks"][0]["network"] == "10.0.0.0/24"
    failed = found["failed"][0]
    assert (failed["from"], failed["to"], failed["address"], failed["count"]) == ("gpu-a", "gpu-d", "45.63.16.199", 3)


def test_many_hosts_are_counted_and_cut(rules: RuleSet) -> None:
    text = "".join(USING.format(f"n{i}", "eth0", f"10.0.0.{i}") for i in range(1, 101))
    (network,) = diagnose_text(text, rules).to_dict()["network"]["networks"]
    assert network["total"] == 100 and len(network["members"]) == 64


def test_without_an_address_there_is_no_map(rules: RuleSet) -> None:
    assert diagnose_text("step 1 loss 2.0\n", rules).to_dict()["network"] is None
