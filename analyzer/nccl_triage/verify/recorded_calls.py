"""The check of a failed run for a rank whose flight recorder holds other collectives than the others'.

What a program hands to torch.distributed and what the library gets can differ: the recorder has the latter.
"""

from __future__ import annotations

from collections import Counter

from nccl_triage.verify.assessed_run import AssessedRun
from nccl_triage.verify.collective_run import RankTrace, RunFinding
from nccl_triage.verify.decide import cause_of
from nccl_triage.verify.worker.ops import operation

#: The kind of finding of a rank that issued another collective than the others.
DIFFERENT = "different-call"
#: Sequence number of a collective -> its name and, where all ranks pass alike, its sizes and types.
_Recorded = dict[int, str]


def different_recorded(view: AssessedRun) -> RunFinding | None:
    """The rank that issued another collective than most at the same place in the sequence, or that alone cannot tell.

    A rank that stops over what it got has no recorder any more. Where its log proves that the calls differ, and those of
    all others are alike, the other one is its own.
    """
    row = operation(view.result.run.message.op)
    if view.result.passed or row.pair:
        return None
    told = [(trace, _recorded(trace, row.symmetric)) for trace in view.traces if trace.flight]
    for number in sorted({number for _, recorded in told for number in recorded}):
        issued = [(trace, recorded[number]) for trace, recorded in told if number in recorded]
        (common, most), *rest = Counter(call for _, call in issued).most_common()
        if rest:
            if most <= len(issued) - most:
                return None  # nobody is the odd one
            odd = [(trace, call) for trace, call in issued if call != common]
            return _finding(view, [trace for trace, _ in odd], number, odd[0][1], common)
    silent = [trace for trace in view.traces if not trace.flight]
    own = view.own
    proven = own is not None and own.status != "possible" and own.cause == cause_of(DIFFERENT)
    if proven and len(silent) == 1 and len(told) > 1:
        return view.finding(
            DIFFERENT,
            silent,
            "rank {ranks} stopped over a collective that differs, and those of all others are alike",
            "rank {ranks} 因集合操作不一致而终止，而其他 rank 的集合操作彼此一致",
        )
    return None


def _recorded(trace: RankTrace, alike: bool) -> _Recorded:
    found = {}
    for entry in trace.flight:
        number = entry.get("collective_seq_id")
        if isinstance(number, int) and number > 0:
            parts = [entry.get("profiling_name"), *([entry.get("input_sizes"), entry.get("input_dtypes")] * alike)]
            found[number] = " ".join(str(part) for part in parts)
    return found


def _finding(view: AssessedRun, odd: list[RankTrace], number: int, other: str, common: str) -> RunFinding:
    return view.finding(
        DIFFERENT,
        odd,
        f"rank {{ranks}} issues {other} as collective {number}, where the others issue {common}",
        f"rank {{ranks}} 的第 {number} 个集合操作是 {other}，而其他 rank 是 {common}",
    )
