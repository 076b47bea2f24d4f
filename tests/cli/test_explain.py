"""``explain`` as a user meets it: words, numbers, settings, lines, languages, formats, errors, closed pipes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import environment, run


def shown(*args: str, **extra: str) -> str:
    result = run("explain", *args, **extra)
    assert result.returncode == 0, result.stderr.decode()
    assert result.stderr == b""
    return result.stdout.decode()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["gpu-out-of-memory"], "What to do, and when"),
        (["nccl.duplicate_gpu"], "As it is printed"),
        (["NCCL_IB_HCA=mlx5"], "restricts nothing"),
        (["cuda", "802"], "cudaErrorSystemNotReady"),
        (["cuda:802"], "fabric manager"),
        (["exit", "-9"], "SIGKILL"),
        (["ib-status", "12"], "IBV_WC_RETRY_EXC_ERR"),
        (["ncclRemoteError"], "printed by a victim"),
        (["--shm-size"], "64 MiB"),
        (["remove-model-eval"], "dangerous"),
        (["my", "job", "hangs"], "nccl-triage hang"),
        (["卡住"], "rank-divergence"),
        (["NCCL", "timeout"], "A collective, the rendezvous or a store timed out"),
        (["exit", "code", "137"], "SIGKILL"),
        (["what", "is", "NCCL_DEBUG?"], "NCCL_DEBUG ("),
        (["--list", "problems"], "does-not-start"),
        (["symptoms"], "watchdog-timeout"),
        (["timeouts"], "DEEPSPEED_TIMEOUT"),
        (["network"], "network-wrong-interface"),
        (["NCCL_IB_TIMOUT"], "NCCL_IB_TIMEOUT"),
        (["delete", "the", "cache"], "delete-cache-folder"),
        (["[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."], "cuda.oom"),
    ],
)
def test_what_can_be_explained(words: list[str], expected: str) -> None:
    assert expected in shown(*words)


def test_chinese_comes_from_the_option_or_the_locale() -> None:
    assert "含义" in shown("NCCL_IB_HCA", "--lang", "zh")
    assert "含义" in shown("NCCL_IB_HCA", LC_ALL="zh_CN.UTF-8")
    assert "What it is" in shown("NCCL_IB_HCA", "--lang", "en", LC_ALL="zh_CN.UTF-8")


def test_formats() -> None:
    document = json.loads(shown("cuda", "802", "--format", "json"))
    assert document["entries"][0]["number"] == 802
    assert document["entries"][0]["meaning_zh"]
    assert shown("cuda", "802", "--format", "markdown").startswith("## cuda:802")


def test_lists() -> None:
    assert "duplicate-gpu" in shown("--list", "causes")
    assert "torch.watchdog_timeout" in shown("--list", "signatures")
    everything = shown("--list")
    assert "NCCL_IB_HCA" in everything
    assert "remove-model-eval" in everything
    assert "torch.watchdog_timeout" not in everything
    rows = json.loads(shown("--list", "variables", "--format", "json"))["entries"][0]["rows"]
    assert len(rows) > 200


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "nothing to explain"),
        (["causes", "--list", "causes"], "--list takes a kind"),
        (["qqzzqq"], "nothing is known about qqzzqq"),
        (["gpu-out-of-memry"], "did you mean gpu-out-of-memory"),
        (["--list", "nothing"], "--list"),
        (["cuda", "99999"], "cuda 99999 is not in this table"),
        (["x", "--format", "yaml"], "--format"),
    ],
)
def test_errors_are_short_and_helpful(args: list[str], message: str) -> None:
    result = run("explain", *args)
    assert result.returncode == 2
    assert result.stdout == b""
    assert message in result.stderr.decode()
    assert b"Traceback" not in result.stderr


def test_errors_speak_chinese_too() -> None:
    assert "没有关于 qqzzqq 的资料" in run("explain", "qqzzqq", "--lang", "zh").stderr.decode()


@pytest.mark.parametrize(
    "word", ["\x1b[31mred", "x" * 100_000, "a\nb\nc", "'; rm -rf /", "\u202eevil", "%s{0}", "*?[", "\udcff"]
)
def test_hostile_words(word: str) -> None:
    result = run("explain", word)
    assert result.returncode in (0, 2)
    assert b"\x1b" not in result.stdout + result.stderr
    assert "\u202e" not in (result.stdout + result.stderr).decode()
    assert b"Traceback" not in result.stderr
    assert len(result.stderr) < 2000


def test_a_closed_pipe_is_no_error_message() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "nccl_triage", "explain", "--list", "signatures"], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) in (0, 141)


def test_rules_of_users_can_be_explained(tmp_path: Path) -> None:
    folder = tmp_path / "signatures" / "site"
    folder.mkdir(parents=True)
    (folder / "site.yaml").write_text(
        "program: site\nsignatures:\n  - id: site.down\n    kind: node.lost\n    role: root\n    pattern: 'rack (?P<name>\\w+) lost power'\n"
        "    meaning: A rack lost power.\n    match: ['rack r12 lost power']\n    not: ['rack r12 has power']\n"
    )
    assert "A rack lost power." in shown("site.down", "--rules", str(tmp_path))


def test_the_same_words_give_the_same_bytes() -> None:
    assert shown("rank-divergence") == shown("rank-divergence")
