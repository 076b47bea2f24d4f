"""The software of a job: launcher, frameworks, versions and environment variables."""

from __future__ import annotations

import re

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.engine.schema import SCHEDULERS
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


#: The name that Slurm gives to the output of a job.
_SLURM_OUTPUT = lazily(r"(?:^|/)slurm-\d+(?:_\d+)?\.(?:out|err)\b")
#: So many ranks have room on one host.
_OF_ONE_HOST = 8

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


#: Scheduler -> prefix of its variables.
_SCHEDULER_VARIABLES = {"slurm": "SLURM_", "pbs": "PBS_", "lsf": "LSB_", "kubernetes": "KUBERNETES_"}
#: Accelerator -> signatures of what only its driver, libraries and plug-ins print, and words in failures of others.
_ACCELERATOR_LINES = {
    "amd": ("amd.*",),
    "ascend": ("ascend.*",),
    "habana": ("habana.*",),
    "intel": ("oneccl.*", "level-zero.*"),
    "nvidia": ("nccl.*", "cuda.*", "nvidia-driver.*", "nvshmem.*"),
}
_ACCELERATOR_WORDS = {
    "amd": ("HIP ", "hipError", "HIP out of memory", "amdgpu"),
    "ascend": ("NPU out of memory", "torch_npu", "HCCL"),
    "intel": ("XPU out of memory", "xpu"),
    "tpu": ("TPU ", "libtpu"),
    "nvidia": ("CUDA", "cuda:"),
}
#: Ends of processes: who printed one of these is gone.
_ENDS = ("process.exit", "process.stopped", "job.failed", "collective.timeout", "exception")


def platform(case: Case) -> frozenset[str]:
    """Return where the job runs, in the words of ``schema.PLATFORMS``; what the log does not show is left out."""
    return frozenset(case.value("job.platform", ()))


@fact("job.platform", "scheduler, accelerator, one-host or several-hosts, and alive: where the job runs")
def _platform(case: Case) -> Fact | None:
    found = [word for word in (scheduler(case), _accelerator(case), _spread(case)) if word is not None]
    if case.story.outcome.state == "hung" and not case.of(*_ENDS):
        found.append("alive")
    return Fact(found, []) if found else None


def scheduler(case: Case) -> str | None:
    """Return what started the job's processes on its hosts; Ray only where nothing shows what Ray itself runs under."""
    variables = environment(case)
    for name in SCHEDULERS:
        prefix = _SCHEDULER_VARIABLES.get(name)
        if case.of(f"{name}.*") or (prefix and any(variable.startswith(prefix) for variable in variables)):
            return name
        if name == "slurm" and any(_SLURM_OUTPUT.search(source) for source in case.observations.sources):
            return name
    return None


def _accelerator(case: Case) -> str | None:
    """Return the accelerator of the job. RCCL prints what NCCL prints: the others are looked for first."""
    bad = [event for event in case.events if event.is_failure]
    if case.telling(vendor="amd"):
        return "amd"
    for name in (*_ACCELERATOR_LINES, "tpu"):
        words = _ACCELERATOR_WORDS.get(name, ())
        if case.of(*_ACCELERATOR_LINES.get(name, ())) or any(word in event.text for event in bad for word in words):
            return name
    return None


def _spread(case: Case) -> str | None:
    """Return whether the job ran on one host or several, as far as names, addresses and its launch command tell."""
    nodes = max((int(n) for event in case.of("job.launched") if (n := event.number("nnodes"))), default=0)
    if nodes > 1 or len(case.identity.hosts) > 1 or case.value("network.multi_host"):
        return "several-hosts"
    world = case.identity.world_size
    return "one-host" if nodes == 1 or (case.identity.hosts and world is not None and world <= _OF_ONE_HOST) else None


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
