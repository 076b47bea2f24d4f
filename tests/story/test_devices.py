"""Addresses and names as different programs write them, and NVSwitches, which are nobody's GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage.story.devices import PciAddress, address_of_bus_id, host_key, job_like, parse_pci_address
from tests.diagnosis import hosts


def test_one_address_in_every_spelling() -> None:
    wanted = PciAddress(0, 0x3B, 0)
    for text in ("PCI:0000:3b:00", "0000:3B:00.0", "00000000:3B:00.0", "3b:00.0"):
        assert parse_pci_address(text) == wanted
    assert address_of_bus_id("3b000") == wanted
    assert address_of_bus_id("10003b010") == PciAddress(0x1000, 0x3B, 1)
    assert str(wanted) == "0000:3b:00"


@pytest.mark.parametrize("text", [None, "", "mlx5_0", "3b000", "0000:3b", "zz:00.0", "1" * 40])
def test_what_is_no_address(text: str | None) -> None:
    assert parse_pci_address(text) is None
    assert address_of_bus_id("x" * 30) is None


def test_names_of_hosts() -> None:
    assert host_key("node7.cluster.local") == host_key("NODE7")
    assert host_key("10.0.0.5") != host_key("10.0.0.7")
    assert host_key(None) is None


def test_names_of_processes() -> None:
    assert all(map(job_like, (None, "python3", "pt_main_thread", "ray::WorkerDict", "VLLM::Worker")))
    assert not any(map(job_like, ("mysqld", "node_exporter", "clickhouse-serv")))


def test_a_switch_is_called_a_switch(tmp_path: Path) -> None:
    line = hosts.xid(115, "3b").split("NVRM")[0] + (
        "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
    )
    found = hosts.verdict(tmp_path, hosts.trainer(dead=5), {"dmesg.gpu-a2.log": [line]})
    named = {one["cause"]: one for one in found["diagnoses"]}
    assert {"gpu-hardware-fault", "gpu-nvls-fabricmanager"} & set(named)
    says = [item["says"] for one in found["diagnoses"] for item in one["evidence"]]
    assert any("SXid 20034, LTSSM Fault Up" in text for text in says)
