"""Who speaks: lines of programs that are no part of the job say nothing about it.

A syslog holds the words of every daemon of a host, and the output of a job those of the tools that its scripts call. A
daemon belongs to the job where its own lines are a job's, or where daemons like it run jobs. A tool's complaint counts
where nothing else tells of a failure. A long log in which nothing is a job's is that of something else.
"""

from __future__ import annotations

from collections.abc import Sequence

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.story.devices import DAEMONS
from nccl_triage.story.kernel_log import Aside

#: Daemons that start, watch or end jobs, besides those of a host's devices.
_OF_JOBS = lazily(
    r"(?i:(?:\w+/)?(?:slurm|kube|containerd|docker|crio|podman|ray|mpi|orted|prte|hydra|pbs|lsf|sge|mom|python|torch|train|deepspeed"
    r"|accelerate|vllm|sglang|munge|apptainer|singularity|bash$|sh$))"
)
#: A syslog's prefix inside of a line that another collector wrote.
_INNER = lazily(
    r".{0,160}?\b[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?:\S{1,64} )?(?:\S{1,64}/)?(?P<service>[A-Za-z][\w.-]{1,40})(?:\[\d{1,9}\])?: "
)
#: Tools of a shell, which name themselves in front of their complaints.
_TOOL = lazily(
    r"^(?:/(?:usr/)?s?bin/)?(?:rm|ls|du|df|cp|mv|mkdir|rmdir|touch|cat|chmod|chown|chgrp|ln|find|xargs|tar|gzip|grep|sed|awk|which|stat|head"
    r"|tail|cut|sort|tee|pip3?|git|conda|mamba|wget|curl|apt(?:-get)?|kill|pkill|ssh-keygen|scancel|module|nvidia-smi|ibstat|lscpu|hostname"
    r"|ulimit|source|cd|rsync|scp|unzip|dirname|readlink|realpath): \S"
    r"|^(?:\S{1,120}: )?(?:line \d{1,6}: )?[\w./-]{1,80}: (?:command )?not found$"
    r"|^(?:ba)?sh: (?:line \d{1,6}: )?\S{1,120}: "
)
#: Programs of signatures that any program may print.
_ANYBODY = ("os", "net", "storage", "line", "data", "host")
#: Kinds of lines that tell of a process of a job whoever prints them.
_ENDS = ("process.exit", "process.crash", "memory.killed")
#: Lines of an input from which on it should hold one that is a job's.
LONG = 200


def sort_out(events: Sequence[Event], observations: Observations) -> tuple[list[Event], list[Aside]]:
    """Return the events of the job and of what runs it, and the lines of others with the reason."""
    own = [event for event in events if _is_job(event)]
    services = {name for event in own if (name := event.context.service)}
    told = any(event.is_failure or event.kind == "exception" for event in own) or any(e.role == "progress" for e in own)
    long = sum(info.lines for info in observations.sources.values()) >= LONG
    kept: list[Event] = []
    aside: list[Aside] = []
    for event in events:
        if is_foreign(event, services):
            aside.append((event, "other-program"))
        elif told and (event.is_failure or event.kind == "salient") and _TOOL.match(event.text):
            aside.append((event, "tool"))
        elif long and not own and event.is_failure and event.kind not in _ENDS:
            aside.append((event, "no-job"))
        else:
            kept.append(event)
    return kept, aside


def is_foreign(event: Event, services: set[str]) -> bool:
    """Tell whether a daemon speaks that is no part of a job and does not run any; ``services`` are those that are."""
    name = event.context.service
    if name is None:
        inner = _INNER.match(event.text)
        name = inner["service"] if inner is not None else None
    return name is not None and name not in services and not (_OF_JOBS.match(name) or DAEMONS.match(name))


def _is_job(event: Event) -> bool:
    """Tell whether a line can only come from a job or what runs it."""
    # A signal alone ("Killed") does not tell whose process ended.
    if (event.kind in _ENDS and set(event.fields) != {"signal"}) or event.role == "progress":
        return True
    program = event.signature.partition(".")[0]
    return program not in _ANYBODY and event.kind not in ("salient", "speaker", "note")
