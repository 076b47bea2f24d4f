"""Curves of the document: axes, ranks, numbers that are not finite, bounds; and the last good step."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from nccl_triage import resources
from nccl_triage.document.diagnosis import diagnose_observations
from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations import curves
from nccl_triage.observations.store import Observations
from tests.scan_helpers import scan_text

SCHEMA = json.loads((resources.reports_dir() / "schema" / "report.schema.json").read_text(encoding="utf-8"))
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.15 GiB"


def document(rules: RuleSet, *texts: str) -> dict[str, Any]:
    total = Observations()
    for number, text in enumerate(texts):
        total.absorb(scan_text(text, rules, path=f"log{number}" if number else "log"))
    found = json.loads(json.dumps(diagnose_observations(total, rules).to_dict(), allow_nan=False))
    jsonschema.validate(found, SCHEMA)
    return found  # type: ignore[no-any-return]


def series(rules: RuleSet, *texts: str) -> list[dict[str, Any]]:
    return document(rules, *texts)["series"]  # type: ignore[no-any-return]


def test_steps_are_the_axis_where_they_advance(rules: RuleSet) -> None:
    loss, rate = series(rules, "\n".join(f"step {n} loss {4 / n:.2f} lr 0.{n}" for n in range(1, 6)))
    assert (loss["metric"], loss["x"], loss["unit"], loss["rank"], loss["source"]) == (
        "loss",
        "step",
        None,
        None,
        "log",
    )
    assert loss["points"] == [[1, 4], [2, 2], [3, 1.33], [4, 1], [5, 0.8]]
    assert (loss["first"], loss["min"], loss["max"], loss["last"]) == (4, 0.8, 4, 0.8)
    assert (loss["count"], loss["sampled"], loss["lines"], loss["not_finite"]) == (5, False, [1, 5], [])
    assert (loss["title"], loss["title_zh"]) == ("Training loss", "训练损失")
    assert rate["metric"] == "learning_rate"


def test_a_restart_is_drawn_by_time_or_line(rules: RuleSet) -> None:
    steps = [*range(40), *range(20, 40)]
    untimed = series(rules, "\n".join(f"step {n} loss {n}.5" for n in steps))
    assert (untimed[0]["x"], untimed[0]["points"][-1]) == ("line", [60, 39.5])
    timed = series(
        rules,
        "\n".join(f"2025-06-03 14:{i // 60:02d}:{i % 60:02d},000 - INFO - step {n} loss {n}.5" for i, n in enumerate(steps)),
    )  # fmt: skip
    assert (timed[0]["x"], timed[0]["x_start"], timed[0]["points"][-1]) == ("time", "2025-06-03 14:00:00", [59, 39.5])


def test_epochs_are_the_axis_where_there_are_no_steps(rules: RuleSet) -> None:
    found = series(
        rules, "\n".join(f"{{'loss': {5 - n / 10}, 'learning_rate': 1e-5, 'epoch': {n / 10}}}" for n in range(1, 9))
    )
    assert (found[0]["x"], found[0]["points"][0], found[0]["points"][-1]) == ("epoch", [0.1, 4.9], [0.8, 4.2])


def test_numbers_that_are_not_finite(rules: RuleSet) -> None:
    (loss,) = series(rules, "step 1 loss 2.5\nstep 2 loss 9.5\nstep 3 loss nan\nstep 4 loss inf\nstep 5 loss -inf\n")
    assert loss["points"] == [[1, 2.5], [2, 9.5], [3, None], [4, None], [5, None]]
    assert loss["not_finite"] == [[3, "nan"], [4, "inf"], [5, "-inf"]]
    assert (loss["not_finite_count"], loss["count"], loss["last"], loss["max"]) == (3, 5, 9.5, 9.5)


def test_a_curve_of_nothing_but_nan(rules: RuleSet) -> None:
    (loss,) = series(rules, "\n".join(f"step {n} loss nan" for n in range(20)))
    assert (loss["min"], loss["max"], loss["last"]) == (None, None, None)
    assert (len(loss["not_finite"]), loss["not_finite_count"]) == (curves.MAX_STRANGE, 20)


def test_ranks_share_the_axis_and_repetitions_are_left_out(rules: RuleSet) -> None:
    lines = [
        f"[rank{rank}]: step {n} loss {n + rank}.5 lr 1e-{n}" for n in range(1, 9) for rank in range(6)
    ]  # fmt: skip
    found = series(rules, "\n".join(lines))
    assert [(s["metric"], s["rank"]) for s in found] == [
        ("loss", 5), ("loss", 4), ("loss", 3), ("loss", 2), ("learning_rate", 0),
    ]  # fmt: skip
    assert {s["x"] for s in found} == {"step"}


def test_the_rank_that_went_wrong_comes_first(rules: RuleSet) -> None:
    lines = [
        f"[rank{rank}]: step {n} loss {'nan' if rank == 2 and n == 5 else 1.5 + n}"
        for n in range(9)
        for rank in range(4)
    ]
    found = series(rules, "\n".join(lines))
    assert (found[0]["rank"], found[0]["not_finite"]) == (2, [[5, "nan"]])


def test_ranks_with_too_few_numbers_are_drawn_together(rules: RuleSet) -> None:
    (loss,) = series(rules, "\n".join(f"[rank{rank}]: step {rank} loss {rank}.5" for rank in range(20)))
    assert (loss["rank"], loss["source"], len(loss["points"])) == (None, "log", 20)


def test_files_are_not_mixed_up(rules: RuleSet) -> None:
    one = "\n".join(f"[rank0]: step {n} loss 2.{n}" for n in range(9))
    two = "\n".join(f"[rank1]: step {n} loss 3.{n}" for n in range(9))
    assert [(s["rank"], s["source"]) for s in series(rules, one, two)] == [(1, "log1"), (0, "log")]


def test_everything_is_bounded(rules: RuleSet) -> None:
    names = "loss 2 reward 3 kl 4 grad_norm 5 step_time 6s gpu_mem 7GB lr 8 tflops 9 data_time 1s"
    lines = [
        f"[rank{rank}]: step {n} "
        + " ".join(f"{word}{n * (rank + 1)}" if word.isdigit() else word for word in names.split())
        for n in range(400)
        for rank in range(3)
    ]
    found = series(rules, "\n".join(lines))
    assert len(found) == 12
    assert all(len(s["points"]) <= 240 and s["sampled"] for s in found)
    order = list(rules.series.metrics)
    places = [order.index(s["metric"]) for s in found]
    assert places == sorted(places)
    assert 300 <= found[0]["count"] <= 500
    assert (found[0]["lines"][0], found[0]["points"][0][0], found[0]["points"][-1][0]) == (found[0]["rank"] + 1, 0, 399)


def test_the_same_log_gives_the_same_curves(rules: RuleSet) -> None:
    text = "\n".join(f"[rank{n % 3}]: step {n} loss {n % 7}.5" for n in range(900))
    assert series(rules, text) == series(rules, text)


@pytest.mark.parametrize("text", ["", "hello\n", "step 1 loss 2.5\n", "loss loss loss\n" * 50])
def test_nothing_to_draw(rules: RuleSet, text: str) -> None:
    assert series(rules, text) == []


def test_the_last_good_step(rules: RuleSet) -> None:
    lines = [f"2025-06-03 14:22:{n:02d},000 - INFO - [rank 0/2] step {n} loss 2.5" for n in range(1, 8)]
    found = document(rules, "\n".join([*lines[:5], f"[rank1]: {OOM}", *lines[5:]]))["last_good_step"]
    assert found == {"step": 5, "path": "log", "line": 5, "time": "2025-06-03 14:22:05", "rank": 0}


def test_no_last_good_step(rules: RuleSet) -> None:
    assert document(rules, "step 1 loss 2.5\nstep 2 loss 2.4\n")["last_good_step"] is None  # nothing failed
    assert document(rules, OOM)["last_good_step"] is None  # nothing advanced
    bar = "Loading checkpoint shards:  50%|█████     | 2/4 [00:04<00:04,  2.00s/it]"
    assert document(rules, f"{bar}\n{OOM}")["last_good_step"] is None  # loading is no training step


def test_steps_of_other_files_count_by_their_time(rules: RuleSet) -> None:
    stamp = "2025-06-03 14:22:{:02d},000 - INFO - step {} loss 2.5"
    steps = "\n".join(stamp.format(n, n) for n in range(1, 12))
    fault = f"2025-06-03 14:22:10,500 - ERROR - {OOM}"
    found = document(rules, fault, steps)["last_good_step"]
    assert (found["step"], found["path"]) == (10, "log1")
