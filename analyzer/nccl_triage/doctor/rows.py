"""The facts of a host as rows of plain fields, one table per subject: what the checks of ``rules/doctor`` refer to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nccl_triage.doctor import network_rows
from nccl_triage.knowledge.judge import cut, judge_variable

#: Remarks that are not shown: an explicit default.
_QUIET = frozenset({"default"})


def variable_rows(facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every variable with what is unusual about it; ``level`` is none, note or warn."""
    found = network_rows.variables(facts)
    known = _versions(facts)
    for name, value in sorted(found.items()):
        remarks = [remark for remark in judge_variable(name, value, known, found) if remark.kind not in _QUIET]
        levels = [remark.level for remark in remarks]
        yield {
            "subject": name,
            "value": cut(value),
            "level": "warn" if "warn" in levels else "note" if levels else "none",
            "kinds": [remark.kind for remark in remarks],
            "remark": {
                "en": " ".join(remark.says["en"].strip() for remark in remarks),
                "zh": "".join(remark.says["zh"].strip() for remark in remarks),
            },
        }


def _versions(facts: Mapping[str, Any]) -> dict[str, str]:
    software = facts.get("software")
    told = software if isinstance(software, dict) else {}
    return {name: str(told[name]) for name in ("nccl", "torch", "cuda") if told.get(name)}


Facts = Mapping[str, Any]
Row = dict[str, Any]

#: Bridges that are named.
MAX_SHOWN = 8


def _part(facts: Facts, name: str) -> dict[str, Any]:
    found = facts.get(name)
    return found if isinstance(found, dict) else {}


def _list(found: Any) -> list[dict[str, Any]]:
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def gpus_of(facts: Facts) -> list[dict[str, Any]]:
    """Return the GPUs that the driver tells."""
    return _list(_part(facts, "gpus").get("gpus"))


def _driver(facts: Facts) -> Iterator[Row]:
    driver = _part(_part(facts, "gpus"), "driver")
    software = _part(facts, "software")
    module, library = driver.get("module"), driver.get("library")
    if driver:
        yield {
            **driver,
            "version": module or library,
            "torch": software.get("torch"),
            "torch_cuda": software.get("cuda"),
        }


def _software(facts: Facts) -> Iterator[Row]:
    software = _part(facts, "software")
    if software:
        wheels = [name for name in _part(software, "wheels") if "nccl" in name.lower()]
        yield {**software, "nccl_wheels": wheels}


def _gpu_count(facts: Facts) -> Iterator[Row]:
    told = _part(facts, "gpus")
    on_bus = [device for device in _list(facts.get("pci")) if device.get("kind") == "gpu"]
    gpus = gpus_of(facts)
    names = Counter(str(gpu.get("name")) for gpu in gpus)
    if told:
        yield {
            "count": len(gpus),
            "names": [f"{count} x {name}" for name, count in names.items()],
            "devices": told.get("devices"),
            "on_bus": len(on_bus),
            "source": told.get("source"),
            "asked": isinstance(told.get("gpus"), list),
        }


def _gpu(facts: Facts) -> Iterator[Row]:
    for gpu in gpus_of(facts):
        links = _list(gpu.get("nvlinks"))
        yield {
            **gpu,
            "subject": f"GPU {gpu.get('index')}",
            "links": len(links),
            "links_down": [str(link.get("link")) for link in links if not link.get("active")],
            "link_errors": sum(sum(_part(link, "errors").values()) for link in links),
        }


def _pairs(facts: Facts) -> Iterator[Row]:
    pairs = _list(_part(facts, "gpus").get("pairs"))
    if pairs:
        broken = [pair for pair in pairs if pair.get("read") not in (None, "ok")]
        yield {
            "count": len(pairs),
            "broken": [f"{pair.get('a')}-{pair.get('b')}" for pair in broken],
            "why": sorted({str(pair.get("read")) for pair in broken}),
            "paths": sorted({str(pair.get("path")) for pair in pairs if pair.get("path")}),
            "across": [f"{pair.get('a')}-{pair.get('b')}" for pair in pairs if pair.get("path") == "SYS"],
            "nvlink": sum(bool(pair.get("nvlink")) for pair in pairs),
        }


def _fabric(facts: Facts) -> Iterator[Row]:
    told = _part(facts, "gpus")
    states = [(gpu.get("index"), gpu.get("fabric")) for gpu in gpus_of(facts) if gpu.get("fabric")]
    on_bus = sum(device.get("kind") == "switch" for device in _list(facts.get("pci")))
    switches = max(told.get("switches") or 0, on_bus)
    if told and (switches > 0 or states):
        yield {
            "switches": switches,
            "manager": told.get("manager"),
            "states": len(states),
            "waiting": [str(index) for index, state in states if state != "completed"],
            "container": _part(facts, "system").get("container"),
        }


def _bus(facts: Facts) -> Iterator[Row]:
    words = {"gpu": "GPU", "nic": "network card", "switch": "NVSwitch"}
    for device in _list(facts.get("pci")):
        kind = str(device.get("kind"))
        yield {**device, "subject": f"{words.get(kind, kind)} {device.get('address')}"}


def _faults(facts: Facts) -> Iterator[Row]:
    kernel = _part(facts, "kernel")
    for name, kind in (("xids", "xid"), ("switch_errors", "sxid")):
        counted: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for entry in _list(kernel.get(name)):
            counted.setdefault((str(entry.get("address")), int(entry.get("code") or 0)), []).append(entry)
        for (address, code), entries in counted.items():
            yield {
                "subject": f"{'GPU' if kind == 'xid' else 'NVSwitch'} {address}",
                "kind": kind,
                "address": address,
                "code": code,
                "count": len(entries),
                "text": entries[-1].get("text"),
                "time": entries[-1].get("time"),
            }


def _kernel(facts: Facts) -> Iterator[Row]:
    kernel = _part(facts, "kernel")
    if kernel.get("source"):
        killed = _list(kernel.get("killed"))
        yield {
            "source": kernel["source"],
            "faults": len(_list(kernel.get("xids"))) + len(_list(kernel.get("switch_errors"))),
            "kills": len(killed),
            "killed": sorted({str(entry.get("process")) for entry in killed}),
        }


def _limits(facts: Facts) -> Iterator[Row]:
    limits = _part(facts, "limits")
    if limits:
        ports = _list(_part(facts, "infiniband").get("ports"))
        group = _part(limits, "cgroup")
        used, most = group.get("memory_used"), group.get("memory_max")
        yield {
            **{name: _part(limits, name).get("soft") for name in ("nofile", "memlock", "nproc")},
            **{f"{name}_hard": _part(limits, name).get("hard") for name in ("nofile", "memlock", "nproc")},
            "shm": _part(limits, "shm").get("size"),
            "shm_free": _part(limits, "shm").get("free"),
            "rdma": bool(ports),
            "memory_max": most,
            "memory_used": used,
            "memory_share": used / most if used is not None and most else None,
            "oom_kills": group.get("oom_kills"),
            "pids_max": group.get("pids_max"),
            "pids_used": group.get("pids_used"),
        }


def _disk(facts: Facts) -> Iterator[Row]:
    for entry in _list(facts.get("storage")):
        size, free = entry.get("size"), entry.get("free")
        share = free / size if size and free is not None else None
        yield {**entry, "subject": entry.get("path"), "free_share": share}


def _texts(value: Any) -> list[str]:
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []


def _isolation(facts: Facts) -> Iterator[Row]:
    told = _part(facts, "isolation")
    if told:
        gpus = sum(device.get("kind") == "gpu" for device in _list(facts.get("pci")))
        translates = [kind for kind in _texts(told.get("types")) if kind.upper().startswith("DMA")]
        yield {
            **told,
            "gpus": gpus,
            "translates": translates if told.get("iommu") is not None else None,
            "shown": _texts(told.get("redirecting"))[:MAX_SHOWN],
            "count": len(_texts(told.get("redirecting"))),
        }


def _plain(name: str) -> Callable[[Facts], Iterator[Row]]:
    def rows(facts: Facts) -> Iterator[Row]:
        found = _part(facts, name)
        if found:
            yield dict(found)

    return rows


TABLES: dict[str, Callable[[Facts], Iterator[Row]]] = {
    "driver": _driver,
    "software": _software,
    "gpus": _gpu_count,
    "gpu": _gpu,
    "pairs": _pairs,
    "fabric": _fabric,
    "bus": _bus,
    "isolation": _isolation,
    "fault": _faults,
    "kernel": _kernel,
    "ports": network_rows.ports,
    "port": network_rows.port,
    "choice": network_rows.choice,
    "interface": network_rows.interface,
    "names": network_rows.names,
    "families": network_rows.families,
    "variable": variable_rows,
    "limits": _limits,
    "disk": _disk,
    "clock": _plain("clock"),
    "firewall": _plain("firewall"),
}


def rows(facts: Facts) -> dict[str, list[Row]]:
    """Return every table of a host; a table is empty where nothing could be seen."""
    return {name: list(table(facts)) for name, table in TABLES.items()}
