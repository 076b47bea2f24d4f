"""Launchers: what they put in front of lines, when they end the other processes, what they report."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from random import Random
from typing import Any

from corpus.generate import data
from corpus.generate.job import Job
from corpus.generate.scene import Event, Scene
from corpus.generate.template import render

NAMES = ("torchrun", "torchrun-tee", "srun", "mpirun", "kubernetes", "deepspeed", "plain", "ray", "vllm")
ELASTIC = ("torchrun", "torchrun-tee", "kubernetes")
_WORDS = {
    4: "Illegal instruction",
    6: "Aborted",
    7: "Bus error",
    9: "Killed",
    11: "Segmentation fault",
    15: "Terminated",
}
#: A log rarely holds the reports of more nodes than these.
_MOST_REPORTS = 6


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a rank's process."""

    rank: int
    at: float
    code: int


def prefix(job: Job, event: Event, chance: Random) -> str:
    """Return what the launcher puts in front of a line."""
    known: dict[str, str] = data.load("launchers.yaml")["prefixes"][job.launcher]
    if event.voice == "raw":
        return ""
    host = job.host_of(event.rank)
    if event.voice == "node":
        text = known.get("many", known["node"]) if job.hosts > 1 else known["node"]
    elif job.hosts > 1 and "many" in known:
        text = known["many"]
    elif host > 0 and "rank_far" in known:
        text = known["rank_far"]
    else:
        text = known["rank"]
    if not text:
        return ""
    fields = {**job.rank_fields(event.rank), **job.moment(event.at, host), "first_rank": str(host * job.per_host)}
    return render(text, fields, chance)


def pool_prefix(job: Job, rank: int, fields: dict[str, str], chance: Random) -> str:
    """Return the prefix of a prepared line: like ``prefix``, with tokens in place of the time."""
    known: dict[str, str] = data.load("launchers.yaml")["prefixes"][job.launcher]
    text = known["rank"]
    if job.hosts > 1:
        text = known.get("many", known.get("rank_far", text) if job.host_of(rank) else text)
    return render(text, fields, chance) if text else ""


def kills(scene: Scene, deaths: list[Death]) -> dict[int, float]:
    """Return when each host's remaining processes are ended; the key -1 stands for every host."""
    rule: dict[str, Any] = data.load("launchers.yaml")["kills"][scene.job.launcher]
    if rule["scope"] == "none" or not deaths or scene.chance.random() >= rule.get("chance", 1.0):
        return {}
    found: dict[int, float] = {}
    for death in sorted(deaths, key=lambda d: d.at):
        key = -1 if rule["scope"] == "job" else scene.job.host_of(death.rank)
        if key not in found:
            found[key] = death.at + scene.chance.uniform(rule["low"], rule["high"])
    return found


def report(scene: Scene, deaths: list[Death], killed: dict[int, float]) -> list[Event]:
    """Return what the launcher prints about the end of the job."""
    if not deaths:
        return []
    deaths = sorted(deaths, key=lambda d: (d.at, d.rank))
    launcher = scene.job.launcher
    if launcher in ELASTIC:
        return [event for host in _hosts(scene, deaths) for event in _elastic(scene, host, deaths, killed)]
    if launcher == "srun":
        return _srun(scene, deaths, killed)
    if launcher == "mpirun":
        return _mpirun(scene, deaths[0])
    if launcher == "deepspeed":
        return [event for host in _hosts(scene, deaths) for event in _deepspeed(scene, host, deaths)]
    if launcher == "ray":
        return _ray(scene, deaths[0])
    if launcher == "vllm":
        return [_block(scene, "vllm_died", deaths[0].rank, deaths[0].at + 0.5)]
    return [
        _block(scene, "shell_killed", death.rank, death.at + 0.2, words=_WORDS.get(-death.code, "Killed"))
        for death in deaths[:8]
        if death.code < 0 and death.code != -signal.SIGINT
    ]


def _hosts(scene: Scene, deaths: list[Death]) -> list[int]:
    return list(dict.fromkeys(scene.job.host_of(death.rank) for death in deaths))[:_MOST_REPORTS]


def _block(scene: Scene, name: str, rank: int, at: float, **extra: str) -> Event:
    text = str(data.load("launchers.yaml")[name])
    return Event(at, scene.fill(text, rank, at, **{"last_local": str(scene.job.per_host - 1), **extra}), rank, "raw")


def closing(scene: Scene, host: int, at: float, spared: set[int], name: str = "SIGTERM") -> list[Event]:
    """Return the agent's lines about the processes that it ends."""
    lines = _agent_lines(scene)
    first = host * scene.job.per_host
    ranks = [r for r in range(first, first + scene.job.per_host) if r not in spared]
    return [
        scene.agent(
            f"Sending process {scene.job.pid(r)} closing signal {name}", first, at, level="W", line=lines["closing"]
        )
        for r in ranks
    ]


def _agent_lines(scene: Scene) -> dict[str, str]:
    known = data.load("torch.yaml")["agent_lines"]
    short = ".".join(map(str, scene.job.release.number))
    return {key: str(value) for key, value in known.get(short, known["2.3"]).items()}


def _elastic(scene: Scene, host: int, deaths: list[Death], killed: dict[int, float]) -> list[Event]:
    job = scene.job
    own = [death for death in deaths if job.host_of(death.rank) == host]
    at = killed.get(host, own[0].at + 1.0)
    own = [death for death in own if death.at <= at] or own[:1]
    events = closing(scene, host, at, {death.rank for death in own}) if len(own) < job.per_host else []
    root = own[0]
    local, pid = root.rank % job.per_host, job.pid(root.rank)
    text = f"failed (exitcode: {root.code}) local_rank: {local} (pid: {pid}) of binary: {{{{executable}}}}"
    lines = _agent_lines(scene)
    done = at + scene.chance.uniform(0.3, 4.0)
    events.append(scene.agent(text, root.rank, done, level="E", line=lines["failed"]))
    table = _table(scene, own, done)
    trace = scene.fill(str(data.load("launchers.yaml")["elastic_traceback"]), root.rank, done)
    events.append(Event(done + 0.01, f"{trace}\n{table}", root.rank, "node"))
    return events


def _entry(scene: Scene, number: int, death: Death, done: float) -> list[str]:
    fields = scene.fields(death.rank, min(death.at + 0.3, done))
    local = death.rank % scene.job.per_host
    if death.code < 0:
        name = signal.Signals(-death.code).name
        shown = "" if "spaced_exit" in scene.job.release.texts else f"  ({name})"
        reason = f"Signal {-death.code} ({name}) received by PID {fields['pid']}"
    else:
        shown, reason = "", "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    return [
        f"[{number}]:",
        f"  time      : {fields['underscored']}",
        f"  host      : {fields['fqdn']}",
        f"  rank      : {death.rank} (local_rank: {local})",
        f"  exitcode  : {death.code} (pid: {fields['pid']}){shown}",
        "  error_file: <N/A>",
        f"  traceback : {reason}",
    ]


def _table(scene: Scene, own: list[Death], done: float) -> str:
    lines = [scene.fill("{{script_name}} FAILED", own[0].rank, done), "-", "Failures:"]
    for number, death in enumerate(own[1:], 1):
        lines += _entry(scene, number, death, done)
    if len(own) == 1:
        lines.append("  <NO_OTHER_FAILURES>")
    lines += ["-", "Root Cause (first observed failure):", *_entry(scene, 0, own[0], done)]
    width = min(60, max(map(len, lines)))
    return "\n".join(["=" * width, *(line if line != "-" else "-" * width for line in lines), "=" * width])


def _tasks(ranks: list[int]) -> str:
    parts: list[str] = []
    start = previous = ranks[0]
    for rank in [*ranks[1:], -1]:
        if rank != previous + 1:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
            start = rank
        previous = rank
    return ("task " if len(ranks) == 1 else "tasks ") + ",".join(parts)


def _srun(scene: Scene, deaths: list[Death], killed: dict[int, float]) -> list[Event]:
    def line(host: int, ranks: list[int], words: str, at: float) -> Event:
        name = scene.job.host_name(host)
        return Event(at, f"srun: error: {name}: {_tasks(sorted(ranks))}: {words}", ranks[0], "raw")

    groups: dict[tuple[int, str], list[Death]] = {}
    for death in deaths:
        words = f"Exited with exit code {death.code}" if death.code >= 0 else _WORDS.get(-death.code, "Killed")
        if death.code in (-6, -11, -7, -4):
            words += " (core dumped)" if scene.job.salt % 2 else ""
        groups.setdefault((scene.job.host_of(death.rank), words), []).append(death)
    events = [
        line(host, [d.rank for d in own], words, own[0].at + 0.4)
        for (host, words), own in list(groups.items())[: 4 * _MOST_REPORTS]
    ]
    if -1 in killed:
        events.append(_block(scene, "srun_step", deaths[0].rank, killed[-1]))
        rest = sorted(set(range(min(scene.job.world_size, 64))) - {d.rank for d in deaths})
        for host in dict.fromkeys(map(scene.job.host_of, rest)):
            ranks = [r for r in rest if scene.job.host_of(r) == host]
            events.append(line(host, ranks, scene.chance.choice(("Terminated", "Killed")), killed[-1] + 2.0))
    return events


def _mpirun(scene: Scene, first: Death) -> list[Event]:
    if first.code >= 0:
        return [_block(scene, "mpirun_exit", first.rank, first.at + 1.0, code=str(first.code))]
    number = -first.code
    words = _WORDS.get(number, "Killed")
    return [_block(scene, "mpirun_signal", first.rank, first.at + 1.0, signal=str(number), signal_words=words)]


def _deepspeed(scene: Scene, host: int, deaths: list[Death]) -> list[Event]:
    own = [death for death in deaths if scene.job.host_of(death.rank) == host]
    at, first = own[0].at + 1.5, host * scene.job.per_host
    events = [
        _block(scene, "deepspeed_killing", first, at, victim_pid=str(scene.job.pid(rank)))
        for rank in range(first, first + scene.job.per_host)
    ]
    events.append(_block(scene, "deepspeed_exit", own[0].rank, at + 0.5, code=str(own[0].code)))
    for event in events:
        event.voice = "node"
    return events


def _ray(scene: Scene, first: Death) -> list[Event]:
    if first.code >= 0 or scene.values.get("ray_explained"):
        return []
    return [
        _block(scene, "ray_raylet", first.rank, first.at + 0.5),
        _block(scene, "ray_died", first.rank, first.at + 1.0),
    ]
