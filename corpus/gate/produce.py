"""Write the report document of every labelled case: the package that is imported decides, so run it with PYTHONPATH.

Run as a script by ``golden`` for two trees; it imports the package alone, so that it serves older commits as well.
"""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

import orjson

from nccl_triage import diagnose
from nccl_triage.classifier import model as models
from nccl_triage.engine import load
from nccl_triage.evaluation import cases

_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
_RULES = load.load()


def _document(task: tuple[str, str]) -> bytes:
    key, log = task
    document = diagnose(log, rules=_RULES).to_dict()
    for name in ("timing", "tool"):  # how long it took, and the digest of the rules
        document.pop(name, None)
    return orjson.dumps([key, document], option=_OPTIONS)


def main(output: str, folders: list[str], jobs: int) -> int:
    """Write one line for each case: its name and its document without times of the run."""
    models.shipped()  # read once, before the processes are forked
    tasks = [
        (f"{folder.parent.name}/{folder.name}/{case.id}", str(case.log))
        for folder in map(Path, folders)
        for case in cases.read(folder)
    ]
    with multiprocessing.get_context("fork").Pool(jobs) as pool, Path(output).open("wb") as file:
        for line in pool.imap(_document, tasks, chunksize=8):
            file.write(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[3:], int(sys.argv[2])))
