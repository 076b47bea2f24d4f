"""Known names in a text."""

from __future__ import annotations

import pytest

from nccl_triage.redaction.known import Known


@pytest.fixture
def known() -> Known:
    found = Known()
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
def test_whole_names_are_replaced(known: Known, text: str, made: str) -> None:
    assert known.replace(text) == made


def test_edges_make_a_name_a_part_of_something_else() -> None:
    found = Known(edges="/-_")
    found.add("logs/x.log", "P")
    assert found.replace("logs/x.log:3, a/logs/x.log logs/x.log-1 logs/x.log.") == "P:3, a/logs/x.log logs/x.log-1 P."


def test_the_first_replacement_stays_and_what_has_no_letter_is_no_name(known: Known) -> None:
    known.add("GPU-1", "Z")
    known.add("--", "Z")
    known.add("", "Z")
    assert known.replace("gpu-1 -- ") == "A -- "
