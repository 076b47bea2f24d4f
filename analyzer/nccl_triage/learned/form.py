"""The models of form and place, and the file that ships them (``form.json``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import orjson

from nccl_triage import resources
from nccl_triage.learned import linear
from nccl_triage.learned.linear import Linear

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Form:
    """What was learnt of form and place; a part that is None is not asked."""

    #: How a run ended (``learned.ending``).
    ending: Linear | None = None
    #: Which lines of a run tell why (``learned.telling``).
    telling: Linear | None = None
    #: How the models came about, and how well they do on groups of logs that they did not see.
    training: Mapping[str, Any] = field(default_factory=dict)


def to_json(form: Form) -> bytes:
    """Return the content of the file, byte for byte the same for the same models."""
    raw: dict[str, Any] = {"format": FORMAT, "training": dict(form.training)}
    for name, model in (("ending", form.ending), ("telling", form.telling)):
        if model is not None:
            raw[name] = model.as_dict()
    return orjson.dumps(raw) + b"\n"


def from_json(data: bytes) -> Form:
    """Return the models of a file's content."""
    raw = orjson.loads(data)
    parts = {name: linear.of_dict(raw[name]) if name in raw else None for name in ("ending", "telling")}
    return Form(**parts, training=raw.get("training", {}))


@cache
def shipped() -> Form:
    """Return the models that are part of the distribution; none in a checkout where they were not made yet."""
    path = resources.form_file()
    return from_json(path.read_bytes()) if path.is_file() else Form()
