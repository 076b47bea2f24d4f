"""Which GPUs a program may see, and the rules by which one is refused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.verify import gpus
from nccl_triage.verify.gpu import Gpu, GpuProcess, Inventory
from tests.verify.fake_nvml import GIB


def hosts(*names: str) -> Inventory:
    found = (Gpu(index, uuid=f"GPU-{index}1111111-2222", name=name) for index, name in enumerate(names))
    return Inventory(tuple(found), "580.82.07", None, "nvml")


@pytest.mark.parametrize(
    ("wanted", "indices", "problem"),
    [
        (None, [0, 1, 2], None),
        ("2,0", [2, 0], None),
        (" 1 ", [1], None),
        ("GPU-21111111-2222,GPU-0", [2, 0], None),
        ("GPU-", [], "no GPU"),
        ("", [], "no GPU"),
        ("-1", [], "no GPU"),
        ("0,7,1", [0], "'7' names no GPU"),
        ("1,1", [], "listed twice"),
        ("MIG-6ae3a3e9", [], "MIG instance"),
    ],
)
def test_cuda_visible_devices(wanted: str | None, indices: list[int], problem: str | None) -> None:
    environment = {} if wanted is None else {"CUDA_VISIBLE_DEVICES": wanted}
    found = gpus.selected(hosts("H100", "H100", "H100"), environment)
    assert [gpu.index for gpu in found.gpus] == indices
    assert (problem is None) == (found.problem is None)
    assert (problem or "") in (found.problem or "")


def test_indices_of_different_gpus_need_an_order() -> None:
    host = hosts("NVIDIA H100 80GB HBM3", "Tesla T4")
    assert "CUDA_DEVICE_ORDER" in str(gpus.selected(host, {"CUDA_VISIBLE_DEVICES": "1"}).problem)
    ordered = gpus.selected(host, {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert ordered.problem is None
    assert [gpu.name for gpu in ordered.gpus] == ["Tesla T4"]
    assert gpus.selected(host, {"CUDA_VISIBLE_DEVICES": "GPU-1"}).problem is None


def test_why_there_is_no_gpu_outlives_the_variable() -> None:
    none = Inventory(problem="no NVIDIA driver is loaded")
    assert gpus.selected(none, {"CUDA_VISIBLE_DEVICES": "0"}) == none


REST = Gpu(0, name="NVIDIA H100 80GB HBM3", memory_total=80 * GIB, memory_used=GIB, compute_mode="default", mig=False)


def reasons(gpu: Gpu, own: set[int] | None = None) -> dict[str, bool]:
    found = gpus.idle(Inventory((gpu,)), own or set(), sample=dict, sleep=lambda _: None)
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
        ({"compute_mode": "exclusive-process"}, {"compute-mode": False}),
        ({"compute_mode": "prohibited"}, {"compute-mode": False}),
        ({"mig": True}, {"mig": False}),
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


def test_nothing_is_sampled_without_a_gpu() -> None:
    assert gpus.idle(Inventory(), sample=lambda: pytest.fail("sampled"), sleep=lambda _: pytest.fail("slept")) == []


@pytest.mark.parametrize("made", ["dev/nvidia0", "proc/driver/nvidia/version", "usr/lib64/libnvidia-ml.so.1", None])
def test_likely_present(tmp_path: Path, made: str | None) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()  # exists in containers without any GPU
    assert not gpus.likely_present(tmp_path, {})
    path = tmp_path / (made or "opt/driver/libnvidia-ml.so.1")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    assert gpus.likely_present(tmp_path, {} if made else {"LD_LIBRARY_PATH": f":{path.parent}"})


def test_the_cheap_question_imports_nothing() -> None:
    program = (
        "import sys; from nccl_triage.verify import gpus; gpus.likely_present();"
        "print([m for m in ('pynvml', 'ctypes', 'subprocess', 'torch') if m in sys.modules])"
    )
    path = str(Path(gpus.__file__).parents[2])
    result = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r}); {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "[]"
