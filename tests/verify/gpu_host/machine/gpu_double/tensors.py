"""Tensors on a GPU: they lie in the processor's memory, within the bounds of the GPU's; arithmetic can be faulty."""

from __future__ import annotations

import functools
import math
from typing import Any

from . import cuda

_FACTORIES = [
    "tensor",
    "as_tensor",
    "zeros",
    "ones",
    "empty",
    "full",
    "rand",
    "randn",
    "randint",
    "arange",
    "eye",
    "linspace",
    "randperm",
    "empty_strided",
    "zeros_like",
    "ones_like",
    "empty_like",
    "full_like",
    "rand_like",
    "randn_like",
    "scalar_tensor",
]
_METHODS = ("to", "new_zeros", "new_ones", "new_empty", "new_full", "new_tensor")
_PRODUCTS = ("matmul", "mm", "bmm", "addmm")
_SIZED = ("zeros", "ones", "empty", "full", "rand", "randn")


def install(torch: Any, devices: Any) -> None:
    """Let whatever makes a tensor on "cuda" make it on the processor."""

    def ours(given: Any) -> bool:
        if isinstance(given, torch.device):
            return given.type == "cuda"
        return isinstance(given, str) and given.partition(":")[0] == "cuda"

    def here(given: Any) -> Any:
        if not ours(given):
            return given
        devices.use(given)
        return torch.device("cpu")

    def fits(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Raise the error of a GPU without so much memory: a real allocation here would be no better."""
        if name not in _SIZED or not ours(options.get("device")):
            return
        size = (
            arguments[0]
            if arguments and isinstance(arguments[0], (tuple, list))
            else arguments[: None if name != "full" else 1]
        )
        if not all(isinstance(part, int) for part in size):
            return
        element = (options.get("dtype") or torch.float32).itemsize
        free, whole = devices.free(options["device"])
        if math.prod(size) * element > free:
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {math.prod(size) * element / 2**30:.2f} GiB. GPU 0 has a total "
                f"capacity of {whole / 2**30:.2f} GiB of which {free / 2**30:.2f} GiB is free."
            )

    def wrapped(function: Any, name: str) -> Any:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            fits(name, arguments, options)
            if "device" in options:
                options["device"] = here(options["device"])
            if name == "to":
                arguments = tuple(here(given) for given in arguments)
            return function(*arguments, **options)

        return call

    def product(function: Any) -> Any:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            found = function(*arguments, **options)
            for fault in devices.seen[devices.number()]["faults"] if devices.seen else ():
                if fault["at"] == "compute" and fault["does"] == "slow":
                    cuda.pause(fault["seconds"])
                elif fault["at"] == "compute" and fault["does"] == "wrong":
                    found.view(-1)[0] += 1
            return found

        return call

    for name in _FACTORIES:
        setattr(torch, name, wrapped(getattr(torch, name), name))
    for name in _METHODS:
        setattr(torch.Tensor, name, wrapped(getattr(torch.Tensor, name), name))
    for name in _PRODUCTS:
        setattr(torch, name, product(getattr(torch, name)))
    torch.Tensor.__matmul__ = product(torch.Tensor.__matmul__)
    torch.Tensor.matmul = product(torch.Tensor.matmul)
    torch.Tensor.mm = product(torch.Tensor.mm)
    torch.Tensor.cuda = lambda self, device=None, **_: self.to(torch.device("cuda", devices.number(device)))
    torch.Tensor.pin_memory = lambda self, device=None: self
