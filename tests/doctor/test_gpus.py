"""GPUs as NVML and nvidia-smi tell them to doctor, faked at their boundaries."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.doctor import checks
from nccl_triage.doctor.checks import judge
from nccl_triage.doctor.probes import gpus
from nccl_triage.doctor.probes.result import ProbeResult, ProbeTarget
from tests.doctor.fake_gpus import fake_driver
from tests.verify.fake_nvml import Card

SMI = """#!/bin/sh
case "$*" in
  *temperature.gpu*) echo '0, 00000000:01:00.0, 45, 4, 5, 8, 16, [N/A]'; echo '1, 00000000:02:00.0, 46, 5, 5, 16, 16, 3' ;;
  "topo -p2p r") printf ' \\tGPU0\\tGPU1\\t\\n GPU0\\tX\\tCNS\\t\\n GPU1\\tCNS\\tX\\t\\n\\nLegend:\\n' ;;
  *index,uuid,name*) echo '0, GPU-a, H100, 81559, 4, 81555, 0, Default, 0, 00000000:01:00.0, 550.54.15'
                     echo '1, GPU-b, H100, 81559, 4, 81555, 0, Default, 2, 00000000:02:00.0, 550.54.15' ;;
  *) exit 1 ;;
esac
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with a driver and two GPUs, and no tool of it."""
    (tmp_path / "dev").mkdir()
    for number in range(2):
        (tmp_path / "dev" / f"nvidia{number}").touch()
    monkeypatch.setenv("PATH", "")
    return tmp_path


def found(seen: ProbeResult) -> dict[str, str]:
    results = judge({"gpus": seen.facts}, checks.shipped()[0])
    return {
        f"{one.check.id} {one.subject}".strip(): one.says["en"] for one in results if one.state in ("failed", "warning")
    }


def test_ills_of_gpus(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sick = Card(
        0, ecc=2, heat=91, brakes=0x48, rows=(0, 1, 1, 0), links={0: 1, 1: 0}, fabric=(2, 0), pages={0: 1, 1: 4}
    )
    sick.p2p = {(1, 0): 1}
    monkeypatch.setitem(sys.modules, "pynvml", fake_driver([sick, Card(1, fabric=(3, 0))]))
    seen = gpus.probe_gpus(ProbeTarget(root))
    first, second = seen.facts["gpus"]
    assert (first["bus"], first["temperature_slowdown"], first["retired_pages"]) == ("00000000:00:00.0", 90, 5)
    assert first["nvlinks"] == [
        {"link": 0, "active": True, "errors": {}},
        {"link": 1, "active": False, "errors": {"crc_flit": 5}},
    ]
    assert (second["retired_pages"], second["nvlinks"], second["fabric"]) == (None, [], "completed")
    assert seen.facts["pairs"] == [
        {"a": 0, "b": 1, "read": "chipset-not-supported", "write": "ok", "nvlink": True, "path": "SYS"}
    ]
    assert set(found(seen)) == {
        "gpu-ecc GPU 0",
        "gpu-remap GPU 0",
        "gpu-temperature GPU 0",
        "gpu-brakes GPU 0",
        "nvlink-down GPU 0",
        "p2p",
        "fabric-manager",
    }


def test_a_lost_gpu_and_an_old_driver(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Card(0, broken={"handle": 15})
    monkeypatch.setitem(sys.modules, "pynvml", fake_driver([lost, Card(1, brakes=0x80)], old=True))
    seen = gpus.probe_gpus(ProbeTarget(root))
    assert [gpu["fault"] for gpu in seen.facts["gpus"]] == ["lost", None]
    assert seen.facts["pairs"] == []
    assert seen.facts["gpus"][1]["fabric"] is None
    assert set(found(seen)) == {"gpu-fault GPU 0", "gpu-brakes GPU 1"}


def test_without_the_library_the_tool_is_asked(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = root / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(SMI)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    seen = gpus.probe_gpus(ProbeTarget(root))
    assert seen.facts["source"] == "nvidia-smi"
    assert seen.facts["driver"]["library"] == "550.54.15"
    assert [(gpu["pcie_width"], gpu["pcie_width_max"], gpu["ecc_aggregate"]) for gpu in seen.facts["gpus"]] == [
        (8, 16, None),
        (16, 16, 3),
    ]
    assert "gpu-details" in {entry["what"] for entry in seen.unseen}
    assert set(found(seen)) == {"gpu-ecc GPU 1", "gpu-pcie-width GPU 0", "p2p"}


def test_a_driver_that_does_not_answer(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = fake_driver([])

    def refuse() -> None:
        raise module.NVMLError(18)

    module.nvmlInit = refuse
    monkeypatch.setitem(sys.modules, "pynvml", module)
    seen = gpus.probe_gpus(ProbeTarget(root))
    assert set(found(seen)) == {"driver-not-answering"}
    assert {"gpus"} <= {entry["what"] for entry in seen.unseen}
