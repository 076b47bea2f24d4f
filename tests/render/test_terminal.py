from __future__ import annotations

import re
from typing import Any

import pytest

from nccl_triage.render import terminal
from nccl_triage.render.words import columns

from .documents import ALL, OOM_LINE, TIMEOUT_LINE, chinese, diagnosed, full, healthy, hostile, unknown


def text(doc: dict[str, Any], **how: Any) -> str:
    return terminal.render(doc, **{"color": False, "width": None, "lang": "en", "verbose": 0, **how})


def test_a_pipe_gets_whole_lines_in_the_order_that_matters():
    assert text(diagnosed()).splitlines() == [
        "nccl-triage: Rank 2 ran out of GPU memory; 7 other ranks then waited for it and timed out.",
        "  root cause: gpu-out-of-memory (established, 0.93); culprit: rank 2 on node-a (gpu 2, pid 4002)",
        "  7 other ranks failed as a result (0-1, 3-7)",
        "",
        "  why: The first error of the job, ten minutes before any time-out.",
        f"    logs/trainer.log:1182: {OOM_LINE}",
        f"  why: logs/trainer.log:1240: {TIMEOUT_LINE.format(r=0)}",
        "",
        "  do now: Lower the memory that one step needs",
        "    $ export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "    $ python train.py --micro-batch-size 1 --gradient-checkpointing",
        "    caution: A smaller micro-batch changes the throughput",
        "",
        "  more: nccl-triage explain gpu-out-of-memory; -v: all evidence, 1 more note; --report FILE.html",
    ]


def test_at_most_three_deciding_lines_and_three_commands():
    doc = diagnosed()
    best = doc["diagnoses"][0]
    one = best["evidence"][0]
    weights = ["weak", "strong", "moderate", "decisive", "decisive", "strong"]
    best["evidence"] = [
        {**one, "line": n, "weight": w, "says": f"{n}", "text": "abcdef"[n - 1] * 9} for n, w in enumerate(weights, 1)
    ]
    best["evidence"].append({**best["evidence"][3], "line": 7})
    best["fixes"] = [
        {"title": f"fix {n}", "commands": [f"#SBATCH --mem={n}", f"fix {n}", f"see {n}", f"fix {n} PEER_ADDRESS"]}
        for n in range(4)
    ]
    shown = text(doc)
    assert "    #SBATCH --mem=0\n" in shown
    assert re.findall(r"trainer\.log:(\d+):", shown) == ["4", "5", "2"]
    assert re.findall(r"^    (\$ .*|#SBATCH.*)", shown, re.M) == ["#SBATCH --mem=0", "$ fix 0", "$ see 0"]


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("make", [diagnosed, unknown, healthy, chinese])
def test_a_terminal_is_never_overrun_but_commands_stay_whole(make, lang):
    shown = text(make(), width=80, lang=lang, verbose=0)
    for line in shown.splitlines():
        assert columns(line) <= 80 or line.lstrip().startswith("$ "), line
    if make is diagnosed:
        assert ".." in shown


def test_closing_punctuation_does_not_begin_a_line():
    folded = terminal.fold("显存不足，" * 10, 21, 2)
    assert not any(line.strip().startswith("，") for line in folded)
    assert "".join(line.strip() for line in folded) == "显存不足，" * 10


def test_colour_adds_only_standard_codes_and_no_meaning():
    plain, coloured = text(diagnosed()), text(diagnosed(), color=True)
    codes = set(re.findall(r"\x1b\[([0-9;]*)m", coloured))
    assert codes
    assert codes <= {"0", "1", *(str(n) for n in range(30, 38))}
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


@pytest.mark.parametrize("verbose", [0, 1])
@pytest.mark.parametrize("width", [None, 80])
def test_hostile_text_cannot_act_on_the_terminal(width, verbose):
    shown = text(hostile(), width=width, verbose=verbose)
    assert all(c == "\n" or c == "\t" or c.isprintable() for c in shown)
    assert "\\u202e" in shown
    assert len(max(shown.splitlines(), key=len)) < 20_000


def test_unknown_lists_what_is_possible_with_its_check():
    shown = text(unknown())
    assert "\n  root cause: unknown\n" in shown
    assert shown.count("  possible: ") == 3
    assert shown.count("    check: ") == 2
    assert "problems: logs/trainer.log: 3 bytes were not UTF-8" in shown
    assert "more: nccl-triage explain rank-divergence" in shown
    assert len(shown.splitlines()) <= 20


def test_healthy_says_so():
    shown = text(healthy())
    assert shown.splitlines()[1:] == ["  verdict: healthy: no failure in 1 input, 12,345 lines"]
    assert "seen: net.retry x2: A connection was tried again" in text(healthy(), verbose=1)


def test_verbose_prints_the_whole_sum():
    shown = text(diagnosed(), verbose=1)
    assert "score: gpu-out-of-memory 7.20 (confidence 0.93, established)" in shown
    assert "+3.20 decisive gpu-out-of-memory.first: An out-of-memory error comes first" in shown
    assert "+0.40 (+1.10) moderate gpu-out-of-memory.timeouts [explained by straggler]" in shown
    assert "score: straggler 0.40" in shown
    assert "speaks against it: Memory was far from full" in shown


def test_the_lines_of_a_traceback_are_numbered():
    doc = diagnosed()
    doc["diagnoses"][0]["evidence"][0].update(text="a\nb\r\nc\n", line=10, end_line=12)
    shown = text(doc, verbose=1)
    assert "trainer.log:10: a\n  logs/trainer.log:11: b\n  logs/trainer.log:12: c\n" in shown


def test_a_verification_replaces_the_advice_to_verify():
    doc = diagnosed()
    doc["diagnoses"][0]["verification"] = {
        "outcome": "confirmed",
        "reason": "2 of 2 runs",
        "reason_zh": "两次",
    }
    shown = text(doc)
    assert "verification: confirmed: 2 of 2 runs" in shown
    assert "not verified" not in shown


@pytest.mark.parametrize("kind", sorted(ALL))
def test_chinese_has_no_english_labels(kind):
    shown = text(ALL[kind](), lang="zh", verbose=1)
    assert not re.search(r"^ *(root cause|do now|fix|check|culprit|more|note|score|why|else):", shown, re.M)


def test_start_and_cost_stand_under_the_culprit_and_urgency_under_v():
    lines = text(full()).splitlines()
    assert lines[2] == "  started: 2024-08-23 21:10:26; lost: 1.5 rank-hours (11 min 14 s on 8 ranks)"
    assert not any("next 5 minutes" in line for line in lines)
    shown = text(full(), verbose=1)
    assert shown.index("in the next 5 minutes") < shown.index("in the next 15 minutes") < shown.index("long term")
