"""The collective that a Python traceback stands in: what failed, where no watchdog line tells the operation."""

from __future__ import annotations

from collections import Counter

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.story.exceptions import tracebacks

#: Functions of torch.distributed -> OpType as ProcessGroupNCCL logs it (torch/distributed/distributed_c10d.py).
OP_OF_CALL = {
    "broadcast": "BROADCAST",
    "all_reduce": "ALLREDUCE",
    "all_reduce_coalesced": "ALLREDUCE_COALESCED",
    "reduce": "REDUCE",
    "all_gather": "ALLGATHER",
    "all_gather_object": "ALLGATHER",
    "all_gather_into_tensor": "_ALLGATHER_BASE",
    "_all_gather_base": "_ALLGATHER_BASE",
    "all_gather_single": "_ALLGATHER_BASE",
    "reduce_scatter": "REDUCE_SCATTER",
    "reduce_scatter_tensor": "_REDUCE_SCATTER_BASE",
    "_reduce_scatter_base": "_REDUCE_SCATTER_BASE",
    "reduce_scatter_single": "_REDUCE_SCATTER_BASE",
    "all_to_all": "ALLTOALL",
    "all_to_all_single": "ALLTOALL_BASE",
    "broadcast_object_list": "BROADCAST",
    "send": "SEND",
    "recv": "RECV",
    "batch_isend_irecv": "COALESCED",
    "gather": "GATHER",
    "scatter": "SCATTER",
    "barrier": "BARRIER",
    "monitored_barrier": "BARRIER",
    "init_process_group": "INIT",
}


@fact("collective.called", "the operation that most tracebacks stand in, by the call of torch.distributed in a frame")
def _called(case: Case) -> Fact | None:
    events = [e for e in tracebacks(case) if e.fields.get("collective") in OP_OF_CALL]
    if not events:
        return None
    name = Counter(event.fields["collective"] for event in events).most_common(1)[0][0]
    return Fact(OP_OF_CALL[name], [event for event in events if event.fields["collective"] == name][:4])
