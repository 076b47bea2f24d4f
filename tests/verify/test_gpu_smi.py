"""GPUs as nvidia-smi tells them: a script of that name on PATH."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nccl_triage.verify import gpu_smi, gpus
from nccl_triage.verify.gpu import GpuProcess

SMI = """#!/bin/sh
case "$1" in
--query-gpu=index,uuid,*)
echo "0, GPU-aaaa, NVIDIA L40S, 46068, 1, 45570, 0, Default, 0, 550.127.05"
echo "1, GPU-bbbb, NVIDIA L40S, 46068, 9000, 37068, [N/A], Exclusive_Process, [N/A], 550.127.05" ;;
--query-gpu=uuid,mig*) echo 'Field "mig.mode.current" is not a valid field to query.'; exit 2 ;;
--query-gpu=uuid,gpu_recovery_action) echo "GPU-aaaa, None"; echo "GPU-bbbb, Drain and Reset" ;;
--query-remapped-rows=*) echo "GPU-aaaa, No, No"; echo "GPU-bbbb, Yes, No" ;;
--query-compute-apps=*) echo "GPU-bbbb, 4242, 8990"; echo "GPU-bbbb, 4343, [N/A]" ;;
--query-gpu=index,utilization.gpu) echo "0, 40"; echo "1, [N/A]" ;;
*) exit 9 ;;
esac
"""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def install(script: str) -> None:
        path = tmp_path / "nvidia-smi"
        path.write_text(script)
        path.chmod(0o755)
        monkeypatch.setitem(sys.modules, "pynvml", None)
        monkeypatch.setenv("PATH", str(tmp_path))

    return install


def test_without_the_library_the_tool_is_asked(tool: Callable[[str], None]) -> None:
    tool(SMI)
    found = gpus.visible({})
    assert (found.source, found.driver, found.problem) == ("nvidia-smi", "550.127.05", None)
    first, second = found.gpus
    assert (first.memory_total, first.memory_used) == (46068 << 20, 1 << 20)
    assert (first.utilisation, second.utilisation) == (0, None)
    assert (first.mig, first.ecc_uncorrected, second.ecc_uncorrected) == (None, 0, None)
    assert second.processes == (GpuProcess(4242, 8990 << 20), GpuProcess(4343))
    refused = {(refusal.gpu.index, refusal.rule) for refusal in gpus.idle(found, sleep=lambda _: None)}
    assert refused == {
        (0, "utilisation"),  # the second and third sample are the tool's
        (1, "processes"),
        (1, "memory"),
        (1, "compute-mode"),
        (1, "recovery"),
        (1, "remap"),
    }


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('#!/bin/sh\necho "NVIDIA-SMI has failed because it couldn\'t communicate"; exit 9\n', "communicate"),
        ("#!/bin/sh\nexit 0\n", "lists no GPU"),
        ("#!/bin/sh\nexec /bin/sleep 30\n", "gave no answer"),
        ("not a program\n", "cannot be run"),
    ],
)
def test_a_tool_that_does_not_work(
    tool: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    monkeypatch.setattr(gpu_smi, "TOOL_TIMEOUT", 0.3 if "sleep" in script else 20.0)
    tool(script)
    found = gpus.visible({})
    assert found.gpus == ()
    assert words in str(found.problem)
    assert "nvidia-ml-py cannot be used" in str(found.problem)


def test_a_lost_gpu_in_the_tools_table(tool: Callable[[str], None]) -> None:
    tool(SMI.replace("46068, 1, 45570, 0, Default", "[GPU is lost], [GPU is lost], [GPU is lost], 0, Default"))
    assert [gpu.fault for gpu in gpus.visible({}).gpus] == ["lost", None]
