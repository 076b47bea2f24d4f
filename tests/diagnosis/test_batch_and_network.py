"""Arithmetic and addresses: the two kinds of reasoning that a list of messages cannot do."""

from __future__ import annotations

import pytest

from nccl_triage.diagnosis.case import Case
from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text, scan_text

ASSERTION = (
    "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
    "gradient_acc_step * world_size {}\n"
)


def test_the_nearest_valid_batch_sizes_are_computed(rules: RuleSet) -> None:
    diagnosis = diagnose_text(ASSERTION.format("256 != 2 * 18 * 7"), rules)
    assert diagnosis.cause == "batch-size-mismatch"
    document = diagnosis.to_dict()
    text = str(document["diagnoses"][0])
    assert "252" in text
    assert "266" in text


@pytest.mark.parametrize(
    ("numbers", "valid"),
    [
        ("100 != 3 * 4 * 8", "96 (= 3 * 4 * 8), 120 (= 3 * 5 * 8)"),
        ("44 != 3 * 4 * 8", "48 (= 3 * 2 * 8), 24 (= 3 * 1 * 8)"),
        ("7 != 2 * 1 * 8", "16 (= 2 * 1 * 8)"),
        # The total divides evenly: it can stay.
        ("64 != 4 * 2 * 2", "64 (= 4 * 8 * 2), 16 (= 4 * 2 * 2)"),
    ],
)
def test_other_numbers(rules: RuleSet, numbers: str, valid: str) -> None:
    case = Case(scan_text(ASSERTION.format(numbers), rules), rules)
    assert case.value("batch.valid_sizes") == valid


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("global batch size (250) is not divisible by micro batch size (4) times data parallel size (14)", "224, 280"),
        ("real_train_batch_size (100) must be divisible by minimal possible batch size (8)", "96, 104"),
        ("only support equal chunk. Got size of DataProto 2 and chunk 4.", "4"),
    ],
)
def test_multiples_next_to_a_batch_that_cannot_be_split(rules: RuleSet, text: str, valid: str) -> None:
    case = Case(scan_text(f"AssertionError: {text}\n", rules), rules)
    assert case.value("batch.valid_sizes") == valid


def test_world_size_one_in_a_larger_job_is_another_cause(rules: RuleSet) -> None:
    text = "torchrun --nproc_per_node=8 train.py --deepspeed ds.json\n" + ASSERTION.format("256 != 4 * 8 * 1")
    case = Case(scan_text(text, rules), rules)
    assert case.value("batch.world_is_one") == 8
    assert diagnose_text(text, rules).cause in ("framework-version-incompatibility", "batch-size-mismatch")


def bootstrap(host: str, address: str, iface: str = "eth0") -> str:
    return f"{host}:100:100 [0] NCCL INFO Bootstrap : Using {iface}:{address}<0>\n"


FAILED = "a:100:200 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to {}<51873> failed : Software caused connection abort\n"


@pytest.mark.parametrize(
    ("one", "two", "apart"),
    [
        ("45.63.16.199", "144.202.8.219", True),
        ("10.0.0.5", "10.0.0.9", False),
        ("192.168.10.5", "192.168.20.7", True),
        ("fd00:12::47", "fd00:12::48", False),
    ],
)
def test_networks_that_share_nothing(rules: RuleSet, one: str, two: str, apart: bool) -> None:
    text = bootstrap("a", one) + bootstrap("b", two) + FAILED.format(two)
    case = Case(scan_text(text, rules), rules)
    assert bool(case.value("network.disjoint_hosts")) is apart


def test_two_public_networks_are_named_with_both_hosts(rules: RuleSet) -> None:
    text = bootstrap("a", "45.63.16.199") + bootstrap("b", "144.202.8.219") + FAILED.format("144.202.8.219")
    diagnosis = diagnose_text(text, rules)
    assert diagnosis.cause == "network-unreachable-subnet"
    assert {c.host for c in diagnosis.candidates[0].culprits} == {"a", "b"}


def test_docker0_and_the_same_address_on_two_hosts(rules: RuleSet) -> None:
    text = bootstrap("a", "172.17.0.1", "docker0") + bootstrap("b", "172.17.0.1", "docker0")
    text += FAILED.format("172.17.0.1").replace("Software caused connection abort", "Connection refused")
    case = Case(scan_text(text, rules), rules)
    assert case.value("network.virtual_interface") == "docker0"
    assert case.value("network.same_address") == "172.17.0.1"
    assert diagnose_text(text, rules).cause == "network-wrong-interface"


def test_one_host_alone_is_never_two_networks(rules: RuleSet) -> None:
    text = (
        bootstrap("a", "10.0.0.5")
        + "a:100:100 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.5<0> [1]ib0:10.1.0.5<0>\n"
    )
    case = Case(scan_text(text, rules), rules)
    assert case.value("network.disjoint_hosts") is None


def test_a_bridge_among_the_announced_interfaces_is_no_way_to_other_hosts(rules: RuleSet) -> None:
    using = "{}:100:100 [0] NCCL INFO NET/Socket : Using [0]bond0:192.168.1.{}<0> [1]br-0a1c77d2e9b4:172.21.0.1<0>\n"
    refused = "a:100:101 [0] misc/socket.cc:455 NCCL WARN Net : Connect to {}<43211> failed : Connection refused\n"
    diagnosis = diagnose_text(using.format("a", 5) + using.format("b", 6) + refused.format("172.21.0.1"), rules)
    assert diagnosis.cause == "network-wrong-interface"
    case = Case(scan_text(using.format("a", 5) + using.format("b", 6) + refused.format("192.168.1.6"), rules), rules)
    assert case.value("network.target_virtual") is None


def test_hosts_that_selected_different_networks_cannot_meet(rules: RuleSet) -> None:
    text = "".join(
        bootstrap(host, f"10.3.1.{rank}")
        + f"{host}:100:101 [0] NCCL INFO Using network {name}\n"
        + f"{host}:100:101 [0] NCCL INFO ncclCommInitRank comm 0x5{rank} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 19000 commId 0x6d - Init START\n"
        for rank, (host, name) in enumerate([("a", "IB"), ("b", "IBext_v8")])
    )
    assert diagnose_text(text, rules).verdict == "unknown"  # so far nothing of it failed
    failed = text + "a:100:101 [0] bootstrap.cc:455 NCCL WARN timed out waiting for rank 1\n"
    assert diagnose_text(failed, rules).cause == "network-plugin"
    assert diagnose_text(failed.replace("IBext_v8", "IB"), rules).cause != "network-plugin"
