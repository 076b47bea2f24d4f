"""``similar`` as a user meets it: logs, messages, standard input, both languages, JSON, and where reports show threads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nccl_triage import diagnose, resources
from nccl_triage.render import FORMATS, render
from tests.cli.processes import ROOT, environment, run

LOG = ROOT / "corpus" / "written" / "logs" / "S004-openrlhf-batch-size.log"
#: A log that does not show its cause.
#: A log without a cause of which few lines are shown.
ROOMY = ROOT / "corpus" / "written" / "logs" / "S005-openrlhf-connection-reset.log"
UNSHOWN = ROOT / "corpus" / "written" / "logs" / "V215-rendezvous-closed-pod.log"
NVLS = "gpunode004:1:1 [1] transport/nvls.cc:254 NCCL WARN Cuda failure 801 'operation not supported'"
HEALTHY = "step 1 loss 2.3\nstep 2 loss 2.1\ntraining finished\n"


def shown(*words: str, **extra: str) -> str:
    result = run("similar", *words, **extra)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode()


def document(path: Path, **how: Any) -> dict[str, Any]:
    return diagnose(path).to_dict(**how)


def test_a_log_has_threads_with_what_they_were_and_what_is_shared() -> None:
    text = shown(str(LOG))
    addresses = [line for line in text.splitlines() if line.startswith("similar thread: https://")]
    assert 1 <= len(addresses) <= 3
    assert "same message" in text
    assert text.count("(confirmed by ") + text.count("judged by its log alone") + text.count("agreed on") >= 1


def test_a_message_is_a_log_of_one_line() -> None:
    assert "https://" in shown(NVLS)
    assert shown(*NVLS.split(" ")) == shown(NVLS)
    result = subprocess.run(
        [sys.executable, "-m", "nccl_triage", "similar", "-"],
        input=NVLS.encode(), capture_output=True, check=True, env=environment(), timeout=60,
    )  # fmt: skip
    assert result.stdout.decode() == shown(NVLS)


def test_chinese_and_json_say_the_same() -> None:
    assert "相似案例：https://" in shown(str(LOG), "--lang", "zh")
    found = json.loads(shown(str(LOG), "--format", "json"))
    assert set(found) == {"schema_version", "tool", "verdict", "similar"}
    assert [one["url"] for one in found["similar"]] == [one["url"] for one in document(LOG)["similar"]]


def test_nothing_alike_is_said_and_is_an_empty_list(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(HEALTHY)
    assert shown(str(log)) == "No public thread that is known looks alike.\n"
    assert json.loads(shown(str(log), "--format", "json"))["similar"] == []
    assert "similar" not in document(log)


@pytest.mark.parametrize(("words", "why"), [([], "nothing to compare"), (["logs/no-such.log"], "cannot read")])
def test_what_is_neither_a_log_nor_a_message_is_refused(words: list[str], why: str) -> None:
    result = run("similar", *words)
    assert (result.returncode, result.stdout) == (2, b"")
    assert why in result.stderr.decode()


def test_every_report_of_a_failure_has_them_and_follows_the_schema() -> None:
    made = document(LOG)
    schema = json.loads((resources.reports_dir() / "schema" / "report.schema.json").read_bytes())
    jsonschema.validate(made, schema)
    url = made["similar"][0]["url"]
    for name in ("json", "markdown", "html"):
        assert url in render(made, name).decode(), name
    assert url in render(made, "text", verbose=1).decode()
    assert "相似案例" in render(made, "markdown", lang="zh").decode()
    assert f'<a href="{url}"' in render(made, "html").decode()


def test_the_short_text_of_a_named_cause_is_as_it_was() -> None:
    made, without = document(LOG), document(LOG, similar=False)
    assert made["verdict"] == "diagnosed"
    assert "similar" not in without
    for name in set(FORMATS) - {"json", "ndjson", "markdown", "html", "github"}:
        made["timing"] = without["timing"]
        assert render(made, name) == render(without, name), name


def test_an_unknown_cause_shows_one_on_a_line_where_there_is_room() -> None:
    result = run(str(ROOMY))
    lines = result.stdout.decode().splitlines()
    assert "root cause: unknown" in lines[1]
    first = document(ROOMY)["similar"][0]
    found = [line for line in lines if line.startswith("  similar thread: ")]
    assert found == [f"  similar thread: {first['url']} ({first['title']})"]
    assert len(lines) <= 20
    long = {**document(ROOMY), "notes": [], "notes_zh": []}
    long["similar"][0]["title"] = "word " * 600
    assert "similar thread: " not in render(long, "text").decode()


def test_a_log_without_a_cause_is_looked_up_for_the_short_text_too(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom nccl_triage.__main__ import run\n"
        "try:\n    run()\nexcept SystemExit:\n    pass\n"
        "print([name for name in sys.modules if name.startswith('nccl_triage.similar')])"
    )
    for text, loaded in ((LOG.read_text(), False), ("FATAL frobnicator: quux exhausted\nexit code 1\n", True)):
        log = tmp_path / "job.log"
        log.write_text(text)
        result = subprocess.run(
            [sys.executable, "-c", program, str(log)], capture_output=True, check=True, env=environment(), timeout=60
        )
        assert (result.stdout.decode().splitlines()[-1] != "[]") == loaded


def test_redaction_leaves_public_links_and_adds_nothing_of_the_log(tmp_path: Path) -> None:
    from nccl_triage.redaction import redact

    log = tmp_path / "job.log"
    log.write_text(LOG.read_text() + "secretive-host-17: bye\n")
    made = document(log)
    assert redact(made)["similar"] == made["similar"]
    assert "secretive" not in json.dumps(made["similar"])
    assert str(tmp_path) not in json.dumps(made["similar"])


def test_a_link_of_a_foreign_report_is_no_markup() -> None:
    made = document(LOG)
    made["similar"][0] |= {"url": 'javascript:alert(1)"><b>', "says": "<b>bold</b>", "why": "[x](javascript:1)"}
    page = render(made, "html").decode()
    assert "<b>bold" not in page
    assert 'href="javascript' not in page
    assert "javascript:alert" not in render(made, "markdown").decode()
