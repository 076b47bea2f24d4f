"""Which GPUs a program may see, how busy they are, and the whole answer of a host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nccl_triage.hosts.probes import inventory
from nccl_triage.hosts.probes.gpu import Gpu, Inventory


def hosts(*names: str) -> Inventory:
    uuids = {1: ("MIG-aa-1", "MIG-bb-2")}
    found = (
        Gpu(index, uuid=f"GPU-{index}1111111-2222", name=name, instances=uuids.get(index, ()))
        for index, name in enumerate(names)
    )
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
        ("MIG-", [], "MIG instance"),
        ("MIG-aa", [1], None),
        ("MIG-aa,MIG-bb", [1], None),  # a program sees one instance only
        ("0,MIG-bb,2", [0, 1], None),
    ],
)
def test_cuda_visible_devices(wanted: str | None, indices: list[int], problem: str | None) -> None:
    environment = {} if wanted is None else {"CUDA_VISIBLE_DEVICES": wanted}
    found = inventory.selected(hosts("H100", "H100", "H100"), environment)
    assert [gpu.index for gpu in found.gpus] == indices
    assert (problem is None) == (found.problem is None)
    assert (problem or "") in (found.problem or "")


def test_indices_of_different_gpus_need_an_order() -> None:
    host = hosts("NVIDIA H100 80GB HBM3", "Tesla T4")
    assert "CUDA_DEVICE_ORDER" in str(inventory.selected(host, {"CUDA_VISIBLE_DEVICES": "1"}).problem)
    ordered = inventory.selected(host, {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert ordered.problem is None
    assert [gpu.name for gpu in ordered.gpus] == ["Tesla T4"]
    assert inventory.selected(host, {"CUDA_VISIBLE_DEVICES": "GPU-1"}).problem is None


def test_why_there_is_no_gpu_outlives_the_variable() -> None:
    none = Inventory(problem="no NVIDIA driver is loaded")
    assert inventory.selected(none, {"CUDA_VISIBLE_DEVICES": "0"}) == none


def test_nothing_is_sampled_without_a_gpu() -> None:
    assert inventory.samples(Inventory(), lambda: pytest.fail("sampled"), lambda _: pytest.fail("slept")) == {}


@pytest.mark.parametrize("made", ["dev/nvidia0", "proc/driver/nvidia/version", "usr/lib64/libnvidia-ml.so.1", None])
def test_likely_present(tmp_path: Path, made: str | None) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()  # exists in containers without any GPU
    assert not inventory.likely_present(tmp_path, {})
    path = tmp_path / (made or "opt/driver/libnvidia-ml.so.1")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    assert inventory.likely_present(tmp_path, {} if made else {"LD_LIBRARY_PATH": f":{path.parent}"})


def test_the_cheap_question_imports_nothing() -> None:
    program = (
        "import sys; from nccl_triage.hosts.probes import inventory; inventory.likely_present();"
        "print([m for m in ('pynvml', 'torch') if m in sys.modules])"
    )
    path = str(Path(inventory.__file__).parents[3])
    result = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r}); {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "[]"


def test_a_tool_on_path_is_worth_asking(tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert inventory.likely_present(tmp_path / "nowhere", {"PATH": str(tmp_path)})


def test_the_answer_of_a_host_without_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(inventory, "_KFD", tmp_path / "kfd")
    told = inventory.answer(look=False)
    assert (told["gpus"], told["problem"], told["source"]) == ([], "no NVIDIA GPU is visible", "")
    (tmp_path / "kfd").touch()
    assert inventory.answer(look=False)["source"] == "rocm"
