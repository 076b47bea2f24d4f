"""nccl-triage: name the root cause and the culprit of a failed distributed training job, with the lines that prove it.

>>> from nccl_triage import diagnose
>>> result = diagnose("logs/trainer.log")
>>> result.verdict, result.cause, result.confidence
"""

from __future__ import annotations

from nccl_triage._version import __version__

# Not that of typing: Ctrl-C while it is imported would show a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from nccl_triage.api import diagnose
    from nccl_triage.document.diagnosis import Diagnosis

__all__ = ["Diagnosis", "__version__", "diagnose"]


def __getattr__(name: str) -> Any:
    """Import the interface on first use, so that ``import nccl_triage`` stays cheap."""
    if name == "diagnose":
        from nccl_triage.api import diagnose

        return diagnose
    if name == "Diagnosis":
        from nccl_triage.document.diagnosis import Diagnosis

        return Diagnosis
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
