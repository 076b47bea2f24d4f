"""What is noted of a rank's calls: the same words and numbers for the same call, whatever torch names it."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from nccl_triage.verify.worker.window import Window


@dataclass
class Tensor:
    count: int
    dtype: str = "torch.float32"

    def numel(self) -> int:
        return self.count


@dataclass
class P2POp:
    op: Any
    tensor: Tensor


class Distributed:
    """Functions of torch.distributed that only tell that they were called."""

    ReduceOp = SimpleNamespace(SUM="sum")
    P2POp = P2POp

    def __init__(self) -> None:
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name == "distributed_c10d":
            return SimpleNamespace(_get_default_group=lambda: self)
        return lambda *args, **kwargs: self.called.append(name)


@pytest.fixture
def notes() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def window(notes: list[dict[str, Any]]) -> Window:
    return Window(Distributed(), notes.append)


X, WIDE = Tensor(8), Tensor(32)


@pytest.mark.parametrize(
    ("name", "args", "call"),
    [
        ("all_reduce", (X,), "all_reduce"),
        ("broadcast", (X, 0), "broadcast"),
        ("gather", (X, None), "gather"),
        ("scatter", (X, [X, X]), "scatter"),
        ("all_gather_into_tensor", (WIDE, X), "all_gather_into_tensor"),
        ("all_gather_single", (WIDE, X), "all_gather_into_tensor"),
        ("_all_gather_base", (WIDE, X), "all_gather_into_tensor"),
        ("all_gather", ([X, X], X), "all_gather"),
        ("reduce_scatter_tensor", (Tensor(2), X), "reduce_scatter_tensor"),
        ("reduce_scatter_single", (Tensor(2), X), "reduce_scatter_tensor"),
        ("reduce_scatter", (Tensor(2), [Tensor(4), Tensor(4)]), "reduce_scatter"),
        ("all_to_all_single", (Tensor(9), X), "all_to_all_single"),
        ("all_to_all", ([Tensor(9)], [Tensor(4), Tensor(4)]), "all_to_all"),
        ("all_reduce_coalesced", ([Tensor(4), Tensor(4)],), "all_reduce_coalesced"),
        ("batch_isend_irecv", ([P2POp(None, X), P2POp(None, X)],), "batch_isend_irecv"),
    ],
)
def test_a_call_is_noted_by_its_input(
    window: Window, notes: list[dict[str, Any]], name: str, args: Any, call: str
) -> None:
    getattr(window, name)(*args)
    assert notes == [{"call": call, "message": ["float32", 8], "count": 1}]
    assert window._dist.called == [name], "what is noted is also done"


def test_a_call_of_the_group_is_noted(window: Window, notes: list[dict[str, Any]]) -> None:
    window.distributed_c10d._get_default_group().allgather_into_tensor_coalesced([WIDE, WIDE], [Tensor(4), Tensor(4)])
    assert notes == [{"call": "allgather_into_tensor_coalesced", "message": ["float32", 8], "count": 1}]


def test_a_barrier_has_no_message_and_calls_are_counted(window: Window, notes: list[dict[str, Any]]) -> None:
    window.barrier()
    window.all_reduce(Tensor(3, "torch.bfloat16"), op=window.ReduceOp.SUM)
    assert notes == [
        {"call": "barrier", "message": None, "count": 1},
        {"call": "all_reduce", "message": ["bfloat16", 3], "count": 2},
    ]


def test_a_message_given_by_name_is_seen(window: Window, notes: list[dict[str, Any]]) -> None:
    window.broadcast(src=0, tensor=X)
    assert notes[0]["message"] == ["float32", 8]


@pytest.mark.parametrize("name", ["isend", "irecv", "get_rank", "is_initialized"])
def test_what_moves_nothing_of_the_experiment_is_not_noted(
    window: Window, notes: list[dict[str, Any]], name: str
) -> None:
    getattr(window, name)(X)
    assert notes == []


def test_classes_and_values_pass_through(window: Window) -> None:
    assert window.P2POp is P2POp
    assert window.ReduceOp.SUM == "sum"
