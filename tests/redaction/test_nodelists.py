"""Lists of hosts as Slurm writes them."""

from __future__ import annotations

import pytest

from nccl_triage.redaction.nodelists import hosts_of, is_likely, shortened


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
    assert hosts_of(text) == hosts


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
    assert is_likely(text) is likely
