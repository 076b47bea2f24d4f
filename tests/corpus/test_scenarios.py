"""Scenarios are sound as data, their labels are written as they are meant, and nothing of the machine gets through."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest

from corpus.scenarios import facilities, neutral
from corpus.scenarios.__main__ import main, scenarios
from corpus.scenarios.network import HOSTS
from corpus.scenarios.recorder import JOBS, Recording
from corpus.scenarios.scenario import Culprit
from corpus.scenarios.store import label, write
from nccl_triage.engine.schema import RuleSet

EVERYTHING = scenarios()


def test_labels_are_causes_of_the_contract(rules: RuleSet) -> None:
    known = {*rules.causes, "healthy", "unknown"}
    for scenario in EVERYTHING:
        assert {scenario.cause, *scenario.also} <= known, scenario.id
        assert scenario.determinable in ("yes", "partly", "no")
        assert re.fullmatch(r"[a-z0-9_]+", scenario.id)
        for pattern in (scenario.expect, scenario.telling or "x"):
            re.compile(pattern.encode())


def test_culprits_exist_in_the_job() -> None:
    for scenario in EVERYTHING:
        assert all(0 <= rank < scenario.world_size + 2 for rank in scenario.culprit.ranks), scenario.id
        assert {h for h in scenario.culprit.hosts if not h[0].isdigit()} <= set(HOSTS), scenario.id


def test_jobs_and_facilities_exist() -> None:
    for scenario in EVERYTHING:
        for need in scenario.needs:
            assert need.startswith("extra:") or need in facilities._CHECKS, (scenario.id, need)
        for node in scenario.nodes:
            for name in re.findall(r"\{jobs\}/([\w/.-]+\.py)", " ".join(node.command)):
                assert (JOBS / name).is_file(), (scenario.id, name)


def test_every_recording_has_a_scenario() -> None:
    known = {scenario.id for scenario in EVERYTHING}
    index = Path(__file__).parents[2] / "corpus" / "recorded" / "cases.jsonl"
    assert {json.loads(line)["id"] for line in index.read_text("utf-8").splitlines()} <= known


def test_paths_of_the_machine_become_neutral() -> None:
    clean = neutral.for_machine(Path("/srv/me/venv/bin/python"), Path("/srv/me/jobs"), Path("/srv/me/logs"))
    text = b'File "/srv/me/jobs/train.py", line 3\n/srv/me/venv/lib/python3.11/site-packages/torch/x.py /srv/me/logs/0'
    assert (
        clean(text)
        == b'File "/opt/train/train.py", line 3\n/opt/venv/lib/python3.11/site-packages/torch/x.py /var/log/train/0'
    )


@pytest.fixture
def recording() -> Recording:
    return Recording(b"start\nboom on rank 1\n", {"rank1.err.log": b"boom\n"}, [1], False, [], [], 2.0)


def test_a_label_says_what_was_done_and_where_it_shows(recording: Recording, tmp_path: Path) -> None:
    scenario = dataclasses.replace(EVERYTHING[0], id="it_w2", expect="boom", telling=None, culprit=Culprit(ranks=(1,)))
    entry = label(scenario, recording, {"torch": "2"}, "2026-01-01")
    assert (entry["evidence_line"], entry["culprit"]["rank"], entry["exit_codes"]) == (2, 1, [1])
    write(tmp_path, entry, recording)
    write(tmp_path, {**entry, "id": "an_earlier_w2", "log": "logs/an_earlier_w2.log"}, recording)
    write(tmp_path, entry, recording)
    lines = (tmp_path / "cases.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["an_earlier_w2", "it_w2"]
    assert (tmp_path / "runs" / "it_w2" / "rank1.err.log").read_bytes() == b"boom\n"


def test_a_machine_without_the_facilities_skips_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = next(s.id for s in EVERYTHING if "gpu" in s.needs)
    assert main([one, "--list", "--python", sys.executable, "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert one in shown
    assert facilities.missing("gpu", Path(sys.executable)) is None or "skipped: " in shown
    assert not list(tmp_path.iterdir())
