"""The verifier before a report: whether it runs, and what becomes of the report when it cannot."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from nccl_triage.cli import language, launching
from nccl_triage.errors import TriageError, UsageError

#: Seconds for all experiments before a report.
BUDGET = 120.0
Say = Callable[[language.Said], None]


def options(function: Any, default: str = "auto") -> Any:
    """Add ``--verify``, with this default, and ``--budget``."""
    for option in (
        launching.budget_option(BUDGET, "Time for all experiments before a report."),
        click.option(
            "--verify",
            "mode",
            type=click.Choice(["auto", "always", "never"]),
            default=default,
            show_default=True,
            help="Put the diagnosis to the test before an HTML report: auto where idle GPUs are, always with what is at hand.",
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
            "--verify always does not go with --follow",
            cause="the job that is followed has the GPUs",
            remedy="save the verdict with --format json --output report.json, and run nccl-triage verify report.json later",
        )


def verified(
    document: dict[str, Any], rules_dirs: tuple[Path, ...], mode: str, budget: float, say: Say, debug: bool
) -> dict[str, Any]:
    """Return the document with the outcome of the experiments, or as it was, with a note that says why not.

    Whatever happens to the verifier, the diagnosis stands: only Ctrl-C ends it all.
    """
    if mode == "never" or not document["diagnoses"]:
        return document
    from nccl_triage.verify import gpus

    if mode == "auto" and not gpus.likely_present():
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
    made = api.plan_of(document, rules, settings)
    if mode == "auto" and not made.means.gpus:
        reason = made.means.no_gpu
        return _not_verified(document, reason, say)

    changed, _ = api.verify(document, rules, settings, say=say, made=made)
    return changed


def _not_verified(document: dict[str, Any], reason: Mapping[str, str], say: Say) -> dict[str, Any]:
    say({"en": f"not verified: {reason['en']}", "zh": f"未验证：{reason['zh']}"})
    noted = copy.copy(document)
    noted["notes"] = [*document["notes"], f"Not verified: {reason['en']}"]
    noted["notes_zh"] = [*document["notes_zh"], f"未验证：{reason['zh']}"]
    return noted


def contradicted(document: dict[str, Any], first: str | None) -> bool:
    """Tell whether experiments have refuted the cause that the log named first."""
    if not any(entry.get("verification") for entry in document["diagnoses"]):
        return False
    from nccl_triage.verify import feedback

    return feedback.contradicted(document, first)
