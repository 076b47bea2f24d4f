"""Puts the doubles into torch, for the kind of build that the host has."""

from __future__ import annotations

from typing import Any


def into(torch: Any, told: dict[str, Any]) -> None:
    """Change the modules of torch as the host's file says; a build for the CPU stays what it is."""
    import torch.distributed
    import torch.distributed.distributed_c10d
    from torch.torch_version import TorchVersion

    torch.set_num_threads(1)
    about = told["torch"]
    _resolve(torch, told["names"])
    torch.__version__ = TorchVersion(about["version"])
    if about["kind"] == "rocm":
        torch.version.hip = about["version"].rpartition("rocm")[2]
    if about["kind"] != "cuda":
        return
    torch.version.cuda = told["cuda"]
    from . import cuda, groups, tensors

    state = cuda.install(torch, told)
    tensors.install(torch, state)
    groups.install(torch, told, state)


def _resolve(torch: Any, names: dict[str, str]) -> None:
    """Let the store find the hosts by the names that they have here."""

    class TCPStore(torch.distributed.TCPStore):  # type: ignore[misc]
        """The real one, at the address of a name."""

        def __init__(self, host_name: str, *arguments: Any, **options: Any) -> None:
            super().__init__(names.get(host_name, host_name), *arguments, **options)

    torch.distributed.TCPStore = TCPStore
