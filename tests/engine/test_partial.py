"""What can be known of a filter when only the fields are known that a line lacks."""

from __future__ import annotations

import pytest

from nccl_triage.engine.expression import parse
from nccl_triage.engine.functions import FUNCTIONS
from nccl_triage.engine.partial import may_select
from nccl_triage.engine.schema import Premise, RuleSet, Words


def rules() -> RuleSet:
    own = parse("is_loopback(f.peer)", "x:1", FUNCTIONS)
    return RuleSet(
        {}, {}, "", premises={"own": Premise("own", "", own, "x:1")}, words={"few": Words("few", "", ("a", "b"), "x:1")}
    )


@pytest.mark.parametrize(
    ("where", "selects"),
    [
        ("f.kind == 'x'", True),
        ("f.peer == 'x'", False),
        ("f.peer != 'x'", True),
        ("f.peer == none", True),
        ("f.peer != none and f.kind == 'x'", False),
        ("f.kind == 'x' and f.peer != none", False),
        ("f.peer != none or f.kind == 'x'", True),
        ("f.peer != none or f.host != none", False),
        ("not f.peer and f.kind", True),
        ("num(f.peer) > 3", False),
        ("num(f.peer) > num(f.kind)", False),
        ("contains(lower(f.peer), words('few'))", False),
        ("contains(f.text, words('few'))", True),
        ("is_loopback(f.peer)", False),
        ("not is_loopback(f.peer)", True),
        ("premise('own')", False),
        ("premise('own') or fact('job.failed')", True),
        ("f.context_rank == 3", True),
        ("f.peer if f.kind == 'x' else f.peer", True),
    ],
)
def test_what_a_line_without_a_peer_can_be(where: str, selects: bool) -> None:
    assert may_select(parse(where, "x:1", FUNCTIONS), {"kind"}, rules()) is selects


def test_a_line_without_any_field_still_has_its_text() -> None:
    assert may_select(parse("contains(f.text, 'x')", "x:1", FUNCTIONS), (), rules())
