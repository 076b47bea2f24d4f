"""What a report must not show: secrets never, names and addresses not when the reader asks for it.

``mask_secrets`` is applied to every report. ``redact`` is for reports that leave the house: it replaces hosts, addresses,
users, paths and names of projects by stable pseudonyms. Both take and return the report document and change nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nccl_triage.redaction.secrets import mask_secrets

if TYPE_CHECKING:
    from nccl_triage.redaction.document import redact

__all__ = ["mask_secrets", "redact"]


def __getattr__(name: str) -> Any:
    if name == "redact":  # every report is masked, few are redacted: the rest of the package waits for them
        from nccl_triage.redaction.document import redact

        return redact
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
