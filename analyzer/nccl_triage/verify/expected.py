"""Which bus bandwidth a run should have had: its link, from what hosts and ranks tell, and the band of that link.

Nothing is guessed in disfavour of healthy hardware: a link that cannot be told, ranks that share a GPU, variables that
switch a path off and collectives that move data in another pattern have no expectation, and the record says why.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nccl_triage.lazy_regex import lazily
from nccl_triage.verify import bandwidth
from nccl_triage.verify.bandwidth import Band
from nccl_triage.verify.interfaces import chosen
from nccl_triage.verify.model import RunResult

Facts = Mapping[str, Any]
Text = dict[str, str]

#: GB/s below which Gloo is slow, whatever the link: it adds on the CPU, and two busy cores reach 0.2 over the loopback.
GLOO_LOW = 0.1
#: Collectives whose bus bandwidth the table's bands speak of, by backend.
_COMPARABLE = {
    "nccl": frozenset({"ALLREDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "BROADCAST", "REDUCE"}),
    "gloo": frozenset({"ALLREDUCE"}),
}
#: Variables that take NCCL off the link that it would choose, or bound how much of it is used.
_SWITCHED = lazily(
    r"^NCCL_(P2P_\w+|SHM_\w+|NET|NET_PLUGIN|ALGO|PROTO|BUFFSIZE|NTHREADS|M(AX|IN)_(NCHANNELS|CTAS)|HOSTID)$"
)
#: Cards that a bridge can join: whether one is there, the name does not tell.
_MAYBE_BRIDGED = lazily(r"PCIe|\bNVL\b", re.IGNORECASE)


def band_of(result: RunResult, facts: Sequence[Facts], op: str) -> tuple[Band | None, Text | None]:
    """Return the band of a collective of a run, or None and the reason; ``facts`` are those of the hosts in order."""
    run = result.run
    if op not in _COMPARABLE.get(run.backend, frozenset()):
        return None, _text(f"none is known for {op}", f"{op} 没有已知的预期值")
    if run.backend == "nccl":
        return _nccl(result, facts)
    if len(run.places) == 1:
        return None, _text("nothing left the host (loopback)", "数据没有离开本机（回环）")
    band, reason = _tcp(result, facts)
    return band and replace(band, low=min(band.low, GLOO_LOW)), reason


def _text(en: str, zh: str) -> Text:
    return {"en": en, "zh": zh}


def _nccl(result: RunResult, facts: Sequence[Facts]) -> tuple[Band | None, Text | None]:
    run = result.run
    devices = [trace.details.get("device", {}) for _, trace in sorted(result.ranks.items())]
    gpus = {(slot.place, device.get("bus")) for slot, device in zip(run.slots, devices, strict=True)}
    if len(gpus) < run.world:
        return None, _text("several ranks share a GPU", "多个 rank 共用一块 GPU")
    env = run.env_of(0)
    switched = sorted(name for name in env if _SWITCHED.match(name) and env[name] not in ("", "0"))
    if len(run.places) > 1:
        if env.get("NCCL_IB_DISABLE") == "1" or env.get("NCCL_NET") == "Socket":
            return _tcp(result, facts)
        return None, _text("the network that NCCL took is not known", "不清楚 NCCL 使用了哪种网络")
    if switched:
        return None, _text(f"{', '.join(switched)} switches the path", f"{', '.join(switched)} 改变了通路")
    name = str(devices[0].get("name") or "")
    link = "pcie" if _MAYBE_BRIDGED.search(name) or not _has_nvlink(name, run.world) else "nvlink"
    return bandwidth.expectation(name, link, run.world), None


def _has_nvlink(name: str, world: int) -> bool:
    return any(row.gpu is not None for row in bandwidth.matching(bandwidth.table(), name, "nvlink", world))


def _tcp(result: RunResult, facts: Sequence[Facts]) -> tuple[Band | None, Text | None]:
    """Return the band of the slowest interface that the ranks took; NCCL spreads a group over all that it takes."""
    run = result.run
    taken = [
        chosen(facts[place], run.backend, run.env_of(run.first_rank(place)))
        for place in run.places
        if place < len(facts)
    ]
    if run.backend == "gloo":
        taken = [entries[:1] for entries in taken]
    speeds = [entry.get("speed_mbit") for entries in taken for entry in entries]
    known = [int(speed) for speed in speeds if speed]
    if not known or len(known) < len(speeds) or len(taken) < len(run.places) or not all(taken):
        return None, _text("the speed of the interface is not known", "网络接口的速率未知")
    ports = min(len(entries) for entries in taken)
    return bandwidth.expectation("", f"tcp {min(known) / 1000:g}", run.world, ports=ports), None


def judgement(
    result: RunResult, op: str, rate: Mapping[str, float], facts: Sequence[Facts], previous: Sequence[float] = ()
) -> dict[str, Any]:
    """Return what the measured bandwidth of a collective of a run says, as the document has it.

    ``rate`` has ``bytes`` and ``busbw`` (GB/s); ``previous`` are earlier results of the same hosts and collective.
    """
    band, reason = band_of(result, facts, op)
    judged = bandwidth.judge(rate["busbw"], int(rate["bytes"]), band, previous)
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
