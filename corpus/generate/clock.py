"""What clocks print: the fields of a moment on one host, and the tokens that stand for them in prepared lines."""

from __future__ import annotations

import time
from functools import lru_cache

#: Control characters that prepared lines carry in place of the second, which is filled in when a block is written.
TOKENS = {
    "iso": "\x01",
    "hms": "\x02",
    "mdd": "\x03",
    "mmdd": "\x04",
    "md": "\x05",
    "zulu": "\x06",
    "slashed": "\x0e",
    "step": "\x0f",
}


@lru_cache(maxsize=4096)
def _second(second: int) -> dict[str, str]:
    parts = time.gmtime(second)
    hms = time.strftime("%H:%M:%S", parts)
    day = time.strftime("%Y-%m-%d", parts)
    return {
        "iso": f"{day} {hms}",
        "zulu": f"{day}T{hms}",
        "underscored": f"{day}_{hms}",
        "slashed": time.strftime("%m/%d/%Y", parts) + f" {hms}",
        "hms": hms,
        "mmdd": time.strftime("%m%d", parts),
        # c10 writes the month without a leading zero.
        "mdd": f"{parts.tm_mon}{parts.tm_mday:02d}",
        "md": time.strftime("%m-%d", parts),
        "syslog": time.strftime("%b ", parts) + f"{parts.tm_mday:2d} {hms}",
        "ctime": time.strftime("%a %b ", parts) + f"{parts.tm_mday:2d} {hms} {parts.tm_year}",
        "epoch": str(second),
    }


def fields(moment: float, monotonic: float = 0.0) -> dict[str, str]:
    """Return the texts of a moment; ``monotonic`` shifts the nanoseconds, which c10 takes from another clock."""
    second = int(moment)
    fraction = moment - second
    nanoseconds = int((moment + monotonic) % 1 * 1e9)
    return {
        **_second(second),
        "ms": f"{int(fraction * 1000):03d}",
        "us": f"{int(fraction * 1000):03d}000",
        "ns": f"{nanoseconds:09d}",
        "fraction": f"{int(fraction * 1e9):09d}",
        "uptime": f"{(moment + monotonic * 1000) % 9_000_000:.6f}",
    }


def tokens(ms: str, ns: str) -> dict[str, str]:
    """Return the fields of a prepared line: tokens for the second, fixed digits below it."""
    return {**TOKENS, "ms": ms, "us": ms + "000", "ns": ns, "fraction": ns}


def replacements(second: int, step: int) -> list[tuple[bytes, bytes]]:
    """Return what the tokens of a block become."""
    texts = {**_second(second), "step": str(step)}
    return [(token.encode(), texts[name].encode()) for name, token in TOKENS.items()]
