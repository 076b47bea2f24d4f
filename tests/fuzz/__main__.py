"""Fuzz with atheris: ``python -m tests.fuzz [TARGET..] [--seconds N]``; what fails is kept in ``tests/fuzz/found``.

Each target runs in a process of its own, begins with the seeds and the found cases, and ends after its time or with its
first failing input. Give that input a short name and the tests replay it from then on.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
#: Bytes of an input at most: what is found is to stay small.
LONGEST = 8192


def _fuzz(target: str, arguments: list[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=["nccl_triage"]):
        from tests.fuzz.targets import TARGETS
    atheris.Setup([sys.argv[0], *arguments], TARGETS[target])
    atheris.Fuzz()


def _run(target: str, seconds: int) -> int:
    kept = HERE / "found" / target
    from tests.fuzz import seeds

    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as corpus:
        for number, data in enumerate(seeds.of(target)):
            Path(corpus, f"seed-{number}").write_bytes(data[:LONGEST])
        options = [f"-max_total_time={seconds}", f"-max_len={LONGEST}", "-timeout=20", f"-artifact_prefix={kept}/"]
        words = [sys.executable, "-m", "tests.fuzz", "--one", target, *options, corpus, str(kept)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["analyzer", "."])}
        return subprocess.run(words, cwd=HERE.parents[1], env=environment, check=False).returncode


def main() -> int:
    """Fuzz the targets one after the other; returns 1 when one of them failed."""
    if sys.argv[1:2] == ["--one"]:
        _fuzz(sys.argv[2], sys.argv[3:])
        return 0
    from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all without any")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: %(default)s)")
    given = parser.parse_args()
    unknown = set(given.targets) - set(TARGETS)
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}")
    failed = [name for name in given.targets or TARGETS if _run(name, given.seconds)]
    print(f"failed: {', '.join(failed)}" if failed else "nothing found", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
