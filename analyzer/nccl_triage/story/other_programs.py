"""Lines of programs that are not part of the job: they are set aside, since they say nothing about it.

A syslog holds lines of all daemons of a host, and the output of a job those of the tools that its scripts call. A
daemon belongs to the job if some of its lines can only come from a job, or if daemons like it run jobs. An error of a
tool, or of a daemon that only watches a cluster, counts if nothing else reports a failure. A long log without a line of
a job is the log of something else.
"""

from __future__ import annotations

from collections.abc import Sequence

from nccl_triage.ingest.layouts import RAY_HELPER
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.story.devices import DAEMONS
from nccl_triage.story.kernel_log import Aside

#: Daemons that start, watch or end jobs, in addition to those of a host's devices.
_OF_JOBS = lazily(
    r"(?i:(?:\w+/)?(?:slurm|kube|containerd|docker|crio|podman|ray|mpi|orted|prte|hydra|pbs|lsf|sge|mom|python|torch|train|deepspeed"
    r"|accelerate|vllm|sglang|munge|apptainer|singularity|bash$|sh$))"
)
#: The prefix of a syslog within a line that another collector wrote.
_INNER = lazily(
    r".{0,160}?\b[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?:\S{1,64} )?(?:\S{1,64}/)?(?P<service>[A-Za-z][\w.-]{1,40})(?:\[\d{1,9}\])?: "
)
#: Errors of command-line tools and shells, which begin with their own name.
_TOOL = lazily(
    r"^(?:/(?:usr/)?s?bin/)?(?:rm|ls|du|df|cp|mv|mkdir|rmdir|touch|cat|chmod|chown|chgrp|ln|find|xargs|tar|gzip|grep|sed|awk|which|stat|head"
    r"|tail|cut|sort|tee|pip3?|git|conda|mamba|wget|curl|apt(?:-get)?|kill|pkill|ssh-keygen|scancel|module|nvidia-smi|ibstat|lscpu|hostname"
    r"|ulimit|source|cd|rsync|scp|unzip|dirname|readlink|realpath): \S"
    r"|^(?:\S{1,120}: )?(?:line \d{1,6}: )?[\w./-]{1,80}: (?:command )?not found$"
    r"|^(?:ba)?sh: (?:line \d{1,6}: )?\S{1,120}: "
)
#: Prefixes of signatures whose lines any program may print.
_ANYBODY = ("os", "net", "storage", "line", "data", "host")
#: Kinds of lines that are about a process of a job, whatever prints them.
_ENDS = ("process.exit", "process.crash", "memory.killed")
#: Kinds of lines beside failures in which a program speaks of trouble.
_SPEAKS = ("exception", "exception.frame", "salient")
#: Number of lines from which an input should hold one of a job.
LONG = 200


def set_aside(events: Sequence[Event], observations: Observations) -> tuple[list[Event], list[Aside]]:
    """Return the events of the job and of what runs it, and the lines of other programs with the reason."""
    watching = {path for path, info in observations.sources.items() if info.layout == RAY_HELPER}
    if any(event.kind == "node.lost" for event in events):
        watching = set()  # a node goes down with such a daemon
    own = [event for event in events if _is_job(event) and event.source not in watching]
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
        elif told and event.source in watching and (event.is_failure or event.kind in _SPEAKS):
            aside.append((event, "other-program"))
        elif long and not own and event.is_failure and event.kind not in _ENDS:
            aside.append((event, "no-job"))
        else:
            kept.append(event)
    return kept, aside


def is_foreign(event: Event, services: set[str]) -> bool:
    """Tell whether a line is from a daemon that is no part of the job and runs none; ``services`` are part of it."""
    name = event.context.service
    if name is None:
        inner = _INNER.match(event.text)
        name = inner["service"] if inner is not None else None
    return name is not None and name not in services and not (_OF_JOBS.match(name) or DAEMONS.match(name))


def _is_job(event: Event) -> bool:
    """Tell whether a line can only come from a job or what runs it."""
    # A signal alone ("Killed") does not say which process ended.
    if (event.kind in _ENDS and set(event.fields) != {"signal"}) or event.role == "progress":
        return True
    program = event.signature.partition(".")[0]
    return program not in _ANYBODY and event.kind not in ("salient", "speaker", "note")
