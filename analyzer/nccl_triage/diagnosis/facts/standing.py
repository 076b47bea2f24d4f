"""Where ranks stood in their own program when communication broke, compared with those that had left it in order."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.diagnosis.facts.mismatch import communication_frames
from nccl_triage.patterns import lazily

_FRAME = lazily(r"^(?P<file>[^\n]{1,400}):(?P<line>\d{1,7}) (?P<function>[^\n]{0,200})$")


@fact(
    "progress.left_behind_ranks",
    "the minority that still stands in an earlier line of a function of which the others stand in a later one or have left",
)
def _left_behind(case: Case) -> Fact | None:
    left = {*(case.value("progress.finished_early_ranks") or []), *(case.value("process.clean_exit_ranks") or [])}
    frames = communication_frames(case)
    stands = {rank: found for rank, (text, _) in frames.items() if (found := _FRAME.match(text)) and rank not in left}
    places = {(found["file"], found["function"]) for found in stands.values()}
    lines = sorted({int(found["line"]) for found in stands.values()})
    if not left or len(places) != 1 or len(lines) != 2:
        return None
    behind = sorted(rank for rank, found in stands.items() if int(found["line"]) == lines[0])
    beyond = len(left) + len(stands) - len(behind)
    return Fact(behind, [frames[rank][1] for rank in behind][:3]) if len(behind) < beyond else None
