"""The command line as a user meets it: real processes, pipes, exit codes, broken input."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import prepared

ROOT = Path(__file__).parents[2]
#: What new files of this process may not have.
UMASK = os.umask(0o022)
os.umask(UMASK)
OOM = """[rank2]: Traceback (most recent call last):
[rank2]:   File "/app/train.py", line 7, in main
[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of 79.15 GiB of which 141.25 MiB is free.
[rank5]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=15734, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600037 milliseconds before timing out.
"""
HEALTHY = "step 1/20 loss 5.1\nstep 2/20 loss 5.0\nstep 3/20 loss 4.9\ntraining finished\n"


def environment(**extra: str) -> dict[str, str]:
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("LANG", "LC_", "NCCL_", "NO_COLOR", "FORCE_COLOR"))
    }
    return {**kept, "PYTHONPATH": str(ROOT / "analyzer"), **extra}


def run(
    *args: str, stdin: bytes = b"", env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    return prepared.run(args, stdin=stdin, env=env or environment(), cwd=cwd)


@pytest.fixture
def oom(tmp_path: Path) -> Path:
    path = tmp_path / "trainer.log"
    path.write_text(OOM)
    return path


def test_a_path_is_diagnosed_without_a_command(oom: Path) -> None:
    result = run(str(oom))
    text = result.stdout.decode()
    assert result.returncode == 0, result.stderr.decode()
    assert "gpu-out-of-memory" in text
    assert f"{oom}:3" in text
    assert "rank 2" in text
    assert result.stderr == b""


@pytest.mark.parametrize("options", [("--verify", "never"), ("--model", "none"), ("--jobs", "1"), ("--debug",)])
def test_options_may_stand_in_front_of_the_path(oom: Path, options: tuple[str, ...]) -> None:
    """Some are nearly the names of commands, and are no commands all the same."""
    result = run(*options, str(oom))
    assert result.returncode == 0, result.stderr.decode()
    assert "gpu-out-of-memory" in result.stdout.decode()


def test_diagnose_is_the_same_command(oom: Path) -> None:
    assert run("diagnose", str(oom)).stdout == run(str(oom)).stdout


def test_standard_input_needs_no_argument(oom: Path) -> None:
    assert b"gpu-out-of-memory" in run(stdin=OOM.encode()).stdout
    assert b"gpu-out-of-memory" in run("-", stdin=OOM.encode()).stdout


def test_json_is_one_object_with_the_contract_keys(oom: Path) -> None:
    document = json.loads(run(str(oom), "--format", "json").stdout)
    assert document["schema_version"] == 1
    assert document["verdict"] == "diagnosed"
    first = document["diagnoses"][0]
    assert first["cause"] == "gpu-out-of-memory"
    assert first["culprits"][0]["rank"] == 2
    assert first["evidence"][0]["line"] == 3
    assert document["collective"]["op"] == "ALLREDUCE"
    assert document["collective"]["timeout_ms"] == 600000


@pytest.mark.parametrize(("text", "code"), [(OOM, 1), (HEALTHY, 0)])
def test_exit_codes_on_request(tmp_path: Path, text: str, code: int) -> None:
    path = tmp_path / "x.log"
    path.write_text(text)
    assert run(str(path), "--exit-code").returncode == code
    assert run(str(path)).returncode == 0


def test_unknown_failure_has_its_own_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(
        "step 1/20 loss 5.1\n[rank0]: torch.distributed.DistBackendError: NCCL error in: a.cpp:1, internal error - please report this issue to the NCCL developers, NCCL version 2.21.5\n"
    )
    result = run(str(path), "--exit-code", "--format", "json")
    document = json.loads(result.stdout)
    expected = {"unknown": 3, "diagnosed": 1, "healthy": 0}[document["verdict"]]
    assert result.returncode == expected
    assert document["verdict"] != "healthy"


def test_a_missing_file_is_one_sentence_and_exit_2(tmp_path: Path) -> None:
    result = run(str(tmp_path / "no.log"))
    assert result.returncode == 2
    text = result.stderr.decode()
    assert text.startswith("error: ")
    assert "Traceback" not in text


def test_one_bad_input_among_good_ones_is_reported_and_the_rest_analysed(oom: Path, tmp_path: Path) -> None:
    result = run(str(oom), str(tmp_path / "no.log"), "--format", "json")
    document = json.loads(result.stdout)
    assert document["verdict"] == "diagnosed"
    assert any("no.log" in note for note in document["notes"])


def test_empty_and_binary_input(tmp_path: Path) -> None:
    empty = tmp_path / "empty.log"
    empty.touch()
    for words, data, said in (
        ([str(empty)], b"", f"{empty} is empty"),
        (["-"], b"", "standard input is empty"),
        ([], b"", "standard input is empty"),
        (["-"], gzip.compress(b""), "standard input is empty"),
        ([str(empty), "-"], b"", f"{empty} is empty; standard input is empty"),
    ):
        result = run(*words, stdin=data)
        assert (result.returncode, result.stdout) == (2, b""), words
        lines = result.stderr.decode().splitlines()
        assert lines[0] == "error: no readable input"
        assert set(lines[1].removeprefix("cause: ").split("; ")) == set(said.split("; "))
    noise = tmp_path / "noise.log"
    noise.write_bytes(os.urandom(200_000))
    result = run(str(noise))
    assert result.returncode in (0, 2)
    assert "Traceback" not in result.stderr.decode()


def test_compressed_logs_and_folders(oom: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run" / "attempt_0" / "2"
    folder.mkdir(parents=True)
    (folder / "stderr.log.gz").write_bytes(gzip.compress(OOM.encode()))
    document = json.loads(run(str(tmp_path / "run"), "--format", "json").stdout)
    assert document["diagnoses"][0]["cause"] == "gpu-out-of-memory"


def test_output_keeps_a_summary_and_does_not_overwrite(oom: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    first = run(str(oom), "-o", str(out))
    assert first.returncode == 0
    assert first.stdout == b""
    assert b"result.json" in first.stderr
    assert json.loads(out.read_bytes())["verdict"] == "diagnosed"
    assert out.stat().st_mode & 0o777 == 0o666 & ~UMASK
    second = run(str(oom), "-o", str(out))
    assert second.returncode == 2
    assert b"--force" in second.stderr
    assert run(str(oom), "-o", str(out), "--force").returncode == 0


def test_report_is_written_beside_the_summary(oom: Path, tmp_path: Path) -> None:
    page = tmp_path / "post-mortem.html"
    result = run(str(oom), "--report", str(page))
    assert b"gpu-out-of-memory" in result.stdout
    text = page.read_text(encoding="utf-8")
    assert text.lower().startswith("<!doctype html>")
    assert "Content-Security-Policy" in text
    assert "CUDA out of memory" in text


def test_a_report_that_cannot_be_written_is_an_error_not_a_traceback(oom: Path, tmp_path: Path) -> None:
    result = run(str(oom), "--report", str(tmp_path / "no" / "such" / "x.html"))
    assert result.returncode == 2
    assert b"Traceback" not in result.stderr


def test_chinese(oom: Path) -> None:
    assert "显存" in run(str(oom), "--lang", "zh").stdout.decode()
    assert "显存" in run(str(oom), env=environment(LANG="zh_CN.UTF-8")).stdout.decode()


def test_an_ascii_terminal_does_not_break_it(oom: Path) -> None:
    result = run(str(oom), "--lang", "zh", env=environment(PYTHONIOENCODING="ascii", LC_ALL="C"))
    assert result.returncode == 0, result.stderr.decode()


def test_verbose_shows_every_contribution(oom: Path) -> None:
    plain, verbose = run(str(oom)).stdout, run(str(oom), "-v").stdout
    assert len(verbose) > len(plain)
    assert b"+6.0" in verbose or b"6.00" in verbose


def test_closed_pipe_is_silent(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "nccl_triage", "rules", "list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    error = process.stderr.read()
    assert process.wait(timeout=60) == 141
    assert error == b""


def test_ctrl_c(tmp_path: Path) -> None:
    fifo = tmp_path / "never.log"
    os.mkfifo(fifo)
    process = subprocess.Popen(
        [sys.executable, "-m", "nccl_triage", str(fifo)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    time.sleep(2.0)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in error


def test_usage_errors_and_help(tmp_path: Path) -> None:
    assert run("--no-such-option").returncode == 2
    result = run("--help")
    assert result.returncode == 0
    for word in (b"diagnose", b"explain", b"rules", b"evaluate", b"Exit codes"):
        assert word in result.stdout
    assert run("--version").stdout.startswith(b"nccl-triage")


def test_explain_causes_and_signatures() -> None:
    assert "nccl" in run("explain", "duplicate-gpu").stdout.decode().lower()
    assert run("explain", "duplicate-gpu", "--lang", "zh").stdout != run("explain", "duplicate-gpu").stdout
    assert b"Duplicate GPU" in run("explain", "nccl.duplicate_gpu").stdout
    unknown = run("explain", "duplicate-gpus")
    assert unknown.returncode == 2
    assert b"duplicate-gpu" in unknown.stderr


def test_rules_show_prints_the_definition() -> None:
    assert b"id: duplicate-gpu" in run("rules", "show", "duplicate-gpu").stdout
    assert b"pattern:" in run("rules", "show", "nccl.duplicate_gpu").stdout
    assert b"id: kubectl" in run("rules", "show", "kubectl").stdout
    assert b"when: siblings-are-ranks" in run("rules", "show", "number-file").stdout


def test_rules_list_knows_every_kind() -> None:
    kinds = {
        kind: {row["kind"] for row in json.loads(run("rules", "list", "--kind", kind, "--format", "json").stdout)}
        for kind in ("prefixes", "layouts", "all")
    }
    assert kinds == {
        "prefixes": {"prefix"},
        "layouts": {"layout"},
        "all": {"cause", "signature", "prefix", "layout"},
    }


def test_user_rules_are_added_and_checked(tmp_path: Path) -> None:
    folder = tmp_path / "mine" / "signatures" / "site"
    folder.mkdir(parents=True)
    rule = folder / "site.yaml"
    rule.write_text(
        "program: site\nsignatures:\n  - id: site.rack_down\n    kind: node.lost\n    role: root\n    pattern: 'rack (?P<name>\\w+) lost power'\n"
        "    meaning: A rack lost power.\n    match: ['rack r12 lost power']\n    not: ['rack r12 has power']\n"
    )
    good = run("rules", "test", str(tmp_path / "mine"))
    assert good.returncode == 0, good.stdout.decode()[-2000:]
    rule.write_text(rule.read_text().replace("lost power'\n    meaning", "lost (power'\n    meaning"))
    bad = run("rules", "test", str(tmp_path / "mine"))
    assert bad.returncode == 1
    assert f"{rule}:6" in bad.stdout.decode()


def test_terminal_escapes_of_a_log_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "evil.log"
    path.write_text(OOM.replace("Tried", "\x1b]0;owned\x07\x1b[2J\u202eTried"))
    result = run(str(path), env=environment(FORCE_COLOR="1"))
    assert b"\x1b]0" not in result.stdout
    assert b"\x1b[2J" not in result.stdout
    assert "\u202e".encode() not in result.stdout


def test_links_out_of_a_folder_are_followed_when_asked(oom: Path, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "rank0.log").write_text("step 1 loss 2.0\n")
    (folder / "rank2.log").symlink_to(oom)
    left_out = json.loads(run(str(folder), "--format", "json").stdout)
    assert [Path(item["path"]).name for item in left_out["inputs"]] == ["rank0.log"]
    assert "links that lead out of the folder; --follow-links reads them" in " ".join(left_out["notes"])
    followed = json.loads(run(str(folder), "--format", "json", "--follow-links").stdout)
    assert [Path(item["path"]).name for item in followed["inputs"]] == ["rank0.log", "rank2.log"]
    assert followed["diagnoses"][0]["cause"] == "gpu-out-of-memory"
