"""A place in a series of numbers that means something, and the event that it becomes."""

from __future__ import annotations

from dataclasses import dataclass

from nccl_triage.observations.curves import NOT_KNOWN, Process, Row
from nccl_triage.observations.event import Context, Event


@dataclass(frozen=True, slots=True)
class Mark:
    """What stands at a row: ``value`` against ``usual`` (the metric's unit); ``over`` numbers that this rests on."""

    signature: str
    metric: str
    row: Row
    value: float
    usual: float
    over: int
    derived: bool = False
    word: str = ""

    @property
    def ratio(self) -> float:
        """How far the value is from the usual one, at least 1; 0 where they do not compare."""
        if self.word or min(self.value, self.usual) <= 0:
            return 0.0
        return max(self.value / self.usual, self.usual / self.value)

    def event(self) -> Event:
        """Return the event; its text names the numbers, the line itself was not kept."""
        row, value, usual = self.row, self.word or _short(self.value), _short(self.usual)
        step = f"step {int(row.step)}: " if row.step >= 0 else ""
        # Producers mark only what lasts until the failure, or to the end of the log.
        fields = {"metric": self.metric, "value": value, "over": str(self.over), "lasts": "yes"}
        if not self.word:
            fields |= {"usual": usual, "ratio": _short(self.ratio)}
        if row.step >= 0:
            fields["step"] = str(int(row.step))
        if self.derived:
            fields["derived"] = "time stamps"
        compared = "" if self.word else f" (usual {usual}, {_short(self.ratio)}x)"
        text = f"[{step}{self.metric} {value}{compared}]"
        return Event(self.signature, row.source, row.line, text, context_of(row.process, row.time), "context", fields)


def context_of(process: Process, time: float) -> Context:
    """Return who printed a row, and when."""
    return Context(
        rank=_known(process.rank),
        local_rank=_known(process.local_rank),
        group_rank=_known(process.group_rank),
        host=process.host or None,
        place=process.place or None,
        writer=_known(process.writer),
        pid=_known(process.pid),
        time=time if time >= 0 else None,
    )


def _known(number: int) -> int | None:
    return None if number == NOT_KNOWN else number


def _short(number: float) -> str:
    """Return three significant digits."""
    return f"{number:.3g}" if abs(number) < 1000 else f"{number:.0f}"
