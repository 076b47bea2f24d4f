"""Readers of whole lines, where a pattern cannot tell what is a prefix: ``rules/prefixes`` names them.

A reader returns the lines that are packed in a line, the message first, and fills the context; None for a line that it
cannot read.
"""

from __future__ import annotations

from collections.abc import Callable

from nccl_triage.observations.event import Context
from nccl_triage.parsers.jsonlines import peel_json

LineReader = Callable[[str, Context], "list[str] | None"]

LINE_READERS: dict[str, LineReader] = {"json-record": peel_json}
