"""Many at once: processes that diagnose into one history, versions that share one cache."""

from __future__ import annotations

import io
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from corpus.generate.bench import stream
from nccl_triage import diagnose
from nccl_triage.engine import cache, load
from nccl_triage.history import store
from tests.hostile.trials import environment

#: Processes at once, and versions side by side.
PROCESSES, VERSIONS = 32, 5


def histories(folder: Path, processes: int = PROCESSES) -> list[str]:
    """Diagnose as many logs at once, all into one database; return what is wrong with it then."""
    path = folder / "history.sqlite"
    logs = [folder / f"job{number}.log" for number in range(processes)]
    for number, log in enumerate(logs):
        log.write_text(f"(Worker pid={number + 9}) ValueError: shard {number} is empty\n", "utf-8")
    made = [
        subprocess.Popen(
            [sys.executable, "-m", "nccl_triage", "-q", str(log)], env=environment(NCCL_TRIAGE_HISTORY=str(path)),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )
        for log in logs
    ]  # fmt: skip
    said = [process.communicate()[1].decode() for process in made]
    wrong = [
        f"exit code {process.returncode}: {text}"
        for process, text in zip(made, said, strict=True)
        if process.returncode
    ]
    with store.writable(path) as history:
        history.take_in()
        whole = [history.incident(one.id) for one in history.incidents()]
        kept = {Path(given.path).name for incident in whole if incident is not None for given in incident.inputs}
    if lost := {log.name for log in logs} - kept:
        wrong.append(f"lost: {', '.join(sorted(lost))}")
    connection = sqlite3.connect(path)
    if (found := connection.execute("PRAGMA integrity_check").fetchone()) != ("ok",):
        wrong.append(str(found))
    connection.close()
    return wrong


def caches(folder: Path, versions: int = VERSIONS) -> list[str]:
    """Let several versions start in turn, twice, with one cache; return what is wrong: the second time all is there."""
    wrong: list[str] = []
    rounds: list[dict[str, int]] = []
    long = b"".join(stream("storm", 3_000_000, 1))
    before, version = os.environ.get("NCCL_TRIAGE_CACHE"), cache.__version__
    os.environ["NCCL_TRIAGE_CACHE"] = str(folder)
    try:
        for _ in range(2):
            told = set()
            for number in range(versions):
                cache.__version__ = f"{version}.{number}"
                rules = load.load()
                diagnose("-", stdin=io.BytesIO(long), rules=rules)  # what only long logs need, too
                told.add((len(rules.signatures), len(rules.causes)))
            if len(told) > 1:
                wrong.append("versions with the same files read other rules")
            rounds.append({path.name: path.stat().st_mtime_ns for path in folder.iterdir()})
    finally:
        cache.__version__ = version
        os.environ.pop("NCCL_TRIAGE_CACHE")
        if before is not None:
            os.environ["NCCL_TRIAGE_CACHE"] = before
    if rounds[0] != rounds[1]:
        made = sorted(name for name, when in rounds[1].items() if rounds[0].get(name) != when)
        wrong.append(f"made again: {', '.join(made)}")
    return wrong
