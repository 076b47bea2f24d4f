"""What a complete record would hold and this one does not, as far as it matters for the causes in question."""

from __future__ import annotations

from typing import Any

from nccl_triage.diagnosis.conditions import Conditions
from nccl_triage.diagnosis.model import Findings
from nccl_triage.engine.schema import Witness

#: Candidates whose families decide what matters.
_LEADING = 3


def not_seen(diagnosis: Findings) -> list[dict[str, Any]]:
    """Return the witnesses that are missing, each with what it would show and how to have it next time."""
    if diagnosis.verdict == "healthy":
        return []
    families = {candidate.weighed.cause.family for candidate in diagnosis.candidates[:_LEADING]}
    conditions = Conditions(diagnosis.case)

    def missing(witness: Witness) -> bool:
        matters = not witness.families or not families or bool(families & set(witness.families))
        return matters and conditions.holds(witness.when)[0]

    return [
        {
            "id": witness.id,
            "what": witness.what["en"],
            "what_zh": witness.what["zh"],
            "why": witness.why["en"],
            "why_zh": witness.why["zh"],
            "env": dict(witness.env),
            "commands": list(witness.commands),
        }
        for witness in diagnosis.case.rules.witnesses.values()
        if missing(witness)
    ]
