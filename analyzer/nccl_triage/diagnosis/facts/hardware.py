"""What the driver reports of GPUs: the Xids of the job's own GPUs, with what their numbers mean."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.diagnosis.kernel_log import XID
from nccl_triage.events import Event


def xids_of(case: Case, *kinds: str) -> list[Event]:
    """Return the Xid lines whose numbers are of one of these kinds (``rules/codes/xid.yaml``)."""
    return [event for event in case.of(XID) if event.fields.get("code_kind") in kinds]


@fact("gpu.hardware_xid", "the number of the first Xid that speaks of broken hardware")
def _hardware(case: Case) -> Fact | None:
    found = xids_of(case, "hardware")
    return Fact(int(found[0].fields["xid"]), found[:3]) if found else None
