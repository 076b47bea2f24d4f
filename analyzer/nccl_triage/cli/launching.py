"""How the verifier starts: the options for its ranks, and whether it runs before a report."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from nccl_triage.cli import language
from nccl_triage.errors import TriageError, UsageError


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


#: Help of options whose defaults a log decides, and where there is none.
_BY_LOG = {
    "launcher": "How to start the ranks: local (here or on each --host) or ray (on the job's Ray cluster); slurm and print "
    "only write the commands.",
    "ranks_per_host": "Ranks on each host (default: one per idle GPU, as many as the job needs).",
    "world": "Total number of ranks (default: the ranks of all hosts).",
}
_WITHOUT_LOG = {
    "launcher": "How to start the ranks: local (here or on each --host) or ray (on the job's Ray cluster).",
    "ranks_per_host": "Ranks on each host (default: one per idle GPU, a few without GPUs).",
    "world": "Total number of ranks (default: the ranks of all hosts).",
}


def _job_hosts(by_log: bool) -> list[Callable[[Any], Any]]:
    if not by_log:
        return []
    text = "These hosts are those of the job, even if the log does not name them."
    return [click.option("--job-hosts", is_flag=True, help=text)]


_TRUST_ENV = click.option(
    "--trust-env",
    is_flag=True,
    help="Also set variables of the log that load plugins, name files, or name addresses; only for a log you trust.",
)


def typed_commands(ctx: click.Context, param: click.Parameter, hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the hosts; raises UsageError for a COMMAND that nobody has typed: a file or a variable may be another's."""
    typed = ctx.get_parameter_source(str(param.name)) == click.core.ParameterSource.COMMANDLINE
    with_command = next((entry for entry in hosts if "=" in entry), None)
    if with_command is not None and not typed:
        raise UsageError(
            "--host {entry}: a COMMAND is taken from the command line only",
            cause="it comes from a variable or a configuration file",
            remedy="give --host NAME=COMMAND on the command line",
            entry=with_command,
        )
    return hosts


def launcher_options(launchers: Sequence[str], budget: float, by_log: bool = True) -> Callable[[Any], Any]:
    """Return a decorator that adds the options on where and how ranks are started; ``by_log``: a log has defaults."""
    folder = click.Path(path_type=Path, file_okay=False)
    texts = _BY_LOG if by_log else _WITHOUT_LOG
    options = [
        click.option(
            "--launcher",
            type=click.Choice(launchers),
            default="local",
            show_default=True,
            help=texts["launcher"],
        ),
        click.option(
            "--host",
            "hosts",
            multiple=True,
            metavar="NAME[=COMMAND]",
            callback=typed_commands,
            help="A host of the job, reached with ssh NAME or with COMMAND (repeatable).",
        ),
        click.option(
            "--ranks-per-host",
            type=click.IntRange(1, 64),
            help=texts["ranks_per_host"],
        ),
        click.option(
            "--world",
            type=click.IntRange(1, 4096),
            help=texts["world"],
        ),
        click.option("--python", metavar="PATH", help="The job's Python, with torch installed (default: this one)."),
        click.option(
            "--backend",
            type=click.Choice(["auto", "nccl", "gloo"]),
            default="auto",
            show_default=True,
            help="Communication backend; auto takes NCCL if GPUs are idle, else Gloo.",
        ),
        budget_option(budget, "Time limit for the whole run."),
        click.option(
            "--patience",
            type=click.FloatRange(0.05, 100),
            default=1.0,
            show_default=True,
            help="Multiply every deadline by this factor.",
        ),
        click.option("--ray-address", metavar="ADDRESS", help="Address of the Ray cluster (default: auto)."),
        click.option("--workdir", type=folder, help="Keep the ranks' logs and results in this folder."),
        click.option(
            "--previous",
            multiple=True,
            type=click.Path(path_type=Path, dir_okay=False),
            help="JSON of an earlier verify or preflight, whose bandwidths are the expected ones (repeatable).",
        ),
        click.option("--allow-busy", is_flag=True, help="Use GPUs even if something else is running on them."),
        *_job_hosts(by_log),
        *([_TRUST_ENV] if by_log else []),
        click.option(
            "--wait",
            type=click.FloatRange(0, 86400),
            default=0.0,
            metavar="SECONDS",
            help="How long to wait for another verifier on this host.",
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
            job_hosts=given.get("job_hosts", False),
            trust_env=given.get("trust_env", False),
        ),
    )


#: Seconds for all experiments before a report.
BUDGET = 120.0
Say = Callable[[language.Said], None]


def options(function: Any, default: str = "auto") -> Any:
    """Add ``--verify``, with this default, and ``--budget``."""
    for option in (
        budget_option(BUDGET, "Time limit for all experiments before a report."),
        click.option(
            "--verify",
            "mode",
            type=click.Choice(["auto", "always", "never"]),
            default=default,
            show_default=True,
            help="Test the diagnosis on the hardware before an HTML report: auto only if GPUs are idle, "
            "always with whatever there is.",
        ),
    ):
        function = option(function)
    return function


def refuse_without_report(mode: str, reports: bool) -> None:
    """Raise UsageError for ``--verify always`` where no report is made: a mere diagnosis never touches a GPU."""
    if mode == "always" and not reports:
        raise UsageError(
            "--verify always needs a report",
            cause="only an HTML report is verified before it is written",
            remedy="add --report FILE, or run nccl-triage verify instead",
        )


def refuse_while_following(mode: str) -> None:
    """Raise UsageError for ``--verify always`` with ``--follow``: the job has the GPUs, or has just lost them."""
    if mode == "always":
        raise UsageError(
            "--verify always cannot be combined with --follow",
            cause="the job that is followed has the GPUs",
            remedy="save the verdict with --format json --output report.json, and run nccl-triage verify report.json later",
        )


def verified(
    document: dict[str, Any], rules_dirs: tuple[Path, ...], mode: str, budget: float, say: Say, debug: bool
) -> dict[str, Any]:
    """Return the document with the outcome of the experiments, or unchanged with a note on why none ran.

    A failure of the verifier does not affect the diagnosis; only Ctrl-C ends the program.
    """
    if mode == "never" or not document["diagnoses"]:
        return document
    from nccl_triage.hosts.probes import inventory

    if mode == "auto" and not inventory.likely_present():
        return document
    try:
        return _verified(document, rules_dirs, mode, budget, say)
    except TriageError as error:
        reason = {lang: "; ".join(filter(None, error.in_language(lang)[:2])) for lang in ("en", "zh")}
    except Exception as error:  # a defect of the verifier must not cost the report
        if debug:
            raise
        what = f"{type(error).__name__}: {error}"
        reason = {"en": f"the verifier failed ({what})", "zh": f"验证器出错（{what}）"}
    return _not_verified(document, reason, say)


def _verified(
    document: dict[str, Any], rules_dirs: tuple[Path, ...], mode: str, budget: float, say: Say
) -> dict[str, Any]:
    from nccl_triage.engine import load
    from nccl_triage.verify import api
    from nccl_triage.verify.plan import PlanOptions

    rules = load.load(rules_dirs)
    settings = api.Settings(options=PlanOptions(budget=budget))
    try:
        changed, _ = api.verify(document, rules, settings, say=say, on_gpus=mode == "auto")
    except api.NoIdleGpuError as error:
        return _not_verified(document, error.why, say)
    return changed


def _not_verified(document: dict[str, Any], reason: Mapping[str, str], say: Say) -> dict[str, Any]:
    say({"en": f"not verified: {reason['en']}", "zh": f"未验证：{reason['zh']}"})
    noted = copy.copy(document)
    noted["notes"] = [*document["notes"], f"Not verified: {reason['en']}"]
    noted["notes_zh"] = [*document["notes_zh"], f"未验证：{reason['zh']}"]
    return noted


def contradicted(document: dict[str, Any], first: str | None) -> bool:
    """Tell whether experiments refuted the first cause."""
    if not any(entry.get("verification") for entry in document["diagnoses"]):
        return False
    from nccl_triage.verify import feedback

    return feedback.contradicted(document, first)
