"""Stragglers that training programs name or time themselves: Megatron's timers and detector, NVIDIA's resiliency extension."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nccl_triage import diagnose
from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

TIMEOUT = (
    "[rank{rank}]:[E603 14:50:00.000000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=88, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 "
    "milliseconds before timing out."
)


def megatron(timers: Callable[[int], dict[str, tuple[float, float]]], reports: list[str], failed: bool = True) -> str:
    """Return the log of the last rank as Megatron prints it with ``--timing-log-level 2 --log-straggler``."""
    lines = ["training ...", "[before the start of training step] datetime: 2025-06-03 14:20:01"]
    for step in range(1, 13):
        lines += [
            f" [2025-06-03 14:22:{step:02d}.123456] iteration {step:8d}/    1000 | consumed samples: {step * 256:12d} | elapsed "
            f"time per iteration (ms): {5200 + step:.1f} | learning rate: 1.200000E-06 | global batch size:   256 | "
            "lm loss: 1.043210E+01 | loss scale: 1.0 | grad norm: 8.123 | number of skipped iterations:   0 | "
            "number of nan iterations:   0 |",
            "(min, max) time across ranks (ms):",
            *(
                f"    {name + ' ':.<48}: ({low:.2f}, {high:.2f})"
                for name, (low, high) in {"forward-backward": (5100.1, 5101.9), **timers(step)}.items()
            ),
        ]
        if reports:
            lines.append(
                f" 0: INFO:megatron.core.utils:[2025-06-03 14:22:{step:02d}] | {reports[step % len(reports)]} | "
                "MnPwr/Rnk: 601796.00W/8 | MxPwr/Rnk: 683801.00W/18 | MnTmp/Rnk: 52.00C/0 | MxTmp/Rnk: 65.00C/21"
            )
    lines += [TIMEOUT.format(rank=rank) for rank in (0, 1, 3)] if failed else []
    return "\n".join(lines) + "\n"


def calm(step: int) -> dict[str, tuple[float, float]]:
    return {"forward-compute": (1802.2, 1961.7), "backward-compute": (3010.5, 3105.0), "all-grads-sync": (40.1, 210.0)}


def slow(step: int) -> dict[str, tuple[float, float]]:
    return {**calm(step), "backward-compute": (3010.5, 8105.0 + step)}


def first_only(step: int) -> dict[str, tuple[float, float]]:
    return slow(step) if step in (1, 7) else calm(step)


def verdict(folder: Path, log: str) -> tuple[dict[str, Any], dict[str, Any]]:
    (folder / "train.log").write_text(log)
    found = diagnose(folder, model=None)
    document = found.to_dict()
    straggler = next((one for one in document["diagnoses"] if one["cause"] == "straggler"), {"evidence": []})
    return straggler, {name: found.case.value(name) for name in ("pace.reported_ranks", "pace.timer_spread")}


def says(straggler: dict[str, Any]) -> str:
    return " ".join(one["says"] for one in straggler["evidence"])


@pytest.mark.parametrize("timers", [calm, first_only])
def test_timers_of_a_job_in_good_order_say_nothing(
    timers: Callable[[int], dict[str, tuple[float, float]]], tmp_path: Path
) -> None:
    assert verdict(tmp_path, megatron(timers, []))[1]["pace.timer_spread"] is None


SLOW_TWO = "MnRtt/Rnk: 3453.08ms/0 | MxRtt/Rnk: 6468.20ms/2"
STAGES = "MnRtt/Rnk: 3453.08ms/0 | MxRtt/Rnk: 3468.20ms/3"
OTHER = "MnRtt/Rnk: 3453.08ms/0 | MxRtt/Rnk: 6468.20ms/1"


def test_the_rank_that_the_detector_names_again_and_again(tmp_path: Path) -> None:
    straggler, facts = verdict(tmp_path, megatron(calm, [SLOW_TWO]))
    assert facts["pace.reported_ranks"] == [2] and "reports rank 2 as slow" in says(straggler)
    assert 2 in [one["rank"] for one in straggler["culprits"]]


@pytest.mark.parametrize("reports", [[STAGES], [SLOW_TWO, OTHER], [SLOW_TWO, STAGES, STAGES]])
def test_a_slowest_rank_there_is_always(reports: list[str], tmp_path: Path) -> None:
    assert verdict(tmp_path, megatron(calm, reports))[1]["pace.reported_ranks"] is None


@pytest.mark.parametrize(
    "ranks", ["{StragglerId(rank=2, node='h100-001-253-012')}", "[2]", "{StragglerId(rank=2, node='9')}"]
)
def test_the_warning_of_the_resiliency_extension(ranks: str, tmp_path: Path) -> None:
    warning = f"STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: {ranks}\n"
    log = megatron(calm, []).replace("training ...\n", f"training ...\n{warning}")
    straggler, facts = verdict(tmp_path, log)
    assert facts["pace.reported_ranks"] == [2] and "reports rank 2 as slow" in says(straggler)


def sniffed(*outliers: str) -> str:
    lines = "".join(f"WARNING:megatron.training.gpu_sniff_test:    OUTLIER rank {one}\n" for one in outliers)
    return megatron(calm, []).replace("training ...\n", f"training ...\n{lines}")


def test_a_rank_below_the_median_in_several_measurements(tmp_path: Path) -> None:
    log = sniffed("2 (h100-017): 498.73 (-30.0%)", "1 (h100-016): 801.10 (+12.4%)", "2 (h100-017): 481.67 (-30.1%)")
    straggler, facts = verdict(tmp_path, log)
    assert facts["pace.reported_ranks"] == [2]
    assert straggler["culprits"][0]["rank"] == 2 and straggler["culprits"][0]["host"] == "h100-017"


def test_one_measurement_below_the_median_is_no_straggler(tmp_path: Path) -> None:
    log = sniffed("2 (h100-017): 498.73 (-30.0%)", "1 (h100-016): 801.10 (+12.4%)", "1 (h100-016): 811.10 (+12.9%)")
    assert verdict(tmp_path, log)[1]["pace.reported_ranks"] is None


@pytest.mark.parametrize("ranks", [[2], [0, 2]])
def test_the_list_of_a_straggler_report(ranks: list[int], tmp_path: Path) -> None:
    report = f"[default0]:=== Straggler Report at Step 10 ===\n[default0]:Detected stragglers: {ranks}\n"
    log = megatron(calm, []).replace("training ...\n", f"training ...\n{report}")
    assert verdict(tmp_path, log)[1]["pace.reported_ranks"] == ranks


def test_a_detector_that_ends_the_job(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(
        megatron(calm, [], failed=False)
        + "STRAGGLER DETECTION WARNING: Some GPUs performance dropped. Affected ranks: [2]\n"
        + "Detected stragglers. Terminating training...\n"
    )
    first = diagnose(tmp_path, model=None).to_dict()["diagnoses"][0]
    assert first["cause"] == "straggler" and first["culprits"][0]["rank"] == 2


def test_a_job_that_did_not_fail_stays_healthy(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(megatron(slow, [SLOW_TWO], failed=False))
    assert diagnose(tmp_path, model=None).verdict == "healthy"


WAITED = '[rank{r}]: Traceback (most recent call last):\n[rank{r}]:   File "/app/train.py", line {line}, in main\n[rank{r}]:     dist.{call}\n[rank{r}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 12000ms for recv operation to complete\n'  # fmt: skip


def test_a_rank_that_waited_as_all_others_did_was_not_at_its_work(rules: RuleSet) -> None:
    saving = "11/27/2026 21:21:14 - INFO - __main__ - [RANK 0] Saving model checkpoint to /ckpt/15\n"
    other = WAITED.format(r=1, line=44, call="all_reduce(loss)")
    busy = diagnose_text(saving + other, rules)
    assert busy.case.value("progress.long_task_ranks") == [0]
    both = diagnose_text(saving + other + WAITED.format(r=0, line=52, call="barrier()"), rules)
    assert both.case.value("progress.long_task_ranks") is None
    assert both.cause == "rank-divergence"
