"""``python -m corpus.verifier``: print the table of faulty worlds, and write it into docs/verifier.md."""

from __future__ import annotations

import argparse
import os
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from corpus.verifier.kinds import EIGHT, KINDS
from corpus.verifier.prove import false_alarms, prove, summary, table

_BEGIN, _END = "<!-- proof: begin (written by make verify-faults) -->\n", "<!-- proof: end -->\n"


def main() -> int:
    """Run the proof; returns 1 when less than 95 % are right, or one is wrong in a way that must not be.

    A healthy world must not be called faulty, nor a cause contradicted that may be gone by now.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="sessions a kind")
    parser.add_argument("--only", action="append", default=[], help="a kind, or a glob of kinds (repeatable)")
    parser.add_argument(
        "--table", choices=["all", "eight"], default="all", help="all kinds, or the table of eight faults"
    )
    parser.add_argument("--backend", choices=["gloo", "nccl"], default="gloo")
    parser.add_argument("--write", type=Path, help="the document whose table is replaced")
    given = parser.parse_args()
    chosen = [
        kind
        for kind in KINDS
        if given.backend in kind.backends
        and (given.table == "all" or kind.name in EIGHT)
        and (not given.only or any(fnmatchcase(kind.name, one) for one in given.only))
    ]
    if os.geteuid() != 0:
        left_out = [kind.name for kind in chosen if kind.places > 1]
        print(f"not root: without network namespaces {len(left_out)} kinds are left out", file=sys.stderr)
        chosen = [kind for kind in chosen if kind.places == 1]
    results = prove(chosen, given.runs, given.backend, lambda text: print(text, file=sys.stderr, flush=True))
    text = f"{summary(chosen, results)}\n\n{table(chosen, results)}"
    print(text)
    if given.write is not None:
        before, _, rest = given.write.read_text().partition(_BEGIN)
        given.write.write_text(f"{before}{_BEGIN}{text}{_END}{rest.partition(_END)[2]}")
    shots = [(kind, shot) for kind in chosen for shot in results[kind.name]]
    right = sum(shot.right for _, shot in shots)
    return int(right < 0.95 * len(shots) or any(false_alarms(chosen, results)))


if __name__ == "__main__":
    sys.exit(main())
