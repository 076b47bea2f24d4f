"""Options that say where and how the verifier starts ranks: ``verify`` and ``preflight`` share them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click


def budget_option(default: float, text: str) -> Callable[[Any], Any]:
    """Return ``--budget``; ``default`` in seconds."""
    return click.option(
        "--budget",
        type=click.FloatRange(1, 86400),
        default=default,
        show_default=True,
        metavar="SECONDS",
        help=text,
    )


def launcher_options(launchers: Sequence[str], budget: float) -> Callable[[Any], Any]:
    """Return a decorator that adds the options which say where and how ranks are started."""
    folder = click.Path(path_type=Path, file_okay=False)
    options = [
        click.option(
            "--launcher",
            type=click.Choice(launchers),
            default="local",
            show_default=True,
            help="How ranks are started: here (or on --host), or on the job's Ray cluster; slurm and print write the commands.",
        ),
        click.option(
            "--host",
            "hosts",
            multiple=True,
            metavar="NAME[=COMMAND]",
            help="A host of the job, reached by ssh NAME or by COMMAND (repeatable).",
        ),
        click.option(
            "--ranks-per-host",
            type=click.IntRange(1, 64),
            help="Ranks on each host (default: as the log has them, or few).",
        ),
        click.option(
            "--world",
            type=click.IntRange(1, 4096),
            help="Ranks of the experiments (default: as the log has them, or few).",
        ),
        click.option("--python", metavar="PATH", help="The job's Python, which has torch (default: this one)."),
        click.option(
            "--backend",
            type=click.Choice(["auto", "nccl", "gloo"]),
            default="auto",
            show_default=True,
            help="auto takes NCCL where idle GPUs are.",
        ),
        budget_option(budget, "Time for everything."),
        click.option(
            "--patience",
            type=click.FloatRange(0.05, 100),
            default=1.0,
            show_default=True,
            help="Factor on every deadline.",
        ),
        click.option("--ray-address", metavar="ADDRESS", help="The Ray cluster (default: auto)."),
        click.option("--workdir", type=folder, help="Keep the ranks' logs and results in this folder."),
        click.option(
            "--previous",
            multiple=True,
            type=click.Path(path_type=Path, dir_okay=False),
            help="JSON of an earlier verify or preflight: its bandwidths are what is expected (repeatable).",
        ),
        click.option("--allow-busy", is_flag=True, help="Use GPUs although something runs on them."),
        click.option(
            "--wait",
            type=click.FloatRange(0, 86400),
            default=0.0,
            metavar="SECONDS",
            help="Wait for another verifier on this host.",
        ),
    ]

    def add(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def settings(given: dict[str, Any], force: bool) -> Any:
    """Return the verifier's Settings from the values of ``launcher_options``."""
    from nccl_triage.verify.api import Settings
    from nccl_triage.verify.plan import PlanOptions

    return Settings(
        launcher=given["launcher"],
        hosts=given["hosts"],
        ranks_per_host=given["ranks_per_host"],
        python=given["python"],
        ray_address=given["ray_address"],
        workdir=given["workdir"],
        force=force,
        wait=given["wait"],
        previous=given["previous"],
        options=PlanOptions(
            backend=given["backend"],
            world=given["world"],
            timeout_factor=given["patience"],
            budget=given["budget"],
            suspects=given.get("suspects", 1),
            allow_busy=given["allow_busy"],
        ),
    )
