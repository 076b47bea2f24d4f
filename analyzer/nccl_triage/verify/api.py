"""Verifies a report document: makes the plan from the settings, reaches the hosts, carries it out, and returns the outcomes."""

from __future__ import annotations

import importlib.util
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from nccl_triage.document import verify_commands
from nccl_triage.engine.schema import RuleSet, Text
from nccl_triage.errors import UsageError
from nccl_triage.verify import decidable, feedback, gpus, plan, previous, session
from nccl_triage.verify.cluster import Cluster
from nccl_triage.verify.collective_run import HostPlace
from nccl_triage.verify.conduct import carry_out
from nccl_triage.verify.judge import Report
from nccl_triage.verify.launchers import Launcher
from nccl_triage.verify.plan import Means, Plan, PlanOptions
from nccl_triage.verify.question import Question, ask, host_of
from nccl_triage.verify.trials import Session
from nccl_triage.verify.worker import host


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the command line; ``hosts`` are ``NAME`` or ``NAME=COMMAND`` (default command: ``ssh NAME``).

    ``paths`` are what commands for other launchers read, where it is not the document's own inputs (a report.json).
    """

    launcher: str = "local"
    hosts: tuple[str, ...] = ()
    ranks_per_host: int | None = None
    python: str | None = None
    ray_address: str | None = None
    workdir: Path | None = None
    force: bool = False
    wait: float = 0.0
    previous: tuple[Path, ...] = ()
    options: PlanOptions = field(default_factory=PlanOptions)
    paths: tuple[str, ...] = ()

    @property
    def chosen(self) -> bool:
        """Whether the user says where or how the ranks run: then they run even if they can decide nothing."""
        sizes = self.ranks_per_host, self.options.world
        return bool(self.hosts or any(sizes) or self.launcher != "local" or self.options.backend != "auto")


def places_of(settings: Settings) -> tuple[HostPlace, ...]:
    """Return the places that ``--host`` names, or this host; raises UsageError for one that cannot be read."""
    slots = settings.ranks_per_host
    if not settings.hosts:
        return (HostPlace(os.uname().nodename, slots=slots),)
    found = []
    for entry in settings.hosts:
        name, given, command = entry.partition("=")
        try:
            words = (
                shlex.split(command) if given else ["ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", name]
            )
        except ValueError as error:
            raise UsageError(
                "--host {entry}: {error}", remedy="quote the command as for a shell", entry=entry, error=error
            ) from None
        if not name or (given and not words):
            raise UsageError("--host {entry}: expected NAME or NAME=COMMAND", entry=entry)
        found.append(HostPlace(name, tuple(words), slots))
    return _distinct(found)


def _distinct(places: Sequence[HostPlace]) -> tuple[HostPlace, ...]:
    if len({place.name for place in places}) < len(places):
        raise UsageError("--host names a host twice", remedy="use --ranks-per-host for several ranks on one host")
    return tuple(places)


#: Interfaces of containers and virtual machines, whose addresses many hosts have alike.
_BRIDGES = ("docker", "br-", "virbr", "veth", "cni", "flannel", "podman", "lxc", "lxd")


def own_addresses() -> tuple[str, ...]:
    """Return the IPv4 addresses of this host that tell it from others."""
    found = host.interfaces()
    return tuple(
        entry["address"] for entry in found if not (entry["loopback"] or str(entry["name"]).startswith(_BRIDGES))
    )


def as_in_log(places: Sequence[HostPlace], question: Question) -> tuple[HostPlace, ...]:
    """Return the places by the names that the log has for them; raises UsageError where two are one host of the log."""
    own = own_addresses() if question.hosts and any(not place.command for place in places) else ()
    names = [host_of(question, place.name, () if place.command else own) for place in places]
    return _distinct([replace(place, name=name or place.name) for place, name in zip(places, names, strict=True)])


def in_words_of_log(settings: Settings, question: Question) -> Settings:
    """Return the settings with each ``--host`` by the name that the log has for it, as a scheduler knows it."""
    entries = [entry.partition("=") for entry in settings.hosts]
    return replace(settings, hosts=tuple((host_of(question, name) or name) + "".join(rest) for name, *rest in entries))


def _torch(settings: Settings) -> str | None:
    """Return the version of torch that the ranks will import, ``unknown`` behind another Python, None without any."""
    if settings.python or settings.launcher != "local":
        return "unknown"
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "unknown" if importlib.util.find_spec("torch") is not None else None


def means_of(settings: Settings) -> Means:
    """Return the means of this host; GPUs in use count as none, with the reason."""
    places = places_of(settings)
    torch = _torch(settings)
    if settings.options.backend == "nccl" and (settings.hosts or settings.launcher != "local"):
        # The agents look at the GPUs of other hosts when they are there.
        return Means(places, settings.ranks_per_host or 1, torch=torch)
    if settings.options.backend == "gloo" or not gpus.likely_present():
        return Means(places, torch=torch)
    inventory = gpus.visible()
    found = gpus.idle(inventory)
    faults = tuple(refusal.reason_en for refusal in found if refusal.evidence)
    refusals = [] if settings.options.allow_busy else found
    usable = [gpu for gpu in inventory.gpus if gpu not in [refusal.gpu for refusal in refusals]]
    if usable:
        free = min((gpu.memory_free or 0) for gpu in usable)
        devices = ",".join(gpu.uuid for gpu in usable) if len(usable) < len(inventory.gpus) else None
        return Means(places, len(usable), free, usable[0].name, torch=torch, gpu_faults=faults, devices=devices)
    reason: Text = {
        "en": inventory.problem or "no NVIDIA GPU is visible",
        "zh": inventory.problem or "看不到 NVIDIA GPU",
    }
    if refusals:
        reason = {
            "en": "; ".join(refusal.reason_en for refusal in refusals[:4]) + " (--allow-busy uses them anyway)",
            "zh": "；".join(refusal.reason_zh for refusal in refusals[:4]) + "（--allow-busy 可强制使用）",
        }
    return Means(places, no_gpu=reason, torch=torch, gpu_faults=faults)


def question_of(document: dict[str, Any]) -> Question:
    """Return the question of a document, with only those variables that an experiment may repeat."""
    question = ask(document)
    return replace(question, env=session.allowed_env(question.env))


def plan_of(document: dict[str, Any], rules: RuleSet, settings: Settings) -> Plan:
    """Return the plan for a document; only the list of GPUs is read.

    Unless the settings say where or how, what could decide nothing on this host is left out, with the reason.
    """
    question, means = question_of(document), means_of(settings)
    made = plan.build(
        question, rules.causes, replace(means, places=as_in_log(means.places, question)), settings.options
    )
    if settings.chosen:
        return made
    return decidable.only_deciding(made, [decidable.RunHost(place.name) for place in made.means.places])


__all__ = ["Settings", "launcher_of", "means_of", "places_of", "plan_of", "question_of", "verify"]


@contextmanager
def launcher_of(settings: Settings, made: Plan, folder: Path) -> Iterator[Launcher]:
    """Yield the launcher that the settings ask for."""
    if settings.launcher == "ray":
        from nccl_triage.verify.launchers.ray_cluster import RayLauncher

        question = made.question
        hosts = len(settings.hosts) or (len(question.hosts) if len(question.hosts) > 1 else None)
        world = settings.options.world or question.world or 1
        each = settings.ranks_per_host or -(-world // (hosts or world))
        yield RayLauncher(settings.ray_address, hosts, each, folder, settings.options.backend == "nccl")
        return
    from nccl_triage.verify.launchers.processes import ProcessLauncher

    yield ProcessLauncher(made.means.places, folder, settings.python)


def verify(
    document: dict[str, Any],
    rules: RuleSet,
    settings: Settings,
    *,
    say: Callable[[Mapping[str, str]], None] = lambda text: None,
    faults: dict[str, Any] | None = None,
    made: Plan | None = None,
) -> tuple[dict[str, Any], Report]:
    """Carry out the experiments for a document and return it with their outcomes, and the report.

    Raises UsageError when the hosts cannot be reached or another verifier runs here. ``faults`` make ranks misbehave on
    purpose, to test the verifier. ``made`` is the plan where ``plan_of`` was called already.
    """
    made = made or plan_of(document, rules, settings)
    earlier = previous.read(settings.previous)
    if not any(entry.control for entry in made.experiments) and settings.launcher == "local":
        report = carry_out(Session(Cluster(_Nowhere()), made, rules, Path(), say=say))
        return with_commands(feedback.apply(document, report), settings), report
    with (
        session.lock(wait=settings.wait),
        session.workspace(settings.workdir, force=settings.force) as folder,
        launcher_of(settings, made, folder) as launcher,
        Cluster(launcher) as cluster,
    ):
        if settings.launcher == "ray":  # the hosts are known only now
            made = plan.build(
                made.question, rules.causes, replace(made.means, places=tuple(cluster.places)), settings.options
            )
        report = carry_out(Session(cluster, made, rules, folder, say=say, faults=faults))
    report.previous = earlier
    return with_commands(feedback.apply(document, report), settings), report


def with_commands(document: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Return the document with the commands that could test what has not run: not by the launcher just tried."""
    tried = verify_commands.launcher_of(settings.launcher, bool(settings.hosts))
    if settings.hosts and not _names_job(document, settings):
        tried = "local"  # other hosts than the job's: ssh to those of the job is something else
    ready = verify_commands.to_confirm(document, settings.paths, tried)
    for entry in document["diagnoses"]:
        if entry["verification"] is not None:
            entry["verification"]["to_confirm"] = ready if entry["verification"]["outcome"] == "not-run" else []
    return document


def _names_job(document: dict[str, Any], settings: Settings) -> bool:
    """Tell whether ``--host`` names every host of the job that its command would name."""
    question = question_of(document)
    given = {host_of(question, entry.partition("=")[0]) for entry in settings.hosts}
    return given.issuperset(question.hosts)


class _Nowhere:
    """The launcher of a plan in which nothing can run."""

    places: Sequence[HostPlace] = ()

    def open(self) -> list[Any]:
        """Open nothing."""
        return []

    def close(self) -> None:
        """Close nothing."""
