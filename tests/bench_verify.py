"""What a verification costs, as ratios: a session on four healthy Gloo ranks beside one bare ``import torch``.

    python tests/bench_verify.py [ROUNDS]

Both are measured in turns on the same machine; medians are printed. The plan is measured beside the diagnosis.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "analyzer")]


def seconds(command: list[str]) -> float:
    """Return how long a command takes; a verdict against the diagnosis (exit code 4) is a success, too."""
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode not in (0, 4):
        raise SystemExit(f"{command}: {done.stderr.decode()[-400:]}")
    return time.perf_counter() - started


def main() -> None:
    """Print the medians and the ratios."""
    from corpus.verifier.documents import document

    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        report.write_text(json.dumps(document("rank-divergence", world=4)))
        tool = [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT / 'analyzer')!r}); from nccl_triage.cli import main; main()",
        ]
        log = str(ROOT / "corpus" / "written" / "logs" / "S001-openrlhf-broadcast-two-networks.log")
        commands = {
            "import torch": [sys.executable, "-c", "import torch"],
            "verify, 4 healthy Gloo ranks, start to verdict": [
                *tool,
                "verify",
                str(report),
                "--backend",
                "gloo",
                "--suspects",
                "1",
            ],
            "diagnose": [*tool, log],
            "diagnose and plan (verify --dry-run)": [*tool, "verify", log, "--dry-run", "--backend", "gloo"],
        }
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                taken[name].append(seconds(command))
    median = {name: statistics.median(values) for name, values in taken.items()}
    for name, value in median.items():
        print(f"{value:8.3f} s  {name}")
    print(
        f"{median['verify, 4 healthy Gloo ranks, start to verdict'] / median['import torch']:8.2f} x  verify beside a bare import of torch (goal: 2)"
    )
    beyond = median["diagnose and plan (verify --dry-run)"] - median["diagnose"]
    print(f"{beyond:8.3f} s  the plan beyond the diagnosis (goal: 0.1)")


if __name__ == "__main__":
    main()
