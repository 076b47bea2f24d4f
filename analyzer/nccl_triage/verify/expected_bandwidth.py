"""The bus bandwidth to expect of a run: by its backend, its GPUs, and the network or link that it took."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nccl_triage.hosts.interfaces import chosen
from nccl_triage.lazy_regex import lazily
from nccl_triage.verify.bandwidth import Band, expectation, judge, matching, table
from nccl_triage.verify.collective_run import CollectiveRun, RunResult

Facts = Mapping[str, Any]
Text = dict[str, str]

#: GB/s below which Gloo is slow, whatever the link: it adds on the CPU, and two busy cores reach 0.2 over the loopback.
GLOO_LOW = 0.1
#: Collectives whose bus bandwidth the table's bands speak of, by backend.
_COMPARABLE = {
    "nccl": frozenset({"ALLREDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "BROADCAST", "REDUCE"}),
    "gloo": frozenset({"ALLREDUCE"}),
}
#: Variables that take NCCL off the link that it would choose, and those that bound how much of it is used.
_SWITCHED = lazily(r"^NCCL_(P2P_\w+|SHM_\w+|NET|NET_PLUGIN|HOSTID)$")
_BOUNDED = lazily(r"^NCCL_(ALGO|PROTO|BUFFSIZE|NTHREADS|M(AX|IN)_(NCHANNELS|CTAS))$")
#: Networks that are InfiniBand or RoCE, as NCCL and its plug-ins call them.
_VERBS = lazily(r"^IB(ext\w*)?$")
#: Cards that an NVLink bridge can join; the name does not tell whether there is one.
_MAYBE_BRIDGED = lazily(r"PCIe|\bNVL\b", re.IGNORECASE)


def band_of(result: RunResult, facts: Sequence[Facts], op: str) -> tuple[Band | None, Text | None]:
    """Return the band of a collective of a run, or None and the reason; ``facts`` are those of the hosts in order."""
    run = result.run
    if op not in _COMPARABLE.get(run.backend, frozenset()):
        return None, _text(f"none is known for {op}", f"{op} 没有已知的预期值")
    if run.backend == "nccl":
        return _nccl(result, facts)
    if len(run.places) == 1:
        return None, _text("no data left the host (loopback)", "数据没有离开本机（回环）")
    band, reason = _tcp(result, facts)
    return band and replace(band, low=min(band.low, GLOO_LOW)), reason


def _text(en: str, zh: str) -> Text:
    return {"en": en, "zh": zh}


def _nccl(result: RunResult, facts: Sequence[Facts]) -> tuple[Band | None, Text | None]:
    run, taken = result.run, result.transport
    devices = [trace.details.get("device", {}) for _, trace in sorted(result.ranks.items())]
    gpus = {(slot.place, device.get("bus")) for slot, device in zip(run.slots, devices, strict=True)}
    if len(gpus) < run.world:
        return None, _text("several ranks share a GPU", "多个 rank 共用一块 GPU")
    env = run.env_of(0)
    changed = sorted(name for name in env if env[name] not in ("", "0") and _BOUNDED.match(name))
    if changed:
        return None, _text(f"{', '.join(changed)} switches the path", f"{', '.join(changed)} 改变了通路")
    if len(run.places) > 1 and not _all_by_gpus(result):
        return _between_hosts(result, facts)
    inside = taken.via(_places(run), inside=True) if taken is not None else frozenset()
    if any(via.startswith("NET") for via in inside):
        return None, _text("NCCL used the network inside the host", "NCCL 在主机内部使用了网络")
    changed = sorted(name for name in env if env[name] not in ("", "0") and _SWITCHED.match(name))
    if changed:
        how = f" (NCCL took {', '.join(sorted(inside))})" if inside else ""
        return None, _text(f"{', '.join(changed)} switches the path{how}", f"{', '.join(changed)} 改变了通路{how}")
    name = str(devices[0].get("name") or "")
    link = "pcie" if _MAYBE_BRIDGED.search(name) or not _has_nvlink(name, run.world) else "nvlink"
    return expectation(name, link, run.world), None


def _places(run: CollectiveRun) -> dict[int, int]:
    return {rank: slot.place for rank, slot in enumerate(run.slots)}


def _all_by_gpus(result: RunResult) -> bool:
    """Tell whether the GPUs of all hosts are joined by NVLink: NCCL took no network between them."""
    taken = result.transport
    return taken is not None and taken.via(_places(result.run), inside=False) == frozenset({"P2P"})


def _between_hosts(result: RunResult, facts: Sequence[Facts]) -> tuple[Band | None, Text | None]:
    """Return the band of the network that NCCL took: as it says, or as its variables leave no choice."""
    networks = result.transport.networks if result.transport is not None else ()
    if not networks:
        env = result.run.env_of(0)
        if env.get("NCCL_IB_DISABLE") == "1" or env.get("NCCL_NET") == "Socket":
            return _tcp(result, facts)
        return None, _text("the network used by NCCL is unknown", "不清楚 NCCL 使用了哪种网络")
    if len(networks) > 1:
        listed = ", ".join(networks[:4])
        return None, _text(f"the ranks took different networks: {listed}", f"各 rank 使用了不同的网络：{listed}")
    if networks[0] == "Socket":
        return _tcp(result, facts)
    if _VERBS.match(networks[0]):
        return _verbs(result, facts)
    return None, _text(f"none is known for the network {networks[0]}", f"网络 {networks[0]} 没有已知的预期值")


def _verbs(result: RunResult, facts: Sequence[Facts]) -> tuple[Band | None, Text | None]:
    """Return the band of the adapters' ports that the ranks use, by the slowest and by the host with the fewest."""
    run, taken = result.run, result.transport
    rates: list[float] = []
    counts: list[int] = []
    assert taken is not None
    for place in run.places:
        ranks = [rank for rank, slot in enumerate(run.slots) if slot.place == place]
        ports = taken.of(ranks)
        known = facts[place].get("adapters") if place < len(facts) else None
        found = [rate for port in ports if (rate := _rate(known, port)) is not None]
        if not ports or len(found) < len(ports):
            return None, _text("the rate of the adapters is unknown", "网卡的速率未知")
        rates += found
        counts.append(min(len(ports), len(ranks)))
    return expectation("", f"ib {min(rates):g}", run.world, ports=min(counts)), None


def _rate(adapters: object, port: str) -> float | None:
    """Return the rate in Gbit/s of a port, as its host says."""
    value = adapters.get(port) if isinstance(adapters, Mapping) else None
    return float(value) if isinstance(value, (int, float)) and value > 0 else None


def _has_nvlink(name: str, world: int) -> bool:
    return any(row.gpu is not None for row in matching(table(), name, "nvlink", world))


def _tcp(result: RunResult, facts: Sequence[Facts]) -> tuple[Band | None, Text | None]:
    """Return the band of the slowest interface that the ranks took; NCCL spreads a group over all that it takes."""
    run = result.run
    taken = [_interfaces(result, facts[place], place) for place in run.places if place < len(facts)]
    if run.backend == "gloo":
        taken = [entries[:1] for entries in taken]
    speeds = [entry.get("speed_mbit") for entries in taken for entry in entries]
    known = [int(speed) for speed in speeds if speed]
    if not known or len(known) < len(speeds) or len(taken) < len(run.places) or not all(taken):
        return None, _text("the speed of the interface is unknown", "网络接口的速率未知")
    ports = min(len(entries) for entries in taken)
    return expectation("", f"tcp {min(known) / 1000:g}", run.world, ports=ports), None


def _interfaces(result: RunResult, known: Facts, place: int) -> list[Facts]:
    """Return the interfaces of a host that the ranks took: as NCCL says, else those that it would choose."""
    run = result.run
    if result.transport is not None:
        names = result.transport.of(rank for rank, slot in enumerate(run.slots) if slot.place == place)
        found = [entry for entry in known["interfaces"] if entry["name"] in names]
        if names and len(found) == len(names):
            return found
    return list(chosen(known, run.backend, run.env_of(run.first_rank(place))))


def judgement(
    result: RunResult, op: str, rate: Mapping[str, float], facts: Sequence[Facts], previous: Sequence[float] = ()
) -> dict[str, Any]:
    """Return what the measured bandwidth of a collective of a run says, as the document has it.

    ``rate`` has ``bytes`` and ``busbw`` (GB/s); ``previous`` are earlier results of the same hosts and collective.
    """
    band, reason = band_of(result, facts, op)
    judged = judge(rate["busbw"], int(rate["bytes"]), band, previous)
    says = _text(judged.says_en, judged.says_zh)
    if judged.state == "no-expectation" and reason is not None:
        figure = f"{rate['busbw']:.3g} GB/s"
        says = _text(f"{figure}; no expectation: {reason['en']}", f"{figure}；没有预期值：{reason['zh']}")
    band = judged.band if judged.state in ("in-band", "below", "above") else None
    return {
        "state": judged.state,
        "low": round(band.low, 4) if band else None,
        "high": round(band.high, 4) if band else None,
        "source": band.id if band else None,
        "basis": band.basis if band else None,
        "references": list(band.sources) if band else [],
        "says": says["en"],
        "says_zh": says["zh"],
        "candidates": list(judged.candidates),
    }
