"""Connections: bounded, and the same however the log was cut."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_triage.observations import links
from nccl_triage.observations.links import ChannelLink, LinkTable
from nccl_triage.observations.store import Observations

Line = tuple[ChannelLink, str, str, int]


def link(source: int, target: int, host: str = "a", via: str = "P2P") -> ChannelLink:
    return ChannelLink(host, 7, source, str(source), target, str(target), False, via, False, -1)


@contextmanager
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(links, "MAX_LINKS", 5)
        yield


def table(lines: list[Line]) -> LinkTable:
    found = LinkTable()
    for line in lines:
        found.add(*line)
    return found


def merged(*parts: LinkTable) -> LinkTable:
    total = LinkTable()
    for part in parts:
        total.absorb(part)
    return total


def view(found: LinkTable) -> object:
    return dict(found.kept()), found.lines, found.cut


LINES = st.lists(
    st.tuples(
        st.builds(link, st.integers(0, 4), st.integers(0, 4), st.sampled_from("ab"), st.sampled_from(["P2P", "SHM"])),
        st.integers(0, 20_000).map(str),
        st.sampled_from(["one.log", "two.log"]),
        st.integers(1, 99),
    ),
    max_size=40,
)


@given(LINES, LINES, LINES)
def test_merge_is_associative_and_commutative(a: list[Line], b: list[Line], c: list[Line]) -> None:
    with small():
        left = view(merged(merged(table(a), table(b)), table(c)))
        assert left == view(merged(table(a), merged(table(b), table(c))))
        assert view(merged(table(a), table(b))) == view(merged(table(b), table(a)))


@given(LINES, st.lists(st.integers(0, 40), max_size=3))
def test_any_cut_of_a_log_gives_the_same_connections(whole: list[Line], cuts: list[int]) -> None:
    with small():
        places = [0, *sorted(cuts), len(whole)]
        parts = [table(whole[a:b]) for a, b in pairwise(places)]
        assert view(merged(*parts)) == view(table(whole))
        assert len(table(whole).kept()) == min(5, len({line[0] for line in whole}))


def test_what_is_kept_is_whole() -> None:
    with small():
        lines = [(link(source, target), str(channel), "log", 1 + channel) for channel in range(3) for source in range(5) for target in range(5)]  # fmt: skip
        found = table(lines)
        assert found.cut
        assert all(seen.channels == 0b111 and seen.place == ("log", 1) for seen in found.kept().values())


@pytest.mark.parametrize(
    ("name", "detail", "expected"),
    [
        ("P2P", "CUMEM/read", ("P2P", False)),
        ("SHM", "direct/direct", ("SHM", False)),
        ("direct shared memory", "", ("SHM", False)),
        ("NET", "IB/3/GDRDMA", ("NET/IB", True)),
        ("NET", "Socket/0", ("NET/Socket", False)),
        ("NET", "AWS Libfabric/0/GDRDMA", ("NET/AWS Libfabric", True)),
        ("NET", "0", ("NET", False)),
        ("NET", "", ("NET", False)),
    ],
)
def test_transports(name: str, detail: str, expected: tuple[str, bool]) -> None:
    assert links.transport(name, detail) == expected


def test_fields_become_a_connection() -> None:
    fields = {"channel": "02", "src": "7", "src_dev": "7", "dst": "8", "dst_dev": "0", "transport": "NET", "detail": "IB/3/GDRDMA", "dir": "receive"}  # fmt: skip
    found = links.read(fields, "gpu07", 4120)
    assert found is not None
    assert (found.printer, found.printer_device) == (8, "0")
    assert links.read({**fields, "src": "99999999999"}, None, None) is None
    named = links.read({**fields, "transport": "P2P", "detail": "direct pointer comm 0x55aa nRanks 08"}, None, None)
    assert named is not None and named.size == 8 and named.via == "P2P"


def test_observations_take_the_connections_along() -> None:
    one, two = Observations(), Observations()
    one.links.add(link(0, 1), "0", "a", 1)
    two.links.add(link(0, 1), "1", "b", 1)
    assert one.merge(two).links.kept() == {link(0, 1): links.LinkSighting(("a", 1), 0b11)}
    assert one.links.lines == 1
