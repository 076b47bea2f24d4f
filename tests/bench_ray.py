"""When a scan over a Ray cluster pays: ``python -m tests.bench_ray``.

A folder of logs is diagnosed on this machine and over 1, 2 and 4 raylets on this machine, each of which Ray takes for a
node, and so is one small log: what that takes is what Ray costs. More raylets than cores cannot be faster.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corpus.generate.bench import PROFILES, stream
from nccl_triage.api import diagnose
from nccl_triage.engine import load
from nccl_triage.execution.cluster.engine import RayEngine
from tests.bench import timed


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--megabytes", type=int, default=16, help="of each file")
    parser.add_argument("--profile", choices=list(PROFILES), default="verbose")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--raylets", type=int, nargs="*", default=[1, 2, 4])
    arguments = parser.parse_args()
    from ray.cluster_utils import Cluster

    rules = load.load()
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": folder}
        os.environ.pop("RAY_ADDRESS", None)
        logs = Path(folder, "logs")
        logs.mkdir()
        for number in range(arguments.files):
            with (logs / f"job-{number}.log").open("wb") as out:
                out.writelines(stream(arguments.profile, arguments.megabytes * 1_000_000, number))
        small = Path(folder, "small.log")
        small.write_bytes(b"".join(stream(arguments.profile, 1_000_000)))

        diagnose(small, rules=rules, model=None)  # fills the caches

        def row(name: str, options: Callable[[], dict[str, Any]]) -> None:
            large = timed(lambda: diagnose(logs, rules=rules, model=None, **options()), arguments.times)
            little = timed(lambda: diagnose(small, rules=rules, model=None, **options()), arguments.times)
            total = arguments.files * arguments.megabytes
            print(f"| {name} | {large:.1f} s | {total / large:.0f} MB/s | {little:.1f} s |", flush=True)

        print(
            f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {arguments.files} x {arguments.megabytes} MB {arguments.profile}\n"
        )
        print("| engine | all logs | speed | a log of 1 MB |\n|---|---|---|---|")
        row("local, 1 process", dict)
        row("local, 2 processes", lambda: {"jobs": 2})
        cluster = None
        try:
            for count in arguments.raylets:
                node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20}
                if cluster is None:
                    # Ray's workers yield to all others (nice 15): beside anything else that runs they cannot be compared.
                    head = {**node, "include_dashboard": False, "_system_config": {"worker_niceness": 0}}
                    cluster = Cluster(initialize_head=True, head_node_args=head)
                while 1 + len(cluster.worker_nodes) < count:
                    cluster.add_node(**node)
                address = cluster.address
                row(f"ray, {count} raylets", lambda address=address: {"engine": RayEngine(address)})
        finally:
            if cluster is not None:
                cluster.shutdown()


if __name__ == "__main__":
    main()
