"""Which GPUs of a host's answer ranks may use: the rules of refusal, and answers that mean no good."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_triage.hosts.probes.gpu import Gpu, GpuProcess, Inventory, pci_address
from nccl_triage.verify import gpus
from tests.verify.fake_nvml import GIB

REST = Gpu(0, name="NVIDIA H100 80GB HBM3", memory_total=80 * GIB, memory_used=GIB, compute_mode="default", mig=False)


def reasons(gpu: Gpu, own: set[int] | None = None) -> dict[str, bool]:
    found = gpus.refusals(Inventory((gpu,)), {gpu.index: gpu.utilisation or 0}, own or set())
    assert all(refusal.reason_en and refusal.reason_zh and refusal.reason_en != refusal.reason_zh for refusal in found)
    return {refusal.rule: refusal.evidence for refusal in found}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, {}),
        ({"processes": (GpuProcess(5, GIB),)}, {"processes": False}),
        ({"memory_used": int(2.39 * GIB)}, {}),  # 3 % of 80 GiB is 2.4 GiB
        ({"memory_used": int(2.41 * GIB)}, {"memory": False}),
        ({"memory_total": 24 * GIB, "memory_used": GIB}, {}),  # 3 % is less than 1 GiB
        ({"memory_total": 24 * GIB, "memory_used": GIB + 1}, {"memory": False}),
        ({"utilisation": 5}, {}),
        ({"utilisation": 6}, {"utilisation": False}),
        ({"compute_mode": "exclusive-process"}, {}),  # one rank a GPU may use it
        ({"compute_mode": "prohibited"}, {"compute-mode": False}),
        ({"mig": True}, {"mig": False}),
        ({"mig": True, "instance": True, "uuid": "MIG-1"}, {}),
        ({"recovery_action": "none", "ecc_uncorrected": 0, "remap_pending": False, "remap_failure": False}, {}),
        ({"recovery_action": "gpu-reset"}, {"recovery": True}),
        ({"ecc_uncorrected": 2}, {"ecc": True}),
        ({"remap_pending": True}, {"remap": True}),
        ({"remap_failure": True}, {"remap": True}),
        ({"fault": "lost"}, {"fault": True}),
        ({"fault": "unknown"}, {"fault": False}),
        ({"mig": True, "ecc_uncorrected": 1}, {"mig": False, "ecc": True}),
    ],
)
def test_the_rules_of_refusal(changed: dict[str, Any], expected: dict[str, bool]) -> None:
    assert reasons(replace(REST, **changed)) == expected


def test_own_processes_are_no_reason() -> None:
    working = replace(REST, memory_used=21 * GIB, processes=(GpuProcess(5, 20 * GIB),))
    assert reasons(working, {5}) == {}
    assert reasons(working, {6}) == {"processes": False, "memory": False}
    assert reasons(replace(working, memory_used=25 * GIB), {5}) == {"memory": False}


WORKING = replace(REST, index=3, uuid="GPU-3333-44", bus="0000:4f:00", processes=(GpuProcess(5, GIB),), mig=False)


def told(*found: Gpu, **more: Any) -> dict[str, Any]:
    """Return the answer of an agent, as it comes out of its pipe."""
    listed = [{**asdict(gpu), "busy": [0, 7, 2]} for gpu in found]
    answer: dict[str, Any] = json.loads(json.dumps({"gpus": listed, "source": "nvml", **more}))
    return answer


def test_an_answer_is_read_back_as_it_was() -> None:
    inventory, busiest = gpus.inventory_of(told(WORKING, driver="580.82.07"))
    assert inventory == Inventory((WORKING,), "580.82.07", None, "nvml")
    assert busiest == {3: 7}
    assert [refusal.rule for refusal in gpus.refusals(inventory, busiest)] == ["processes", "utilisation"]


@pytest.mark.parametrize(
    "changes",
    [
        {"index": -1},
        {"index": True},
        {"index": "3"},
        {"index": None},
    ],
)
def test_a_gpu_without_a_number_is_none(changes: dict[str, Any]) -> None:
    answer = told(WORKING)
    answer["gpus"][0].update(changes)
    assert gpus.inventory_of(answer)[0].gpus == ()


@pytest.mark.parametrize("uuid", ["GPU-1,GPU-2", "GPU-1 ", "1", "GPU-$(reboot)", 7, None, "GPU-" + "a" * 400])
def test_what_is_no_uuid_reaches_no_environment(uuid: object) -> None:
    answer = told(WORKING)
    answer["gpus"][0]["uuid"] = uuid
    ((gpu,), _) = gpus.inventory_of(answer)[0].gpus, None
    assert gpu.uuid == ""


def test_one_gpu_twice_is_one_gpu() -> None:
    same = replace(WORKING, index=4)
    assert gpus.inventory_of(told(WORKING, same, WORKING))[0].gpus == (WORKING,)


def test_texts_of_an_answer_are_cut_and_printable() -> None:
    inventory, _ = gpus.inventory_of(told(replace(WORKING, name="A\x1b[2J" + "x" * 9000), problem="a\nb"))
    assert len(inventory.gpus[0].name) <= 80 and inventory.gpus[0].name.isprintable()
    assert inventory.problem == "a b"


def test_a_thousand_gpus_are_too_many() -> None:
    many = [replace(WORKING, index=index, uuid=f"GPU-{index}") for index in range(1000)]
    assert len(gpus.inventory_of(told(*many))[0].gpus) == gpus.MOST_GPUS


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*asdict(WORKING), "gpus", "busy"]), inner)
    ),
    max_leaves=20,
)


@given(junk, st.sampled_from(sorted(asdict(WORKING))), junk)
@settings(max_examples=150, deadline=None)
def test_any_answer_is_read(answer: object, name: str, value: object) -> None:
    gpus.inventory_of(answer)
    spoilt = told(WORKING)
    spoilt["gpus"][0][name] = value
    inventory, busiest = gpus.inventory_of(spoilt)
    gpus.refusals(inventory, busiest)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:4F:00.0", "0000:4f:00"),
        ("0000:4f:00", "0000:4f:00"),
        ("4f:00.0", "0000:4f:00"),
        ("00010000:4F:00.0", "10000:4f:00"),
        ("4f000", None),
        ("", None),
        (7, None),
    ],
)
def test_pci_addresses(text: object, address: str | None) -> None:
    assert pci_address(text) == address
