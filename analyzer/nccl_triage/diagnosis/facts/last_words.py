"""How a log ends: within NCCL's start."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.diagnosis.facts.progress import progress_of


@fact(
    "progress.ends_in_init", "a log ends while NCCL sets up its first communicator: none came up, and nothing advanced"
)
def _ends_in_init(case: Case) -> Fact | None:
    begun = [e for e in case.of("interface.chosen", "communicator.starting") if e.signature.startswith("nccl.")]
    came_up = case.of("communicator.ready", "communicator.closed") or case.having("collective.counters", "op_count")
    if not begun or came_up or progress_of(case) or case.value("progress.finished"):
        return None
    return Fact(True, begun[-2:])
