"""Play an incident: turn the description of a variant into events, in order, without what dead processes would print."""

from __future__ import annotations

from typing import Any

from corpus.generate import launchers
from corpus.generate.cascade import Aftermath, follow
from corpus.generate.scene import Event, Scene
from corpus.generate.variants import Variant, satisfied

#: Speakers of one line when a cause concerns everybody in a large job.
_MOST_SPEAKERS = 4096


def _speakers(who: str, scene: Scene, share: float) -> list[int]:
    job, guilty, victims = scene.job, scene.culprits, scene.victims
    everybody = sorted({*guilty, *victims})
    hosts = list(dict.fromkeys(map(job.host_of, everybody)))
    choices: dict[str, list[int]] = {
        "culprit": guilty[:8] or victims[:1],
        "culprit-host": guilty[:1] or victims[:1],
        "rank0": [0],
        "rank0-other": [0] if 0 not in guilty else [],
        "others": victims,
        "others-not0": [r for r in victims if r],
        "all": everybody,
        "some": everybody,
        "some-others": victims,
        "far-hosts": [r for r in everybody if job.host_of(r) >= (job.hosts + 1) // 2],
        "every-host": [h * job.per_host for h in hosts],
        "every-far-host": [h * job.per_host for h in hosts if h],
    }
    ranks = choices[who][:_MOST_SPEAKERS]
    if who.startswith("some"):
        ranks = sorted(scene.chance.sample(ranks, max(1, round(len(ranks) * share)))) if ranks else []
    return ranks


def _wanted(item: dict[str, Any], scene: Scene) -> bool:
    release = scene.job.release
    if scene.job.launcher not in item.get("only_launchers", (scene.job.launcher,)):
        return False
    return satisfied(item.get("torch"), release.number) and satisfied(item.get("nccl"), release.nccl_number)


def _say(item: dict[str, Any], scene: Scene, rank: int, at: float) -> list[Event]:
    form, text = item.get("form", "plain"), str(item.get("text", ""))
    if form == "plain":
        return [scene.plain(text, rank, at)]
    if form == "traceback":
        return [scene.traceback(rank, at, frames=str(item["frames"]), error=str(item["error"]), text=text, item=item)]
    if form == "warn":
        return [scene.nccl(text, rank, at, str(item["where"]))]
    if form == "info":
        return [scene.nccl(text, rank, at)] if scene.nccl_debug == "INFO" else []
    if form in ("c10", "c10-early"):
        return [
            scene.c10(text, rank, at, level=str(item["level"]), where=str(item["where"]), early=form == "c10-early")
        ]
    if form == "device":
        return scene.device(rank, at)
    if form == "kernel":
        return [scene.kernel(text, rank, at)]
    if form == "agent":
        return [scene.agent(text, rank, at, level=str(item["level"]), line="723")]
    if form == "agent-closing":
        return launchers.closing(scene, scene.job.host_of(rank), at, set(), str(item.get("signal", "SIGTERM")))
    if form == "driver-traceback":
        return [_driver_traceback(item, scene, at)]
    if form in ("raw", "driver", "node"):
        return [Event(at, scene.fill(text, rank, at), rank, "node" if form == "node" else "raw")]
    raise ValueError(f"unknown form {form!r}")


def _driver_traceback(item: dict[str, Any], scene: Scene, at: float) -> Event:
    lines = ["Traceback (most recent call last):", *scene.frames(["main"], 0, at)]
    said = scene.fill(f"{item['error']}: {item['text']}", 0, at)
    return Event(at, "\n".join([*lines, said]), 0, "raw")


def _root(variant: Variant, scene: Scene, at: float) -> list[Event]:
    events: list[Event] = []
    offset = 0.0
    for item in variant.spec["lines"]:
        if not _wanted(item, scene):
            continue
        given = item.get("at")
        offset = offset + 0.02 if given is None else float(scene.values["late"] if given == "{{late}}" else given)
        ranks = _speakers(str(item.get("who", "culprit")), scene, float(item.get("share", 1.0)))
        if item.get("form") in ("kernel", "raw", "driver-traceback") and item.get("who", "culprit") == "culprit":
            ranks = ranks[:1]
        jitter = 0.0 if len(ranks) < 2 else 0.8
        for rank in ranks:
            for event in _say(item, scene, rank, at + offset + jitter * scene.chance.random()):
                event.telling = bool(item.get("telling"))
                events.append(event)
    return events


def _fault_time(variant: Variant, events: list[Event], at: float) -> float:
    """Return when the culprits' processes are done talking: what follows comes later."""
    last = [event.at for event in events if event.voice == "rank" and event.telling]
    return max([at, *last])


def _survive(events: list[Event], scene: Scene, after: Aftermath, killed: dict[int, float]) -> list[Event]:
    """Drop what processes would have printed after their end."""
    ends = {death.rank: death.at for death in after.deaths}
    kept = []
    for event in events:
        if event.voice == "rank":
            end = killed.get(-1, killed.get(scene.job.host_of(event.rank), float("inf")))
            if event.at > min(end, ends.get(event.rank, float("inf")) + 0.2):
                continue
        kept.append(event)
    return kept


def play(variant: Variant, scene: Scene, at: float) -> list[Event]:
    """Return the events of an incident that strikes at a moment."""
    spec = variant.spec
    scene.ray_errors = 0
    root = _root(variant, scene, at)
    alive = bool(spec.get("alive"))
    after = follow(scene, spec, at if alive else _fault_time(variant, root, at))
    killed = launchers.kills(scene, after.deaths)
    first: dict[int, float] = {}
    for death in sorted(after.deaths, key=lambda d: d.at):
        first.setdefault(death.rank, death.at)
    limit = killed.get(-1, float("inf"))
    deaths = [d for d in after.deaths if d.at == first[d.rank] and d.at <= limit + 0.001]
    if spec.get("silent") and "all_die" not in spec:
        deaths = [d for d in deaths if d.rank not in scene.culprits]
    if any(item.get("form") == "agent-closing" for item in spec["lines"]) or spec.get("name") == "slurm-limit":
        deaths = []
    if any(item.get("form") == "raw" and "ray.exceptions" in str(item.get("text")) for item in spec["lines"]):
        scene.values["ray_explained"] = "1"
    told = [event for event in root if event.telling]
    events = _survive(root, scene, Aftermath(), {}) + _survive(after.events, scene, after, killed)
    events += launchers.report(scene, deaths, killed)
    if not told:
        for event in events:
            event.telling = True
    return sorted(events, key=lambda event: event.at + scene.job.skew(scene.job.host_of(event.rank)) * 0.2)
