"""Compare the documents of all labelled cases with those of another commit: ``python -m corpus.gate.golden``.

A change of structure leaves every document as it was; a change of answers lists what differs in its message. The
documents of the other commit are made once, by its own code on today's cases, and kept in build/golden.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "golden"
#: Labelled cases beside the corpus, where a checkout has them.
SHARED = ROOT.parent / "shared" / "cases"
_PRODUCE = Path(__file__).with_name("produce.py")
#: In what documents may differ, the gravest first.
ASPECTS = ("verdict", "cause", "culprit", "confidence", "text")
Documents = dict[str, tuple[str, dict[str, Any]]]


def folders() -> list[Path]:
    """Return every folder of labelled cases."""
    found = [ROOT / "corpus" / "recorded", ROOT / "corpus" / "written"]
    return found + sorted(index.parent for index in SHARED.glob("*/cases.jsonl"))


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def _write(tree: Path, output: Path, jobs: int, cases: Sequence[Path]) -> None:
    """Let the package of a tree diagnose the cases; a file that is there was written whole."""
    draft = output.with_suffix(".part")
    environment = {**os.environ, "PYTHONPATH": str(tree / "analyzer"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-W", "error", str(_PRODUCE), str(draft), str(jobs), *map(str, cases)]
    subprocess.run(command, check=True, env=environment, cwd=tree)
    draft.replace(output)


def _of_commit(revision: str, jobs: int, cases: Sequence[Path]) -> Path:
    commit = _git("rev-parse", "--verify", f"{revision}^{{commit}}")
    # New labels change nothing; other cases do.
    state = hashlib.sha256(b"".join((folder / "cases.jsonl").read_bytes() for folder in cases)).hexdigest()[:12]
    output = KEPT / f"{commit[:16]}-{state}.jsonl"
    if not output.is_file():
        tree = KEPT / f"tree-{commit[:16]}"
        _git("worktree", "add", "--force", "--detach", str(tree), commit)
        try:
            _write(tree, output, jobs, cases)
        finally:
            _git("worktree", "remove", "--force", str(tree))
    return output


def read(path: Path) -> Documents:
    """Return case -> (SHA-256 of its document, document)."""
    found: Documents = {}
    for line in path.read_bytes().splitlines():
        key, document = orjson.loads(line)
        found[key] = (hashlib.sha256(line).hexdigest(), document)
    return found


def _first(document: dict[str, Any]) -> dict[str, Any]:
    return document["diagnoses"][0] if document["diagnoses"] else {}


def _named(document: dict[str, Any]) -> str:
    named = [(c["rank"], c["host"]) for c in _first(document).get("culprits", [])]
    return "; ".join(f"rank {rank} on {host}" for rank, host in named) or "nobody"


def differences(one: dict[str, Any], two: dict[str, Any]) -> dict[str, str]:
    """Return what differs between two documents of a case, in words: verdict, cause, culprit, confidence or text."""
    readings: dict[str, Callable[[dict[str, Any]], str]] = {
        "verdict": lambda d: str(d["verdict"]),
        "cause": lambda d: str(_first(d).get("cause", "none")),
        "culprit": _named,
        "confidence": lambda d: str(_first(d).get("confidence", "none")),
    }
    told = {name: (tell(one), tell(two)) for name, tell in readings.items()}
    found = {name: f"{before} -> {after}" for name, (before, after) in told.items() if before != after}
    if not found:
        keys = sorted(key for key in one.keys() | two.keys() if one.get(key) != two.get(key))
        found["text"] = ", ".join(_places(one, two, keys))
    return found


def _places(one: dict[str, Any], two: dict[str, Any], keys: Sequence[str]) -> list[str]:
    """Return where documents differ, one step deeper for the list of causes."""
    places = []
    for key in keys:
        if key != "diagnoses" or len(one[key]) != len(two[key]):
            places.append(key)
            continue
        for index, (before, after) in enumerate(zip(one[key], two[key], strict=True)):
            places += [f"diagnoses[{index}].{name}" for name in before if before[name] != after.get(name)]
    return places


def main() -> int:
    """Print which cases differ and how; 1 when any does."""
    parser = argparse.ArgumentParser(prog="python -m corpus.gate.golden", description=__doc__)
    parser.add_argument("--base", default="HEAD", help="the commit to compare with (HEAD)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that diagnose")
    parser.add_argument("--most", type=int, default=60, help="cases listed at most")
    options = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    cases = folders()
    before = read(_of_commit(options.base, options.jobs, cases))
    now = KEPT / "now.jsonl"
    _write(ROOT, now, options.jobs, cases)
    after = read(now)
    differ = {key: differences(before[key][1], after[key][1]) for key in before if after[key][0] != before[key][0]}
    kinds = Counter(name for found in differ.values() for name in found)
    # What matters most comes first.
    ordered = sorted(differ.items(), key=lambda item: [name not in item[1] for name in ASPECTS])
    for key, found in ordered[: options.most]:
        print(f"{key}: " + "; ".join(f"{name} {text}" for name, text in found.items()))
    total = hashlib.sha256("".join(digest for digest, _ in after.values()).encode()).hexdigest()
    counted = ", ".join(f"{kinds[name]} in {name}" for name in ASPECTS)
    print(f"{len(differ)} of {len(after)} documents differ from {options.base} ({counted}); all: sha256 {total}")
    return 1 if differ else 0


if __name__ == "__main__":
    raise SystemExit(main())
