"""One case of the endurance run: what it is made of hangs on its seed and number alone, so that it can be tried again."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import orjson

from nccl_triage import diagnose
from nccl_triage.cli.render import parse_report
from nccl_triage.engine import load
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import TriageError
from nccl_triage.redaction import redact
from nccl_triage.render import FORMATS, render
from tests.endure import corpus, mutations

#: A case in so many is made of a dump, and of a report; the rest of logs.
_DUMPS, _REPORTS = 8, 8


@dataclass(frozen=True, slots=True)
class Case:
    """Files by their names, and what is done with them: returns everything that was shown."""

    kind: str
    files: dict[str, bytes]
    run: Callable[[Case], bytes]

    def keep(self, folder: Path) -> None:
        """Write the input into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            (folder / name).write_bytes(data)


@cache
def _rules() -> RuleSet:
    return load.load()


def _shown(document: dict[str, Any], formats: tuple[str, ...]) -> bytes:
    document = orjson.loads(render({**document, "timing": None}, "json"))
    return b"\n".join(render(shown, form, verbose=2) for shown in (document, redact(document)) for form in formats)


def _formats(case: Case) -> tuple[str, ...]:
    """Return two formats, of which no chance decides: the same case is shown in the same."""
    names = sorted(FORMATS)
    size = sum(map(len, case.files.values()))
    return names[size % len(names)], names[size // 7 % len(names)]


def _piped(case: Case) -> bytes:
    """Diagnose the only file as standard input."""
    (data,) = case.files.values()
    with contextlib.suppress(TriageError):
        return _shown(diagnose("-", stdin=io.BytesIO(data), rules=_rules()).to_dict(), _formats(case))
    return b"refused"


def _folder(case: Case) -> bytes:
    """Diagnose the files as those of a folder, named from where it lies: what is shown must not hang on the place."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name), contextlib.suppress(TriageError):
        folder = Path("of", "one", "job", "logs")
        case.keep(folder)
        return _shown(diagnose(folder, rules=_rules()).to_dict(), _formats(case))
    return b"refused"


def _report(case: Case) -> bytes:
    """Show a saved report."""
    (data,) = case.files.values()
    with contextlib.suppress(TriageError):
        return _shown(parse_report(data, "report.json"), _formats(case))
    return b"refused"


def make(seed: str, number: int) -> Case:
    """Return a case."""
    chance = Random(f"{seed}:{number}")
    kind = chance.randrange(_DUMPS * _REPORTS)
    if kind % _DUMPS == 0:
        write = chance.choice(corpus.WRITTEN)
        documents = [mutations.mutated(document, chance) for document in corpus.dumps()]
        files = {f"nccl_trace_rank_{rank}": write(document) for rank, document in enumerate(documents)}
        return Case("recorder", files, _folder)
    if kind % _REPORTS == 1:
        document = mutations.mutated(orjson.loads(chance.choice(corpus.reports())), chance)
        return Case("report", {"report.json": orjson.dumps(document)}, _report)
    if kind % 4 == 2:
        paths = chance.sample(corpus.logs(), chance.randint(1, 4))
        logs = (mutations.changed(corpus.text(path), chance) for path in paths)
        return Case("folder", {f"rank{rank}.log": data for rank, data in enumerate(logs)}, _folder)
    return Case("log", {"log": mutations.changed(corpus.text(chance.choice(corpus.logs())), chance)}, _piped)
