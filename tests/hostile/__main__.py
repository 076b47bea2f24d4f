"""Try every input at its whole size and print the table: ``python -m tests.hostile [NAME..] [--small]`` (``make hostile``)."""

from __future__ import annotations

import argparse
import sys

from tests.hostile.trials import TRIALS, run


def main() -> int:
    """Run the trials; returns 1 when one of them did not survive."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(TRIALS)}; all without any")
    parser.add_argument("--small", action="store_true", help="the sizes that the tests take")
    given = parser.parse_args()
    unknown = set(given.names) - set(TRIALS)
    if unknown:
        parser.error(f"no trial {', '.join(sorted(unknown))}")
    print("| trial | size | exit | seconds | memory | |\n| --- | --- | --- | --- | --- | --- |", flush=True)
    failed = 0
    for trial in TRIALS.values():
        if given.names and trial.name not in given.names:
            continue
        size = trial.small if given.small else trial.whole
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
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
