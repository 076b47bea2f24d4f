"""What AMD's programs print leads to advice for AMD GPUs, and nothing else does."""

from __future__ import annotations

import json

import pytest

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

REVERSE = "node-0:88:88 [2] hipify/src/graph/paths.cc:144 NCCL WARN Failed to find reverse path from remNode 0/200000 nlinks 3 to node 0/700000\n"


@pytest.mark.parametrize(
    ("text", "cause", "advised", "not_advised"),
    [
        ("RCCL version 2.20.5+hip6.2 HEAD:d380693+\n" + REVERSE, "nccl-release-bug", "ROCm", "nvidia-smi"),
        ("NCCL version 2.20.5+cuda12.4\n" + REVERSE, "nccl-release-bug", "nvidia-smi topo", "ROCm release"),
        ("HW Exception by GPU node-9 (Agent handle: 0x631351bb5a20) reason :GPU Hang\n", "gpu-hardware-fault", "rocm-smi", "nvidia-smi"),
        ("[1.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n", "gpu-hardware-fault", "nvidia-smi", "rocm-smi"),
    ],
    ids=["rccl", "nccl", "rocm", "cuda"],
)  # fmt: skip
def test_advice_is_for_the_gpus_of_the_log(
    text: str, cause: str, advised: str, not_advised: str, rules: RuleSet
) -> None:
    best = diagnose_text(text, rules).to_dict()["diagnoses"][0]
    fixes = json.dumps(best["fixes"])
    assert (best["cause"], advised in fixes, not_advised in fixes) == (cause, True, False)
