"""What is assessed: one run, with its ranks and hosts by their names in the whole job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nccl_triage.verify.findings import OTHERWISE, cause_of
from nccl_triage.verify.model import Finding, RankTrace, RunResult
from nccl_triage.verify.own_logs import OwnDiagnosis


@dataclass(frozen=True, slots=True)
class View:
    """A run with what else is known when it is assessed."""

    result: RunResult
    names: Sequence[str]
    paths: tuple[Finding, ...] = ()
    own: OwnDiagnosis | None = None

    @property
    def traces(self) -> list[RankTrace]:
        """The ranks in their order."""
        return [trace for _, trace in sorted(self.result.ranks.items())]

    def slots(self, traces: Sequence[RankTrace]) -> tuple[int, ...]:
        """Return the ranks' numbers in the whole job."""
        return tuple(sorted(trace.slot.number for trace in traces))

    def hosts(self, traces: Sequence[RankTrace]) -> tuple[str, ...]:
        """Return the hosts of ranks, each once."""
        return tuple(dict.fromkeys(self.names[trace.slot.place] for trace in traces))

    def finding(self, kind: str, traces: Sequence[RankTrace], en: str, zh: str, situation: str = OTHERWISE) -> Finding:
        """Return a finding about some ranks; ``{ranks}`` in the texts stands for their numbers."""
        numbers = ", ".join(str(number) for number in self.slots(traces))
        says = {"en": en.replace("{ranks}", numbers), "zh": zh.replace("{ranks}", numbers)}
        return Finding(cause_of(kind, situation), kind, says, self.slots(traces), self.hosts(traces))
