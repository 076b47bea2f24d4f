"""The example reports, made from the corpus: ``make reports`` runs ``python -m reports.examples.render``.

The same rules, model and corpus give the same HTML, byte for byte: how long the diagnosis took is left out.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corpus.generate import incident
from nccl_triage.api import diagnose
from nccl_triage.render import render
from reports.examples.photograph import NoBrowser, browser, photograph

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Example:
    """One report: of a log of the corpus, or of a generated one (``generated`` are ``incident``'s arguments)."""

    name: str
    log: str
    generated: dict[str, Any] = field(default_factory=dict)


EXAMPLES = (
    Example("network-two-subnets", "corpus/written/logs/S001-openrlhf-broadcast-two-networks.log"),
    Example("mismatch-8-ranks", "corpus/recorded/logs/mismatch_gather_detail_w8.log"),
    Example(
        "late-512-ranks",
        "trainer.log",
        {"cause": "straggler", "seed": 7, "world_size": 512, "length": 1_300_000},
    ),
)


@contextmanager
def within(folder: Path) -> Iterator[None]:
    """Make the folder the current one: reports show paths as they were given, and these must be the same anywhere."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def document(example: Example) -> dict[str, Any]:
    """Return the example's report document, without the time that it took."""
    with tempfile.TemporaryDirectory() as made:
        if example.generated:
            Path(made, example.log).write_bytes(incident(**example.generated).log)
        with within(Path(made) if example.generated else ROOT):
            diagnosis = diagnose(example.log)
    diagnosis.seconds = None
    return diagnosis.to_dict()


def html(example: Example) -> bytes:
    """Return the example's report."""
    return render(document(example), "html", lang="en")


def main() -> int:
    """Write every report, and a picture of its first screen where a browser is installed."""
    for example in EXAMPLES:
        (HERE / f"{example.name}.html").write_bytes(html(example))
    try:
        with browser() as running:
            for example in EXAMPLES:
                photograph(running, HERE / f"{example.name}.html", HERE / f"{example.name}.png")
    except NoBrowser as error:
        print(f"reports: the pictures are not made anew: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
