"""``nccl-triage model`` and the choice of a model, as users meet them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from nccl_triage.cli import cli, main

LOGS = {
    "oom": (
        "gpu-out-of-memory",
        "[rank{n}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {n}.00 GiB.\n",
    ),
    "port": (
        "port-in-use",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 295{n}0, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n",
    ),
}


@pytest.fixture
def incidents(tmp_path: Path) -> Path:
    folder = tmp_path / "incidents"
    (folder / "logs").mkdir(parents=True)
    entries = []
    for name, (cause, text) in LOGS.items():
        for n in range(1, 8):
            (folder / "logs" / f"{name}{n}.log").write_text(f"step {n} loss 2.{n}\n" + text.format(n=n))
            entries.append({"id": f"{name}{n}", "log": f"logs/{name}{n}.log", "cause": cause})
    (folder / "cases.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return folder


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, [*arguments])
    return result.exit_code, result.output


def test_train_then_use_by_option_and_by_configuration(
    incidents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "config" / "nccl-triage" / "team.json"
    model.parent.mkdir(parents=True)
    code, output = run("model", "train", str(incidents), "--alone", "--output", str(model))
    assert code == 0, output
    assert "2 labels" in output
    assert model.stat().st_mode & 0o777 == 0o644
    log = str(incidents / "logs" / "oom3.log")

    def vote(*arguments: str) -> str:
        code, output = run("diagnose", log, "--format", "json", *arguments)
        assert code == 0, output
        items = [c for d in json.loads(output)["diagnoses"] for c in d["contributions"] if c["id"] == "classifier-vote"]
        return items[0]["says"] if items else ""

    assert "7 of the 14 learnt from" in vote("--model", str(model))
    assert vote("--model", "none") == ""
    (model.parent / "config.yaml").write_text("model: team.json\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert "7 of the 14 learnt from" in vote()
    assert vote("--model", "none") == ""


def test_evaluate_prints_the_comparison(incidents: Path) -> None:
    code, output = run("model", "evaluate", str(incidents), "--alone")
    assert code == 0, output
    for words in ("rules alone", "classifier alone", "both", "decisive withheld"):
        assert words in output


@pytest.mark.parametrize("content", ["model: [1]\n", "modell: x\n", "- a\n", "a: b: c\n", "\x00"])
def test_a_broken_configuration_is_a_usage_error(
    content: str, incidents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "config" / "nccl-triage"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(content)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with pytest.raises(SystemExit) as ended:
        main(["diagnose", str(incidents / "logs" / "oom1.log")])
    assert ended.value.code == 2
    assert "config.yaml" in capfd.readouterr().err


def test_existing_files_and_missing_models_are_refused(
    incidents: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "taken.json"
    taken.write_text("mine")
    for arguments in (
        ["model", "train", str(incidents), "--alone", "--output", str(taken)],
        ["model", "train", str(incidents), "--alone", "--output", str(tmp_path / "no" / "folder.json")],
        ["diagnose", str(incidents / "logs" / "oom1.log"), "--model", str(taken)],
        ["diagnose", str(incidents / "logs" / "oom1.log"), "--model", str(tmp_path / "absent.json")],
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        assert "Traceback" not in capfd.readouterr().err
    assert taken.read_text() == "mine"
