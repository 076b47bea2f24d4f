"""What a report must not show: secrets never, names and addresses not when the reader asks for it.

``mask_secrets`` is applied to every report. ``redact`` is for reports that leave the house: it replaces hosts, addresses,
users, paths and names of projects by stable pseudonyms. Both take and return the report document and change nothing else.
"""

from __future__ import annotations

from nccl_triage.redaction.secrets import mask_secrets

__all__ = ["mask_secrets"]
