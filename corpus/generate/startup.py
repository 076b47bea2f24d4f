"""How a job starts: the launcher's banner, the framework's first lines, NCCL's start-up block of every rank."""

from __future__ import annotations

from typing import Any

from corpus.generate import data
from corpus.generate.launchers import ELASTIC
from corpus.generate.scene import Event, Scene


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def _applies(item: dict[str, Any], scene: Scene, rank: int, wide: bool) -> bool:
    nccl = scene.job.release.nccl_number
    if "since" in item and nccl < _version(str(item["since"])):
        return False
    if "until" in item and nccl[:2] > _version(str(item["until"])):
        return False
    if item.get("who") == "rank0" and rank:
        return False
    return item.get("fabric", scene.fabric) == scene.fabric and (wide or item.get("only") != "setting")


def nccl_block(scene: Scene, rank: int, at: float, *, complete: bool, most: int | None = None) -> list[Event]:
    """Return the (first) NCCL INFO lines of one rank's communicator; not ``complete``: it fails before its end."""
    job, chance = scene.job, scene.chance
    known = data.load("nccl.yaml")
    setting = chance.choice(known["settings"])
    hcas = " ".join(f"[{i}]mlx5_{i}:1/{'RoCE' if job.salt % 3 == 0 else 'IB'}" for i in range(min(4, job.per_host)))
    channels = [f"{i:02d}" for i in range(min(16, 2 + 2 * job.per_host))]
    events: list[Event] = []
    for item in known["start"][:most]:
        text = str(item["text"])
        if not complete and text.startswith(("Setting affinity", "Channel", "Connected", "Trees")):
            break
        if not _applies(item, scene, rank, wide=rank < job.per_host):
            continue
        far = job.host_of(rank) != job.host_of((rank + 1) % job.world_size)
        route = "NET/IB/0/GDRDMA" if scene.fabric == "ib" else "NET/Socket/0"
        for channel in channels if item.get("each") else channels[:1]:
            at += chance.uniform(0.0005, 0.02)
            extra = {
                "variable": setting[0],
                "setting": scene.fill(setting[1], rank, at),
                "hcas": hcas,
                "channel": channel,
                "route": route if far else chance.choice(("P2P/IPC", "P2P/CUMEM/read", "P2P/IPC/read")),
                "wide": str(8 * job.world_size),
            }
            filled = scene.fill("{{host}}:{{pid}}:{{tid}} [{{local}}] NCCL INFO " + text, rank, at, **extra)
            events.append(Event(at, filled, rank))
    return events


def _banner(scene: Scene, at: float) -> list[Event]:
    if scene.job.launcher not in ELASTIC:
        return []
    modern = scene.job.release.number >= (2, 3)
    text = str(data.load("launchers.yaml")["elastic_banner" if modern else "elastic_banner_old"])
    return [
        Event(at, scene.fill(text, host * scene.job.per_host, at), host * scene.job.per_host, "node")
        for host in range(min(scene.job.hosts, 4))
    ]


def _framework(scene: Scene, ranks: list[int], at: float, *, complete: bool) -> list[Event]:
    lines = scene.job.framework["startup"]
    if not complete:
        lines = lines[: max(1, len(lines) // 2)]
    events = []
    for number, item in enumerate(lines):
        moment = at + 2.0 * number
        who = item["who"]
        speakers = ranks if who == "all" else [0]
        for rank in speakers[:: int(item.get("every", 1))]:
            then = moment + scene.chance.expovariate(1.0)
            voice = "raw" if who == "driver" and scene.job.launcher in ("ray", "vllm") else "rank"
            events.append(Event(then, scene.fill(str(item["text"]), rank, then), rank, voice))
    return events


def start(scene: Scene, *, budget: int, complete: bool) -> tuple[list[Event], float]:
    """Return the events of a start that fits into so many bytes or nearly so, and the moment at which it is over."""
    job = scene.job
    at = job.started
    if budget < 600:
        return [], at
    events = _banner(scene, at) if budget > 8_000 else []
    speaking = [*range(0, job.world_size, max(1, job.world_size * 160 // max(1, budget // 4)))]
    events += _framework(scene, speaking, at + 4.0, complete=complete)
    events.sort(key=lambda event: event.at)
    size, kept = 0, []
    for event in events:
        size += len(event.text) + 30
        if size > budget:
            break
        kept.append(event)
    over = max([at, *(event.at for event in kept)])
    if scene.nccl_debug == "INFO":
        # The lines of some ranks only would look as if the others had never come.
        sample = sum(len(event.text) + 30 for event in nccl_block(scene, 0, over, complete=complete))
        brief = size + sample * job.world_size > budget
        for rank in range(job.world_size if size + 100 * job.world_size < budget else 0):
            begins = over + scene.chance.expovariate(0.7)
            kept += nccl_block(scene, rank, begins, complete=complete, most=1 if brief else None)
    elif scene.nccl_debug == "WARN" and budget > 2_000:
        kept.append(Event(over + 1.0, f"NCCL version {job.release.nccl}+cuda{job.release.cuda}", 0))
    kept.sort(key=lambda event: event.at + job.skew(job.host_of(event.rank)) * 0.2)
    return kept, max([over, *(event.at for event in kept)]) + 1.0
