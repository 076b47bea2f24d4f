"""Endure: ``python -m tests.endure [PART..] [--minutes N] [--seed S] [--case N]`` (``make endure``)."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.endure import cases, following, fuzzing, together

#: Megabytes a minute of a log that is followed for a day.
RATE = 50
#: Minutes of fuzzing from which on the day is followed at its whole rate: 72 GB are written and read.
WHOLE = 60


def _fuzz(given: argparse.Namespace) -> list[str]:
    print(f"fuzzing for {given.minutes:g} minutes of the processor, --seed {given.seed}", flush=True)
    found = fuzzing.run(given.seed, 60 * given.minutes)
    made = ", ".join(f"{number} {kind}" for kind, number in found.kinds.most_common())
    print(f"{made}; slowest {found.slowest[0]:.2f} s ({found.slowest[1]}); memory grew by {found.growth:.0f} MB")
    return found.failures


def _follow(given: argparse.Namespace) -> list[str]:
    rate = int((RATE << 20) * min(1.0, given.minutes / WHOLE) ** 3)
    failures = []
    for style, whole in following.WAYS:
        with tempfile.TemporaryDirectory() as name:
            day = following.simulate(Path(name), style, whole, rate)
        print(
            f"followed a day of {day.written >> 20:,} MB, rotated by {style}: memory grew by {day.growth:.0f} MB",
            flush=True,
        )
        failures += [f"followed by {style}: {text}" for text in day.wrong()]
    return failures


def _in_folder(part: Callable[[Path], list[str]]) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        return part(Path(name))


PARTS: dict[str, Callable[[argparse.Namespace], list[str]]] = {
    "fuzz": _fuzz,
    "follow": _follow,
    "histories": lambda given: _in_folder(together.histories),
    "caches": lambda given: _in_folder(together.caches),
}


def main() -> int:
    """Run the parts one after the other; returns 1 when one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.endure", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all without any")
    parser.add_argument(
        "--minutes",
        type=float,
        default=60,
        help="of fuzzing; of less, the followed log is smaller, too (default: %(default)g)",
    )
    parser.add_argument("--seed", default=secrets.token_hex(4), help="of the fuzzing")
    parser.add_argument("--case", type=int, help="run this case of the seed again, alone")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}")
    if given.case is not None:
        wrong = fuzzing.attempt(cases.make(given.seed, given.case), twice=True)
        print(wrong or "nothing is wrong")
        return int(wrong is not None)
    failures = [text for name, part in PARTS.items() if name in (given.parts or PARTS) for text in part(given)]
    print("\n".join(failures) or "nothing failed", file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
