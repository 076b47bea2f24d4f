"""Who is to blame by the dumps: the minority whichever rank comes first, those who never came, those who wait for nobody."""

from __future__ import annotations

import pytest

from nccl_triage.observations.recorder_table import RecorderTable
from nccl_triage.recorder.compare import RecorderComparison, compare
from tests.recorder import build
from tests.recorder.build import job

GOOD = [("all_reduce", 8)] * 3
HANGS = ("all_reduce", 8, "scheduled")


def blamed(found: RecorderComparison) -> dict[str, tuple[int, ...]]:
    return {finding.kind: finding.ranks for finding in found.findings}


def test_all_alike_is_no_finding() -> None:
    assert job(GOOD, GOOD, GOOD).findings == []
    assert compare(RecorderTable()).findings == []


@pytest.mark.parametrize("odd", range(4))
@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (("broadcast", 8, "scheduled"), "operation"),
        (("all_reduce", 9, "scheduled"), "size"),
        (("all_reduce", 8, "scheduled", "Double"), "dtype"),
    ],
)
def test_the_minority_is_blamed_wherever_it_stands(odd: int, call: build.Call, kind: str) -> None:
    found = job(*([*GOOD, call if rank == odd else HANGS] for rank in range(4)))
    assert blamed(found) == {kind: (odd,)}
    assert found.findings[0].seq == 4 and found.findings[0].lines[0].rank == odd


def test_a_tie_blames_nobody() -> None:
    assert blamed(job([*GOOD, HANGS], [*GOOD, ("all_reduce", 9, "scheduled")])) == {"size": ()}


def test_what_is_wrong_by_itself_decides_a_tie() -> None:
    dumps = {rank: build.dump([*GOOD, HANGS], 2) for rank in range(2)}
    dumps[0]["entries"][-1]["output_sizes"] = [[9]]
    assert blamed(compare(build.table(dumps))) == {"size": (0,)}


def test_other_shapes_of_the_same_size_are_no_mismatch() -> None:
    dumps = {rank: build.dump([*GOOD, HANGS], 3) for rank in range(3)}
    for side in ("input_sizes", "output_sizes"):
        dumps[1]["entries"][-1][side] = [[2, 4]]
    assert blamed(compare(build.table(dumps))) == {"entered": ()}


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        ([(16, 16), (14, 16), (16, 16), (16, 16)], {"size": (1,)}),
        ([(16, 16), (16, 16), (16, 16), (16, 20)], {"size": (3,)}),
        ([(10, 12), (14, 16), (16, 11), (16, 16)], {"size": ()}),
        ([(10, 12), (14, 16), (18, 14), (16, 16)], {"entered": ()}),
        ([(16, 16), (14, 16), (16, 16)], {"entered": ()}),
    ],
    ids=["one sends less", "one expects more", "nobody can tell who", "uneven and in balance", "one did not dump"],
)
def test_what_is_sent_in_an_exchange_is_what_is_received(
    amounts: list[tuple[int, int]], expected: dict[str, tuple[int, ...]]
) -> None:
    dumps = {}
    for rank, (given, taken) in enumerate(amounts):
        dumps[rank] = build.dump([*GOOD, ("all_to_all", given, "scheduled")], 4)
        dumps[rank]["entries"][-1]["output_sizes"] = [[taken]]
    assert blamed(compare(build.table(dumps))) == expected


def test_an_uneven_exchange_is_no_mismatch() -> None:
    rows = [[*GOOD, ("all_to_all", 3 + rank, "scheduled")] for rank in range(3)]
    assert blamed(job(*rows)) == {"entered": ()}


@pytest.mark.parametrize("odd", range(3))
def test_who_never_came(odd: int) -> None:
    found = job(*(GOOD if rank == odd else [*GOOD, HANGS] for rank in range(3)))
    assert blamed(found) == {"missing": (odd,)}
    assert set(found.waiting) == set(range(3)) - {odd}


def test_who_came_alone() -> None:
    assert blamed(job(GOOD, [*GOOD, HANGS], GOOD)) == {"ahead": (1,)}


def test_an_empty_dump_is_that_of_a_rank_that_never_came() -> None:
    found = job([*GOOD, HANGS], [], [*GOOD, HANGS])
    assert found.empty == (1,) and blamed(found) == {"missing": (1,)}


def test_a_rank_without_a_dump_is_not_blamed() -> None:
    found = job([*GOOD, HANGS], None, [*GOOD, HANGS])  # type: ignore[arg-type]
    assert found.absent == (1,) and not any(finding.ranks for finding in found.findings)


def test_only_what_all_still_hold_is_compared() -> None:
    long = [("all_reduce", 8)] * 9
    dumps = {0: build.dump([("broadcast", 8), *long], 3, first=5), 1: build.dump([*long, ("all_reduce", 8)], 3), 2: build.dump([*long, ("all_reduce", 8)], 3)}  # fmt: skip
    assert compare(build.table(dumps)).findings == []


def test_a_group_that_a_cut_dump_no_longer_shows_is_not_held_against_its_rank() -> None:
    dumps = {rank: build.dump([*GOOD, HANGS], 3) for rank in range(3)}
    others = [build.entry(100 + n, 1 + n, ("all_gather", 4), "7", "tp") for n in range(4)]
    dumps[2]["entries"] = others
    assert compare(build.table(dumps)).of("missing") == []


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ([("all_gather", 2, "scheduled"), ("broadcast", 3, "scheduled")], ("skipped", 1)),
        ([("reduce", 9, "scheduled"), ("all_reduce", 1, "scheduled"), ("all_gather", 2, "scheduled"), ("broadcast", 3, "scheduled")], ("inserted", 1)),
        ([("all_gather", 2, "scheduled"), ("all_reduce", 1, "scheduled"), ("broadcast", 3, "scheduled")], ("exchanged", 2)),
    ],
)  # fmt: skip
def test_how_the_order_came_apart(own: list[build.Call], expected: tuple[str, int]) -> None:
    rest = [("all_reduce", 1, "scheduled"), ("all_gather", 2, "scheduled"), ("broadcast", 3, "scheduled")]
    found = job([*GOOD, *own], [*GOOD, *rest], [*GOOD, *rest])
    assert found.findings[0].ranks == (0,) and found.findings[0].order == expected


def test_who_completed_less_lags_behind() -> None:
    """The state alone differs: torch's analyser calls it COLLECTIVE_STATE_MISMATCH."""
    done = [*GOOD, ("all_reduce", 8)]
    assert blamed(job(done, [*GOOD, HANGS], done, done)) == {"lagging": (1,)}


def test_of_an_operation_with_a_root_nobody_can_be_blamed() -> None:
    done, hangs = [*GOOD, ("broadcast", 8)], [*GOOD, ("broadcast", 8, "scheduled")]
    assert blamed(job(done, hangs, done, done)) == {"state": ()}


def test_the_counters_tell_who_completed_less_where_every_entry_looks_alike() -> None:
    """The naive counter is the last number that was issued: by it all ranks are equal."""
    dumps = {rank: build.dump(GOOD, 4) for rank in range(4)}
    for rank, document in dumps.items():
        completed = 57 if rank == 2 else 58
        document["pg_status"] = {"0": {"last_enqueued_collective": 58, "last_started_collective": -1, "last_completed_collective": completed}}  # fmt: skip
    found = compare(build.table(dumps))
    assert blamed(found) == {"lagging": (2,)} and found.findings[0].seq == 58


def test_everybody_came_and_nobody_completed() -> None:
    found = job(*([*GOOD, ("all_reduce", 8, "given-up")] for _ in range(3)))
    assert blamed(found) == {"entered": ()} and found.findings[0].given_up


def group_of(dumps: dict[int, dict], name: str, desc: str, members: list[int]) -> None:  # type: ignore[type-arg]
    for rank in members:
        dumps[rank]["pg_config"][name] = {"name": name, "desc": desc, "ranks": str(members)}


def test_waits_are_followed_to_who_waits_for_nobody() -> None:
    """Rank 1 waits in the small group for rank 2, and is missing in the large one because of that."""
    dumps = {rank: build.dump([*GOOD, HANGS] if rank in (0, 3) else GOOD, 4) for rank in range(4)}
    group_of(dumps, "1", "tp", [1, 2])
    dumps[1]["entries"].append(build.entry(3, 1, ("all_reduce", 4, "scheduled"), "1", "tp"))
    found = compare(build.table(dumps))
    assert {rank for finding in found.of("missing") for rank in finding.ranks} == {2}


def test_a_circle_of_groups_blames_their_order() -> None:
    dumps = {rank: build.dump(GOOD, 2) for rank in range(2)}
    for name, desc in (("1", "dp"), ("2", "ep")):
        group_of(dumps, name, desc, [0, 1])
    dumps[0]["entries"].append(build.entry(3, 1, ("all_reduce", 4, "scheduled"), "1", "dp"))
    dumps[1]["entries"].append(build.entry(3, 1, ("all_reduce", 4, "scheduled"), "2", "ep"))
    found = compare(build.table(dumps))
    assert {finding.kind for finding in found.findings} == {"circle"}


def test_a_send_and_a_receive_that_never_met() -> None:
    lonely = job([*GOOD, ("send 0->1", 8, "scheduled")], GOOD)
    assert blamed(lonely) == {"unmet": (1,)}
    waits = job(GOOD, [*GOOD, ("recv 1<-0", 8, "scheduled")])
    assert blamed(waits) == {"unmet": (0,)}
    met = job([*GOOD, ("send 0->1", 8)], [*GOOD, ("recv 1<-0", 8)])
    assert met.findings == []


@pytest.mark.parametrize(("call", "kind"), [(("recv 1<-0", 9, "scheduled"), "size"), (("recv 1<-0", 8, "scheduled", "Double"), "dtype")])  # fmt: skip
def test_a_send_and_a_receive_that_do_not_fit(call: build.Call, kind: str) -> None:
    assert blamed(job([*GOOD, ("send 0->1", 8, "scheduled")], [*GOOD, call])) == {kind: ()}


def test_groups_of_one_name_and_other_members_are_not_mixed_up() -> None:
    dumps = {rank: build.dump(GOOD, 4) for rank in range(4)}
    for members, call in (([0, 1], ("all_reduce", 4)), ([2, 3], ("broadcast", 4))):
        group_of(dumps, "1", "tp", members)
        for rank in members:
            dumps[rank]["entries"].append(build.entry(3, 1, (*call, "scheduled"), "1", "tp"))
    assert compare(build.table(dumps)).of("operation") == []
