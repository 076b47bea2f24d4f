"""Whether the kernel's clock is kept in time by something, and how far off it may be."""

from __future__ import annotations

import ctypes
import time

from nccl_triage.doctor.probes.seen import Seen, Where

#: The state in which nobody disciplines the clock (adjtimex(2)).
_UNSYNCHRONISED, _NANOSECONDS = 0x0040, 0x2000


class _Timex(ctypes.Structure):
    """The first fields of struct timex, and room for all others (208 bytes on 64-bit machines)."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def probe(where: Where) -> Seen:
    """Return what the kernel says of its clock; ``offset`` and ``error`` in seconds, ``time`` since the epoch."""
    seen = Seen({"time": time.time(), "synchronised": None, "offset": None, "error": None})
    asked = _Timex()  # modes 0: a question
    try:
        call = ctypes.CDLL(None, use_errno=True).adjtimex
        if call(ctypes.byref(asked)) == -1:
            raise OSError(ctypes.get_errno(), "adjtimex")
    except (OSError, AttributeError) as error:
        seen.miss("clock", "failed", tool="adjtimex", error=error)
        return seen
    unit = 1e-9 if asked.status & _NANOSECONDS else 1e-6
    seen.facts["synchronised"] = not asked.status & _UNSYNCHRONISED
    seen.facts["offset"] = round(asked.offset * unit, 9)
    seen.facts["error"] = round(asked.maxerror * 1e-6, 6)
    return seen
