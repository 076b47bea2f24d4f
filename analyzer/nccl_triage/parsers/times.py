"""Time stamps of log lines as seconds, without zones.

Clocks of different hosts and collectors are not comparable to the second; the value serves ordering inside one
source and rough ordering across sources. Stamps without a year (glog, vLLM, c10) are placed in ``NO_YEAR``.
"""

from __future__ import annotations

import calendar
from datetime import MAXYEAR
from functools import lru_cache

from nccl_triage.lazy_regex import lazily

#: Year given to stamps that have none: a leap year before any real log.
NO_YEAR = 1972

_MONTHS = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}
_ISO = lazily(r"(?P<y>\d{4})-(?P<mo>\d\d)-(?P<d>\d\d)[ T_:](?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?")
_US = lazily(r"(?P<mo>\d\d)/(?P<d>\d\d)/(?P<y>\d{4}) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)")
_SYSLOG = lazily(
    r"(?P<mon>[A-Z][a-z]{2})\s+(?P<d>\d{1,2}) (?:(?P<y>\d{4}) )?(?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?: (?P<y2>\d{4}))?"
)


def seconds(
    year: int, month: int, day: int, hour: int, minute: int, second: int, fraction: str | None = None
) -> float | None:
    """Return seconds since the epoch of the given wall time read as UTC, or None when it is no valid time."""
    if not (year > 0 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        return None
    base = _midnight(year, month, day) + 3600.0 * hour + 60 * minute + second
    return base + float(f"0.{fraction}") if fraction else base


@lru_cache(maxsize=64)
def _midnight(year: int, month: int, day: int) -> float:
    return float(calendar.timegm((year, month, day, 0, 0, 0)))


def from_stamp(text: str) -> float | None:
    """Read ISO-like (``2025-06-03 14:14:31,348``), US (``06/03/2025 14:00:00``) or syslog stamps."""
    for pattern in (_ISO, _US):
        found = pattern.search(text)
        if found:
            part = found.groupdict()
            return seconds(
                int(part["y"]), int(part["mo"]), int(part["d"]),
                int(part["h"]), int(part["mi"]), int(part["s"]), part.get("f"),
            )  # fmt: skip
    found = _SYSLOG.search(text)
    if found and found["mon"] in _MONTHS:
        year = int(found["y"] or found["y2"] or NO_YEAR)
        return seconds(year, _MONTHS[found["mon"]], int(found["d"]), int(found["h"]), int(found["mi"]), int(found["s"]))
    return None


def from_month_day(month_day: str, clock: str) -> float | None:
    """Read ``MMDD``/``MDD`` (c10 prints the month without a leading zero) or ``MM-DD`` with ``hh:mm:ss[.f]``."""
    digits = month_day.replace("-", "").replace("/", "")
    if not digits.isdigit() or not 3 <= len(digits) <= 4:
        return None
    hour, minute, rest = clock.split(":")
    second, _, fraction = rest.partition(".")
    # c10's nine digits come from the monotonic clock and are no fraction of the second.
    fraction = fraction if len(fraction) <= 6 else ""
    return seconds(NO_YEAR, int(digits[:-2]), int(digits[-2:]), int(hour), int(minute), int(second), fraction)


def has_year(time: float) -> bool:
    """Tell whether the stamp carried a year."""
    return time >= 4 * 366 * 86400


def with_year_of(time: float, reference: float) -> float:
    """Move a stamp without a year into the year of ``reference``."""
    if has_year(time) or not has_year(reference):
        return time
    year = _year(reference)
    return (
        time
        + calendar.timegm((year, 1, 1, 0, 0, 0))
        - calendar.timegm((NO_YEAR, 1, 1, 0, 0, 0))
        - _leap_shift(time, year)
    )


def _year(time: float) -> int:
    import time as clock

    # The last second of the last year that dates have may be one too late.
    return min(clock.gmtime(time).tm_year, MAXYEAR)


def _leap_shift(time: float, year: int) -> int:
    after_february = time >= calendar.timegm((NO_YEAR, 3, 1, 0, 0, 0))
    return 86400 if after_february and not calendar.isleap(year) else 0


def show(time: float) -> str:
    """Return ``YYYY-MM-DD hh:mm:ss`` (or without the year when the stamp had none)."""
    import time as clock

    form = "%Y-%m-%d %H:%M:%S" if has_year(time) else "%m-%d %H:%M:%S"
    return clock.strftime(form, clock.gmtime(time))
