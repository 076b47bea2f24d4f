"""Environment variables that were set, unset or changed."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_triage.baseline.model import Difference, place
from nccl_triage.baseline.values import Valued, by_name, changed, first_event, shown
from nccl_triage.diagnosis import software
from nccl_triage.diagnosis.case import Case
from nccl_triage.lazy_regex import lazily
from nccl_triage.parsers import templates

#: What is another value in every run, or belongs to one process: addresses, ports, ids, places of output.
_BY_NATURE = lazily(
    r"(?:_|^)(?:ADDR|ADDRESS|IP|PORT|PORTS|RANK|LOCAL_RANK|HOSTID|HOST_ID|COMM_ID|RUN_ID|JOB_ID|NODE_ID|UUID|TOKEN|KEY"
    r"|DEBUG_FILE|LOG_DIR|SESSION\w*|TMPDIR|TEMP|SECRET|PASSWORD)$"
)
#: Lines of NCCL that come once the variables of networks have been looked up.
_CONSULTED = ("transport.chosen", "communicator.ready")
#: Lines of NCCL at level INFO: whoever prints them prints variables too.
_INFORMS = ("variable", "communicator.starting", "interface.chosen", *_CONSULTED)


def compare(good: Case, bad: Case) -> Iterator[Difference]:
    """Yield what is set in one run alone or differently, where the other run would have shown it."""
    for name, theirs, ours in by_name(software.environment(good), software.environment(bad)):
        if _BY_NATURE.search(name):
            continue
        if theirs and ours:
            yield from changed("variable", name, _alike(theirs), _alike(ours))
        elif ours and _would_show(good, ours, _INFORMS):
            yield Difference("variable", name, None, shown(v for v, _ in ours), ours[0][1])
        elif theirs and _would_show(bad, theirs, _CONSULTED):
            near = next(iter(bad.of("variable", *_CONSULTED)), first_event(bad))
            if near is not None:
                yield Difference("variable", name, shown(v for v, _ in theirs), None, near, place(theirs[0][1]))


def _alike(values: Valued) -> Valued:
    """Return values with what varies from run to run in a path folded."""
    return [(templates.template(value) if "/" in value else value, event) for value, event in values]


def _would_show(other: Case, values: Valued, informs: tuple[str, ...]) -> bool:
    """Tell whether the other run would have printed a variable, had it been set there."""
    if values[0][1].context.program == "nccl":
        return bool(other.of(*informs))
    return bool([event for event in other.of("variable") if event.context.program != "nccl"])
