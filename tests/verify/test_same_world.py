"""When a host is the job's: by its name or an address that tells it from others, or because the user says so."""

from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.verify.collective_run import HostPlace
from nccl_triage.verify.question import Question
from nccl_triage.verify.same_world import match_hosts, match_variables, name_in_log, names_in_log
from tests.verify.host_facts import facts, interface

QUESTION = Question((), hosts=("gpu-a", "10.0.0.2"), addresses={"gpu-a": ("10.0.0.1",)})


@pytest.mark.parametrize(
    ("place", "agent", "known_as"),
    [
        (HostPlace("gpu-a"), None, "gpu-a"),
        (HostPlace("GPU-A.cluster.example"), None, "gpu-a"),
        (HostPlace("10.0.0.1"), None, "gpu-a"),
        (HostPlace("node", address="10.0.0.2"), None, "10.0.0.2"),
        (HostPlace("jump"), facts("gpu-a"), "gpu-a"),
        (HostPlace("pod-7"), facts("pod-7", interface("eth0", "10.0.0.2")), "10.0.0.2"),
        (HostPlace("gpu-b"), facts("gpu-b", interface("eth0", "10.0.0.3")), None),
        (HostPlace("10.0.0.9"), None, None),
    ],
)
def test_a_host_is_known_by_its_names_and_addresses(
    place: HostPlace, agent: dict[str, Any] | None, known_as: str | None
) -> None:
    assert name_in_log(QUESTION, place, agent) == known_as


def test_what_every_host_has_tells_none_of_them() -> None:
    """A bridge of containers and the loopback have the same address everywhere, and so has the name localhost."""
    asked = Question((), hosts=("gpu-a", "localhost"), addresses={"gpu-a": ("172.17.0.1", "127.0.0.1", "169.254.3.1")})
    agent = facts("localhost", interface("docker0", "172.17.0.1"), interface("eth1", "169.254.3.1"))
    assert name_in_log(asked, HostPlace("localhost"), agent) is None
    assert match_hosts(asked, [HostPlace("localhost")], [agent]) == "other"


def test_hosts_are_the_jobs_only_when_all_of_them_are() -> None:
    places = [HostPlace("gpu-a"), HostPlace("gpu-z")]
    agents = [facts("gpu-a"), facts("gpu-z")]
    assert match_hosts(QUESTION, places[:1], agents[:1]) == "own"
    assert match_hosts(QUESTION, places, agents) == "other"
    assert match_hosts(Question(()), places, agents) == "unknown"
    assert match_hosts(Question(()), places, agents, asserted=True) == "own"
    assert names_in_log(QUESTION, places, agents) == ("gpu-a", "gpu-z")


def test_addresses_are_compared_as_addresses_and_not_as_names() -> None:
    """10.0.0.2 and 10.0.7.7 both begin with "10", which is no name without its domain."""
    assert name_in_log(QUESTION, HostPlace("10.0.7.7")) is None


@pytest.mark.parametrize(
    ("kind", "left_out", "wanted"),
    [
        ("replay", ("NCCL_NET_PLUGIN",), "left-out"),
        ("reach", ("NCCL_NET_PLUGIN",), "left-out"),
        ("store", ("NCCL_NET_PLUGIN",), "same"),
        ("versions", ("NCCL_NET_PLUGIN",), "same"),
        ("replay", (), "same"),
    ],
)
def test_variables_matter_where_they_can_change_the_outcome(kind: str, left_out: tuple[str, ...], wanted: str) -> None:
    assert match_variables(kind, left_out) == wanted
