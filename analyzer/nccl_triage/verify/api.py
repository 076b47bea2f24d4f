"""Verify a report document: make the plan, reach the hosts, carry it out, put the outcomes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from nccl_triage.engine.schema import RuleSet
from nccl_triage.verify import feedback, plan, previous, session
from nccl_triage.verify.cluster import Cluster
from nccl_triage.verify.conduct import carry_out
from nccl_triage.verify.judge import Report
from nccl_triage.verify.launchers import Launcher
from nccl_triage.verify.model import Place
from nccl_triage.verify.plan import Plan
from nccl_triage.verify.planning import Settings, means_of, places_of, plan_of, question_of
from nccl_triage.verify.trials import Session

__all__ = ["Settings", "launcher_of", "means_of", "places_of", "plan_of", "question_of", "verify"]


@contextmanager
def launcher_of(settings: Settings, made: Plan, folder: Path) -> Iterator[Launcher]:
    """Yield the launcher that the settings ask for."""
    if settings.launcher == "ray":
        from nccl_triage.verify.launchers.ray_cluster import RayLauncher

        question = made.question
        hosts = len(settings.hosts) or (len(question.hosts) if len(question.hosts) > 1 else None)
        world = settings.wishes.world or question.world or 1
        each = settings.ranks_per_host or -(-world // (hosts or world))
        yield RayLauncher(settings.ray_address, hosts, each, folder, settings.wishes.backend == "nccl")
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
    purpose: the verifier's own proof. ``made`` is the plan where ``plan_of`` was asked already.
    """
    made = made or plan_of(document, rules, settings)
    earlier = previous.read(settings.previous)
    if not any(entry.control for entry in made.experiments) and settings.launcher == "local":
        report = carry_out(Session(Cluster(_Nowhere()), made, rules, Path(), say=say))
        return feedback.apply(document, report), report
    with (
        session.lock(wait=settings.wait),
        session.workspace(settings.workdir, force=settings.force) as folder,
        launcher_of(settings, made, folder) as launcher,
        Cluster(launcher) as cluster,
    ):
        if settings.launcher == "ray":  # the hosts are known only now
            made = plan.build(
                made.question, rules.causes, replace(made.means, places=tuple(cluster.places)), settings.wishes
            )
        report = carry_out(Session(cluster, made, rules, folder, say=say, faults=faults))
    report.previous = earlier
    return feedback.apply(document, report), report


class _Nowhere:
    """The launcher of a plan in which nothing can run."""

    places: Sequence[Place] = ()

    def open(self) -> list[Any]:
        """Reach nobody."""
        return []

    def close(self) -> None:
        """End nothing."""
