"""The command of --on-verdict gets the verdict and nothing else of the log, and cannot stop the following."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.cli import live
from nccl_triage.cli.live import VerdictCommand, command_words, variables
from nccl_triage.errors import UsageError

DOCUMENT: dict[str, Any] = {
    "verdict": "diagnosed",
    "diagnoses": [
        {
            "cause": "gpu-out-of-memory",
            "confidence": 0.93,
            "culprits": [{"rank": 3, "host": "node-\x1b[31m$(reboot)\0"}],
        }
    ],
    "follow": {"reason": "first"},
}


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


class Told:
    """What the hook says of its command."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, template: str, **values: object) -> None:
        self.texts.append(template.format(**values))


def test_it_gets_the_document_and_variables_without_a_shell(tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = (
        "import json,os,sys\n"
        "told = {k: v for k, v in os.environ.items() if k.startswith('NCCL_TRIAGE_')}\n"
        f"json.dump([json.load(sys.stdin), told], open({str(out)!r}, 'w'))"
    )
    told = Told()
    hook = VerdictCommand(python(program), told)
    hook.call(json.dumps(DOCUMENT).encode(), variables(DOCUMENT))
    hook.finish()
    document, variables_there = json.loads(out.read_text())
    environment = {name: value for name, value in variables_there.items() if name not in os.environ}
    assert document == DOCUMENT
    culprit = environment.pop("NCCL_TRIAGE_CULPRIT")
    assert environment == {
        "NCCL_TRIAGE_VERDICT": "diagnosed",
        "NCCL_TRIAGE_CAUSE": "gpu-out-of-memory",
        "NCCL_TRIAGE_CONFIDENCE": "0.93",
        "NCCL_TRIAGE_REASON": "first",
    }
    assert culprit.startswith("rank 3 on node-")
    assert "\x1b" not in culprit
    assert told.texts == []


def test_without_a_cause_the_variables_are_empty() -> None:
    found = variables({"verdict": "healthy", "diagnoses": [], "follow": {"reason": "end"}})
    assert found == {
        "NCCL_TRIAGE_VERDICT": "healthy",
        "NCCL_TRIAGE_CAUSE": "",
        "NCCL_TRIAGE_CULPRIT": "",
        "NCCL_TRIAGE_CONFIDENCE": "",
        "NCCL_TRIAGE_REASON": "end",
    }


def test_a_command_that_fails_or_cannot_run_is_told(tmp_path: Path) -> None:
    told = Told()
    hook = VerdictCommand(python("raise SystemExit(7)"), told)
    hook.call(b"x" * 1_000_000, {})  # it reads nothing of it
    hook.finish()
    VerdictCommand([str(tmp_path / "missing")], told).call(b"", {})
    assert told.texts == [
        "--on-verdict: the command failed with exit code 7",
        "--on-verdict: the command cannot be run (No such file or directory)",
    ]


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "GRACE", 0.2)
    out = tmp_path / "pids"
    program = (
        "import os,signal,subprocess,sys,time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', "
        "'import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)'])\n"
        f"open({str(tmp_path / 'new')!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"os.rename({str(tmp_path / 'new')!r}, {str(out)!r})\n"
        "time.sleep(600)"
    )
    told = Told()
    hook = VerdictCommand(python(program), told, limit=60.0)
    hook.call(b"", {})
    patience = time.monotonic() + 60
    while not out.exists() and time.monotonic() < patience:
        time.sleep(0.02)
    assert hook._run is not None
    hook._run.deadline = 0.0
    hook.finish()
    assert told.texts == ["--on-verdict: the command took longer than 60 s and was ended"]
    for pid in map(int, out.read_text().split()):
        while _alive(pid) and time.monotonic() < patience:
            time.sleep(0.02)
        assert not _alive(pid)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_verdicts_wait_for_each_other_and_do_not_pile_up(tmp_path: Path) -> None:
    out, gate = tmp_path / "out", tmp_path / "gate"
    os.mkfifo(gate)
    program = f"import sys; open({str(gate)!r}).read(); open({str(out)!r}, 'a').write(sys.stdin.read())"
    told = Told()
    hook = VerdictCommand(python(program), told)
    for number in range(live.MAX_WAITING + 3):
        hook.call(f"{number} ".encode(), {})
    for _ in range(live.MAX_WAITING + 1):
        with gate.open("w"):
            pass
        before = hook._run
        while hook._run is before and before is not None:
            hook.poll()
    hook.finish()
    assert out.read_text().split() == ["0", *map(str, range(3, live.MAX_WAITING + 3))]
    assert told.texts == ["--on-verdict: the command is too slow; a verdict was left out"] * 2


def test_killed_it_leaves_nothing() -> None:
    hook = VerdictCommand(python("import time; time.sleep(600)"), Told())
    hook.call(b"", {})
    assert hook._run is not None
    process = hook._run.process
    hook.kill()
    assert process.returncode == -signal.SIGKILL
    hook.kill()


@pytest.mark.parametrize("text", ["", "no-such-command-anywhere x", "sh -c 'unfinished"])
def test_what_cannot_be_run_is_refused_before_anything_is_read(text: str) -> None:
    with pytest.raises(UsageError):
        command_words(text)


def test_the_words_are_split_as_a_shell_does() -> None:
    assert command_words("sh -c 'cat > \"$HOME/x\"'") == ["sh", "-c", 'cat > "$HOME/x"']
