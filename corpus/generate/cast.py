"""Who plays which part: culprits, victims that speak, and the values that all of their lines share."""

from __future__ import annotations

import re
from random import Random
from typing import Any

from corpus.generate.job import Job
from corpus.generate.scene import Scene
from corpus.generate.template import draw, render
from corpus.generate.variants import Variant

_OPERATIONS = (
    ("ALLREDUCE", 1),
    ("_ALLGATHER_BASE", 0),
    ("_REDUCE_SCATTER_BASE", 2),
    ("BROADCAST", 1),
    ("ALLGATHER", 0),
)


def culprits(variant: Variant, job: Job, chance: Random) -> list[int]:
    """Return the ranks that are to blame."""
    kind = variant.spec.get("culprit", "rank")
    if kind == "none":
        return []
    if kind == "rank0":
        return [0]
    if kind == "rank-not0":
        return [chance.randrange(1, job.world_size)]
    if kind == "rank":
        return [chance.randrange(job.world_size)]
    if kind == "pair":
        first = chance.randrange(job.hosts) * job.per_host
        ranks = list(range(first, min(first + job.per_host, job.world_size)))
        if len(ranks) < 2:
            ranks = list(range(job.world_size))
        return sorted(chance.sample(ranks, 2))
    host = job.hosts - 1 if kind == "last-host" else chance.randrange(min(1, job.hosts - 1), job.hosts)
    return list(range(host * job.per_host, min((host + 1) * job.per_host, job.world_size)))


def victims(job: Job, guilty: list[int], most: int, chance: Random) -> list[int]:
    """Return the other ranks that get to print something: the culprits' neighbours in the ring, then others at random."""
    blamed = set(guilty)
    near = [r % job.world_size for c in guilty for r in (c + 1, c - 1)]
    picked = dict.fromkeys(r for r in near if r not in blamed)
    rest = job.world_size - len(blamed)
    if rest <= most:
        return [r for r in range(job.world_size) if r not in blamed]
    for rank in (0, job.world_size // 2, job.world_size - 1):
        if rank not in blamed:
            picked.setdefault(rank)
    while len(picked) < most:
        rank = chance.randrange(job.world_size)
        if rank not in blamed:
            picked.setdefault(rank)
    return sorted(list(picked)[:most])


def _numels(operation: str, job: Job, chance: Random) -> tuple[int, int]:
    small = chance.choice((1, 4096, 1_048_576, 5_898_240, 131_072_000, chance.randrange(2, 10**8)))
    shape = dict(_OPERATIONS)[operation]
    if shape == 0:
        return small, small * job.world_size
    if shape == 2:
        return small * job.world_size, small
    return small, small


def collective(variant: Variant, job: Job, chance: Random) -> dict[str, str]:
    """Return the values of the collective in which the job got stuck."""
    spec = variant.spec
    operation = str(spec.get("op") or chance.choice(_OPERATIONS)[0])
    size_in, size_out = _numels(operation, job, chance)
    if "numel" in spec:
        size_in = size_out = int(spec["numel"])
    seq = (
        int(spec.get("seq") or chance.randrange(3, 9))
        if spec.get("early") or "seq" in spec
        else chance.randrange(40, 90_000)
    )
    usual = 600_000 if job.release.number >= (2, 2) else 1_800_000
    guid = "0" if chance.random() < 0.7 else str(chance.randrange(1, 20))
    return {
        "op": operation,
        "numel_in": str(size_in),
        "numel_out": str(size_out),
        "seq": str(seq),
        "pg": "0" if guid == "0" else str(chance.randrange(1, 4)),
        "guid": guid,
        "pg_desc": "default_pg"
        if guid == "0"
        else chance.choice(("mesh_dp", "mesh_fsdp", "undefined", "DATA_PARALLEL_GROUP")),
        "timeout_ms": str(chance.choice((usual, usual, usual, 1_800_000, 3_600_000))),
    }


def _batch(job: Job, chance: Random) -> dict[str, str]:
    micro, accumulation = chance.choice((1, 2, 4)), chance.choice((2, 4, 8, 18))
    product = micro * accumulation * job.world_size
    wrong = chance.choice(
        [b for b in (48, 100, 128, 256, 512, 1000) if b != product and b % (micro * job.world_size)] or [product + 1]
    )
    return {"micro": str(micro), "accumulation": str(accumulation), "train_batch": str(wrong)}


def _layout(job: Job, chance: Random) -> dict[str, str]:
    wrong = [n for n in (3, 6, 12, 16, 24, 48, 64) if job.world_size % n]
    return {"layout": str(chance.choice(wrong))}


_MODELS = {"batch": _batch, "layout": _layout}


def set_the_scene(variant: Variant, job: Job, chance: Random, *, most: int, nccl_debug: str | None) -> Scene:
    """Return the scene of a variant in a job, with at most so many victims that speak."""
    spec: dict[str, Any] = variant.spec
    guilty = culprits(variant, job, chance)
    scene = Scene(
        job,
        chance,
        guilty,
        victims(job, guilty, most, chance),
        nccl_debug=nccl_debug or str(spec.get("nccl_debug") or chance.choice(("WARN", "INFO", "INFO"))),
        fabric=str(spec.get("fabric") or chance.choice(("ib", "ib", "socket"))),
    )
    leader = guilty[0] if guilty else 0
    host = job.host_of(leader)
    others = [r for r in scene.victims if r not in guilty]
    values = {
        **collective(variant, job, chance),
        "culprit_rank": str(leader),
        "culprit_ip": job.address(host),
        "culprit_host": job.host_name(host),
        "other_rank": str(0 if leader else (others[0] if others else 0)),
        "present": str(job.world_size - len(guilty)),
        "double_world": str(2 * job.world_size),
        "remote_error": _remote_error(job),
        "device_error": str(spec.get("device", "unspecified launch failure")),
    }
    if len(guilty) > 1:
        values |= {"pair_rank": str(guilty[1]), "pair_bus": job.rank_fields(guilty[0])["bus"]}
    if "model" in spec:
        values |= _MODELS[spec["model"]](job, chance)
    for name, expression in spec.get("draw", {}).items():
        values[name] = draw(str(expression), chance)
    if "late" in spec:
        # Seconds after the others: later than their time-out, or nothing would have failed.
        values["late"] = str(int(values["timeout_ms"]) // 1000 + int(draw(str(spec["late"]), chance)))
    scene.values = values
    if "last_error" in spec:
        values["last_error"] = render(str(spec["last_error"]), {**job.common, **values}, chance)
    else:
        name = f"{values['culprit_host']}.cluster.local" if chance.random() < 0.5 else values["culprit_ip"]
        values["last_error"] = (
            f"socketProgress: Connection closed by remote peer {name}<{chance.randrange(30_000, 60_000)}>"
        )
    return scene


def _remote_error(job: Job) -> str:
    if job.release.nccl_number >= (2, 18):
        return f"remote process exited or there was a network error, NCCL version {job.release.nccl}"
    return f"unhandled system error, NCCL version {job.release.nccl}"


def telling_pattern(variant: Variant, scene: Scene) -> re.Pattern[str]:
    """Return the regular expression of the most telling line."""
    text = str(variant.spec["telling"])
    if "{{" in text:
        text = render(text, {name: re.escape(value) for name, value in scene.values.items()}, scene.chance)
    return re.compile(text)
