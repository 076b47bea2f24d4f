"""Which launcher and which frameworks wrote into the log."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case

#: A launcher is told by its own program's lines, whatever they say: DeepSpeed's by those of its launcher alone.
_LAUNCHERS = (
    ("torchrun", ("torchelastic.*",)),
    ("ray", ("ray.*",)),
    (
        "deepspeed",
        ("deepspeed.killing_subprocess", "deepspeed.launch_world", "deepspeed.spawned", "deepspeed.exits_return_code"),
    ),
    ("slurm", ("slurm.*",)),
    ("mpirun", ("mpi.*",)),
    ("kubernetes", ("kubernetes.*",)),
)
_FRAMEWORKS = ("vllm", "sglang", "deepspeed", "megatron", "openrlhf", "verl", "lightning", "huggingface", "ray")


def launcher(case: Case) -> str | None:
    """Return the launcher that the log shows, or None."""
    for name, patterns in _LAUNCHERS:
        if case.of(*patterns):
            return name
    return None


def frameworks(case: Case) -> list[str]:
    """Return the frameworks whose lines the log holds."""
    return [name for name in _FRAMEWORKS if case.signatures(f"{name}.*")]
