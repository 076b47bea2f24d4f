"""Probe of InfiniBand and RoCE ports: state, rate, identifiers and counters, and what GPUDirect RDMA needs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from nccl_triage.doctor.probes.result import ProbeResult, ProbeTarget, entries, number, text

#: Counters of a port that grow when a cable or a port is faulty (Linux, Documentation/ABI/stable/sysfs-class-infiniband).
_COUNTERS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)
#: Entries of a table of GIDs that are read at most.
_GIDS = 256
_RATE = re.compile(r"^([\d.]+) Gb/sec(?: \((\d+)X (\w+)\))?")


def probe_infiniband(where: ProbeTarget) -> ProbeResult:
    """Return the ports of all devices, the modules for GPUDirect RDMA, and whether the devices may be opened."""
    base = where.root / "sys/class/infiniband"
    ports = [
        {"device": device.name, **_device(device), **_port(port, where)}
        for device in entries(base)
        for port in entries(device / "ports")
    ]
    seen = ProbeResult({"ports": ports, "peer_memory": _peer_memory(where), "verbs": None})
    if ports:
        verbs = [entry for entry in entries(where.root / "dev/infiniband") if entry.name.startswith("uverbs")]
        seen.facts["verbs"] = bool(verbs) and all(os.access(entry, os.R_OK | os.W_OK) for entry in verbs)
    elif not base.is_dir():
        seen.miss("infiniband", "absent", path=base)
    return seen


def _device(device: Path) -> dict[str, Any]:
    return {
        "firmware": text(device / "fw_ver"),
        "board": text(device / "board_id"),
        "numa": number(device / "device/numa_node"),
    }


def _port(port: Path, where: ProbeTarget) -> dict[str, Any]:
    rate = _RATE.match(text(port / "rate") or "")
    counters = {name: number(port / "counters" / name) for name in _COUNTERS}
    return {
        "port": int(port.name) if port.name.isdigit() else port.name,
        "link": text(port / "link_layer"),
        "state": _word(text(port / "state")),
        "physical": _word(text(port / "phys_state")),
        "rate": float(rate[1]) if rate else None,
        "width": int(rate[2]) if rate and rate[2] else None,
        "lid": number(port / "lid"),
        "subnet_manager": number(port / "sm_lid"),
        "counters": {name: value for name, value in counters.items() if value},
        "gids": _gids(port),
    }


def _word(told: str | None) -> str | None:
    """Return ``4: ACTIVE`` as active."""
    return told.rpartition(":")[2].strip().lower() if told else None


def _gids(port: Path) -> list[dict[str, Any]]:
    """Return the entries of a port's table that are in use."""
    found = []
    for entry in entries(port / "gids")[:_GIDS]:
        gid = text(entry)
        if gid is None or not gid.strip("0:"):
            continue
        kind = text(port / "gid_attrs/types" / entry.name)
        found.append(
            {
                "index": int(entry.name) if entry.name.isdigit() else entry.name,
                "gid": gid,
                "type": kind.replace("IB/RoCE v1", "RoCE v1") if kind else None,
                "interface": text(port / "gid_attrs/ndevs" / entry.name),
            }
        )
    return found


def _peer_memory(where: ProbeTarget) -> bool:
    """Tell whether a module is loaded with which network cards reach the memory of GPUs (or nothing of it needed)."""
    return any((where.root / "sys/module" / name).is_dir() for name in ("nvidia_peermem", "nv_peer_mem"))
