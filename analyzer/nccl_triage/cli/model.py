"""``nccl-triage model``: train and evaluate the classifier on labelled incidents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccl_triage.cli import language, options
from nccl_triage.errors import UsageError

if TYPE_CHECKING:
    from nccl_triage.classifier.examples import Example
    from nccl_triage.evaluation.ablation import ScannedCase

_FOLDERS = click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))


def _scanned(folders: tuple[Path, ...], rules_dirs: tuple[Path, ...]) -> tuple[list[ScannedCase], list[Example]]:
    from nccl_triage.engine import load
    from nccl_triage.evaluation import ablation, cases

    found = [case for folder in folders for case in cases.read(folder)]
    names = [(case.source, case.id) for case in found]
    twice = sorted({case_id for source, case_id in names if names.count((source, case_id)) > 1})
    if twice:
        raise UsageError(
            "two labelled cases are called {name}", remedy="give every case an id of its own", name=twice[0]
        )
    scanned = ablation.scan(found, load.load(rules_dirs))
    return scanned, [incident.example() for incident in scanned]


def _samples(rules_dirs: tuple[Path, ...], own: list[Example]) -> list[Example]:
    """Return the examples from samples of signatures for the causes of the incidents."""
    from nccl_triage.classifier import examples
    from nccl_triage.engine import load

    labels = {example.label for example in own}
    return [example for example in examples.from_samples(load.load(rules_dirs)) if example.label in labels]


def _merged(own: list[Example], shipped: list[Example]) -> list[Example]:
    """Return the union; of a case that is in both (same source and id) the new one is kept."""
    names = {(example.source, example.id) for example in own}
    return [*own, *(example for example in shipped if (example.source, example.id) not in names)]


@click.group("model")
def command() -> None:
    """Train and evaluate the classifier that votes alongside the rules.

    Labelled incidents are folders with a cases.jsonl, as corpus/README.md describes them.
    """


@command.command("train", epilog="\b\nExample:\n  nccl-triage model train incidents/ --output team-model.json")
@_FOLDERS
@click.option(
    "--output",
    "-o",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the model to this file.",
)
@click.option("--alone", is_flag=True, help="Leave out the incidents that the shipped model was trained on.")
@click.option(
    "--examples",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the training examples, as features, to this file.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@options.rules_options
@options.debug_option
def train(
    folders: tuple[Path, ...],
    output: Path,
    alone: bool,
    examples: Path | None,
    force: bool,
    rules_dirs: tuple[Path, ...],
    debug: bool,
) -> None:
    """Train a model on labelled incidents, together with those of the shipped model.

    Use the result with --model FILE, or name it in the configuration (see nccl-triage diagnose --help).
    """
    from nccl_triage.classifier import examples as example_files
    from nccl_triage.classifier import train as training
    from nccl_triage.classifier.examples import SAMPLE
    from nccl_triage.classifier.model import to_json

    options.refuse_existing((output, examples), force)
    for path in (output, examples):
        if path is not None and not path.parent.is_dir():  # said now, not after minutes of training
            raise UsageError("the folder {folder} does not exist", remedy="mkdir -p {folder}", folder=path.parent)
    _, own = _scanned(folders, rules_dirs)
    own += _samples(rules_dirs, own)
    learnt = own if alone else _merged(own, example_files.shipped())
    data = example_files.to_bytes(learnt)
    model = training.train(learnt, example_files.digest(data), training.cross_fitted(learnt))
    options.write_file(output, to_json(model), force)
    if examples is not None:
        options.write_file(examples, data, force)
    right = model.metrics["held_out_top1"]
    click.echo(
        language.text(
            "{path}: {labels} labels, {features} features, {incidents} incidents",
            path=output,
            labels=len(model.labels),
            features=len(model.weights),
            incidents=sum(example.source != SAMPLE for example in learnt),
        )
    )
    click.echo(
        language.text("alone, on incidents of groups that it did not see: {right:.1f} % right", right=100 * right)
    )


@command.command("evaluate", epilog="\b\nExample:\n  nccl-triage model evaluate incidents/")
@_FOLDERS
@click.option("--alone", is_flag=True, help="Leave out the incidents that the shipped model was trained on.")
@options.rules_options
@options.debug_option
def evaluate(folders: tuple[Path, ...], alone: bool, rules_dirs: tuple[Path, ...], debug: bool) -> None:
    """Compare rules alone, classifier alone and both, by cross-validation over groups of labelled incidents."""
    from nccl_triage.classifier import examples as example_files
    from nccl_triage.evaluation import ablation

    scanned, own = _scanned(folders, rules_dirs)
    judged = [(i, e) for i, e in zip(scanned, own, strict=True) if e.real]
    further = [e for e in [*own, *_samples(rules_dirs, own)] if not e.real]
    if not alone:
        names = {(example.source, example.id) for example in [*own, *further]}
        further += [e for e in example_files.shipped() if (e.source, e.id) not in names]
    found = ablation.outcomes([i for i, _ in judged], [e for _, e in judged], further)
    click.echo(ablation.markdown(ablation.table(found)))
