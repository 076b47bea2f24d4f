"""What NCCL took, read from its own log by the rules of the user's logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.verify import transport
from nccl_triage.verify.transport import Transport

#: As NCCL 2.27 prints it.
SOCKET = """
gpu-a:41:41 [0] NCCL INFO Bootstrap : Using ens9:10.9.0.1<0>
gpu-a:41:43 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0> [1]eth1:10.0.1.1<0>
gpu-a:41:43 [0] NCCL INFO Using network Socket
gpu-a:41:43 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
gpu-a:41:43 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0
"""
VERBS = """
gpu-a:41:43 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [2]mlx5_bond_0:2/RoCE [RO]; OOB ens9:10.9.0.1<0>
gpu-a:41:43 [0] NCCL INFO Using network IB
gpu-a:41:43 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/2/GDRDMA
gpu-a:41:43 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via NET/IB/1
gpu-a:41:43 [0] NCCL INFO Channel 02/0 : 0[0] -> 2[1] via P2P/CUMEM
"""


def read(folder: Path, rules: RuleSet, **logs: str) -> Transport | None:
    for name, text in logs.items():
        (folder / f"{name.replace('_', '-')}.nccl.log").write_text(text.lstrip())
    return transport.read(folder, rules)


def test_sockets(tmp_path: Path, rules: RuleSet) -> None:
    found = read(tmp_path, rules, rank_0=SOCKET)
    assert found is not None
    assert found.networks == ("Socket",)
    assert found.of([0]) == ("eth0",), "the second interface carries nothing, and the bootstrap's no data"
    assert found.of([0, 5]) == ("eth0",) and found.of([5]) == ()
    assert found.via({0: 0, 1: 1}, inside=False) == {"NET/Socket"} and found.via({0: 0, 1: 1}, inside=True) == set()
    assert not found.gpudirect


def test_adapters_with_their_ports(tmp_path: Path, rules: RuleSet) -> None:
    found = read(tmp_path, rules, rank_3=VERBS)
    assert found is not None
    assert (found.networks, found.of([3])) == (("IB",), ("mlx5_1:1", "mlx5_bond_0:2"))
    assert found.via({0: 0, 1: 1, 2: 0}, inside=True) == {"P2P"}
    assert found.to_dict() == {
        "networks": ["IB"],
        "devices": ["mlx5_1:1", "mlx5_bond_0:2"],
        "links": {"NET/IB": 1, "P2P": 1},
        "gpudirect": True,
    }


def test_ranks_that_differ_are_both_told(tmp_path: Path, rules: RuleSet) -> None:
    found = read(tmp_path, rules, rank_0=SOCKET, rank_1=VERBS)
    assert found is not None and set(found.networks) == {"Socket", "IB"}


def test_before_links_are_made_all_devices_count(tmp_path: Path, rules: RuleSet) -> None:
    """NCCL makes links with the first collective that needs them."""
    found = read(tmp_path, rules, rank_0="".join(SOCKET.splitlines(keepends=True)[:4]))
    assert found is not None and found.of([0]) == ("eth0", "eth1")


@pytest.mark.parametrize(
    "text", ["", "nothing of it\n", "\x00\xff\n", "NCCL INFO Channel 00/0 : 99999999[0] -> 1[0] via NET/IB/1\n"]
)
def test_a_log_that_tells_nothing(tmp_path: Path, rules: RuleSet, text: str) -> None:
    assert read(tmp_path, rules, rank_0=text) is None


def test_without_a_log_nothing_is_known(tmp_path: Path, rules: RuleSet) -> None:
    (tmp_path / "rank-0.log").write_text(SOCKET)
    assert transport.read(tmp_path, rules) is None
    assert transport.read(tmp_path / "nowhere", rules) is None
