"""``python -m corpus.flight [--nvrx FOLDER] [--write]``: who names the culprit on the recorded sets, this program or others.

The others are torch's own analyser and that of NVIDIA's resiliency extension, whose wheel is unpacked in FOLDER
(``pip download --no-deps nvidia-resiliency-ext==0.6.0``; what it imports besides must be installed: httpx, pydantic).

All read the same dumps, in the form that NCCL's recorder gives them (``convert.as_nccl``). Right is who names the
labelled ranks and no others; where no rank is to blame, who names none.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus.flight.convert import as_nccl, read_set, write_set
from corpus.flight.faults import FAULTS, WORLD
from nccl_triage import diagnose

HERE = Path(__file__).parent
_BEGIN, _END = "<!-- peers: begin (written by python -m corpus.flight --write) -->\n", "<!-- peers: end -->\n"
_MISSING = re.compile(r"missing ranks: \{([\d, ]+)\}")
_CULPRIT = re.compile(r"Culprit rank (\d+)")
#: Separators in a line of the table that NVIDIA's analyser prints.
_COLUMNS = 5


def labels() -> list[dict[str, Any]]:
    """Return the labels of all sets."""
    return [json.loads(line) for line in (HERE / "sets.jsonl").read_text().splitlines()]


def members(row: dict[str, Any]) -> dict[str, list[int]]:
    """Return the members of the groups that a job made beside the default one."""
    odd = row["culprits"][0] if row["culprits"] else 0
    return {"1": sorted([odd, (odd + 1) % WORLD])} if row["fault"] == "chain" else {}


def torch_names(folder: Path) -> tuple[list[int], str]:
    """Return the ranks that torch's analyser names, and how it ended where it did not end well."""
    from torch.distributed.flight_recorder import fr_trace

    spoken = io.StringIO()
    logger = logging.getLogger("Flight Recorder")
    before, logger.handlers = logger.handlers, [logging.StreamHandler(spoken)]
    try:
        with contextlib.redirect_stdout(spoken), contextlib.redirect_stderr(spoken):
            fr_trace.main([str(folder), "-p", "nccl_trace_rank_", "--allow-incomplete-ranks"])
    except (Exception, SystemExit) as error:
        return [], type(error).__name__
    finally:
        logger.handlers = before
    text = spoken.getvalue()
    ranks = {int(rank) for rank in _CULPRIT.findall(text)}
    for found in _MISSING.findall(text):
        ranks |= {int(rank) for rank in found.replace(",", " ").split()}
    return sorted(ranks), ""


def our_names(folder: Path) -> list[int]:
    """Return the ranks that this program names."""
    found = diagnose(folder, model=None).to_dict()
    return sorted({one["rank"] for diagnosis in found["diagnoses"][:1] for one in diagnosis["culprits"]} - {None})


def nvrx_names(folder: Path, place: str) -> tuple[list[int], str]:
    """Return the ranks that NVIDIA's analyser names as missing, and how it ended where it did not end well."""
    module = "nvidia_resiliency_ext.attribution.trace_analyzer.fr_attribution"
    words = [sys.executable, "-m", module, "--fr-path", str(folder), "-p", "nccl_trace_rank_*", "--emit-stdout"]
    ended = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": place}, capture_output=True, text=True, timeout=120, check=False
    )
    if ended.returncode:
        return [], ended.stderr.strip().rpartition("\n")[2].partition(":")[0]
    lines = [line.split("|") for line in ended.stdout.splitlines() if line.count("|") == _COLUMNS]
    if not lines or "Missing" not in lines[0][-1]:
        return [], ""
    return sorted({int(rank) for line in lines[1:] for rank in line[-1].split(",") if rank.strip()}), ""


@dataclass(slots=True)
class Row:
    """What each program said of one set: the ranks that it named, and how it ended where it did not end well."""

    name: str
    truth: list[int]
    ours: list[int]
    others: dict[str, tuple[list[int], str]]

    def right(self, who: str) -> bool:
        """Tell whether a program (ours: "") named the labelled ranks and no others."""
        named, ended = self.others[who] if who else (self.ours, "")
        return named == self.truth and not ended


def compared(nvrx: str | None) -> list[Row]:
    """Return what each program says of every set."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for row in labels():
            folder = write_set(as_nccl(read_set(HERE / "sets" / row["id"]), members(row)), Path(scratch) / row["id"])
            others = {"torch's analyser": torch_names(folder)}
            if nvrx is not None:
                others["nvrx 0.6.0"] = nvrx_names(folder, nvrx)
            rows.append(Row(row["id"], row["culprits"], our_names(folder), others))
    return rows


def table(rows: list[Row]) -> str:
    """Return the comparison as Markdown, one line a fault."""
    who = ["", *rows[0].others]
    lines = [
        f"| fault | what was done | sets | {' | '.join(['nccl-triage', *who[1:]])} |",
        "|---" * (3 + len(who)) + "|",
    ]

    def add(fault: str, what: str, own: list[Row]) -> None:
        counts = [f"{sum(row.right(name) for row in own)} of {len(own)}" for name in who]
        lines.append(f"| {' | '.join([fault, what, str(len(own)), *counts])} |")

    for fault, (function, _odds, _) in FAULTS.items():
        own = [row for row in rows if row.name == fault or row.name.rsplit("-", 1)[0] == fault]
        if own:
            add(fault, (function.__doc__ or "").split(":")[0].rstrip("."), own)
    add("all", "", rows)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the comparison, or write it into the documentation."""
    words = sys.argv[1:]
    rows = compared(words[words.index("--nvrx") + 1] if "--nvrx" in words else None)
    for row in rows:
        said = ", ".join(f"{name} {ended or named}" for name, (named, ended) in row.others.items())
        print(f"{row.name:14} done by {row.truth}: we name {row.ours}, {said}", file=sys.stderr)
    made = table(rows)
    print(made)
    if "--write" in words:
        page = HERE.parent.parent / "docs/flight-recorder.md"
        head, _, rest = page.read_text().partition(_BEGIN)
        page.write_text(head + _BEGIN + made + _END + rest.partition(_END)[2])


if __name__ == "__main__":
    main()
