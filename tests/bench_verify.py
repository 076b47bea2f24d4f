"""How long a verdict takes, as ratios to what cannot be avoided: ``python tests/bench_verify.py``.

Medians of three. A session is a whole ``verify`` of four healthy Gloo ranks, from its start to its verdict; the floor is
``python -c 'import torch'``. Ratios are what is compared: machines differ.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "analyzer"))

from nccl_triage.api import diagnose
from nccl_triage.engine import load
from nccl_triage.verify import api
from nccl_triage.verify.plan import PlanOptions
from nccl_triage.verify.record import plan_record

TIMES = 3
LOG = (
    "[rank0]:[E302 10:30:00.000000000 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=7, OpType=ALLGATHER, NumelIn=1024, NumelOut=4096, Timeout(ms)=600000) ran for 600050 milliseconds "
    "before timing out.\n"
    "[rank1]:[E302 10:30:00.000000000 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=7, OpType=ALLGATHER, NumelIn=1024, NumelOut=4096, Timeout(ms)=600000) ran for 600050 milliseconds "
    "before timing out.\n"
)


def median(work: Callable[[], Any]) -> float:
    """Return the median seconds of a piece of work, after one run that warms caches."""
    work()
    taken = []
    for _ in range(TIMES):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def main() -> None:
    """Print the ratios."""
    rules = load.load()
    settings = api.Settings(options=PlanOptions(backend="gloo", world=4, suspects=1))
    with tempfile.TemporaryDirectory() as folder:
        # A lock of its own: what else verifies here is seen in the times, and must not be waited for in them.
        os.environ["XDG_RUNTIME_DIR"] = os.environ["TMPDIR"] = tempfile.tempdir = folder
        log = Path(folder) / "job.log"
        log.write_text(LOG)
        document = diagnose([str(log)], rules=rules, model=None).to_dict()
        diagnosing = median(lambda: diagnose([str(log)], rules=rules, model=None).to_dict())
        verdicts: list[str] = []

        def verify() -> None:
            changed, _ = api.verify(document, rules, settings)
            found = changed["diagnoses"][0]["verification"]
            verdicts.append(f"{found['outcome']} by {found['decided_by']} in {len(found['runs'])} runs")

        planning = median(lambda: plan_record(api.plan_of(document, rules, settings)))
        importing = median(lambda: subprocess.run([sys.executable, "-c", "import torch"], check=True))
        session = median(verify)
        print(f"import torch                 {importing:7.2f} s")
        print(
            f"session of 4 Gloo ranks      {session:7.2f} s   {session / importing:.2f} x import torch ({verdicts[-1]})"
        )
        print(f"diagnosis of a small log     {diagnosing:7.3f} s")
        print(f"plan beyond the diagnosis    {planning:7.4f} s   {planning / diagnosing:.3f} x the diagnosis")


if __name__ == "__main__":
    main()
