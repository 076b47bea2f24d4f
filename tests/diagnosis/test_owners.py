"""Whose failure it is: the user's program, an installed framework, a launcher, or a process without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage.api import diagnose
from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

INSTALLED = "/opt/venv/lib/python3.11/site-packages/acme_serve/engine.py"
CHECKOUT = "/workspace/verl/verl/workers/actor.py"
SCRIPT = "/opt/venv/bin/acme-serve"


def traceback(*files: str, error: str) -> str:
    frames = "".join(f'  File "{file}", line 12, in run\n    call()\n' for file in files)
    return f"Traceback (most recent call last):\n{frames}{error}\n"


@pytest.mark.parametrize(
    ("files", "error", "cause"),
    [
        ((SCRIPT, INSTALLED), "KeyError: 'rope_type'", "framework-defect"),
        ((INSTALLED,), "AssertionError", "framework-defect"),
        (("/job/train.py", INSTALLED), "KeyError: 'rope_type'", "application-exception"),
        ((INSTALLED, "/job/reward.py"), "KeyError: 'rope_type'", "application-exception"),
        ((SCRIPT, INSTALLED), "ValueError: max_len must be positive", "application-exception"),
        ((SCRIPT, INSTALLED), "AssertionError: unknown scheme 'x'", "application-exception"),
    ],
)
def test_a_framework_failed_if_its_own_code_made_the_mistake(
    files: tuple[str, ...], error: str, cause: str, rules: RuleSet
) -> None:
    assert diagnose_text(traceback(*files, error=error), rules).candidates[0].id == cause


def test_nobody_is_told_to_correct_the_code_of_a_framework(tmp_path: Path) -> None:
    log = tmp_path / "trainer.log"
    log.write_text(traceback("/job/train.py", CHECKOUT, error="ValueError: bad shape"))
    titles = [fix["title"] for fix in diagnose(log).to_dict()["diagnoses"][0]["fixes"]]
    assert any("checkout of verl" in title for title in titles)
    assert not any(title.startswith("Correct the code") for title in titles)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("/bin/bash: line 7: torchrum: command not found", "launch-failed"),
        ("slurmstepd: error: execve(): ray: No such file or directory", "launch-failed"),
        ("sbatch: error: Batch job submission failed: Invalid partition specified", "launch-failed"),
        ("acme-serve: error: unrecognized arguments: --fast", "launch-failed"),
        ("train.py: error: unrecognized arguments: --fast", "application-exception"),
        ("Error: No such option: --fast", "launch-failed"),
        (traceback("/job/train.py", error="RuntimeError: No CUDA GPUs are available"), "gpu-not-visible"),
        (traceback("/job/train.py", error="ValueError: needs 8 GPUs, but only 4 are visible"), "gpu-not-visible"),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
            + traceback("/job/train.py", error="RuntimeError: No CUDA GPUs are available"),
            "driver-cuda-mismatch",
        ),
    ],
)
def test_what_was_not_started_or_has_no_gpu(text: str, cause: str, rules: RuleSet) -> None:
    assert diagnose_text(text, rules).candidates[0].id == cause


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (traceback(SCRIPT, INSTALLED, error="RuntimeError: kernel failed"), "take another release of acme_serve"),
        (
            traceback("/job/train.py", INSTALLED, error="RuntimeError: kernel failed"),
            "Correct the code or its input at",
        ),
        ("RuntimeError: kernel failed\n" * 2, "Correct the code or arguments that raise RuntimeError"),
        (
            "ray.exceptions.RayTaskError(RuntimeError): ray::RayWorkerWrapper.__ray_call__() (pid=77, ip=10.0.0.8)\n"
            + traceback("/job/actor.py", error="RuntimeError: kernel failed"),
            "Correct the code or its input at",
        ),
        (
            traceback("/job/train.py", error="ModuleNotFoundError: No module named 'argparse'"),
            "Restore the Python installation of the failing process: argparse is part of Python",
        ),
        (
            traceback("/job/train.py", error="ModuleNotFoundError: No module named 'distutils'"),
            "Let the failing rank import",
        ),
        (
            traceback("/job/train.py", error="ModuleNotFoundError: No module named 'apex'"),
            "Let the failing rank import",
        ),
    ],
)
def test_the_first_repair_is_for_the_owner_of_the_failing_code(text: str, first: str, rules: RuleSet) -> None:
    best = diagnose_text(text, rules).to_dict()["diagnoses"][0]
    titles = [fix["title"] for fix in best["fixes"]]
    assert best["cause"] == "application-exception" and first in titles[0], titles
    assert "remote task" not in str(titles)
