"""What a rank does with older and smaller builds of torch, and whose failure an error is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nccl_triage.verify.worker import rank
from nccl_triage.verify.worker.faults import Fault
from nccl_triage.verify.worker.memory import MemoryRoom
from nccl_triage.verify.worker.progress import OwnFailureError

CUDA = SimpleNamespace(type="cuda", index=1)
SPEC = {"backend": "nccl", "timeout": 5, "world": 2}


class Store:
    """A store in which all the others have been already."""

    def __init__(self) -> None:
        self.said: dict[str, str] = {}

    def add(self, name: str, value: int) -> int:
        return 1

    def set(self, name: str, value: str) -> None:
        self.said[name] = value

    def get(self, name: str) -> str:
        return self.said[name]

    def wait(self, names: list[str], limit: Any) -> None:
        self.said["waited"] = names[0]


def made(dist: Any, device: Any = CUDA) -> dict[str, Any]:
    """Make a group and return the arguments that torch got."""
    rank._group(dist, SPEC, Store(), 0, device)
    return dict(dist.given)


class Newer:
    def __init__(self) -> None:
        self.given: dict[str, Any] = {}

    def init_process_group(self, backend: str, device_id: Any = None, **more: Any) -> None:
        self.given = {"backend": backend, "device_id": device_id, **more}


class Older(Newer):
    def init_process_group(  # type: ignore[override]
        self, backend: str, timeout: Any, world_size: int, rank: int, store: Any
    ) -> None:
        self.given = {"backend": backend, "rank": rank}


def test_the_communicator_is_made_with_the_group() -> None:
    """Otherwise its failure is that of the first collective."""
    assert made(Newer())["device_id"] is CUDA
    assert made(Newer(), SimpleNamespace(type="cpu"))["device_id"] is None


def test_an_older_torch_makes_it_later() -> None:
    assert made(Older()) == {"backend": "nccl", "rank": 0}


def test_the_room_is_the_same_on_all_ranks() -> None:
    store = Store()
    store.said = {"room/1": '["host-b", 700]', "room/2": '["host-a", 40]'}
    assert rank._room(store, MemoryRoom("host-a", 40), 0, 3) == 20
    assert rank._room(store, MemoryRoom("host-b", 700), 1, 3) == 20, "rank 0 has decided"


@pytest.mark.parametrize(
    ("error", "stage", "own"),
    [
        (ModuleNotFoundError("No module named 'torch'"), "start", True),
        (OSError("libcudart.so.12: cannot open shared object file"), "start", True),
        (OwnFailureError("torch 2.13.0+cpu was built without NCCL"), "start", True),
        (OwnFailureError("no memory for 5 elements"), "group", True),
        (RuntimeError("Found no NVIDIA driver on your system"), "imported", False),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), "imported", False),
        (RuntimeError("CUDA error: out of memory"), "imported", True),
        (RuntimeError("CUDA out of memory. Tried to allocate 4.00 GiB"), "entered", False),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "imported", False),
        (RuntimeError("Timed out after 8 seconds waiting for clients"), "device", False),
        (NotImplementedError("torch 1.12 has none of all_gather_single"), "entered", True),
        (RuntimeError("NCCL error: unhandled cuda error: Cuda failure 801 'operation not supported'"), "store", False),
        (RuntimeError("Connection closed by peer"), "entered", False),
        (ValueError("reward function returned None"), "group", False),
    ],
)
def test_whose_failure_an_error_is(error: BaseException, stage: str, own: bool) -> None:
    assert rank._own(error, stage) is own


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (RuntimeError("Invalid scalar type"), True),
        (TypeError("Input tensor data type is not supported for NCCL process group: Float8_e4m3fn"), True),
        (ValueError("Float8 dtypes are not currenlty supported for NCCL reductions"), True),
        (RuntimeError("Backend gloo does not support reduce_scatter_tensor_coalesced"), True),
        (RuntimeError("NCCL error: unhandled cuda error: Cuda failure 801 'operation not supported'"), False),
        (RuntimeError("Connection closed by peer"), False),
    ],
)
def test_what_torch_refuses_is_no_failure_of_the_collective(error: Exception, refused: bool) -> None:
    marks = SimpleNamespace(say=lambda *_, **__: None)
    spec = {"op": "BARRIER", "numel": 5, "dtype": "int8", "world": 2, "backend": "nccl"}
    made = rank.RankWork(spec, 0, marks, Fault())  # type: ignore[arg-type]
    made.torch, made.device = SimpleNamespace(__version__="2.1", int8="int8"), SimpleNamespace(type="cpu")

    def barrier() -> None:
        raise error

    made.dist = SimpleNamespace(barrier=barrier)
    with pytest.raises(Exception) as caught:
        made._main(1 << 30)
    assert isinstance(caught.value, OwnFailureError) is refused
    if refused:
        assert "torch 2.1 refuses BARRIER of int8 by nccl" in str(caught.value)


@pytest.mark.parametrize(("timed", "seconds"), [(None, 4.0), (45.0, 4.0), (3.0, 0.375)])
def test_the_timed_iterations_keep_within_the_parents_limit(timed: float | None, seconds: float) -> None:
    made = rank.RankWork({} if timed is None else {"timed": timed}, 0, None, None)  # type: ignore[arg-type]
    assert made._seconds(4.0) == seconds


@pytest.mark.parametrize(
    ("available", "version", "says"),
    [
        (False, lambda: (2, 27, 5), "was built without NCCL"),
        (True, lambda: torch_error("_nccl_version"), "does not tell the version of its NCCL"),
    ],
)
def test_a_torch_without_nccl_is_said(available: bool, version: Any, says: str) -> None:
    torch = SimpleNamespace(__version__="2.13.0", cuda=SimpleNamespace(nccl=SimpleNamespace(version=version)))
    with pytest.raises(OwnFailureError, match=says):
        rank._nccl_version(torch, SimpleNamespace(is_nccl_available=lambda: available))


def torch_error(name: str) -> None:
    raise AttributeError(f"module 'torch._C' has no attribute {name!r}")


def test_the_version_of_nccl_in_words() -> None:
    torch = SimpleNamespace(cuda=SimpleNamespace(nccl=SimpleNamespace(version=lambda: (2, 27, 5))))
    assert rank._nccl_version(torch, SimpleNamespace(is_nccl_available=lambda: True)) == "2.27.5"


def test_no_memory_for_the_buffers_is_no_fault_of_the_gpu() -> None:
    """The size was reckoned; but what reads where it must not is a fault."""
    made = rank.RankWork({"world": 2}, 0, None, None)  # type: ignore[arg-type]

    def refusing(text: str) -> Any:
        def zeros(*_: Any, **__: Any) -> None:
            raise RuntimeError(text)

        return SimpleNamespace(torch=SimpleNamespace(zeros=zeros), numel=5, dtype="float32", device=CUDA)

    with pytest.raises(OwnFailureError, match="no memory for 5 elements"):
        made._prepared("ALLREDUCE", refusing("CUDA out of memory. Tried to allocate 4.00 GiB"))
    with pytest.raises(OwnFailureError):
        made._prepared(
            "ALLREDUCE", refusing("DefaultCPUAllocator: can't allocate memory: you tried to allocate 5 bytes")
        )
    with pytest.raises(RuntimeError, match="illegal") as caught:
        made._prepared("ALLREDUCE", refusing("CUDA error: an illegal memory access was encountered"))
    assert not isinstance(caught.value, OwnFailureError)
