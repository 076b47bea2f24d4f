"""nvidia-smi of a host's file: ``smi.py FOLDER ARGUMENT...``; the queries and refusals of the real tool."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from gpu_double import host

#: What the tool says instead of an answer, with its exit code.
_REFUSALS = {
    "no-devices": ("No devices were found", 6),
    "no-driver": (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
        "Make sure that the latest NVIDIA driver is installed and running.\n",
        9,
    ),
    "mismatch": (
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.127",
        18,
    ),
}
_ROWS = {"remapped_rows.pending": "remap_pending", "remapped_rows.failure": "remap_failure"}


def _cell(value: Any) -> str:
    if value is None:
        return "[N/A]"
    if isinstance(value, bool):
        return "Yes" if value else "No"
    return str(value)


def _fields(told: dict[str, Any], gpu: dict[str, Any]) -> dict[str, Any]:
    own = len(list(host.users(Path(told["folder"]), gpu["uuid"])))
    used = gpu["memory_used_mib"] + gpu["context_mib"] * own
    instances = None if not gpu["mig"] else "Enabled"
    found = {
        "index": gpu["index"],
        "uuid": gpu["uuid"],
        "gpu_uuid": gpu["uuid"],
        "name": gpu["name"],
        "gpu_name": gpu["name"],
        "pci.bus_id": gpu["bus"],
        "gpu_bus_id": gpu["bus"],
        "memory.total": gpu["memory_total_mib"],
        "memory.used": used,
        "memory.free": max(0, gpu["memory_total_mib"] - used),
        "utilization.gpu": gpu["utilisation"],
        "compute_mode": gpu["compute_mode"],
        "compute_cap": "9.0",
        "mig.mode.current": instances or ("[N/A]" if gpu["mig"] is None else "Disabled"),
        "ecc.errors.uncorrected.volatile.total": gpu["ecc_uncorrected"],
        "gpu_recovery_action": gpu["recovery_action"],
        "driver_version": told["driver"],
        "count": len(told["gpus"]),
        "temperature.gpu": 41,
        "power.draw": 92.5,
        "serial": None,
    }
    found.update({name: gpu[key] for name, key in _ROWS.items()})
    if gpu["fault"] == "lost":
        kept = ("index", "uuid", "gpu_uuid", "name", "gpu_name", "pci.bus_id", "gpu_bus_id", "driver_version")
        return {name: value if name in kept else "[GPU is lost]" for name, value in found.items()}
    return found


def _apps(told: dict[str, Any], gpu: dict[str, Any]) -> list[dict[str, Any]]:
    running = [(entry["pid"], entry["used_mib"]) for entry in gpu["processes"]]
    running += [(pid, gpu["context_mib"]) for pid in host.users(Path(told["folder"]), gpu["uuid"])]
    return [
        {
            "gpu_uuid": gpu["uuid"],
            "gpu_name": gpu["name"],
            "gpu_bus_id": gpu["bus"],
            "pid": pid,
            "process_name": "python",
            "used_gpu_memory": used,
            "used_memory": used,
        }
        for pid, used in running
    ]


def _table(fields: list[str], rows: list[dict[str, Any]]) -> int:
    known = rows[0] if rows else {}
    for field in fields:
        if rows and field not in known:
            print(f'Field "{field}" is not a valid field to query.\n')
            return 2
    for row in rows:
        print(", ".join(_cell(row[field]) for field in fields))
    return 0


def _listing(gpus: list[dict[str, Any]]) -> int:
    for gpu in gpus:
        print(f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})")
        for number, uuid in enumerate(gpu["instances"]):
            print(f"  MIG 1g.10gb     Device  {number}: (UUID: {uuid})")
    return 0


def answer(told: dict[str, Any], arguments: list[str]) -> int:
    """Print the answer to a command line; returns the exit code."""
    if told["smi"] == "hangs":
        time.sleep(3600)
    if told["smi"] in _REFUSALS:
        text, code = _REFUSALS[told["smi"]]
        print(text)
        return code
    chosen = told["gpus"]
    words = iter(arguments)
    query = ""
    for word in words:
        if word in ("-i", "--id"):
            wanted = next(words).split(",")
            chosen = [gpu for gpu in chosen if str(gpu["index"]) in wanted or gpu["uuid"] in wanted]
        elif word in ("-L", "--list-gpus"):
            return _listing(chosen)
        elif word.startswith("--query-"):
            query = word
    name, _, fields = query.partition("=")
    if name == "--query-gpu" and any(field in told["smi_unknown"] for field in fields.split(",")):
        print(
            f'Field "{next(f for f in fields.split(",") if f in told["smi_unknown"])}" is not a valid field to query.\n'
        )
        return 2
    rows = {
        "--query-gpu": lambda: [_fields(told, gpu) for gpu in chosen],
        "--query-remapped-rows": lambda: [_fields(told, gpu) for gpu in chosen],
        "--query-compute-apps": lambda: [row for gpu in chosen for row in _apps(told, gpu)],
    }.get(name)
    if rows is None:
        print(f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n{arguments}")
        return 1
    return _table(fields.split(","), rows())


if __name__ == "__main__":
    sys.exit(answer(host.read(sys.argv[1]), sys.argv[2:]))
