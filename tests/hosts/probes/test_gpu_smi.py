"""GPUs as nvidia-smi tells them: a script of that name on PATH."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nccl_triage.hosts.probes import gpu_smi, inventory
from nccl_triage.hosts.probes.gpu import GpuProcess
from nccl_triage.verify import gpus

SMI = """#!/bin/sh
case "$1" in
--query-gpu=index,uuid,*)
echo "0, GPU-aaaa, NVIDIA L40S, 46068, 1, 45570, 0, Default, 0, 00000000:4F:00.0, 550.127.05"
echo "1, GPU-bbbb, NVIDIA L40S, 46068, 9000, 37068, [N/A], Exclusive_Process, [N/A], 00000000:50:00.0, 550.127.05" ;;
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
    found = inventory.visible({})
    assert (found.source, found.driver, found.problem) == ("nvidia-smi", "550.127.05", None)
    first, second = found.gpus
    assert (first.memory_total, first.memory_used) == (46068 << 20, 1 << 20)
    assert (first.utilisation, second.utilisation) == (0, None)
    assert (first.mig, first.ecc_uncorrected, second.ecc_uncorrected) == (None, 0, None)
    assert second.processes == (GpuProcess(4242, 8990 << 20), GpuProcess(4343))
    assert (first.bus, second.compute_mode) == ("0000:4f:00", "exclusive-process")
    samples = inventory.samples(found, sleep=lambda _: None)
    assert samples == {0: [0, 40, 40], 1: [0]}
    refused = gpus.refusals(found, {index: max(percents) for index, percents in samples.items()})
    assert {(refusal.gpu.index, refusal.rule) for refusal in refused} == {
        (0, "utilisation"),  # the second and third sample are the tool's
        (1, "processes"),
        (1, "memory"),
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
    found = inventory.visible({})
    assert found.gpus == ()
    assert words in str(found.problem)
    assert "nvidia-ml-py cannot be used" in str(found.problem)


def test_a_lost_gpu_in_the_tools_table(tool: Callable[[str], None]) -> None:
    tool(SMI.replace("46068, 1, 45570, 0, Default", "[GPU is lost], [GPU is lost], [GPU is lost], 0, Default"))
    assert [gpu.fault for gpu in inventory.visible({}).gpus] == ["lost", None]


LISTED = """GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-aaaa)
  MIG 3g.40gb     Device  0: (UUID: MIG-1111-22)
  MIG 3g.40gb     Device  1: (UUID: MIG-3333-44)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-bbbb)
"""


def test_the_instances_of_a_divided_gpu(tool: Callable[[str], None]) -> None:
    divided = SMI.replace(
        """echo 'Field "mig.mode.current" is not a valid field to query.'; exit 2""",
        'echo "GPU-aaaa, Enabled"; echo "GPU-bbbb, Disabled"',
    )
    tool(divided.replace("*) exit 9", f"-L) cat <<'E'\n{LISTED}E\n;;\n*) exit 9").replace("cat", "/bin/cat"))
    first, second = inventory.visible({}).gpus
    assert (first.mig, first.instances) == (True, ("MIG-1111-22", "MIG-3333-44"))
    assert (second.mig, second.instances) == (False, ())
    (chosen,) = inventory.visible({"CUDA_VISIBLE_DEVICES": "MIG-3333"}).gpus
    assert (chosen.uuid, chosen.instance, chosen.index, chosen.memory_total) == ("MIG-3333-44", True, 0, None)
