"""What fuzzing begins with: samples that ship with the rules, lines of the corpus, examples of reports; and how to spoil them."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import pickle
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from nccl_triage import resources
from nccl_triage.engine import load
from nccl_triage.render import render
from tests.recorder import build
from tests.render import documents

ROOT = Path(__file__).parents[2]
#: Numbers that programs trip over: beyond 64 bits, beyond what Python converts, digits that are none, no date of any year.
NUMBERS = (
    *("0", "-1", "00", "1" * 20, "9" * 400, "7" * 5000, "1e999", "-0.0", "nan", "inf", "0x7fffffffffffffff"),
    *("²", "٣", "1²", "４２", "0000-00-00 00:00:00", "9999-12-31T23:59:60Z", "-9223372036854775808", "1,2,,3", "."),
)
PIECES = (
    *("\x1b[31m", "\x1b]0;x\x07", "\r", "\0", "\ud800", "\ufeff", "\u202e", "\u2028", "\x85", "\v", "\x1c", "İ", "ß"),
    *("{", "}", "[", "]", "(", ")", '"', "'", "<", ">", "&", "|", "`", "\\", "%s", "{x}", "{0!r}", "$(id)", "]]>"),
    *("[rank3]: ", "(Worker pid=1) ", "0: ", "node1: ", "Traceback (most recent call last):\n", "Root Cause (first"),
    *("<script>alert(1)</script>", "javascript:", "../../etc/passwd", "-----BEGIN PRIVATE KEY-----", "rank=", "pid="),
)


@cache
def lines() -> tuple[str, ...]:
    """Return the samples of all signatures and series."""
    rules = load.load()
    found = [text for one in rules.signatures.values() for text in (*one.match_samples, *one.not_samples)]
    return tuple(dict.fromkeys(found))


@cache
def logs() -> tuple[str, ...]:
    """Return short logs of the corpus."""
    files = sorted((ROOT / "corpus" / "written" / "logs").glob("*.log"))[::23]
    return tuple(path.read_text("utf-8", "replace")[:3000] for path in files)


@cache
def rule_files() -> tuple[bytes, ...]:
    """Return rule files, each behind the byte that names its kind."""
    found: list[bytes] = []
    for number, kind in enumerate(load.KINDS):
        files = sorted(Path(str(resources.rules_dir()), kind).rglob("*.yaml"))
        found += [bytes([number]) + path.read_bytes()[:6000] for path in files[:: max(1, len(files) // 4)]]
    return tuple(found)


@cache
def dumps() -> tuple[bytes, ...]:
    """Return flight recorder dumps, as pickles of several protocols and as JSON, behind the name of a file."""
    document = {**build.dump([("all_reduce", 8), ("send 0->1", 4, "started"), ("broadcast", 2, "given-up")], 4)}
    forms = [pickle.dumps(document, protocol) for protocol in (2, 4, 5)]
    return tuple(b"nccl_trace_rank_3\n" + data for data in (*forms, json.dumps(document).encode()))


def of(target: str) -> Iterator[bytes]:
    """Yield what fuzzing of a target begins with."""
    if target == "rules":
        yield from rule_files()
    elif target == "report":
        yield from (render(documents.ALL[name](), "json") for name in ("diagnosed", "unknown", "healthy"))
    elif target == "ingest":
        text = "".join(logs()).encode()[:4000]
        yield from (b"\x40" + pack(text) for pack in (bytes, gzip.compress, bz2.compress, lzma.compress))
        yield from (b"\x10" + text.decode().encode(code, "replace") for code in ("utf-16", "utf-16-be", "gb18030"))
    else:
        if target == "names":
            yield from dumps()
        yield from (text.encode("utf-8", "replace") for text in (*lines()[::3], *logs()))


@st.composite
def spoilt(draw: st.DrawFn, texts: tuple[str, ...]) -> bytes:
    """Return some of the texts with numbers exchanged, pieces put in and ends cut off."""
    chosen = draw(st.lists(st.sampled_from(texts), min_size=1, max_size=6))
    text = "\n".join(chosen)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(text)))
        digits = next((place for place in range(at, len(text)) if text[place].isdigit()), None)
        if digits is not None and draw(st.booleans()):
            end = digits
            while end < len(text) and text[end].isdigit():
                end += 1
            text = text[:digits] + draw(st.sampled_from(NUMBERS)) + text[end:]
        else:
            text = text[:at] + draw(st.sampled_from(PIECES)) + text[at + draw(st.integers(0, 3)) :]
    return text.encode("utf-8", "surrogatepass")[: draw(st.integers(1, 20_000))]
