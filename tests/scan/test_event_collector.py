"""What events have in common is kept once, and what differs stays apart."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.event import Context
from nccl_triage.scan import event_collector
from nccl_triage.scan.event_collector import SharedValues
from tests.scan_helpers import scan_text


def test_equal_things_become_one() -> None:
    shared = SharedValues()
    first = shared.context(Context(rank=1, host="a"))
    assert shared.context(Context(rank=1, host="a")) is first
    assert shared.context(Context(rank=1, host="b")) == Context(rank=1, host="b")
    fields = shared.fields({"op": "ALLREDUCE", "seq": "1"})
    assert shared.fields({"op": "ALLREDUCE", "seq": "1"}) is fields


@pytest.mark.parametrize("other", [{"op": "x"}, {"seq": "1", "op": "x"}, {"op": "1", "seq": "x"}, {}])
def test_other_fields_stay_apart(other: dict[str, str]) -> None:
    shared = SharedValues()
    shared.fields({"op": "x", "seq": "1"})
    assert shared.fields(other) == other


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_collector, "MAX_SHARED", 3)
    shared = SharedValues()
    for rank in range(10):
        assert shared.context(Context(rank=rank)).rank == rank
        assert shared.fields({"rank": str(rank)}) == {"rank": str(rank)}
    assert len(shared._contexts) <= 3
    assert len(shared._fields) <= 3


def test_the_lines_of_one_process_share_it(rules: RuleSet) -> None:
    line = "[rank1]:[E101 10:00:00.000000000 ProcessGroupNCCL.cpp:690] Some NCCL operations have failed or timed out."
    observed = scan_text(f"{line}\n{line}\n{line.replace('rank1', 'rank2')}\n", rules)
    first, second, third = observed.events("torch.some_ops_failed")
    assert first.context is second.context
    assert (first.context.rank, third.context.rank) == (1, 2)
