"""Names are found in texts: at a known place, as a known name, in lists of hosts."""

from __future__ import annotations

import re

import pytest

from nccl_triage.redaction.names import (
    KnownNames,
    NameContext,
    contexts,
    hosts_of_list,
    is_host_list,
    names_in,
    shortened,
)

MATCH = [pytest.param(row, text, id=f"{row.id}-{i}") for row in contexts() for i, text in enumerate(row.match_samples)]
NOT = [pytest.param(row, text, id=f"{row.id}-{i}") for row in contexts() for i, text in enumerate(row.not_samples)]


@pytest.mark.parametrize(("row", "sample"), MATCH)
def test_a_sample_gives_its_name(row: NameContext, sample: str) -> None:
    text = re.sub("[«»]", "", sample)
    expected = re.findall("«([^»]+)»", sample)
    assert expected
    assert list(row.names(text)) == expected
    assert {(row.kind, name) for name in expected} <= set(names_in(text))


@pytest.mark.parametrize(("row", "sample"), NOT)
def test_a_counterexample_gives_none(row: NameContext, sample: str) -> None:
    assert list(row.names(sample)) == []


def test_ids_are_unique() -> None:
    assert len({row.id for row in contexts()}) == len(contexts())


@pytest.fixture
def known() -> KnownNames:
    found = KnownNames()
    for name, replacement in (
        ("gpu-1", "A"),
        ("gpu-10", "B"),
        ("gpu-1-login", "C"),
        ("a b.log", "D"),
        ("/数据/日志", "E"),
    ):
        found.add(name, replacement)
    return found


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("gpu-1:123", "A:123"),
        ("gpu-10 gpu-1 gpu-1", "B A A"),
        ("gpu-1-login", "C"),
        ("gpu-100 xgpu-1 gpu-1x", "gpu-100 xgpu-1 gpu-1x"),
        ("GPU-1_rank3.log", "A_rank3.log"),
        ("在gpu-1上", "在A上"),
        ("[a b.log]", "[D]"),
        ("见 /数据/日志/x", "见 E/x"),
        ("İ gpu-1 İ", "İ A İ"),
        ("", ""),
    ],
)
def test_whole_names_are_replaced(known: KnownNames, text: str, made: str) -> None:
    assert known.replace(text) == made


def test_edges_make_a_name_a_part_of_something_else() -> None:
    found = KnownNames(edges="/-_")
    found.add("logs/x.log", "P")
    assert found.replace("logs/x.log:3, a/logs/x.log logs/x.log-1 logs/x.log.") == "P:3, a/logs/x.log logs/x.log-1 P."


def test_the_first_replacement_stays_and_what_has_no_letter_is_no_name(known: KnownNames) -> None:
    known.add("GPU-1", "Z")
    known.add("--", "Z")
    known.add("", "Z")
    assert known.replace("gpu-1 -- ") == "A -- "


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu-[001-003]", ["gpu-001", "gpu-002", "gpu-003"]),
        ("n[7,9-10].x", ["n7.x", "n9.x", "n10.x"]),
        ("gpu-[3-1]", None),
        ("gpu-[0-99999]", None),
        ("gpu-[1,,2]", None),
        ("gpu-1", None),
        ("a[1]b[2]", None),
    ],
)
def test_hosts_of_a_list(text: str, hosts: list[str] | None) -> None:
    assert hosts_of_list(text) == hosts


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        (["host-1", "host-2", "host-3"], "host-[1-3]"),
        (["host-1", "host-3", "host-4"], "host-[1,3-4]"),
        (["host-7"], "host-7"),
        (["host-2.domain-1", "host-3.domain-1"], "host-[2-3].domain-1"),
        (["head", "host-1"], "head,host-1"),
        (["n01", "n02"], "n01,n02"),
        ([], ""),
    ],
)
def test_a_list_of_hosts(hosts: list[str], text: str) -> None:
    assert shortened(hosts) == text


@pytest.mark.parametrize(
    ("text", "likely"), [("gpu-[1-4]", True), ("n[01-04]", True), ("ranks[0-7]", False), ("x", False)]
)
def test_an_index_is_no_list_of_hosts(text: str, likely: bool) -> None:
    assert is_host_list(text) is likely
