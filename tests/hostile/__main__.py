"""Try every input at its whole size and print the tables: ``python -m tests.hostile [NAME..] [--small]`` (``make hostile``).

What is far too large is fed to the program; of what there can be much of, it is measured how the cost grows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.hostile import growth
from tests.hostile.shapes import SHAPES
from tests.hostile.trials import TRIALS, run


def main() -> int:
    """Run the trials; returns 1 when one of them did not survive."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join([*TRIALS, *SHAPES])}; all without any")
    parser.add_argument("--small", action="store_true", help="the sizes that the tests take")
    given = parser.parse_args()
    unknown = set(given.names) - {*TRIALS, *SHAPES}
    if unknown:
        parser.error(f"no trial {', '.join(sorted(unknown))}")
    failed = _tried(given.names, given.small) + _grown(given.names, given.small)
    return int(failed > 0)


def _tried(names: Sequence[str], small: bool) -> int:
    """Feed the program what is too large; return how often it did not survive."""
    print("| trial | size | exit | seconds | memory | |\n| --- | --- | --- | --- | --- | --- |", flush=True)
    failed = 0
    for trial in TRIALS.values():
        if names and trial.name not in names:
            continue
        size = trial.small if small else trial.whole
        found = run(trial.feed(size))
        said = found.err if trial.code else found.out
        good = found.code == trial.code and found.memory <= trial.most and trial.says in said
        good = good and "Trace" not in found.err
        failed += not good
        verdict = "survived" if good else "FAILED"
        print(
            f"| {trial.name} | {size:,} | {found.code} | {found.seconds:.0f} | {found.memory:.0f} MB | {verdict} |",
            flush=True,
        )
    return failed


def _grown(names: Sequence[str], small: bool) -> int:
    """Measure how the cost of each shape grows; return how often that is too fast."""
    print("\n| shape | size | seconds | grows with the power | |\n| --- | --- | --- | --- | --- |", flush=True)
    failed = 0
    for shape in SHAPES.values():
        if names and shape.name not in names:
            continue
        times = growth.measure(shape, shape.size if small else shape.whole // growth.MULTIPLES[-1])
        power = growth.exponent(times)
        failed += power > growth.MOST
        size = shape.size * growth.MULTIPLES[-1] if small else shape.whole
        verdict = "as it should" if power <= growth.MOST else "FAILED"
        print(f"| {shape.name} | {size:,} | {times[-1]:.1f} | {power:.2f} | {verdict} |", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
