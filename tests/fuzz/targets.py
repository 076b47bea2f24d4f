"""What is fuzzed: one function a target takes any bytes and raises only when the program is wrong.

An error of ``nccl_triage.errors`` is an answer, and so is a result; any other exception is a defect.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import orjson

from nccl_triage import tool_reports
from nccl_triage.cli.render import parse_report
from nccl_triage.document.diagnosis import diagnose_observations
from nccl_triage.engine import load
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import TriageError
from nccl_triage.ingest import sniff
from nccl_triage.ingest.compression import open_stream
from nccl_triage.ingest.decode import LineReader
from nccl_triage.observations.store import Observations, SourceInfo
from nccl_triage.parsers import STATEFUL
from nccl_triage.parsers.stateful import PeeledLine
from nccl_triage.redaction import redact
from nccl_triage.render import FORMATS, render
from nccl_triage.scan.scanner import Scanner
from tests.prefix_reading import NAMES, peel
from tests.prefix_reading import sniff as sniff_prefixes

#: Unpacked bytes of one input that are read: a bomb is slow, not wrong, and has its own test.
_MOST = 1 << 22


@cache
def _rules() -> RuleSet:
    return load.load()


@cache
def _scanner() -> Scanner:
    return Scanner(_rules())


def ingest(data: bytes) -> None:
    """Unpack, cut into blocks of any size, decode: whatever the bytes, lines come out in their order."""
    problems: list[str] = []
    block = 64 + (data[0] if data else 0)
    with open_stream(io.BytesIO(data[1:]), problems) as stream:
        info = SourceInfo("log", problems=problems)
        reader = LineReader(io.BytesIO(stream.read(_MOST)), info, max_line=32, block=block)
        numbers = [line.number for line in reader]
    assert numbers == sorted(numbers)
    assert info.lines >= 0


def names(data: bytes) -> None:
    """Read a path and the beginning of a file for what they tell."""
    name, _, content = data.partition(b"\n")
    path = os.fsdecode(name.replace(b"\0", b""))
    NAMES.read(path)
    tool_reports.recognise(path, content)
    tool_reports.wants(path)
    for form in tool_reports.every():
        form.render(content, SourceInfo(path))
    sniff.looks_binary(content)
    sniff.looks_like_json_log(content)


def wrappers(data: bytes) -> None:
    """Peel the prefixes of lines, as any source may use them."""
    lines = data.decode("utf-8", "replace").split("\n")
    profile = sniff_prefixes(lines)
    for line in lines:
        peel(line)
        peel(line, profile)


def blocks(data: bytes) -> None:
    """Assemble tracebacks and reports of torchelastic from lines."""
    parsers = [parser() for parser in STATEFUL]
    for number, text in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
        peeled = peel(text)
        line = PeeledLine("log", number, peeled.text, peeled.context)
        for parser in parsers:
            parser.feed(line)
    for parser in parsers:
        parser.finish()


def observed(data: bytes) -> Observations:
    """Scan bytes as the log of one source."""
    info = SourceInfo("log")
    return _scanner().scan_blocks(LineReader(io.BytesIO(data), info), info)


def diagnosis(data: bytes) -> None:
    """Diagnose a log and show the result in every format, redacted too."""
    document = orjson.loads(render(diagnose_observations(observed(data), _rules()).to_dict(), "json"))
    for shown in (document, redact(document)):
        for form in FORMATS:
            render(shown, form, verbose=2)


def report(data: bytes) -> None:
    """Read a saved report and show it in every format."""
    with contextlib.suppress(TriageError):
        document = parse_report(data, "report.json")
        for form in FORMATS:
            render(document, form, verbose=2)


def rules(data: bytes) -> None:
    """Load a file of a user's rules, of a kind that its first byte chooses, and match something."""
    kind = load.KINDS[data[0] % len(load.KINDS) if data else 0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, kind, "rule.yaml")
        path.parent.mkdir()
        path.write_bytes(data[1:])
        with contextlib.suppress(TriageError):
            found = load.load((Path(folder),), builtin=False)
            Scanner(found).scan((), SourceInfo("log"))


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (ingest, names, wrappers, blocks, diagnosis, report, rules)
}
