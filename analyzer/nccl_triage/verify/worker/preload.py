"""Import everything that a rank needs, once, before ranks are forked."""

from __future__ import annotations


def load() -> str:
    """Import torch.distributed and what its first use imports; returns torch's version."""
    import torch
    import torch.distributed
    import torch.distributed.distributed_c10d

    from . import calls, faults, flight, marks, ops, rank  # noqa: F401

    torch.set_num_threads(1)
    version: str = torch.__version__
    return version
