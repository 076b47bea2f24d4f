"""The nodes of a Ray cluster that stand in for the hosts of a job, and the cluster whose address a log names."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from nccl_triage.errors import UsageError
from nccl_triage.hosts.ray_nodes import nodes_of
from nccl_triage.verify import api
from nccl_triage.verify.node_choice import NodeChoice
from nccl_triage.verify.question import Question


def node(name: str, address: str, gpus: float = 8, alive: bool = True) -> dict[str, Any]:
    resources = {"CPU": 4.0, **({"GPU": gpus} if gpus else {})}
    about = {"NodeManagerHostname": name, "NodeManagerAddress": address, "NodeID": f"id-{name}-{address}"}
    return {**about, "Alive": alive, "Resources": resources}


HEAD = node("head", "10.0.0.1", gpus=0)
NODES = [HEAD, *(node(f"gpu-{letter}.cluster", f"10.0.0.{k}") for k, letter in enumerate("abcd", 2))]


@pytest.mark.parametrize(
    ("question", "choice", "expected"),
    [
        # The job's own nodes by name or address, and not the head, which has no GPU.
        (Question((), hosts=("gpu-c", "head")), {}, ["gpu-c"]),
        (Question((), hosts=("x", "y"), addresses={"x": ("10.0.0.2",), "y": ("10.0.0.5",)}), {}, ["gpu-a", "gpu-d"]),
        # One host in the log is not one rank, nor one node.
        (Question((), hosts=("gpu-c",), world=8), {}, ["gpu-c"]),
        (Question((), hosts=("gpu-c",), world=16), {}, ["gpu-a", "gpu-c"]),
        (Question((), hosts=("gpu-c",), world=16), {"ranks_per_host": 4}, ["gpu-a", "gpu-b", "gpu-c", "gpu-d"]),
        (Question((), world=16), {}, ["gpu-a", "gpu-b"]),
        (Question((), world=16), {"world": 8}, ["gpu-a"]),
        (Question((), hosts=("elsewhere-1", "elsewhere-2")), {}, ["gpu-a", "gpu-b"]),
        (Question(()), {}, ["gpu-a", "gpu-b", "gpu-c", "gpu-d"]),
        (Question((), hosts=tuple(f"n{k}" for k in range(9))), {}, ["gpu-a", "gpu-b", "gpu-c", "gpu-d"]),
        # Without GPUs the head is a node like any other.
        (Question((), hosts=("gpu-c", "head")), {"gpus": False}, ["gpu-c", "head"]),
        (Question((), world=16), {"gpus": False}, ["gpu-a", "gpu-b"]),
        (Question((), hosts=("gpu-a",)), {"names": ("head", "10.0.0.4")}, ["head", "gpu-c"]),
    ],
)
def test_nodes_are_chosen_by_the_log(question: Question, choice: dict[str, Any], expected: list[str]) -> None:
    found = NodeChoice(question, **choice).among(nodes_of([*NODES, node("gpu-0", "10.0.0.9", alive=False)]))
    assert [entry.full.split(".")[0] for entry in found] == expected


def test_a_node_of_an_unknown_name_is_said() -> None:
    with pytest.raises(UsageError, match="no node of the Ray cluster is called gpu-x") as caught:
        NodeChoice(names=("gpu-a", "gpu-x")).among(nodes_of(NODES))
    assert "gpu-a.cluster" in str(caught.value.cause)
    with pytest.raises(UsageError, match="no node of the Ray cluster is alive"):
        NodeChoice().among(nodes_of([{**HEAD, "Alive": False}]))


@pytest.mark.parametrize(
    ("address", "taken"),
    [
        ("127.0.0.1:6379", True),
        (f"{socket.gethostname()}:6379", True),
        ("gpu-a:6379", True),
        ("10.0.0.7:6379", True),
        ("gpu-b:6379", False),
        ("10.0.0.1:6379", False),
        ("evil.example:6379", False),
        ("6379", False),
        ("", False),
        (None, False),
    ],
)
def test_the_address_of_a_log_is_taken_if_it_is_this_host_or_one_that_the_user_names(
    address: str | None, taken: bool
) -> None:
    assert api.own_address(address, ("gpu-a", "10.0.0.7")) == (address if taken else None)
