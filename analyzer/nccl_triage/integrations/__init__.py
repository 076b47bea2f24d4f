"""Diagnosis from inside a training program: a helper for torch.distributed, callbacks of trainers.

>>> from nccl_triage.integrations import explain_failures
>>> explain_failures("logs/")

Importing this imports no framework and nothing of the analyser, which runs in a process of its own.
"""

from __future__ import annotations

# Not that of typing: this is imported by every rank.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from nccl_triage.integrations.failures import explain_failures
    from nccl_triage.integrations.lightning_trainer import LightningCallback
    from nccl_triage.integrations.ray_trainer import RayTrainCallback
    from nccl_triage.integrations.transformers_trainer import TransformersCallback

__all__ = ["LightningCallback", "RayTrainCallback", "TransformersCallback", "explain_failures"]

#: name -> module; the callbacks are classes of their frameworks, which are imported for them alone.
_MODULES = {
    "explain_failures": "failures",
    "LightningCallback": "lightning_trainer",
    "RayTrainCallback": "ray_trainer",
    "TransformersCallback": "transformers_trainer",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for. Raises ImportError where its framework is missing."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
