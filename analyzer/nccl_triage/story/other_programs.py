"""Lines of programs that are not part of the job: they are set aside, since they say nothing about it.

A syslog holds lines of all daemons of a host, and the output of a job those of the tools that its scripts call. A
daemon belongs to the job if some of its lines can only come from a job, or if daemons like it run jobs. An error of a
tool, or of a daemon that only watches a cluster, counts if nothing else reports a failure. A long log without a line of
a job is the log of something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nccl_triage.engine.schema import Text
from nccl_triage.ingest.layouts import RAY_HELPER
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.parsers.not_logs import LATEX, PAGE, PYTHON
from nccl_triage.story.decisions import ITSELF, Grounds, Table
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


@dataclass(slots=True)
class _Asked:
    """A line of which is asked whether it belongs to the job, and what is known of the input."""

    event: Event
    #: Daemons some of whose lines can only come from a job.
    services: set[str]
    #: Whether lines of the job report a failure or progress.
    tells: bool
    #: Sources of helpers that only watch a cluster.
    watching: set[str]
    #: Lines of an input that is long and holds no line of a job, else 0.
    strange: int
    #: What the source of the line is if it is no log.
    no_log: str | None = None


#: What a text is, as a sentence calls it.
WHAT: dict[str, Text] = {
    PYTHON: {"en": "Python source code", "zh": "Python 源代码"},
    LATEX: {"en": "a LaTeX document", "zh": "LaTeX 文档"},
    PAGE: {"en": "a page of documentation", "zh": "说明文档"},
}
RULES: Table[_Asked] = Table("belongs")


@RULES.condition("no-log")
def _no_log(asked: _Asked) -> Grounds | None:
    return None if asked.no_log is None else Grounds((), {"what": WHAT[asked.no_log]})


@RULES.condition("other-daemon")
def _other_daemon(asked: _Asked) -> Grounds | None:
    name = daemon_of(asked.event)
    if name is None or name in asked.services or _OF_JOBS.match(name) or DAEMONS.match(name):
        return None
    return Grounds((), {"daemon": name})


@RULES.condition("tool-of-script")
def _tool_of_script(asked: _Asked) -> Grounds | None:
    event = asked.event
    loud = asked.tells and (event.is_failure or event.kind == "salient")
    return ITSELF if loud and (event.fields.get("said_by") == "shell" or _TOOL.match(event.text)) else None


@RULES.condition("helper-of-cluster")
def _helper_of_cluster(asked: _Asked) -> Grounds | None:
    event = asked.event
    if not asked.tells or event.source not in asked.watching:
        return None
    return ITSELF if event.is_failure or event.kind in RULES.kinds["helper-of-cluster"] else None


@RULES.condition("log-without-job")
def _log_without_job(asked: _Asked) -> Grounds | None:
    event = asked.event
    if not asked.strange or not event.is_failure or event.kind in _ENDS:
        return None
    return Grounds((), {"read": asked.strange})


def set_aside(events: Sequence[Event], observations: Observations) -> tuple[list[Event], list[Aside]]:
    """Return the events of the job and of what runs it, and the lines of other programs with the reason."""
    watching = {path for path, info in observations.sources.items() if info.layout == RAY_HELPER}
    if any(event.kind == "node.lost" for event in events):
        watching = set()  # a node goes down with such a daemon
    own = [event for event in events if _is_job(event) and event.source not in watching]
    services = {name for event in own if (name := event.context.service)}
    tells = any(event.is_failure or event.kind == "exception" for event in own) or any(
        e.role == "progress" for e in own
    )
    lines = sum(info.lines for info in observations.sources.values())
    strange = lines if lines >= RULES.limits["long"] and not own else 0
    kept: list[Event] = []
    aside: list[Aside] = []
    for event in events:
        source = observations.sources.get(event.source)
        asked = _Asked(event, services, tells, watching, strange, source.no_log if source is not None else None)
        decision = RULES.decide(asked, event)
        if decision is None:
            kept.append(event)
        else:
            aside.append((event, decision))
    return kept, aside


def instead_of_log(observations: Observations) -> Text | None:
    """Return what an input is that holds no log at all, None if it may hold one."""
    kinds = {info.no_log for info in observations.sources.values()}
    kind = kinds.pop() if len(kinds) == 1 else None
    return None if kind is None else WHAT[kind]


def daemon_of(event: Event) -> str | None:
    """Return the daemon that a syslog names as the writer of a line."""
    if event.context.service is not None:
        return event.context.service
    inner = _INNER.match(event.text)
    return inner["service"] if inner is not None else None


def _is_job(event: Event) -> bool:
    """Tell whether a line can only come from a job or what runs it."""
    # A signal alone ("Killed") does not say which process ended.
    if (event.kind in _ENDS and set(event.fields) != {"signal"}) or event.role == "progress":
        return True
    program = event.signature.partition(".")[0]
    return program not in _ANYBODY and event.kind not in ("salient", "speaker", "note")
