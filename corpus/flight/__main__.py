"""``python -m corpus.flight [--write]``: who names the culprit, torch's own analyser or this one, on the recorded sets.

Both read the same dumps, in the form that NCCL's recorder gives them (``convert.as_nccl``). Right is who names the
labelled ranks and no others; where no rank is to blame, who names none.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from corpus.flight.convert import as_nccl, read_set, write_set
from corpus.flight.faults import FAULTS, WORLD
from nccl_triage import diagnose

HERE = Path(__file__).parent
_BEGIN, _END = "<!-- peers: begin (written by python -m corpus.flight --write) -->\n", "<!-- peers: end -->\n"
_MISSING = re.compile(r"missing ranks: \{([\d, ]+)\}")
_CULPRIT = re.compile(r"Culprit rank (\d+)")


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


def compared() -> list[tuple[str, list[int], list[int], list[int], str]]:
    """Return for every set its label, our answer, torch's, and how torch's ended."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for row in labels():
            folder = write_set(as_nccl(read_set(HERE / "sets" / row["id"]), members(row)), Path(scratch) / row["id"])
            theirs, ended = torch_names(folder)
            rows.append((row["id"], row["culprits"], our_names(folder), theirs, ended))
    return rows


def table(rows: list[tuple[str, list[int], list[int], list[int], str]]) -> str:
    """Return the comparison as Markdown, one line a fault."""
    lines = ["| fault | what was done | sets | nccl-triage | torch's analyser |", "|---|---|---|---|---|"]
    for fault, (function, _odds, _) in FAULTS.items():
        own = [row for row in rows if row[0] == fault or row[0].rsplit("-", 1)[0] == fault]
        if own:
            right = sum(truth == ours for _, truth, ours, _, _ in own)
            theirs = sum(truth == named and not ended for _, truth, _, named, ended in own)
            what = (function.__doc__ or "").split(":")[0].rstrip(".")
            lines.append(f"| {fault} | {what} | {len(own)} | {right} of {len(own)} | {theirs} of {len(own)} |")
    ours = sum(truth == named for _, truth, named, _, _ in rows)
    theirs = sum(truth == named and not ended for _, truth, _, named, ended in rows)
    lines.append(f"| all | | {len(rows)} | {ours} of {len(rows)} | {theirs} of {len(rows)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the comparison, or write it into the documentation."""
    rows = compared()
    for name, truth, ours, theirs, ended in rows:
        print(f"{name:14} done by {truth}: we name {ours}, torch's analyser {ended or theirs}", file=sys.stderr)
    made = table(rows)
    print(made)
    if "--write" in sys.argv:
        page = HERE.parent.parent / "docs/flight-recorder.md"
        head, _, rest = page.read_text().partition(_BEGIN)
        page.write_text(head + _BEGIN + made + _END + rest.partition(_END)[2])


if __name__ == "__main__":
    main()
