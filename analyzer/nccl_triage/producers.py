"""The producers of events besides the signatures of rules, and the ids that they use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from nccl_triage import steps
from nccl_triage.baseline import run_difference as baseline
from nccl_triage.history import signatures as history
from nccl_triage.observations.kinds import Produced
from nccl_triage.parsers import produced_signatures as of_parsers


@cache
def produced_signatures() -> Mapping[str, Produced]:
    """Return the signature ids that no rule defines, with their kind and meaning."""
    return {**of_parsers(), **steps.PRODUCES, **baseline.PRODUCES, **history.PRODUCES}
