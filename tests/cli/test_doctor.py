"""``nccl-triage doctor`` on this very machine, and its JSON beside a log."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from nccl_triage import resources
from nccl_triage.cli import cli
from nccl_triage.doctor.document import HostAnswer, build
from nccl_triage.errors import UsageError
from tests.doctor.hosts import facts

NO_TORCH = ["--python", "/nonexistent/python"]
SHM = "gpu01:100:100 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-AbCdEf to 9637892 bytes\n"


def run(*words: str, **environment: str) -> Result:
    runner = CliRunner(env={"LANG": "C.UTF-8", "LC_ALL": "", **environment})
    return runner.invoke(cli, list(words), catch_exceptions=False)


def test_this_host_as_text_in_both_languages() -> None:
    english = run("doctor", *NO_TORCH, NCCL_IB_HAC="mlx5_0")
    assert english.exit_code == 0
    lines = english.output.splitlines()
    assert lines[0].startswith(f"nccl-triage doctor: {socket.gethostname()}: ")
    assert any(line.startswith("warning: NCCL_IB_HAC=mlx5_0: ") and "NCCL_IB_HCA" in line for line in lines)
    assert any(line.startswith("not seen: torch: /nonexistent/python") for line in lines)
    order = [
        line.split(":")[0] for line in lines if line.split(":")[0] in ("FAILED", "warning", "note", "fine", "not seen")
    ]
    assert order == sorted(order, key=["FAILED", "warning", "note", "fine", "not seen"].index)
    chinese = run("doctor", "--lang", "zh", *NO_TORCH)
    assert "无法查看：torch：/nonexistent/python" in chinese.output


def test_json_fits_its_schema_and_tells_no_names_when_redacted(tmp_path: Path) -> None:
    saved = tmp_path / "host.json"
    token = "hf_" + "aBcD1eFg" * 4
    words = ["doctor", "--format", "json", "--redact", "-o", str(saved), *NO_TORCH]
    assert run(*words, MASTER_ADDR="trainer-7.corp.example.com", NCCL_DEBUG_FILE=f"/tmp/{token}").exit_code == 0
    schema = json.loads((resources.reports_dir() / "schema" / "doctor.schema.json").read_text("utf-8"))
    document = json.loads(saved.read_bytes())
    jsonschema.validate(document, schema)
    assert document["redaction"]["pseudonyms"]
    text = saved.read_text("utf-8")
    assert "trainer-7.corp" not in text
    assert token not in text
    with pytest.raises(UsageError, match="already exists"):
        run(*words)


@pytest.mark.parametrize(
    ("free", "words", "code"), [(0, [], 0), (0, ["--exit-code"], 1), (1 << 34, ["--exit-code"], 0)]
)
def test_the_exit_code_tells_of_failures_when_asked(
    monkeypatch: pytest.MonkeyPatch, free: int, words: list[str], code: int
) -> None:
    from nccl_triage.doctor import collect

    told: dict[str, Any] = {"facts": facts(limits__shm={"size": 1 << 34, "free": free}), "unseen": [], "seconds": {}}
    monkeypatch.setattr(collect, "collect", lambda wish: told)
    result = run("doctor", *words)
    assert result.exit_code == code
    assert ("FAILED: /dev/shm" in result.output) == (free == 0)


def test_facts_beside_a_log(tmp_path: Path) -> None:
    log, hosts = tmp_path / "a.log", tmp_path / "hosts.json"
    log.write_text(SHM)
    document = build([HostAnswer("gpu01", {"facts": facts(limits__shm={"size": 64 << 20, "free": 0})})])
    hosts.write_bytes(json.dumps(document, sort_keys=True).encode())
    result = run(str(log), "--host-facts", str(hosts), "-v")
    assert result.exit_code == 0
    assert "shared-memory-exhausted" in result.output
    assert "/dev/shm has 64 MiB, 0 B free" in result.output
    with pytest.raises(UsageError, match="holds no host facts") as wrong:
        run(str(log), "--host-facts", str(log))
    assert f"nccl-triage doctor --format json -o {log}" in " ".join(wrong.value.lines("en"))
    with pytest.raises(UsageError, match="cannot read"):
        run(str(log), "--host-facts", str(tmp_path / "none.json"))
