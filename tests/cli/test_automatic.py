"""The verifier before a report: when it runs, what the result shows, and that nothing costs the report."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from nccl_triage import resources
from nccl_triage.cli import cli
from nccl_triage.errors import UsageError
from nccl_triage.hosts.probes import inventory
from nccl_triage.verify import api
from tests.render.verified import verification

ROOT = Path(__file__).parents[2]
MISMATCH = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint("
    "SequenceNumber=15, OpType=ALLREDUCE, TensorShape=[4096], TensorDtypes=Float, TensorDeviceTypes=TensorOptions("
    "dtype=float (default), device=cpu)), but Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=15, "
    "OpType=BROADCAST, TensorShape=[4096], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), "
    "device=cpu)). Collectives differ in the following aspects: \t Op type: ALLREDUCEvs BROADCAST\n"
)
BUSY = {"en": "GPU 0 is 97 % busy", "zh": "GPU 0 利用率 97%"}
Document = dict[str, Any]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "trainer.log"
    path.write_text(MISMATCH)
    return path


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "post-mortem.html"


def invoke(*args: object) -> Result:
    return CliRunner().invoke(cli, ["diagnose", *map(str, args)])


class Verifier:
    """Stands for the hardware: counts how often it was asked, and answers with an outcome or an error."""

    def __init__(self, answer: Callable[[Document], Document]) -> None:
        self.answer, self.asked = answer, list[tuple[api.Settings, bool]]()

    def __call__(
        self, document: Document, rules: Any, settings: api.Settings, *, say: Any, on_gpus: bool
    ) -> tuple[Document, None]:
        self.asked.append((settings, on_gpus))
        say("run-01: ALLREDUCE on 2 ranks, nccl")
        return self.answer(copy.deepcopy(document)), None


def ends(outcome: str) -> Callable[[Document], Document]:
    def answer(document: Document) -> Document:
        document["diagnoses"][0]["verification"] = {**verification(), "outcome": outcome}
        return document

    return answer


def fails(error: Exception) -> Callable[[Document], Document]:
    def answer(document: Document) -> Document:
        raise error

    return answer


@pytest.fixture
def hardware(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Verifier]:
    def make(answer: Callable[[Document], Document] | None = None) -> Verifier:
        verifier = Verifier(answer or ends("confirmed"))
        monkeypatch.setattr(inventory, "likely_present", lambda: True)
        monkeypatch.setattr(api, "verify", verifier)
        return verifier

    return make


def test_idle_gpus_verify_the_report_and_every_other_result(hardware: Any, log: Path, page: Path) -> None:
    verifier = hardware()
    result = invoke(log, "--report", page, "--format", "json")
    assert result.exit_code == 0
    ((settings, on_gpus),) = verifier.asked
    assert (settings.options.budget, on_gpus) == (120.0, True)
    document = json.loads(result.stdout)
    assert document["diagnoses"][0]["verification"]["outcome"] == "confirmed"
    assert "confirmed" in page.read_text(encoding="utf-8")
    assert "nccl-triage: run-01: ALLREDUCE on 2 ranks, nccl\n" in result.stderr
    assert f"report written to {page} (verification: confirmed)" in result.stderr


def test_text_and_html_on_standard_output_show_the_outcome(hardware: Any, log: Path, page: Path) -> None:
    hardware()
    assert "\n  verification: confirmed: The control fails" in invoke(log, "--report", page).stdout
    assert ">confirmed</span>" in invoke(log, "--format", "html").stdout


def test_the_budget_is_passed_on(hardware: Any, log: Path, page: Path) -> None:
    verifier = hardware()
    invoke(log, "--report", page, "--budget", "33")
    assert verifier.asked[0][0].options.budget == 33.0


def test_quiet_says_nothing(hardware: Any, log: Path, page: Path) -> None:
    hardware()
    assert invoke(log, "--report", page, "--quiet").stderr == ""


@pytest.mark.parametrize("more", [["--exit-code"], []])
def test_a_contradicted_diagnosis_has_its_own_exit_code(hardware: Any, log: Path, page: Path, more: list[str]) -> None:
    hardware(answer=ends("refuted"))
    assert invoke(log, "--report", page, *more).exit_code == 4
    assert page.exists()


def test_busy_gpus_leave_the_report_unverified_and_say_why(hardware: Any, log: Path, page: Path) -> None:
    hardware(answer=fails(api.NoIdleGpuError(BUSY)))
    result = invoke(log, "--report", page, "--format", "json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["diagnoses"][0]["verification"] is None
    assert document["notes"][-1] == "Not verified: GPU 0 is 97 % busy"
    assert document["notes_zh"][-1] == "未验证：GPU 0 利用率 97%"
    assert "nccl-triage: not verified: GPU 0 is 97 % busy\n" in result.stderr
    text = page.read_text(encoding="utf-8")
    assert f"<bdi>nccl-triage</bdi> verify {log}" in text
    assert "GPU 0 is 97 % busy" in text


def test_always_takes_what_is_at_hand(hardware: Any, log: Path, page: Path) -> None:
    verifier = hardware()
    assert invoke(log, "--report", page, "--verify", "always").exit_code == 0
    assert [on_gpus for _, on_gpus in verifier.asked] == [False]


def test_always_needs_a_report_and_says_so_before_any_work(log: Path) -> None:
    result = invoke(log.with_name("missing.log"), "--verify", "always")
    assert isinstance(result.exception, UsageError)
    assert "needs a report" in result.exception.message


def _asked(*_: object) -> bool:
    raise AssertionError("nobody may ask for GPUs")


@pytest.mark.parametrize("more", [["--verify", "never"], []])
def test_never_and_a_healthy_log_ask_for_no_gpu(
    monkeypatch: pytest.MonkeyPatch, log: Path, page: Path, more: list[str]
) -> None:
    monkeypatch.setattr(inventory, "likely_present", _asked)
    if not more:
        log.write_text("step 1/2 loss 5.1\nstep 2/2 loss 5.0\ntraining finished\n")
    result = invoke(log, "--report", page, *more)
    assert result.exit_code == 0, result.exception
    assert ("nothing to verify" in result.stderr) == (not more)
    assert page.exists()


def test_without_gpus_the_report_prints_the_command(monkeypatch: pytest.MonkeyPatch, log: Path, page: Path) -> None:
    monkeypatch.setattr(inventory, "likely_present", lambda: False)
    monkeypatch.setattr(inventory, "visible", _asked)
    result = invoke(log, "--report", page)
    assert result.exit_code == 0
    assert f"(not verified; to confirm: nccl-triage verify {log} --job-hosts)" in result.stderr
    assert f"<bdi>nccl-triage</bdi> verify {log}" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UsageError("another verifier runs here (pid 7)", cause="it holds the lock"), "another verifier runs here"),
        (OSError(28, "No space left on device"), "the verifier failed (OSError"),
        (KeyError("odd"), "the verifier failed (KeyError"),
    ],
)
def test_a_failing_verifier_costs_no_report(hardware: Any, log: Path, page: Path, error: Exception, said: str) -> None:
    hardware(answer=fails(error))
    result = invoke(log, "--report", page, "--format", "json")
    assert result.exit_code == 0
    (line,) = [line for line in result.stderr.splitlines() if "not verified:" in line]
    assert said in line
    assert json.loads(result.stdout)["diagnoses"][0]["verification"] is None
    assert said in page.read_text(encoding="utf-8")


def test_debug_shows_where_the_verifier_failed(hardware: Any, log: Path, page: Path) -> None:
    hardware(answer=fails(KeyError("odd")))
    assert isinstance(invoke(log, "--report", page, "--debug").exception, KeyError)


def test_ctrl_c_ends_it_all(hardware: Any, log: Path, page: Path) -> None:
    def answer(document: Document) -> Document:
        raise KeyboardInterrupt

    hardware(answer=answer)
    assert invoke(log, "--report", page).exit_code != 0
    assert not page.exists()


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment with a lock of its own, so that other verifications on this host do not matter."""
    paths = {"TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(folder), "PYTHONPATH": str(ROOT / "analyzer")}
    return {**{k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "GLOO_"))}, **paths}


def test_a_diagnosis_without_a_report_imports_nothing_that_could_touch_a_gpu(log: Path, tmp_path: Path) -> None:
    program = (
        "import sys\nfrom nccl_triage.cli import main\n"
        f"try:\n    main([{str(log)!r}, '--exit-code'])\nexcept SystemExit as end:\n    assert end.code == 1\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, env=_environment(tmp_path), check=True, timeout=60)
    loaded = set(result.stderr.split())
    assert "nccl_triage.cli.launching" in loaded
    assert not {name for name in loaded if name.startswith(("nccl_triage.verify", "torch", "pynvml"))}


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_a_real_run_reaches_every_format(log: Path, page: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nccl_triage", "verify", str(log), "--world", "2", "--backend", "gloo"]
    command += ["--patience", "0.3", "--suspects", "1", "--format", "json", "--report", str(page)]
    environment = {**_environment(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    result = subprocess.run(command, capture_output=True, env=environment, check=False, timeout=120)
    assert result.returncode == 0, result.stderr.decode()
    document = json.loads(result.stdout)
    schema = json.loads((resources.reports_dir() / "schema" / "report.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema).validate(document)
    found = document["diagnoses"][0]["verification"]
    assert document["diagnoses"][0]["cause"] == "collective-mismatch"
    assert found["outcome"] in ("supported", "inconclusive")
    assert [run["outcome"] for run in found["runs"]] == ["passed", "passed"]
    assert all(run["expected"]["state"] == "message-too-small" for run in found["runs"])
    assert all(run["bandwidth"]["busbw"] > 0 for run in found["runs"])
    (host,) = found["hosts"]
    assert {"lo"} <= {entry["name"] for entry in host["interfaces"]}
    assert all("speed_mbit" in entry for entry in host["interfaces"])
    text = page.read_text(encoding="utf-8")
    for part in ('<section id="verification"', "run-01", "run-02", 'id="bandwidth-title"', "127.0.0.1/8"):
        assert part in text
