"""What a comparison of the dumps finds wrong."""

from __future__ import annotations

from dataclasses import dataclass

from nccl_triage.observations.recorder_table import RecorderLine

#: Lines kept of one finding.
MAX_LINES = 6


@dataclass(slots=True)
class Finding:
    """Something wrong with one call of one group. ``ranks`` are those in the wrong, none where that cannot be told.

    ``kind``: operation, size, dtype (ranks disagree), missing (ranks did not come), ahead (ranks came to what the rest
    did not), lagging (ranks did not complete what others did), early (ranks completed what the rest did not), state (some
    came out of an operation with a root: who is wrong cannot be told), unmet (a send without receive or the other way round), entered (all came, nobody completed), others (all who are known to
    belong to it came, nobody completed: it may wait for ``ranks``).
    """

    kind: str
    group: str
    seq: int
    op: str
    ranks: tuple[int, ...]
    others: tuple[int, ...]
    lines: tuple[RecorderLine, ...]
    #: Waited for until a time-out, by the recorder's own mark.
    given_up: bool = False
    #: skipped, inserted or exchanged, with the number of calls.
    order: tuple[str, int] = ("", 0)
    #: That ``ranks`` belong to the group is derived, not recorded.
    derived: bool = False
