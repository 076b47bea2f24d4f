"""Bytes, seconds and numbers of parameters, written for people and read from them."""

from __future__ import annotations

import math
import re

from nccl_triage.knowledge.entries import Text
from nccl_triage.lazy_regex import lazily

_SUFFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_COUNT = lazily(r"^(?P<number>\d+(?:\.\d+)?(?:e\d{1,2})?)(?P<suffix>[kmbgt]?)$", re.IGNORECASE)


def count(text: str) -> float | None:
    """Return ``70B``, ``1.5e9`` or ``350M`` as a number, or None when it is none."""
    match = _COUNT.match(text.strip().replace("_", "").replace(",", ""))
    return float(match["number"]) * _SUFFIXES[match["suffix"].lower()] if match else None


def short(value: float) -> str:
    """Return a number with three digits that count: ``12.5``, ``0.0233``, ``931``."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def size(value: float) -> str:
    """Return bytes as ``1.86 GB`` (decimal units, as bandwidths have them)."""
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= limit:
            return f"{short(value / limit)} {unit}"
    return f"{short(value)} B"


def duration(seconds: float) -> Text:
    """Return seconds as ``32 s``, ``12 min`` or ``1.5 h``."""
    if seconds < 0.01:
        return {"en": "less than 0.01 s", "zh": "不到 0.01 秒"}
    for limit, scale, unit, word in ((7200, 3600, "h", "小时"), (120, 60, "min", "分钟")):
        if seconds >= limit:
            return {"en": f"{short(seconds / scale)} {unit}", "zh": f"{short(seconds / scale)} {word}"}
    return {"en": f"{short(seconds)} s", "zh": f"{short(seconds)} 秒"}


def rounded_up(seconds: float) -> int:
    """Return a timeout that people would write: steps of 5 minutes, of 15 from half an hour on, of an hour from 3 on."""
    for limit, step in ((1800, 300), (10800, 900)):
        if seconds <= limit:
            return math.ceil(seconds / step) * step
    return math.ceil(seconds / 3600) * 3600
