"""What launchers and frameworks around NCCL tell of a failure that is not the program's own."""

from __future__ import annotations

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

FENCE = (
    "slurmstepd: error:  mpi/pmix_v3: pmixp_coll_ring_reset_if_to: node1 [0]: pmixp_coll_ring.c:742: 0x152a4c02d310: "
    "collective timeout seq=0\n"
)
WAITS = "slurmstepd: error:  mpi/pmix_v3: pmixp_coll_ring_log: node1 [0]: pmixp_coll_ring.c:{line}: \t\t {what} contrib: {host}\n"
TENSORFLOW = (
    "node1:41:52 [4] ibvwrap.c:130 NCCL WARN Call to ibv_create_qp failed\n"
    "Traceback (most recent call last):\n"
    '  File "fit.py", line 64, in <module>\n'
    "    model.fit(train)\n"
    "tensorflow.python.framework.errors_impl.InternalError:  NCCL: unhandled system error. Set NCCL_DEBUG=WARN for detail.\n"
)


def test_the_node_that_a_fence_of_slurm_waits_for_is_named(rules: RuleSet) -> None:
    text = FENCE + WAITS.format(line=825, what="done", host="node3") + WAITS.format(line=827, what="wait", host="node2")
    found = diagnose_text(text, rules)
    assert found.candidates[0].id == "rendezvous-failed"
    assert [culprit.host for culprit in found.candidates[0].culprits] == ["node2"]


def test_what_tensorflow_says_of_nccl_is_no_exception_of_the_program(rules: RuleSet) -> None:
    found = diagnose_text(TENSORFLOW, rules)
    assert found.candidates[0].id == "network-ib-misconfig"
    assert found.case.fact("exception.application") is None
