"""A run as it is assessed: its result, the hosts' names, what facts and probe show, and what its own logs say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nccl_triage.verify.collective_run import RankTrace, RunFinding, RunResult
from nccl_triage.verify.decide import OTHERWISE, cause_of


@dataclass(frozen=True, slots=True)
class OwnDiagnosis:
    """The cause found in the logs of an experiment; ``told_by_stages``: the stages of the ranks show it better."""

    cause: str
    status: str
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    line: str
    told_by_stages: bool = False


@dataclass(frozen=True, slots=True)
class AssessedRun:
    """A run with the other facts by which it is assessed."""

    result: RunResult
    names: Sequence[str]
    paths: tuple[RunFinding, ...] = ()
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

    def finding(
        self, kind: str, traces: Sequence[RankTrace], en: str, zh: str, situation: str = OTHERWISE
    ) -> RunFinding:
        """Return a finding about some ranks; ``{ranks}`` in the texts stands for their numbers."""
        numbers = ", ".join(str(number) for number in self.slots(traces))
        says = {"en": en.replace("{ranks}", numbers), "zh": zh.replace("{ranks}", numbers)}
        return RunFinding(cause_of(kind, situation), kind, says, self.slots(traces), self.hosts(traces))
