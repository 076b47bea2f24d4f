"""Verifies a report document: makes the plan from the settings, reaches the hosts, carries it out, and returns the outcomes."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nccl_triage.document import verify_commands
from nccl_triage.engine.schema import RuleSet, Text
from nccl_triage.errors import UsageError
from nccl_triage.hosts.links import HostPlace, Launcher
from nccl_triage.hosts.probes import host, inventory
from nccl_triage.hosts.ssh import places_of, refuse_twice
from nccl_triage.verify import decidable, feedback, plan, previous, session
from nccl_triage.verify.cluster import GREETING, Cluster, worker
from nccl_triage.verify.conduct import carry_out
from nccl_triage.verify.host_names import host_of
from nccl_triage.verify.judge import Report
from nccl_triage.verify.means import HostMeans, Means, host_means, without_gpus
from nccl_triage.verify.plan import Plan, PlanOptions
from nccl_triage.verify.question import Question, ask
from nccl_triage.verify.trials import Session


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
        return bool(
            self.hosts
            or any(sizes)
            or self.launcher != "local"
            or self.options.backend != "auto"
            or self.options.job_hosts
        )


def option_words(settings: Settings) -> tuple[str, ...]:
    """Return the options, quoted for a shell, by which another launcher plans what these settings plan."""
    options, usual = settings.options, PlanOptions()
    values = {
        "--ranks-per-host": (settings.ranks_per_host, None),
        "--python": (settings.python, None),
        "--backend": (options.backend, usual.backend),
        "--world": (options.world, usual.world),
        "--patience": (options.timeout_factor, usual.timeout_factor),
        "--budget": (options.budget, usual.budget),
        "--suspects": (options.suspects, usual.suspects),
    }
    flags = {"--allow-busy": options.allow_busy, "--job-hosts": options.job_hosts, "--trust-env": options.trust_env}
    given = [f"{name} {shlex.quote(f'{value}')}" for name, (value, default) in values.items() if value != default]
    return (*given, *(name for name, chosen in flags.items() if chosen))


def in_words_of_log(settings: Settings, question: Question) -> Settings:
    """Return the settings with each ``--host`` by the name that the log has for it, as a scheduler knows it."""
    entries = [entry.partition("=") for entry in settings.hosts]
    return replace(settings, hosts=tuple((host_of(question, name) or name) + "".join(rest) for name, *rest in entries))


def means_of(settings: Settings, question: Question | None = None) -> Means:
    """Return the means without reaching another host: this host's own, or those that the log lets expect of others."""
    places = places_of(settings.hosts, settings.ranks_per_host)
    if settings.launcher == "local" and not settings.hosts:
        return Means(places, (_here(settings),))
    asked = question or Question(())
    if not settings.hosts and asked.hosts:  # the job's own nodes
        places = tuple(HostPlace(name, slots=settings.ranks_per_host) for name in asked.hosts)
    return Means.alike(places, _expected_gpus(asked, settings, len(places)))


def _expected_gpus(question: Question, settings: Settings, hosts: int) -> int:
    """Return how many GPUs a host of the job has at least, as far as the log shows or the user says."""
    named = max((len(ranks) for ranks in question.ranks_of.values()), default=0)
    world = settings.options.world or question.world or 0
    return max(1, named, settings.ranks_per_host or 0, -(-world // hosts))


def _here(settings: Settings) -> HostMeans:
    """Return what this host offers, without starting a process of its Python; torch is unknown behind another one."""
    options = settings.options
    told = inventory.answer(look=options.backend != "gloo" and inventory.likely_present(), imports=False)
    if settings.python:
        told["torch"] = {}
    return host_means(told, host.facts(), allow_busy=options.allow_busy)


def question_of(document: dict[str, Any], options: PlanOptions) -> Question:
    """Return the question of a document, with the variables that an experiment may repeat by these options."""
    return ask(document, options.trust_env)


def plan_of(document: dict[str, Any], rules: RuleSet, settings: Settings) -> Plan:
    """Return the plan for a document as far as it can be known without reaching another host."""
    question = question_of(document, settings.options)
    means = means_of(settings, question)
    refuse_twice(means.names_in_log(range(len(means.places)), question))
    return _deciding(plan.build(question, rules.causes, means, settings.options), settings)


def _deciding(made: Plan, settings: Settings) -> Plan:
    """Return a plan without what could decide nothing, with the reason, unless the settings say where or how to run."""
    return made if settings.chosen else decidable.only_deciding(made)


@contextmanager
def launcher_of(settings: Settings, question: Question, folder: Path) -> Iterator[Launcher]:
    """Yield the launcher that the settings ask for."""
    program, slots = worker(), settings.ranks_per_host
    if settings.launcher == "ray":
        from nccl_triage.hosts.ray_launcher import RayLauncher
        from nccl_triage.verify.node_choice import NodeChoice

        names = tuple(entry.partition("=")[0] for entry in settings.hosts)
        options = settings.options
        choice = NodeChoice(question, names, options.world, slots, options.backend != "gloo")
        address = settings.ray_address or own_address(question.ray_address, names)
        yield RayLauncher(address, program, choice.among, folder, slots)
        return
    from nccl_triage.hosts.processes import ProcessLauncher

    yield ProcessLauncher(places_of(settings.hosts, slots), program, settings.python, settings.python)


def own_address(address: str | None, names: Sequence[str]) -> str | None:
    """Return an address of the log (``host:port``) if its host is this one, or one that the user named; else None.

    Who joins a cluster runs what it is sent: a log must not choose the cluster.
    """
    named, _, _ = (address or "").rpartition(":")
    return address if named and (named in names or host.has(named)) else None


def ask_hosts(cluster: Cluster, settings: Settings) -> Means:
    """Ask every host of an open cluster for its facts, its GPUs and its torch; raises UsageError for one that is silent."""
    cluster.greet(GREETING)
    answers = cluster.gpus(range(len(cluster.places)), imports=settings.options.backend != "gloo")
    busy = settings.options.allow_busy
    found = [host_means(answers.get(place), facts, allow_busy=busy) for place, facts in enumerate(cluster.facts)]
    return Means(tuple(cluster.places), tuple(found))


def reserved(cluster: Cluster, means: Means, used: Iterable[int], *, needed: bool = True) -> Means:
    """Return the means after their GPUs on the used hosts were reserved, where somebody shares them out.

    Where they are not to be had, raises UsageError if they are ``needed``, and else returns the means without GPUs.
    """
    # Whoever shares them out does not know which of them are busy: of more of them, more are idle.
    wanted = {place: means.hosts[place].present for place in sorted(used)}
    try:
        return means.with_only(cluster.reserve(wanted)) if wanted else means
    except UsageError as error:
        if needed:
            raise
        texts = {lang: "; ".join(filter(None, error.in_language(lang)[:2])) for lang in ("en", "zh")}
        return without_gpus(means, texts)


def _plan(cluster: Cluster, question: Question, rules: RuleSet, settings: Settings) -> Plan:
    """Return the plan for an open cluster; the GPUs that it uses are reserved."""
    means, options = ask_hosts(cluster, settings), settings.options
    if settings.hosts and settings.launcher == "local":  # by its addresses one may be another of them
        refuse_twice(means.names_in_log(range(len(means.places)), question))
    made = plan.build(question, rules.causes, means, options)
    runs = [entry.control for entry in made.experiments if entry.control is not None]
    used = {place for run in runs if run.backend == "nccl" for place in run.places}
    kept = reserved(cluster, means, used, needed=options.backend == "nccl")
    return made if kept == means else plan.build(question, rules.causes, kept, options)


class NoIdleGpuError(Exception):
    """There are no GPUs to verify on; ``why`` in both languages."""

    def __init__(self, why: Text) -> None:
        super().__init__(why["en"])
        self.why = why


def verify(
    document: dict[str, Any],
    rules: RuleSet,
    settings: Settings,
    *,
    say: Callable[[Mapping[str, str]], None] = lambda text: None,
    faults: dict[str, Any] | None = None,
    on_gpus: bool = False,
) -> tuple[dict[str, Any], Report]:
    """Carry out the experiments for a document and return it with their outcomes, and the report.

    The hosts are asked first and the plan is made of their answers. Raises UsageError when a host cannot be reached or
    another verifier runs here, and NoIdleGpuError when it shall be done ``on_gpus`` only. ``faults`` make ranks misbehave on
    purpose, to test the verifier.
    """
    started, question = time.monotonic(), question_of(document, settings.options)
    earlier = previous.read(settings.previous)
    made = _nothing_runs(document, rules, settings, on_gpus)
    if made is not None:
        from nccl_triage.hosts.processes import ProcessLauncher

        report = carry_out(Session(Cluster(ProcessLauncher((), worker())), made, rules, Path(), say=say))
        return with_commands(feedback.apply(document, report, rules), settings), report
    with (
        session.lock(wait=settings.wait),
        session.workspace(settings.workdir, force=settings.force) as folder,
        launcher_of(settings, question, folder) as launcher,
        Cluster(launcher) as cluster,
    ):
        say({"en": "asking the hosts", "zh": "正在询问各主机"})
        made = _deciding(_plan(cluster, question, rules, settings), settings)
        if on_gpus and not made.means.gpus:
            raise NoIdleGpuError(made.means.no_gpu)
        report = carry_out(Session(cluster, made, rules, folder, say=say, faults=faults, started=started))
    report.previous = earlier
    return with_commands(feedback.apply(document, report, rules), settings), report


def _nothing_runs(document: dict[str, Any], rules: RuleSet, settings: Settings, on_gpus: bool) -> Plan | None:
    """Return the plan in which nothing runs, where that is certain before any agent is asked; else None."""
    question = question_of(document, settings.options)
    # On a cluster there may be more hosts than this one.
    imaginable = Means.alike(
        places_of(settings.hosts, settings.ranks_per_host) * (2 if settings.launcher == "ray" else 1), _IMAGINED
    )
    if not _runs(plan.build(question, rules.causes, imaginable, settings.options)):
        return plan.build(
            question, rules.causes, Means.alike(places_of(settings.hosts, settings.ranks_per_host)), settings.options
        )
    if settings.chosen:
        return None
    made = plan_of(document, rules, settings)
    if on_gpus and not made.means.gpus:
        raise NoIdleGpuError(made.means.no_gpu)
    return None if _runs(made) else made


def _runs(made: Plan) -> bool:
    return any(entry.control is not None for entry in made.experiments)


def with_commands(document: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Return the document with the commands that could test what has not run: not by the launcher just tried."""
    tried = verify_commands.launcher_of(settings.launcher, bool(settings.hosts))
    if settings.hosts and not _names_job(document, settings):
        tried = "local"  # other hosts than the job's: ssh to those of the job is something else
    ready = verify_commands.to_confirm(document, settings.paths, tried, option_words(settings))
    for entry in document["diagnoses"]:
        if entry["verification"] is not None:
            entry["verification"]["to_confirm"] = ready if entry["verification"]["outcome"] == "not-run" else []
    return document


def _names_job(document: dict[str, Any], settings: Settings) -> bool:
    """Tell whether ``--host`` names every host of the job that its command would name."""
    question = question_of(document, settings.options)
    given = {host_of(question, entry.partition("=")[0]) for entry in settings.hosts}
    return given.issuperset(question.hosts)


#: GPUs of a host on which everything could be tested that can be tested at all.
_IMAGINED = 8
