"""What many lines have in common is kept once: who printed them, and what their fields say.

Of the first lines of each process and kind most say what others said before; nobody changes an event once it is made.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields as fields_of
from operator import attrgetter

from nccl_triage.observations.event import Context

#: Different things remembered; then all are forgotten, since what comes later is more like what came last.
MAX_SHARED = 1 << 16

_values = attrgetter(*(one.name for one in fields_of(Context)))


class Shared:
    """The contexts and the fields of one source's events so far."""

    def __init__(self) -> None:
        self._contexts: dict[Hashable, Context] = {}
        self._fields: dict[Hashable, dict[str, str]] = {}

    def context(self, context: Context) -> Context:
        """Return the first context that equals this one."""
        if len(self._contexts) >= MAX_SHARED:
            self._contexts.clear()
        return self._contexts.setdefault(_values(context), context)

    def fields(self, fields: dict[str, str]) -> dict[str, str]:
        """Return the first fields that equal these."""
        if len(self._fields) >= MAX_SHARED:
            self._fields.clear()
        return self._fields.setdefault((*fields, *fields.values()), fields)
