"""A run as it is assessed: its ranks and hosts by their names in the job, and what the rules find in the ranks' own logs."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import InputError
from nccl_triage.verify.decide import OTHERWISE, cause_of
from nccl_triage.verify.model import RankTrace, RunFinding, RunResult

#: The most symptoms kept of a run.
_KEPT = 12


@dataclass(frozen=True, slots=True)
class OwnDiagnosis:
    """The cause found in the logs of an experiment; ``told_by_stages``: the stages of the ranks show it better."""

    cause: str
    status: str
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    line: str
    told_by_stages: bool = False


def diagnose_own_logs(result: RunResult, rules: RuleSet) -> OwnDiagnosis | None:
    """Diagnose the logs of a run that failed and keep its symptoms in the result; None when the rules name no cause."""
    from nccl_triage.api import diagnose

    if result.folder is None or result.passed:
        return None
    with contextlib.suppress(InputError):
        document = diagnose([result.folder], rules=rules, model=None).to_dict()
        result.symptoms = [_symptom(entry, result.folder) for entry in document["symptoms"][:_KEPT]]
        if document["verdict"] == "diagnosed":
            return _own(document["diagnoses"][0], rules)
    return None


def _symptom(entry: dict[str, Any], folder: str) -> dict[str, Any]:
    kept = {name: entry[name] for name in ("signature", "role", "meaning", "count", "ranks")}
    return {**kept, "path": str(entry["first"]["path"]).removeprefix(f"{folder}/"), "line": entry["first"]["line"]}


def _own(best: dict[str, Any], rules: RuleSet) -> OwnDiagnosis:
    culprits = best["culprits"]
    return OwnDiagnosis(
        cause=best["cause"],
        status=best["status"],
        ranks=tuple(sorted({c["rank"] for c in culprits if c["rank"] is not None})),
        hosts=tuple(dict.fromkeys(c["host"] for c in culprits if c["host"])),
        line=best["evidence"][0]["text"][:300] if best["evidence"] else "",
        told_by_stages=rules.causes[best["cause"]].experiment.told_by_stages,
    )


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
