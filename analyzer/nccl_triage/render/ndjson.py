"""The report document as one line of JSON, so that the reports of many logs can follow one another."""

from __future__ import annotations

from nccl_triage.render import json_output
from nccl_triage.render.options import RenderOptions
from nccl_triage.render.words import Document


def produce(document: Document, view: RenderOptions) -> str:
    """Return the document as one line with sorted keys; the view changes nothing."""
    return json_output.dump(document).decode()
