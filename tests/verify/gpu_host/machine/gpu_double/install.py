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
