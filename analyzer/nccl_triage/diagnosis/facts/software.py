"""The software of a job: launcher, frameworks, versions and environment variables."""

from __future__ import annotations

import re

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event

Found = dict[str, list[tuple[str, Event]]]

#: A literal that every match contains (searching for it is much faster), the pattern, and the program.
_INLINE = (
    ("NCCL version ", lazily(r"NCCL version (\d+\.\d+(?:\.\d+)?)"), "nccl"),
    ("+cuda", lazily(r"\+cuda(\d+\.\d+)"), "cuda"),
    ("torch", lazily(r"\btorch[ =]{1,2}(\d+\.\d+\.\d+[\w.+]*)"), "torch"),
    ("PyTorch", lazily(r"\bPyTorch(?: version)?[: ]{1,2}(\d+\.\d+\.\d+[\w.+]*)"), "torch"),
    ("Driver Version:", lazily(r"Driver Version: ?(\d+\.\d+(?:\.\d+)?)"), "driver"),
    ("vLLM ", lazily(r"\bvLLM (?:API server )?version[: ]{1,2}v?(\d+\.\d+\.\d+[\w.]*)"), "vllm"),
    ("engine (", lazily(r"engine \(v?(\d+\.\d+\.\d+[\w.+]*)\)"), "vllm"),
)
_DRIVER_CUDA = lazily(r"cudaDriverVersion (\d{1,9})")
#: Words before an assignment that make it advice ("consider passing CUDA_LAUNCH_BLOCKING=1") rather than a setting.
_ADVISED = lazily(
    r"(?i)\b(?:consider|passing|try|please|recommend\w*|suggest\w*|(?:can|may|should) (?:set|use|try)|by setting)\b"
)


def versions(case: Case) -> Found:
    """Return program -> its distinct versions with their events, in the order of the log."""
    found: Found = case.value("job.versions", {})
    return found


def _collect_versions(case: Case) -> Found:
    """Search a case for versions. Use ``versions``, which caches the result."""
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
    """Return program -> the first version in the log, sorted by program."""
    return {program: found[0][0] for program, found in sorted(versions(case).items())}


def environment(case: Case) -> Found:
    """Return variable -> its distinct values with their events."""
    found: Found = case.value("job.environment", {})
    return found


def _advised(text: str, name: str) -> bool:
    """Tell whether a message merely suggests setting a variable."""
    before, assignment, _ = text.partition(f"{name}=")
    return bool(assignment) and _ADVISED.search(before[-60:]) is not None


def _collect_environment(case: Case) -> Found:
    """Search a case for environment variables. Use ``environment``, which caches the result."""
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
    """Return a version as a tuple that can be compared (``2.21.5+cuda12.4`` -> (2, 21, 5))."""
    return tuple(int(part) for part in re.findall(r"\d{1,9}", text.split("+")[0])[:4])


#: Launcher -> signatures by which it is recognised: any line of its program, or of DeepSpeed those of its launcher.
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
    """Return the launcher of the job, or None if the log shows none."""
    for name, patterns in _LAUNCHERS:
        if case.of(*patterns):
            return name
    return None


def programs(case: Case) -> list[str]:
    """Return the launcher, if the log shows one, and the frameworks."""
    found = launcher(case)
    return [*([found] if found is not None else []), *frameworks(case)]


def frameworks(case: Case) -> list[str]:
    """Return the frameworks with lines in the log."""
    return [name for name in _FRAMEWORKS if case.signatures(f"{name}.*")]


@fact("job.versions", "program -> versions that the log shows")
def _versions(case: Case) -> Fact | None:
    return Fact(_collect_versions(case), [])


@fact("job.environment", "environment variable -> values that the log shows")
def _environment(case: Case) -> Fact | None:
    return Fact(_collect_environment(case), [])


@fact("job.nccl_versions", "the distinct NCCL versions of the processes")
def _nccl_versions(case: Case) -> Fact | None:
    found = versions(case).get("nccl", [])
    return Fact([version for version, _ in found], [event for _, event in found][:3]) if found else None
