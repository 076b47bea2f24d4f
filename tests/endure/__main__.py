"""Endure: ``python -m tests.endure [PART..] [--minutes N] [--seed S] [--case N]`` (``make endure``)."""

from __future__ import annotations

import argparse
import secrets
import sys

from tests.endure import cases, fuzzing


def _fuzz(seed: str, minutes: float) -> list[str]:
    print(f"fuzzing for {minutes:g} minutes, --seed {seed}", flush=True)
    found = fuzzing.run(seed, 60 * minutes)
    made = ", ".join(f"{number} {kind}" for kind, number in found.kinds.most_common())
    print(f"{made}; slowest {found.slowest[0]:.2f} s ({found.slowest[1]}); memory grew by {found.growth:.0f} MB")
    return found.failures


def main() -> int:
    """Run the parts one after the other; returns 1 when one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.endure", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=60, help="of the processor, for fuzzing (default: %(default)g)"
    )
    parser.add_argument("--seed", default=secrets.token_hex(4), help="of the fuzzing")
    parser.add_argument("--case", type=int, help="run this case of the seed again, alone")
    given = parser.parse_args()
    if given.case is not None:
        wrong = fuzzing.attempt(cases.make(given.seed, given.case), twice=True)
        print(wrong or "nothing is wrong")
        return int(wrong is not None)
    failures = _fuzz(given.seed, given.minutes)
    print("\n".join(failures) or "nothing failed", file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
