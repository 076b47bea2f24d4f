"""``nccl-triage run`` with real commands: what passes, what is kept, what is said, and which exit code comes out."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from nccl_triage.cli import run as run_module
from nccl_triage.wrap.keep import Keeper, TemporaryLog

ROOT = Path(__file__).parents[2]
OOM = """\
[rank2]: Traceback (most recent call last):
[rank2]:   File "/app/train.py", line 7, in main
[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of 79.15 GiB of which 141.25 MiB is free.
"""
Result = subprocess.CompletedProcess[bytes]


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Where temporary files of a run go."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def environment(temporary: Path, **extra: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LANG", "LC_", "NCCL_", "NO_COLOR", "FORCE_"))}
    return {**kept, "PYTHONPATH": str(ROOT / "analyzer"), "TMPDIR": str(temporary), **extra}


def words(*command: str, options: Sequence[str] = ()) -> list[str]:
    return [sys.executable, "-m", "nccl_triage", "run", *options, "--", *command]


def run(temporary: Path, *command: str, options: Sequence[str] = (), stdin: bytes = b"", **extra: str) -> Result:
    return subprocess.run(
        words(*command, options=options),
        input=stdin,
        capture_output=True,
        env=environment(temporary, **extra),
        timeout=120,
        check=False,
    )


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def kept(temporary: Path) -> list[Path]:
    return sorted(temporary.glob("nccl-triage-run-*"))


def test_a_success_passes_unseen(temporary: Path) -> None:
    result = run(temporary, "sh", "-c", "echo out; echo err >&2")
    assert (result.returncode, result.stdout, result.stderr) == (0, b"out\n", b"err\n")
    assert kept(temporary) == []


def test_a_failure_is_explained_on_stderr_and_keeps_its_output_and_exit_code(temporary: Path) -> None:
    result = run(temporary, "sh", "-c", "echo progress; cat >&2; exit 3", stdin=OOM.encode())
    assert result.returncode == 3
    assert result.stdout == b"progress\n"
    text = result.stderr.decode()
    assert text.startswith(OOM + "nccl-triage: the command failed with exit code 3\n")
    assert "gpu-out-of-memory" in text
    assert "rank 2" in text
    (folder,) = kept(temporary)
    log = folder / "output.log"
    assert f"the output is kept in {log}, secrets included" in text
    # The two streams have no common order: "progress" may come first or last.
    assert f"{log}:4" in text or f"{log}:3" in text
    assert log.read_text() == "progress\n" + OOM + "nccl-triage run: sh exited with code 3\n"
    assert log.stat().st_mode & 0o077 == 0


def test_every_byte_passes(temporary: Path, tmp_path: Path) -> None:
    data = os.urandom(300_000) + bytes(range(256)) + b"\r\n\xff\x00no newline at the end"
    log = tmp_path / "job.log"
    result = run(temporary, "cat", options=["--log", str(log)], stdin=data)
    assert result.stdout == data
    assert log.read_bytes() == data
    both = python(
        "import sys; d = sys.stdin.buffer.read(); sys.stderr.buffer.write(d[::-1]); sys.stdout.buffer.write(d)"
    )
    result = run(temporary, *both, stdin=data)
    assert result.stdout == data
    assert result.stderr == data[::-1]


def test_streams_that_lead_to_one_place_keep_their_order(temporary: Path, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    program = "import os\nfor n in range(2000): os.write(1 + n % 2, b'%d\\n' % n)"
    result = subprocess.run(
        words(*python(program), options=["--log", str(log)]),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(temporary),
        timeout=60,
        check=True,
    )
    expected = b"".join(b"%d\n" % n for n in range(2000))
    assert result.stdout == expected
    assert log.read_bytes() == expected


def test_lines_of_two_streams_do_not_mix_in_the_log(temporary: Path, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    program = (
        "import os, time\n"
        "for n in range(20): os.write(1, b'out '); time.sleep(0.01); os.write(2, b'err '); os.write(1, b'end\\n'); os.write(2, b'end\\n')"
    )
    run(temporary, *python(program), options=["--log", str(log)])
    assert sorted(set(log.read_bytes().splitlines())) == [b"err end", b"out end"]


def test_output_comes_at_once(temporary: Path) -> None:
    process = subprocess.Popen(
        words("sh", "-c", "echo first; read answer; echo $answer"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(temporary),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"first\n"  # while the command waits
    process.stdin.write(b"second\n")
    process.stdin.close()
    assert process.stdout.read() == b"second\n"
    assert process.wait(timeout=30) == 0


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"])
def test_signals_reach_the_command(temporary: Path, name: str) -> None:
    program = (
        "import signal, sys, time\n"
        f"signal.signal(signal.{name}, lambda *_: sys.exit(0))\n"
        "print('ready', flush=True)\ntime.sleep(60)\nsys.exit(9)"
    )
    process = subprocess.Popen(words(*python(program)), stdout=subprocess.PIPE, env=environment(temporary))
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(getattr(signal, name))
    assert process.wait(timeout=30) == 0
    process.stdout.close()


def test_signals_reach_the_whole_group_of_the_command(temporary: Path) -> None:
    script = (
        "trap 'wait; exit 5' TERM; (trap 'echo grandchild; exit' TERM; echo ready; while :; do sleep 0.1; done) & wait"
    )
    process = subprocess.Popen(
        words("sh", "-c", script, options=["-q"]), stdout=subprocess.PIPE, env=environment(temporary)
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.terminate()
    assert process.stdout.read() == b"grandchild\n"
    assert process.wait(timeout=30) == 5


def test_a_command_that_goes_on_after_sigterm_goes_on(temporary: Path) -> None:
    script = "trap 'echo saving' TERM; echo ready; sleep 1 & wait; sleep 0.3; echo saved"
    process = subprocess.Popen(words("sh", "-c", script), stdout=subprocess.PIPE, env=environment(temporary))
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.terminate()
    assert process.stdout.read() == b"saving\nsaved\n"
    assert process.wait(timeout=30) == 0


def test_what_nohup_ignores_stays_ignored(temporary: Path) -> None:
    process = subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *words("sh", "-c", "echo ready; sleep 1; echo alive")],
        stdout=subprocess.PIPE,
        env=environment(temporary),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGHUP)
    assert process.stdout.read() == b"alive\n"
    assert process.wait(timeout=30) == 0


def test_a_killed_command(temporary: Path) -> None:
    result = run(temporary, "sh", "-c", "echo step 1; kill -9 $$")
    assert result.returncode == 137
    assert b"nccl-triage: the command was ended by SIGKILL\n" in result.stderr
    assert b"process-crashed" in result.stderr  # the exit code is evidence, and the only one
    assert b"process-crashed" in run(temporary, "sh", "-c", "kill -9 $$").stderr
    assert b"Traceback" not in result.stderr


def test_a_failure_without_a_word(temporary: Path) -> None:
    result = run(temporary, "false")
    assert result.returncode == 1
    assert b"it printed nothing" in result.stderr
    assert kept(temporary) == []


def test_a_command_that_closes_its_output_is_still_waited_for(temporary: Path) -> None:
    program = "import os, time\nos.close(1)\ntime.sleep(0.5)\nos.write(2, b'late\\n')\nos.close(2)\ntime.sleep(0.5)\nos._exit(4)"
    result = run(temporary, *python(program))
    assert result.returncode == 4
    assert result.stdout == b""
    assert result.stderr.startswith(b"late\n")


def test_a_reader_that_leaves_ends_the_command_as_it_would_without_us(temporary: Path) -> None:
    process = subprocess.Popen(words("yes"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(temporary))
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"y\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=30) == 128 + signal.SIGPIPE
    assert kept(temporary) == []


def test_closed_standard_streams(temporary: Path) -> None:
    script = 'exec "$@" >&- 2>&-'
    command = ["sh", "-c", script, "sh", *words("sh", "-c", "echo x; echo y >&2; exit 6")]
    assert subprocess.run(command, env=environment(temporary), timeout=60, check=False).returncode == 6


def test_much_output_takes_little_memory(temporary: Path) -> None:
    program = (
        "import resource, subprocess, sys\n"
        "with open('/dev/null', 'wb') as sink:\n"
        "    code = subprocess.run(sys.argv[1:], stdout=sink).returncode\n"
        "print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    flood = "import sys\nfor _ in range(1500): sys.stdout.write(('x' * 99 + '\\n') * 1000); sys.stderr.write('.')"
    result = subprocess.run(
        [sys.executable, "-c", program, *words(*python(flood))],
        capture_output=True,
        env=environment(temporary),
        timeout=120,
        check=True,
    )
    code, kilobytes = map(int, result.stdout.split())
    assert code == 0
    assert kilobytes < 80_000
    assert result.stderr == b"." * 1500


def test_a_full_disk_does_not_stop_the_command(temporary: Path) -> None:
    script = "import sys\nfor n in range(3000): print('step', n, 'x' * 200)\n" + f"print({OOM!r})\nsys.exit(5)"
    result = run(temporary, *python(script), options=["--log", "/dev/full", "--force"])
    assert result.returncode == 5
    assert result.stdout.count(b"step ") == 3000
    assert result.stderr.count(b"No space left on device") == 1
    assert b"gpu-out-of-memory" in result.stderr  # of what was kept in memory


def test_a_full_disk_behind_standard_output(temporary: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            words("sh", "-c", "echo one; echo two"),
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(temporary),
            timeout=60,
            check=False,
        )
    assert result.returncode == 0
    assert result.stderr.count(b"some output of the command is lost") == 1


def test_existing_files_are_refused_before_the_command_starts(temporary: Path, tmp_path: Path) -> None:
    log, marker = tmp_path / "job.log", tmp_path / "started"
    log.write_text("precious")
    result = run(temporary, "touch", str(marker), options=["--log", str(log)])
    assert result.returncode == 2
    assert b"--force" in result.stderr
    assert not marker.exists()
    assert log.read_text() == "precious"
    result = run(temporary, "touch", str(marker), options=["--log", str(tmp_path / "no" / "such" / "job.log")])
    assert result.returncode == 2
    assert b"the command was not started" in result.stderr
    assert not marker.exists()
    assert run(temporary, "echo", "new", options=["--log", str(log), "--force"]).returncode == 0
    assert log.read_text() == "new\n"


def test_the_report_is_written_after_a_failure_only(temporary: Path, tmp_path: Path) -> None:
    page = tmp_path / "post-mortem.html"
    assert run(temporary, "true", options=["--report", str(page)]).returncode == 0
    assert not page.exists()
    result = run(temporary, "sh", "-c", "cat; exit 1", options=["--report", str(page)], stdin=OOM.encode())
    assert result.returncode == 1
    assert f"report written to {page}".encode() in result.stderr
    assert "CUDA out of memory" in page.read_text(encoding="utf-8")
    secret = OOM.replace("[rank2]:", "(Worker pid=12, ip=10.20.30.40) [rank2]:")
    options = ["--report", str(page), "--force", "--redact"]
    result = run(temporary, "sh", "-c", "cat; exit 1", options=options, stdin=secret.encode())
    assert b"10.20.30.40" not in result.stderr.partition(b"nccl-triage: the command failed")[2]
    assert "10.20.30.40" not in page.read_text(encoding="utf-8")


def test_logs_of_the_run_are_read_and_older_ones_are_not(temporary: Path, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    old = folder / "old.log"
    old.write_text("ncclInternalError: old\nRuntimeError: NCCL error in: old.cpp:1, unhandled system error\n")
    os.utime(old, (time.time() - 86400, time.time() - 86400))
    script = f"cat > {folder}/rank2.log; exit 1"
    result = run(temporary, "sh", "-c", script, options=["--logs", str(folder)], stdin=OOM.encode())
    assert result.returncode == 1
    text = result.stderr.decode()
    assert f"{folder}/rank2.log:3" in text
    assert "old.log" not in text


def test_commands_that_cannot_be_run(temporary: Path, tmp_path: Path) -> None:
    missing = run(temporary, "no-such-command-anywhere")
    assert missing.returncode == 127
    assert missing.stderr.startswith(b"error: there is no command no-such-command-anywhere\n")
    assert run(temporary, str(tmp_path)).returncode == 126
    log = tmp_path / "job.log"
    assert run(temporary, "no-such-command-anywhere", options=["--log", str(log)]).returncode == 127
    assert not log.exists()
    assert kept(temporary) == []
    nothing = subprocess.run(
        [sys.executable, "-m", "nccl_triage", "run"], capture_output=True, env=environment(temporary), check=False
    )
    assert nothing.returncode == 2


def test_what_goes_wrong_with_the_triage_does_not_change_the_exit_code(temporary: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules" / "signatures"
    rules.mkdir(parents=True)
    (rules / "broken.yaml").write_text("program: [\n")
    result = run(temporary, "sh", "-c", "echo hello; exit 7", options=["--rules", str(tmp_path / "rules")])
    assert result.returncode == 7
    assert b"broken.yaml" in result.stderr
    assert b"the output is kept in" in result.stderr
    result = run(temporary, "sh", "-c", "echo hello; exit 7", options=["--model", str(tmp_path / "no.json")])
    assert result.returncode == 7
    assert b"cannot read the model" in result.stderr
    page = tmp_path / "no" / "such" / "x.html"
    result = run(temporary, "sh", "-c", "echo hello; exit 7", options=["--report", str(page)])
    assert result.returncode == 7
    assert b"cannot write" in result.stderr


def test_words_behind_the_command_are_its_own(temporary: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "nccl_triage", "run", "echo", "--lang", "zh", "--help"],
        capture_output=True,
        env=environment(temporary),
        check=True,
        timeout=60,
    )
    assert result.stdout == b"--lang zh --help\n"


def test_quiet_says_nothing_of_its_own(temporary: Path) -> None:
    result = run(temporary, "sh", "-c", "echo err >&2; exit 2", options=["-q"])
    assert (result.returncode, result.stderr) == (2, b"err\n")
    assert kept(temporary) == []  # nobody was told of it


def test_the_verdict_in_chinese(temporary: Path) -> None:
    result = run(temporary, "sh", "-c", "cat; exit 1", options=["--lang", "zh"], stdin=OOM.encode())
    text = result.stderr.decode()
    assert "命令失败，退出码为 1" in text
    assert "显存" in text


def test_a_process_that_is_left_behind_does_not_hold_us(temporary: Path) -> None:
    started = time.monotonic()
    result = run(temporary, "sh", "-c", "sleep 50 & echo done")
    assert (result.returncode, result.stdout) == (0, b"done\n")
    assert time.monotonic() - started < 40


# on a terminal


def on_terminal(command: list[str], env: dict[str, str], keys: bytes = b"", after: bytes = b"") -> tuple[int, bytes]:
    """Return exit code and output of a command on a terminal where ``keys`` are pressed once ``after`` is seen."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, env)
    output, end = b"", time.monotonic() + 60
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        try:
            data = os.read(terminal, 65536)
        except OSError:
            break
        output += data
        if keys and after in output:
            os.write(terminal, keys)
            keys = b""
    with contextlib.suppress(ProcessLookupError):
        if time.monotonic() >= end:
            os.kill(pid, signal.SIGKILL)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), output


_ASK = "import os, sys; print(os.isatty(1), os.isatty(2), os.get_terminal_size(1).columns if os.isatty(1) else 0)"


def test_a_command_that_would_have_a_terminal_has_one(temporary: Path) -> None:
    env = environment(temporary)
    assert on_terminal(words("sh", "-c", f'stty cols 93; exec {sys.executable} -c "$0"', _ASK), env)[1].startswith(
        b"True"
    )
    code, output = on_terminal(["sh", "-c", 'stty cols 93; exec "$@"', "sh", *words(*python(_ASK))], env)
    assert (code, output) == (0, b"True True 93\r\n")
    code, output = on_terminal(words(*python(_ASK), options=["--no-pty"]), env)
    assert (code, output) == (0, b"False False 0\r\n")


def test_progress_bars_pass_a_terminal_unchanged(temporary: Path, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    program = "import sys\nfor n in range(5): sys.stdout.write(f'\\r\\x1b[32m{n}\\x1b[0m'); sys.stdout.flush()\nprint()"
    _, output = on_terminal(words(*python(program), options=["--log", str(log)]), environment(temporary))
    expected = "".join(f"\r\x1b[32m{n}\x1b[0m" for n in range(5)).encode()
    assert output == expected + b"\r\n"
    assert log.read_bytes() == expected + b"\n"


def test_ctrl_c_ends_the_command(temporary: Path) -> None:
    program = "import time\nprint('ready', flush=True)\ntime.sleep(60)"
    command = words(*python(program), options=["--no-config"])
    code, output = on_terminal(command, environment(temporary), b"\x03", b"ready")
    assert code == 130
    assert b"KeyboardInterrupt" in output  # of the command, not of us
    assert output.count(b"Traceback") == 1


def test_a_command_may_ask_the_terminal(temporary: Path) -> None:
    program = "name = input('who? ')\nprint('hello', name)"
    code, output = on_terminal(words(*python(program)), environment(temporary), b"me\n", b"who?")
    assert code == 0
    assert output.endswith(b"hello me\r\n")


# the log


def test_a_long_temporary_log_keeps_its_beginning_and_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    log = TemporaryLog(segment=1000)
    keeper = Keeper(log, lambda error: None)
    lines = [b"line %04d\n" % n for n in range(2000)]
    for line in lines:
        keeper.write(1, line)
        assert sum(f.stat().st_size for f in log.path.parent.iterdir()) <= 6 * 1010
    keeper.close()
    assert [f.name for f in log.path.parent.iterdir()] == ["output.log"]
    data = log.path.read_bytes()
    head, mark, tail = data.partition(b"\n[nccl-triage run left out ")
    assert mark
    assert head == b"".join(lines[:100])
    count, _, rest = tail.partition(b" bytes here]\n")
    assert rest == b"".join(lines)[-len(rest) :]
    assert int(count) + len(head) + len(rest) == len(b"".join(lines))
    keeper.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_breaks_keeps_the_end_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        path = Path("/nowhere")

        def write(self, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("nccl_triage.wrap.keep.TAIL", 50)
    told: list[OSError] = []
    keeper = Keeper(Broken(), told.append)  # type: ignore[arg-type]
    for n in range(100):
        keeper.write(1, b"line %04d\n" % n)
    keeper.write(2, b"unfinished")
    keeper.close()
    assert len(told) == 1
    assert keeper.tail.endswith(b"line 0099\nunfinished")
    assert len(keeper.tail) <= 60


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_torchrun_with_a_rank_that_raises(temporary: Path, tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(
        "import os\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n"
        # One write a line: both ranks share the pipe.
        "os.write(1, b'rank %d is up\\n' % dist.get_rank())\n"
        "if dist.get_rank() == 1:\n    raise ValueError('bad sample 17')\ndist.barrier()\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(job)]
    result = run(temporary, *command, CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
    text = result.stderr.decode()
    assert result.returncode == 1, text
    assert sorted(result.stdout.splitlines()) == [b"rank 0 is up", b"rank 1 is up"]
    _, _, verdict = text.partition("nccl-triage: the command failed with exit code 1\n")
    assert "application-exception" in verdict
    assert "bad sample 17" in verdict
    assert "rank 1" in verdict


def test_the_verdict_is_left_for_kubernetes(temporary: Path, tmp_path: Path) -> None:
    message = tmp_path / "termination-log"
    message.touch()
    options = ("--termination-log", str(message))
    assert run(temporary, *python(f"print({OOM!r}); raise SystemExit(3)"), options=options).returncode == 3
    told = message.read_text()
    assert told.startswith("Rank 2 ")
    assert "root cause: gpu-out-of-memory" in told
    assert len(told.splitlines()) <= 3
    assert len(message.read_bytes()) <= 4096  # Kubernetes keeps so much
    assert run(temporary, "sh", "-c", "exit 5", options=options).returncode == 5
    assert message.read_text().startswith("the command failed with exit code 5\n")
    message.write_text("")
    assert run(temporary, "true", options=options).returncode == 0
    assert message.read_text() == ""
    # A pod whose terminationMessagePath is another one sets a variable.
    run(temporary, "sh", "-c", "exit 6", NCCL_TRIAGE_TERMINATION_LOG=str(message))
    assert message.read_text().startswith("the command failed with exit code 6\n")


@pytest.mark.parametrize("name", ["absent", "pipe", ".", "none"])
def test_a_termination_log_that_cannot_be_written_costs_nothing(temporary: Path, tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    place = name if name == "none" else str(tmp_path / name)
    program = python(f"print({OOM!r}); raise SystemExit(3)")
    ended = run(temporary, *program, options=("--termination-log", place))
    assert ended.returncode == 3
    assert b"gpu-out-of-memory" in ended.stderr
    assert ended.stderr.count(b"error") == 0
    assert not (tmp_path / "absent").exists()


def test_a_long_message_is_cut_between_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    run_module._write_termination_message(str(path), b"headline\n" + b"a line\n" * 2000)
    assert len(path.read_bytes()) <= 4096
    assert path.read_bytes().startswith(b"headline\n")
    assert path.read_bytes().endswith(b"a line\n")
    run_module._write_termination_message(str(path), "失败".encode() * 3000)
    assert len(path.read_bytes()) <= 4096
    assert "失败" in path.read_text("utf-8")
