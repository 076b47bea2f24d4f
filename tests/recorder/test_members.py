"""Who belongs to a group that no dump describes: followed from the numbers of groups, never further than they go."""

from __future__ import annotations

import pytest

from nccl_triage.recorder.compare import RecorderComparison, compare
from nccl_triage.recorder.groups import members_of
from tests.recorder import build

Calls = list[tuple[str, int, build.Call]]
BEGIN = ("0", 0, ("all_reduce", 8))


def gloo(*rows: Calls) -> dict[int, dict[str, object]]:
    """Return dumps as Gloo writes them; a call: the group's name, its number in the process, the call."""
    dumps: dict[int, dict[str, object]] = {}
    for rank, calls in enumerate(rows):
        entries, seqs = [], dict.fromkeys([name for name, _, _ in calls], 0)
        for record, (name, number, call) in enumerate(calls):
            seqs[name] += 1
            made = build.entry(record, seqs[name], call, name, "default_pg" if name == "0" else f"group{name}")
            state = {"state": "scheduled", "retired": made["state"] == "completed", "pg_id": number}
            entries.append({**made, **state, "profiling_name": f"gloo:{call[0]}", "op_id": seqs[name]})
        config = {"": {"name": "", "desc": "", "ranks": "[]"}}
        dumps[rank] = {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries}
    return dumps


def found(*rows: Calls) -> RecorderComparison:
    return compare(build.table(gloo(*rows)))


def waits(name: str, number: int) -> tuple[str, int, build.Call]:
    return name, number, ("all_reduce", 4, "scheduled")


@pytest.mark.parametrize(
    ("number", "known", "possible"),
    [
        (2, {0, 1}, {2}),  # two further groups up to the second one: rank 1 is in the first one, too
        (1, {0}, {2}),  # one further group up to the second one: it is not in the first one
        (0, {0}, {1, 2}),  # counts otherwise than the job: nothing follows
    ],
)
def test_what_the_numbers_of_groups_tell(number: int, known: set[int], possible: set[int]) -> None:
    table = build.table(gloo([BEGIN, waits("1", 1)], [BEGIN, waits("2", number)], [BEGIN]))
    members = members_of(table, frozenset(range(3)))
    group = next(key for key in members.known if key.name == "1")
    assert members.known[group] == known and members.possible[group] == possible


def test_a_circle_of_groups_called_for_the_first_time() -> None:
    circle = found(*[[BEGIN, waits("1", 1)]] * 2, *[[BEGIN, waits("2", 2)]] * 2)
    assert {(one.kind, one.derived, one.ranks) for one in circle.findings} == {
        ("circle", True, (0, 1)),
        ("circle", True, (2, 3)),
    }


def test_a_circle_of_groups_in_which_all_were_recorded_before() -> None:
    before = [BEGIN, ("1", 1, ("all_reduce", 4)), ("2", 2, ("all_reduce", 4))]
    circle = found(*[[*before, waits("1", 1)]] * 2, *[[*before, waits("2", 2)]] * 2)
    assert {(one.kind, one.derived) for one in circle.findings} == {("circle", False)}


def test_no_circle_where_somebody_could_still_come() -> None:
    """Rank 3 waits nowhere: the second group may wait for it."""
    assert found(*[[BEGIN, waits("1", 1)]] * 2, [BEGIN, waits("2", 2)], [BEGIN]).of("circle") == []


def test_no_circle_where_the_waiting_groups_share_no_rank() -> None:
    assert found(*[[BEGIN, waits("1", 1)]] * 2, *[[BEGIN, waits("2", 1)]] * 2).findings == []
