"""What a host says of the speed of its interfaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage.verify.worker import host


def made(root: Path, name: str, speed: str | None, *, device: bool = False, bond: bool = False, on: str = "") -> None:
    """Make a folder of /sys/class/net."""
    folder = root / name
    folder.mkdir()
    if speed is not None:
        (folder / "speed").write_text(f"{speed}\n")
    if device:
        (folder / "device").mkdir()
    if bond:
        (folder / "bonding").mkdir()
    for below in on.split():
        (folder / f"lower_{below}").mkdir()


@pytest.fixture
def network(tmp_path: Path) -> Path:
    made(tmp_path, "eth0", "25000", device=True)
    made(tmp_path, "eth1", "-1", device=True)  # unknown
    made(tmp_path, "eth2", None, device=True)  # down: reading gives EINVAL
    made(tmp_path, "veth7", "10000")  # a constant of the driver
    made(tmp_path, "bond0", "50000", bond=True, on="eth0 eth3")
    made(tmp_path, "bond0.100", "50000", on="bond0")
    made(tmp_path, "br0", "10000", on="veth7 veth8")
    made(tmp_path, "docker0", "10000", on="veth7")
    made(tmp_path, "lo", None)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "speed"),
    [
        ("eth0", 25000),
        ("eth1", None),
        ("eth2", None),
        ("veth7", None),
        ("bond0", 50000),
        ("bond0.100", 50000),
        ("br0", None),
        ("docker0", None),
        ("lo", None),
        ("nosuch0", None),
    ],
)
def test_only_a_speed_that_means_something_is_told(network: Path, name: str, speed: int | None) -> None:
    assert host.speed_mbit(name, network) == speed


def test_every_interface_has_the_key() -> None:
    found = {entry["name"]: entry for entry in host.interfaces()}
    assert found["lo"]["speed_mbit"] is None
    assert all(entry["speed_mbit"] is None or entry["speed_mbit"] > 0 for entry in found.values())
