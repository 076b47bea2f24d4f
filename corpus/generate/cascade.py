"""What follows a fault on the other ranks: time-outs, lost peers, aborts; and who dies when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from corpus.generate.launchers import Death
from corpus.generate.scene import Event, Scene

_OTHER_OPERATIONS = {
    "ALLREDUCE": "BROADCAST",
    "_ALLGATHER_BASE": "ALLREDUCE",
    "_REDUCE_SCATTER_BASE": "_ALLGATHER_BASE",
    "BROADCAST": "ALLREDUCE",
    "ALLGATHER": "ALLREDUCE",
}


@dataclass
class Aftermath:
    """Lines and deaths after a fault."""

    events: list[Event] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)


def _odd(scene: Scene, kind: str) -> dict[str, str]:
    values = scene.values
    if kind == "op":
        other = _OTHER_OPERATIONS[values["op"]]
        values["odd_pattern"] = f"OpType={other},"
        return {"op": other}
    size = str(int(values["numel_in"]) + scene.chance.randrange(1, 4096))
    scale = max(1, int(values["numel_out"]) // max(1, int(values["numel_in"])))
    values["odd_pattern"] = (
        f"NumelIn={size}," if "NumelIn" in str(scene.job.release.texts["work"]) else f"TensorShape=[{size}]"
    )
    return {"numel_in": size, "numel_out": str(int(size) * scale)}


def _times_out(scene: Scene, rank: int, at: float, result: Aftermath, changed: dict[str, str]) -> float:
    """Add what a rank prints that entered the collective at a moment and waited in vain; returns when it noticed."""
    chance, values = scene.chance, scene.values
    seq = int(values["seq"])
    timeout = int(values["timeout_ms"])
    elapsed = timeout + chance.randrange(3, 980)
    noticed = at + elapsed / 1000
    extra = {
        **changed,
        "elapsed_ms": str(elapsed),
        "enqueued": str(seq + chance.choice((0, 0, 1, 2))),
        "completed": str(seq - 1),
    }
    extra["work"] = scene.fill(str(scene.job.release.texts["work"]), rank, noticed, **extra)
    lines = scene.sequence("timeout", rank, noticed, **extra)
    result.events += lines
    result.deaths.append(Death(rank, lines[-1].at + 0.4, -6))
    return noticed


def timeout(scene: Scene, spec: dict[str, Any], at: float, result: Aftermath, *, everybody: bool) -> None:
    """The others wait in a collective that the culprits do not enter, or (everybody) that does not end."""
    changed: dict[int, dict[str, str]] = {}
    if "odd" in spec:
        changed = {scene.culprits[0]: _odd(scene, str(spec["odd"]))}
    ranks = sorted({*scene.victims, *(scene.culprits if everybody else ())})
    if not ranks:
        return
    late = float(scene.values.get("late", 0))
    arrivals = {rank: at + scene.chance.expovariate(1.5) for rank in ranks}
    first = min(arrivals, key=lambda r: arrivals[r])
    scene.values["first_signaller"] = str(first)
    ends = [_times_out(scene, rank, when, result, changed.get(rank, {})) for rank, when in arrivals.items()]
    if everybody or not spec.get("alive"):
        return
    seq = int(scene.values["seq"])
    arrived = at + late < min(ends) and late > 0
    done = str(seq - 1)
    for rank in scene.culprits[:8]:
        seen = scene.sequence(
            "observed", rank, min(ends), enqueued=str(seq) if arrived else done, completed=done, work=""
        )
        result.events += seen
        result.deaths.append(Death(rank, min(ends) + 61 + scene.chance.random(), -6))


def lost(scene: Scene, spec: dict[str, Any], at: float, result: Aftermath) -> None:
    """The culprits' processes are gone: their neighbours see closed connections, then abort."""
    gone = set(scene.culprits)
    for rank in scene.victims:
        seen = at + scene.chance.uniform(0.05, 2.5)
        if scene.chance.random() < 0.6 and scene.nccl_debug != "none":
            where = "misc/socket.cc:{{pick 49|57|881}}"
            result.events.append(scene.nccl(scene.values["last_error"], rank, seen, where))
            for text in ("misc/socket.cc:{{pick 749|752|801}} -> 6", "proxy.cc:{{pick 1521|1533|1575}} -> 6"):
                result.events.append(scene.nccl(text, rank, seen + 0.001))
        if 0 in gone and scene.job.release.number >= (2, 5):
            text = "[c10d] recvValue failed on SocketImpl(fd={{int 20 90}}, addr=[{{fqdn}}]:{{int 30000 60000}}, remote=[{{master}}]:{{port}}): Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?"
            result.events.append(scene.c10(text, rank, seen + 0.01, level="W", where="TCPStore.cpp:125"))
        _aborts(scene, rank, seen + 0.3, result)


def _aborts(scene: Scene, rank: int, at: float, result: Aftermath) -> None:
    seq = int(scene.values["seq"])
    extra = {"enqueued": str(seq + scene.chance.choice((0, 1, 2))), "completed": str(seq - 1), "elapsed_ms": "0"}
    extra["work"] = scene.fill(str(scene.job.release.texts["work"]), rank, at, **extra)
    lines = scene.sequence("remote", rank, at, **extra)
    result.events += lines
    result.deaths.append(Death(rank, lines[-1].at + 0.2, -6))


def remote_all(scene: Scene, spec: dict[str, Any], at: float, result: Aftermath) -> None:
    """The network failed under everybody: the communicator reports a remote error on every rank."""
    for rank in sorted({*scene.victims, *scene.culprits[:8]}):
        _aborts(scene, rank, at + scene.chance.uniform(0.2, 4.0), result)


def _nothing(scene: Scene, spec: dict[str, Any], at: float, result: Aftermath) -> None:
    """The others print nothing."""


Cascade = Callable[[Scene, dict[str, Any], float, Aftermath], None]
CASCADES: dict[str, Cascade] = {
    "timeout": lambda scene, spec, at, result: timeout(scene, spec, at, result, everybody=False),
    "timeout-all": lambda scene, spec, at, result: timeout(scene, spec, at, result, everybody=True),
    "lost": lost,
    "remote-all": remote_all,
    "stopped": _nothing,
    "none": _nothing,
}


def follow(scene: Scene, spec: dict[str, Any], at: float) -> Aftermath:
    """Return what follows a fault at a moment."""
    result = Aftermath()
    if spec.get("exit") is not None and not spec.get("all_die"):
        ended = at + scene.chance.uniform(0.05, 0.3)
        result.deaths += [Death(rank, ended + 0.02 * i, int(spec["exit"])) for i, rank in enumerate(scene.culprits[:8])]
    kind = scene.chance.choice(spec.get("cascade", ["none"]))
    CASCADES[kind](scene, spec, at, result)
    if "all_die" in spec:
        present = sorted({*scene.victims, *(() if spec.get("silent") else scene.culprits)})
        first = at + (1.0 if spec.get("phase") == "startup" else 0.3)
        result.deaths += [Death(r, first + scene.chance.expovariate(1.2), int(spec["all_die"])) for r in present]
    return result
