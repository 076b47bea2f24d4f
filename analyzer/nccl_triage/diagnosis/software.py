"""The software of a job as its log shows it: launcher, frameworks, versions, environment variables."""

from __future__ import annotations

import re

from nccl_triage.diagnosis.case import Case
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event

Found = dict[str, list[tuple[str, Event]]]

#: What stands in every match (a search for it is far faster), the pattern, the program.
_INLINE = (
    ("NCCL version ", re.compile(r"NCCL version (\d+\.\d+(?:\.\d+)?)"), "nccl"),
    ("+cuda", re.compile(r"\+cuda(\d+\.\d+)"), "cuda"),
    ("torch", re.compile(r"\btorch[ =]{1,2}(\d+\.\d+\.\d+[\w.+]*)"), "torch"),
    ("PyTorch", re.compile(r"\bPyTorch(?: version)?[: ]{1,2}(\d+\.\d+\.\d+[\w.+]*)"), "torch"),
    ("Driver Version:", re.compile(r"Driver Version: ?(\d+\.\d+(?:\.\d+)?)"), "driver"),
    ("vLLM ", re.compile(r"\bvLLM (?:API server )?version[: ]{1,2}v?(\d+\.\d+\.\d+[\w.]*)"), "vllm"),
    ("engine (", re.compile(r"engine \(v?(\d+\.\d+\.\d+[\w.+]*)\)"), "vllm"),
)
_DRIVER_CUDA = lazily(r"cudaDriverVersion (\d{1,9})")
#: Words before an assignment that make it advice of a message ("consider passing CUDA_LAUNCH_BLOCKING=1"), not a setting.
_ADVISED = lazily(
    r"(?i)\b(?:consider|passing|try|please|recommend\w*|suggest\w*|(?:can|may|should) (?:set|use|try)|by setting)\b"
)


def versions(case: Case) -> Found:
    """Return program -> [(version, event)], in order, distinct versions only."""
    found: Found = case.value("job.versions", {})
    return found


def collect_versions(case: Case) -> Found:
    """Collect the versions of one case (use ``versions``, which does it once)."""
    found: Found = {}

    def add(program: str, version: str, event: Event) -> None:
        known = found.setdefault(program, [])
        if all(version != present for present, _ in known):
            known.append((version, event))

    for event in case.having("software.version", "version", "of"):
        add(event.fields["of"], event.fields["version"], event)
    for event in case.events:
        text = event.text
        for literal, pattern, program in _INLINE:
            match = pattern.search(text) if literal in text else None
            if match:
                add(program, match[1], event)
        driver = _DRIVER_CUDA.search(text) if "cudaDriverVersion" in text else None
        if driver:
            number = int(driver[1])
            add("driver-cuda", f"{number // 1000}.{number % 1000 // 10}", event)
    return found


def first_versions(case: Case) -> dict[str, str]:
    """Return program -> the version that the log shows first, sorted by program."""
    return {program: found[0][0] for program, found in sorted(versions(case).items())}


def environment(case: Case) -> Found:
    """Return variable -> [(value, event)], distinct values only."""
    found: Found = case.value("job.environment", {})
    return found


def _advised(text: str, name: str) -> bool:
    """Tell whether a message merely advises to set the variable."""
    before, assignment, _ = text.partition(f"{name}=")
    return bool(assignment) and _ADVISED.search(before[-60:]) is not None


def collect_environment(case: Case) -> Found:
    """Collect the variables of one case (use ``environment``, which does it once)."""
    found: Found = {}
    for event in case.of("variable"):
        name = event.fields.get("var") or event.fields.get("name")
        value = event.fields.get("value")
        if not name or value is None or _advised(event.text, name):
            continue
        known = found.setdefault(name, [])
        if all(value != present for present, _ in known):
            known.append((value.strip("'\""), event))
    return found


def version_key(text: str) -> tuple[int, ...]:
    """Return a version as comparable numbers (``2.21.5+cuda12.4`` -> (2, 21, 5))."""
    return tuple(int(part) for part in re.findall(r"\d{1,9}", text.split("+")[0])[:4])


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


def programs(case: Case) -> list[str]:
    """Return the launcher, where one is seen, and the frameworks."""
    found = launcher(case)
    return [*([found] if found is not None else []), *frameworks(case)]


def frameworks(case: Case) -> list[str]:
    """Return the frameworks whose lines the log holds."""
    return [name for name in _FRAMEWORKS if case.signatures(f"{name}.*")]
