"""Names of hosts out of lines that ran into each other."""

from __future__ import annotations

import pytest

from nccl_triage.observations.event import Context, Event
from nccl_triage.story import torn


def said(*hosts: tuple[str, int]) -> list[Event]:
    return [
        Event("nccl.version", "log", n, "", context=Context(host=host, pid=pid))
        for n, (host, pid) in enumerate(hosts, 1)
    ]


def names(events: list[Event]) -> list[str | None]:
    return [event.context.host for event in torn.mend(events)]


WHOLE = [("rack1b0n0", 100), ("rack1b0n1", 200)] * 3


@pytest.mark.parametrize(
    ("name", "pid", "right"),
    [
        ("rack1b0rack1b0n0", 100, "rack1b0n0"),
        ("rack1b0n1rack1b0n0", 100, "rack1b0n0"),
        ("rack1b0n1rack1", 200, None),
        ("0rack1b0n0", 100, "rack1b0n0"),
        ("1b0n1", 200, "rack1b0n1"),
        # Not the same process: a host of which one line is known.
        ("0rack1b0n0", 300, "0rack1b0n0"),
        ("rack1b0n10", 100, "rack1b0n10"),
        ("rack2b0n0", 100, "rack2b0n0"),
    ],
)
def test_a_name_that_ran_into_another_is_mended_or_refused(name: str, pid: int, right: str | None) -> None:
    events = said(*WHOLE, (name, pid))
    assert names(events) == [*(host for host, _ in WHOLE), right]


def test_hosts_of_few_lines_keep_their_names() -> None:
    hosts = ["gpu1", "gpu10", "dgpu1", "trainer-worker-1", "trainer-worker-11", "worker-1"]
    assert names(said(*((host, n) for n, host in enumerate(hosts)))) == hosts
    assert names(said(("node7", 5))) == ["node7"]
