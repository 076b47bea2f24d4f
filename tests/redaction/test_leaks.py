"""The natural forms of corpus/leaks reach nobody: kind by format, with and without --redact, and what else is written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from docs import leaks
from nccl_triage.redaction.secrets import Masker
from tests.cli.processes import environment

SECRETS, NAMES = leaks.forms("secrets"), leaks.forms("names")
CASES = [
    pytest.param(kind, redacted, id=f"{kind}-{'redacted' if redacted else 'plain'}")
    for redacted in (False, True)
    for kind in dict.fromkeys(form.kind for form in (SECRETS if not redacted else [*SECRETS, *NAMES]))
]


@pytest.mark.parametrize(("kind", "redacted"), CASES)
def test_no_format_shows_a_form(kind: str, redacted: bool) -> None:
    some = [form for form in (*SECRETS, *NAMES) if form.kind == kind]
    found = leaks.leaks(some, redacted)
    assert list(found) == list(leaks.QUOTING)
    assert {form: [one.line for one in lines] for form, lines in found.items() if lines} == {}


def test_every_format_shows_every_line_of_the_mould() -> None:
    for form, shown in leaks.outputs([], redacted=False):
        missing = [number for number in range(leaks.AT_ONCE) if leaks.mark(number) not in shown]
        assert len(missing) < leaks.AT_ONCE if form in leaks.BOUNDED else missing == [], form


def test_a_leak_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Masker, "text", lambda _, text: text)
    some = [form for form in SECRETS if form.kind == "headers"]
    found = {form: len(lines) for form, lines in leaks.leaks(some, redacted=False).items()}
    assert all(found.pop(form) for form in leaks.BOUNDED)
    assert found == dict.fromkeys((form for form in leaks.QUOTING if form not in leaks.BOUNDED), len(some))


def test_there_are_many_forms_and_each_hides_something() -> None:
    assert len(SECRETS) > 300
    assert len(NAMES) > 100
    assert all(form.hidden for form in (*SECRETS, *NAMES))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a log in which each secret stands, and in whose message some do."""
    lines = [form.line for form in SECRETS]
    trace = ["Traceback (most recent call last):", '  File "/srv/lab/train.py", line 3, in main']
    message = [f"RuntimeError: {lines[0]}", *(f"  {line}" for line in lines[20:25])]
    path = tmp_path / "train.log"
    path.write_text("".join(f"[rank0]: {line}\n" for line in (*lines, *trace, *message)), encoding="utf-8")
    return path


def readable(text: str) -> list[str]:
    return [form.line for form in SECRETS if form.readable_in(text)]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def run(folder: Path, cache: Path, *words: str, stdin: bytes = b"") -> str:
    """Return what a run of the program writes on both streams."""
    done = subprocess.run(
        [sys.executable, "-m", "nccl_triage", *words], input=stdin, capture_output=True, check=False, timeout=60, cwd=folder,
        env=environment(NCCL_TRIAGE_CACHE=str(cache)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return (done.stdout + done.stderr).decode()


@pytest.mark.parametrize("more", [[], ["--redact"]], ids=["plain", "redacted"])
def test_neither_debugging_nor_history_nor_caches_keep_a_secret(
    log: Path, cache: Path, more: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    shown = run(folder, cache, str(log), "--debug", "-v", "--history", "history.sqlite", *more)
    assert "[secret:" in shown
    assert readable(shown) == []
    kept = {path: path.read_bytes().decode("utf-8", "replace") for path in (*folder.iterdir(), *cache.iterdir())}
    assert {path.name.partition("-")[0] for path in kept} >= {"anchors", "rules", "secrets"}
    assert bool(more) or "history.sqlite" in {path.name for path in kept}
    # The table of secrets is kept with its samples.
    assert readable("".join(text for path, text in kept.items() if not path.name.startswith("secrets-"))) == []


@pytest.mark.parametrize("more", [[], ["--redact"]], ids=["plain", "redacted"])
def test_the_command_of_a_follower_is_told_no_secret(log: Path, cache: Path, more: list[str], tmp_path: Path) -> None:
    told = tmp_path / "told"
    hook = f"import os,sys; open({str(told)!r}, 'a').write(sys.stdin.read() + repr(dict(os.environ)))"
    command = f"{sys.executable} -c {json.dumps(hook)}"
    words = ["--follow", "-", "--format", "ndjson", "--no-history", "--on-verdict", command, *more]
    shown = run(tmp_path, cache, *words, stdin=log.read_bytes())
    assert "[secret:" in shown
    assert "[secret:" in told.read_text()
    assert readable(shown + told.read_text()) == []
