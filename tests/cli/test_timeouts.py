"""``timeouts`` as a user meets it."""

from __future__ import annotations

import json

import pytest

from tests.cli.processes import run


def shown(*args: str) -> str:
    result = run("timeouts", *args)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode()


def test_without_options_it_tells_who_sets_a_time_out() -> None:
    text = shown()
    assert "43200000" in text
    assert "--ddp_timeout SECONDS" in text
    assert "Recommended" not in text


def test_a_model() -> None:
    text = shown("--parameters", "70B", "--storage", "2", "--network", "100")
    assert "70e9 x 14 B / 2 GB/s" in text
    assert "20 min (1200 seconds)" in text
    assert "DEEPSPEED_TIMEOUT=20" in text


def test_assumptions_can_be_changed() -> None:
    def seconds(*args: str) -> int:
        document = json.loads(shown("--parameters", "70B", "--format", "json", *args))
        return int(document["entries"][0]["model"]["recommended_seconds"])

    assert seconds("--storage", "10", "--network", "100") < seconds("--storage", "0.5")
    assert seconds("--state-bytes", "2") < seconds("--state-bytes", "16")
    assert seconds("--measured", "9000") >= 18000
    assert seconds("--tokens", "10B") >= 20000
    assert seconds("--factor", "4") > seconds()


def test_a_collective() -> None:
    text = shown(
        "--op", "all_gather", "--numel", "116391936", "--dtype", "bf16", "--world-size", "8", "--timeout", "600"
    )
    assert "1.86 GB" in text
    assert "does not explain" in text
    same = shown("--op", "ALLGATHER", "--bytes", "232783872", "--dtype", "bf16", "--timeout", "600")
    assert "1.86 GB" in same
    assert "measure the bandwidth" in shown("--op", "ALLREDUCE", "--numel", "100B", "--timeout", "600")


def test_chinese() -> None:
    assert "建议的超时" in shown("--parameters", "7B", "--lang", "zh")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--parameters", "many"], "--parameters"),
        (["--parameters", "0"], "--parameters"),
        (["--parameters", "-7B"], "--parameters"),
        (["--storage", "inf", "--parameters", "7B"], "--storage"),
        (["--op", "FROBNICATE", "--numel", "4"], "no collective that is known"),
        (["--op", "ALLREDUCE"], "needs --op and either"),
        (["--numel", "4"], "needs --op and either"),
        (["--op", "ALLREDUCE", "--numel", "4", "--bytes", "4"], "needs --op and either"),
        (["--op", "ALLREDUCE", "--numel", "4", "--dtype", "quux"], "no type that is known"),
        (["--op", "ALLREDUCE", "--numel", "999T"], "no collective that is known"),
        (["--world-size", "0"], "--world-size"),
        (["extra"], "extra"),
    ],
)
def test_errors(args: list[str], message: str) -> None:
    result = run("timeouts", *args)
    assert result.returncode == 2
    assert message in result.stderr.decode()
    assert b"Traceback" not in result.stderr
