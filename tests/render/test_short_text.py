"""What a terminal shows of recorded incidents: few lines, each once, the proof in sight, and commands that can be run."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest

from nccl_triage import api
from nccl_triage.diagnosis import weigh
from nccl_triage.render import short_text, terminal
from nccl_triage.render.hard_errors import hard_errors
from nccl_triage.render.text_page import is_open, quoted

from .documents import diagnosed, healthy, unknown

LOGS = Path(__file__).parents[2] / "corpus/recorded/logs"
#: Incidents of all kinds: exception, hang, storm, mismatch, memory, disk, network, Ray, signals, versions, unknown, healthy.
NAMES = (
    "two_tables_w6", "diverge_early_exit_w3", "summary_of_victims_w3", "mismatch_reduce_scatter_detail_w4",
    "hostoom_numpy_bare_w2", "nccl_shm_small_w2", "net_firewall_master_drop_w4", "nccl_duplicate_gpu_one_host_w8",
    "ray_worker_wrong_address_w2", "ray_get_timeout_w2", "sigkill_in_allreduce_w8", "version_transformers_w2",
    "short_timeout_evaluate_w4", "ddp_unused_all_w2", "net_mtu_hole_w2", "processes_code_w5", "oslimit_files_start_w4",
    "deepspeed_batch_none_w2", "healthy_ddp_debug_info_w3_plain", "healthy_nan_spike_w2_plain",
)  # fmt: skip
MOST = {"diagnosed": 15, "unknown": 20, "healthy": 3}


@functools.cache
def document(name: str) -> dict[str, Any]:
    return api.diagnose(LOGS / f"{name}.log").to_dict()


def text(doc: dict[str, Any], **how: Any) -> str:
    return terminal.render(doc, **{"color": False, "width": 100, "lang": "en", "verbose": 0, **how})


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", NAMES)
def test_an_incident_fits_and_says_nothing_twice(name: str, lang: str) -> None:
    doc = document(name)
    lines = text(doc, lang=lang).splitlines()
    # The first hard error may take a line more.
    assert short_text.rows(lines) <= MOST[doc["verdict"]] + bool(hard_errors(doc))
    told = [line.strip() for line in lines if line]
    assert len(set(told)) == len(told)
    assert lines[0].startswith("nccl-triage: ")
    assert all(not line or line.startswith("  ") for line in lines[1:])


@pytest.mark.parametrize("width", [60, 100, 200, None])
@pytest.mark.parametrize("name", NAMES)
def test_the_telling_span_is_in_sight(name: str, width: int | None) -> None:
    doc = document(name)
    if doc["verdict"] != "diagnosed":
        pytest.skip("only a cause has a proof")
    quote = quoted(short_text.strongest(doc["diagnoses"][0], 1)[0], doc["headline"])
    shown = text(doc, width=width)
    assert re.search(rf":{quote.line}:\s", shown)  # on a narrow terminal the text is on the next line
    assert quote.text[quote.span.start : quote.span.end][:16] in shown


@pytest.mark.parametrize("name", NAMES)
def test_what_can_be_run_comes_first(name: str) -> None:
    block = text(document(name), width=None).partition("\n  collect: ")[0]
    commands = re.findall(r"^    \$ (.*)", block.partition("\n  else: ")[0], re.M)
    if document(name)["verdict"] == "diagnosed":
        assert sorted(commands, key=is_open) == commands
        assert len(commands) <= 3


def voted() -> dict[str, Any]:
    doc = diagnosed()
    best = doc["diagnoses"][0]
    says = {
        "says": "The log as a whole resembles known incidents: 3 of 9.",
        "says_zh": "整份日志与已知事故相似：9 起中有 3 起。",
    }
    best["evidence"].insert(
        0, {**best["evidence"][0], **says, "weight": "decisive", "line": 7, "text": "an innocent line"}
    )
    term = {"id": short_text.VOTE_ID, "weight": "strong", "log_odds": 1.0, "applied": 1.0, "explained_by": None}
    best["contributions"].append({**term, **says, "events": [{"path": "logs/trainer.log", "line": 7}]})
    return doc


def test_the_vote_of_the_classifier_is_told_with_v_only_and_of_no_line() -> None:
    assert short_text.VOTE_ID == weigh.VOTE_ID
    assert "as a whole" not in text(voted())
    detailed = text(voted(), verbose=1, width=None)
    assert "\n  similar incidents: The log as a whole resembles known incidents: 3 of 9.\n" in detailed
    for shown in (text(voted()), detailed):
        assert "innocent" not in shown
        assert "trainer.log:7" not in shown


def test_a_cause_that_rests_on_the_vote_alone_says_so() -> None:
    doc = voted()
    doc["diagnoses"][0]["evidence"] = doc["diagnoses"][0]["evidence"][:1]
    assert "  why: no single line proves it; the log as a whole resembles such incidents\n" in text(doc)


def test_a_rival_is_told_with_the_check_that_decides() -> None:
    doc = diagnosed()
    doc["diagnoses"][1]["confidence"] = 0.2
    lines = text(doc).splitlines()
    at = lines.index("  else: straggler (possible, 0.20): One rank reached the collective late")
    assert lines[at + 1] == "    check: Does rank 2 fail again with half the micro-batch?"


def test_a_tie_is_told_as_a_tie() -> None:
    doc = diagnosed()
    doc["diagnoses"][0]["confidence"], doc["diagnoses"][1]["confidence"] = 0.48, 0.45
    second = text(doc, width=None).splitlines()[1]
    assert second.startswith("  root cause: gpu-out-of-memory (established, 0.48) or straggler (possible, 0.45): a tie")


def test_ranks_of_one_host_are_told_together() -> None:
    doc = diagnosed()
    one = doc["diagnoses"][0]["culprits"][0]
    doc["diagnoses"][0]["culprits"] = [{**one, "rank": rank} for rank in (2, 3, 5)]
    assert "culprit: ranks 2-3, 5 on node-a" in text(doc)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("make", [diagnosed, unknown, healthy])
def test_a_long_text_ends_with_the_headline_in_a_pipe(make: Any, lang: str) -> None:
    doc = make()
    for diagnosis in doc["diagnoses"]:
        diagnosis["title"] = diagnosis["title_zh"] = "a long title " * 200
    if doc["diagnoses"]:
        doc["diagnoses"][-1]["confidence"] = 0.9
        first, *_, last = text(doc, lang=lang, width=None).splitlines()
        assert first == last
        assert text(doc, lang=lang, width=100).splitlines()[-1] != first
    else:
        assert len(text(doc, lang=lang, width=None).splitlines()) <= 3


def test_without_a_cause_it_tells_who_waited_who_was_silent_and_who_reached_whom() -> None:
    doc = unknown()
    ranks = [{"rank": rank, "state": "entered" if rank else "unknown"} for rank in range(4)]
    doc["job"]["ranks"] = [*ranks, {"rank": 4, "state": "unknown", "exit": "1"}]
    doc["job"]["hosts"] = [{"name": "gpu-a"}]
    doc["collective"] = {"op": "ALLREDUCE", "seq": 7}
    doc["network"] = {"failed": [{"from": "gpu-a", "address": "10.0.0.9"}]}
    doc["not_seen"] = [{"what": "The kernel's messages", "commands": ["dmesg -T > dmesg.log"], "env": {}}]
    shown = text(doc)
    assert "\n  silent: rank 0\n" in shown
    assert "\n  waiting: ranks 1-3 in ALLREDUCE (seq 7)\n" in shown
    assert "\n  connections that failed: gpu-a -> 10.0.0.9\n" in shown
    assert "\n  collect: The kernel's messages (on gpu-a)\n    $ dmesg -T > dmesg.log\n" in shown


def test_a_message_is_quoted_once() -> None:
    doc = diagnosed()
    best = doc["diagnoses"][0]
    first = best["evidence"][0]
    again = {**first, "line": 9, "text": f"worker 7 died of this: {first['text'][20:]}", "says": "It was told again."}
    best["evidence"] = [first, again, {**first, "line": 11, "text": "Killed", "says": "The kernel did it."}]
    assert re.findall(r"trainer\.log:(\d+):", text(doc)) == ["1182", "11"]


@pytest.mark.parametrize("confidence", [0.6, 0.94, 0.96])
def test_the_first_hard_error_is_shown_however_little_room_there_is(confidence: float) -> None:
    doc = diagnosed()
    best = doc["diagnoses"][0]
    best["confidence"] = confidence
    best["fixes"] = [{"title": f"Repair {n} " + "by many words " * 40, "commands": ["run it " * 40]} for n in range(3)]
    doc["telling_lines"] = [
        {"path": "logs/a.log", "line": n, "text": f"ERROR {name} went away", "rank": None, "host": None, "score": 1.0}
        for n, name in ((71, "the scheduler"), (72, "the store"))
    ]
    assert ("logs/a.log:71: ERROR the scheduler went away" in text(doc)) is (confidence < 0.95)
