"""Train the models of form and place: ``python -m corpus.form COMMAND``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import orjson

from corpus.form import examples, train
from corpus.form.rebuild import rebuild
from nccl_triage.errors import TriageError
from nccl_triage.learned.form import to_json


def _rebuild(chosen: argparse.Namespace) -> int:
    made = rebuild(chosen.clones, chosen.out)
    for text in made.missing:
        print(f"missing: {text}")
    print(f"{made.logs} logs rebuilt")
    return 1 if made.missing else 0


def _train(chosen: argparse.Namespace) -> int:
    logs = [*examples.wanted(chosen.folders), *examples.wanted(chosen.excerpts, True), *examples.texts()]
    form = train.train(examples.read(logs, chosen.jobs))
    chosen.output.write_bytes(to_json(form))
    print(orjson.dumps(form.training, option=orjson.OPT_INDENT_2).decode())
    return 0


def main() -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m corpus.form", description=__doc__)
    commands = parser.add_subparsers(required=True)
    making = commands.add_parser("rebuild", help="make the logs of logs.jsonl from clones of their repositories")
    making.add_argument("clones", type=Path, help="folder of clones, as for python -m corpus.wild rebuild")
    making.add_argument("out", type=Path, help="folder for the logs")
    making.set_defaults(run=_rebuild)
    training = commands.add_parser("train", help="train on folders of labelled whole logs, and print how well it does")
    training.add_argument("folders", nargs="+", type=Path, help="folders with a cases.jsonl")
    training.add_argument(
        "--excerpts", nargs="*", type=Path, default=[], help="folders of parts of logs, which are not composed"
    )
    training.add_argument("--output", required=True, type=Path, help="write the models to this file")
    training.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that read")
    training.set_defaults(run=_train)
    chosen = parser.parse_args()
    try:
        return int(chosen.run(chosen))
    except TriageError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
