"""Lines that are JSON records are searched as they lie unless escapes hide something in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.scan import literals
from nccl_triage.scan.line_parser import LineParser
from nccl_triage.scan.scanner import Scanner
from tests.scan.test_sampling import exact, scan, told
from tests.scan_helpers import log

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def docker(text: str, ascii_only: bool = True) -> str:
    """Return a log as Docker keeps it."""
    wrapped = (
        {"log": f"{line}\n", "stream": "stderr", "time": f"2025-11-25T00:{n // 60 % 60:02d}:{n % 60:02d}.{n:09d}Z"}
        for n, line in enumerate(text.splitlines())
    )
    return "".join(json.dumps(one, ensure_ascii=ascii_only) + "\n" for one in wrapped)


@pytest.mark.parametrize(
    ("raw", "hidden"),
    [
        (b'{"log":"CUDA out of memory\\n"}', False),
        (b'{"log":"CUDA out of memory"}', False),
        (b'{ "log": "a \\"b\\""}', True),
        (b'{"log":"CUDA out \\u006ff memory\\n"}', True),
        (b'{"log":"a\\\\n"}', True),
        (b'{"log":"a\\nb\\n"}', True),
        (b"plain \\u006f", False),
        (b"", False),
    ],
)
def test_what_hides_something(raw: bytes, hidden: bool) -> None:
    assert literals.may_hide_literals(raw) is hidden
    assert bool(list(literals.escape_ends(raw))) is (hidden or b"\\u" in raw)


@pytest.mark.parametrize("profile", ["storm", "quiet", "verbose"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_records_give_what_reading_each_gives(profile: str, ascii_only: bool, rules: RuleSet) -> None:
    text = docker(log(profile, 120_000), ascii_only)
    scanner = Scanner(rules)
    swept, whole = scan(scanner, text), scan(scanner, text, whole=True)
    assert exact(swept) == exact(whole)
    # Of context and progress a sample will do, as of other lines.
    assert len(told(swept)) > 0.8 * len(told(whole))


@pytest.mark.parametrize("at", range(200, 3000, 700))
def test_a_fault_that_escapes_hide_is_seen_in_any_block(at: int, rules: RuleSet) -> None:
    lines = docker("\n".join(f"worker {n} idle, queue {n % 7}" for n in range(3000))).splitlines()
    lines[at] = '{"log":"[rank5]: ' + OOM.replace("o", "\\u006f") + '\\n","stream":"stderr"}'
    (found,) = scan(Scanner(rules), "\n".join(lines) + "\n").events("python.exception_line")
    assert (found.line, found.context.rank) == (at + 1, 5)


def test_most_records_are_counted_and_not_read(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    peel = LineParser.peel

    def counting(parser: LineParser, text: str) -> Any:
        read.append(text)
        return peel(parser, text)

    monkeypatch.setattr(LineParser, "peel", counting)
    line = "gpu1:{}:7 [{}] socket.cc:540 NCCL WARN Net : Connection closed by remote peer n{}<{}>"
    text = docker("\n".join(line.format(100 + n % 4, n % 4, n % 10, n % 7 + 40_000) for n in range(8000)))
    assert scan(Scanner(rules), text).count("nccl.sock_closed_by_peer") == 8000
    assert len(read) < 1000
