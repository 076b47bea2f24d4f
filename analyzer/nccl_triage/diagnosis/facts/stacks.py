"""Where the processes of a hanging job stand, from py-spy stack dumps in the input.

``py-spy dump`` prints a head line for each thread and below it its frames, the innermost first
(https://github.com/benfred/py-spy, README, "dump"). Nobody takes such dumps of a job that is well.
"""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.events import Event

HEAD = "python.pyspy_thread"
FRAME = "python.pyspy_frame"
MAIN = (None, "MainThread")
#: Module of torch.distributed whose functions block in a collective.
COLLECTIVE_MODULE = "distributed_c10d.py"


def _main_stacks(case: Case) -> list[list[Event]]:
    """Return the frames below each main thread's head, innermost first, as far as they were kept."""
    frames = {(event.source, event.line): event for event in case.of(FRAME)}
    stacks = []
    for head in case.of(HEAD):
        if head.fields.get("name") not in MAIN:
            continue
        stack: list[Event] = []
        while (frame := frames.get((head.source, head.line + len(stack) + 1))) is not None:
            stack.append(frame)
        if stack:
            stacks.append(stack)
    return stacks


@fact("stacks.dumped", "how many thread stacks were dumped with py-spy: somebody looked into a job that hung")
def _dumped(case: Case) -> Fact | None:
    heads = case.of(HEAD)
    return Fact(case.count(HEAD), heads[:2]) if heads else None


@fact("stacks.diverging", "main threads that stand outside any collective while others stand in one")
def _diverging(case: Case) -> Fact | None:
    inside: list[Event] = []
    outside: list[Event] = []
    for stack in _main_stacks(case):
        waits = any(COLLECTIVE_MODULE in frame.fields.get("path", "") for frame in stack)
        (inside if waits else outside).append(stack[0])
    if not inside or not outside:
        return None
    return Fact(len(outside), [outside[0], inside[0]])
