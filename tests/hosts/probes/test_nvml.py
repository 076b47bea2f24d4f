"""GPUs as the library tells them, faked at its boundary."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from nccl_triage.hosts.probes import inventory
from nccl_triage.hosts.probes.gpu import Gpu, GpuProcess, Inventory
from nccl_triage.verify import gpus
from tests.verify.fake_nvml import GIB, LOST, NOT_SUPPORTED, UNKNOWN, Card, fake_nvml


def refused(found: Inventory, sleep: Callable[[float], None] = lambda _: None) -> list[gpus.Refusal]:
    """Return the refusals as the driver's side makes them of the samples."""
    busiest = {index: max(percents) for index, percents in inventory.samples(found, sleep=sleep).items()}
    return gpus.refusals(found, busiest)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Callable[..., types.ModuleType]:
    def install(*cards: Card, **options: Any) -> types.ModuleType:
        module = fake_nvml(list(cards), **options)
        monkeypatch.setitem(sys.modules, "pynvml", module)
        monkeypatch.setenv("PATH", "")
        return module

    return install


def test_a_gpu_as_the_library_tells_it(driver: Callable[..., Any]) -> None:
    module = driver(Card(0, processes=[(11, 3 * GIB)], mps=[(12, None)]), Card(1))
    found = inventory.visible({})
    assert (found.driver, found.problem, found.source) == ("580.82.07", None, "nvml")
    assert found.gpus[0] == Gpu(
        index=0,
        uuid="GPU-01111111-2222",
        name="NVIDIA H100 80GB HBM3",
        memory_total=80 * GIB,
        memory_used=4 << 20,
        memory_free=80 * GIB - (4 << 20),
        utilisation=0,
        processes=(GpuProcess(11, 3 * GIB), GpuProcess(12)),
        compute_mode="default",
        mig=False,
        recovery_action="none",
        ecc_uncorrected=0,
        remap_pending=False,
        remap_failure=False,
        bus="0000:00:00",
    )
    assert module.sessions == []


def test_what_is_not_supported_is_none(driver: Callable[..., Any]) -> None:
    names = [name for name in vars(fake_nvml([])) if name.startswith("nvmlDevice")]
    silent = Card(0, broken=dict.fromkeys(names, NOT_SUPPORTED))
    driver(silent, old=True)
    found = inventory.visible({})
    assert found.driver == "535.54"
    assert found.gpus == (Gpu(index=0),)
    assert refused(found) == []


def test_the_instances_of_a_divided_gpu(driver: Callable[..., Any]) -> None:
    driver(Card(0, mig=1, instances=["MIG-1111-22", "MIG-3333-44"]), Card(1))
    first, second = inventory.visible({}).gpus
    assert (first.mig, first.instances, first.fault) == (True, ("MIG-1111-22", "MIG-3333-44"), None)
    assert (second.mig, second.instances) == (False, ())
    (chosen,) = inventory.visible({"CUDA_VISIBLE_DEVICES": "MIG-1111-22"}).gpus
    assert refused(Inventory((chosen,), source="nvml")) == []


def test_an_old_library(driver: Callable[..., Any]) -> None:
    driver(Card(0, recovery=2), old=True)
    (gpu,) = inventory.visible({}).gpus
    assert (gpu.name, gpu.recovery_action) == ("NVIDIA H100 80GB HBM3", None)
    assert gpu.memory_used == (4 << 20) + (600 << 20)


@pytest.mark.parametrize(("code", "words"), [(9, "no NVIDIA driver is loaded"), (12, "libnvidia-ml"), (18, "error 18")])
def test_why_there_is_no_gpu(driver: Callable[..., Any], code: int, words: str) -> None:
    driver(Card(0), init=code)
    found = inventory.visible({})
    assert found.gpus == ()
    assert found.problem is not None
    assert words in found.problem
    assert "nvidia-smi is not on PATH" in found.problem


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", "")
    assert "nvidia-ml-py cannot be used" in str(inventory.visible({}).problem)


def test_the_environment_of_this_process_counts(driver: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    driver(Card(0), Card(1))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [gpu.index for gpu in inventory.visible().gpus] == [1]


def test_three_samples_in_a_second(driver: Callable[..., Any]) -> None:
    driver(Card(0, busy=[0, 0, 6]), Card(1, busy=[5]), Card(2, busy=[9, 0, 0]))
    waited: list[float] = []
    found = refused(inventory.visible({}), waited.append)
    assert [(refusal.gpu.index, refusal.rule) for refusal in found] == [(0, "utilisation"), (2, "utilisation")]
    assert "6 %" in found[0].reason_en
    assert waited == [0.5, 0.5]


def test_a_gpu_that_fell_off_the_bus_speaks_for_a_hardware_fault(driver: Callable[..., Any]) -> None:
    driver(Card(0, broken={"handle": LOST}), Card(1, broken={"nvmlDeviceGetTotalEccErrors": LOST}), Card(2))
    found = inventory.visible({})
    assert [gpu.fault for gpu in found.gpus] == ["lost", "lost", None]
    assert [(refusal.gpu.index, refusal.rule, refusal.evidence) for refusal in refused(found)] == [
        (0, "fault", True),
        (1, "fault", True),
    ]


def test_an_unknown_error_counts_where_every_gpu_can_answer(driver: Callable[..., Any]) -> None:
    driver(Card(0, broken={"nvmlDeviceGetMemoryInfo": UNKNOWN}), Card(1, broken={"nvmlDeviceGetMigMode": UNKNOWN}))
    assert [gpu.fault for gpu in inventory.visible({}).gpus] == ["unknown", None]


def test_the_stand_in_has_the_functions_of_the_real_library() -> None:
    real = pytest.importorskip("pynvml")
    arguments = {
        "nvmlDeviceGetMemoryInfo": ({"version": real.nvmlMemory_v2}, 1),
        "nvmlDeviceGetTotalEccErrors": ({}, 3),
        "nvmlDeviceGetFieldValues": ({}, 2),
        "nvmlDeviceGetMigDeviceHandleByIndex": ({}, 2),
        "nvmlDeviceGetHandleByIndex": ({}, 1),
        "nvmlDeviceGetCount": ({}, 0),
        "nvmlSystemGetDriverVersion": ({}, 0),
        "nvmlInit": ({}, 0),
        "nvmlShutdown": ({}, 0),
    }
    for name in [name for name in vars(fake_nvml([])) if name.startswith("nvml") and name != "nvmlMemory_v2"]:
        named, count = arguments.get(name, ({}, 1))
        inspect.signature(getattr(real, name)).bind(*range(count), **named)
    assert list(inspect.signature(real.nvmlDeviceGetTotalEccErrors).parameters)[1:] == ["errorType", "counterType"]
    assert (real.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, real.NVML_VOLATILE_ECC) == (1, 0)
    assert (real.NVML_ERROR_GPU_IS_LOST, real.NVML_ERROR_RESET_REQUIRED, real.NVML_ERROR_UNKNOWN) == (15, 16, 999)


@pytest.mark.gpu
def test_a_real_driver() -> None:
    if not inventory.likely_present():
        pytest.skip("no NVIDIA driver here")
    found = inventory.visible({})
    if not found.gpus:
        pytest.skip(str(found.problem))
    for gpu in found.gpus:
        assert gpu.uuid.startswith("GPU-")
        assert gpu.memory_total is None or gpu.memory_total > GIB
