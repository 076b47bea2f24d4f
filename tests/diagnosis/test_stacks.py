"""py-spy dumps: a hang that somebody looked into is no healthy log, and the odd stack speaks."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case
from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text, scan_text

WAITS = """Process {pid}: python pretrain.py
Python v3.10.12 (/usr/bin/python3.10)

Thread {pid} (active): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:1700)
    train_step (megatron/training.py:436)
    <module> (pretrain.py:239)
"""
LOADS = """Process {pid}: python pretrain.py
Python v3.10.12 (/usr/bin/python3.10)

Thread {pid} (idle): "MainThread"
    wait (threading.py:320)
    get (queue.py:180)
    _try_get_data (torch/utils/data/dataloader.py:1133)
    _get_data (torch/utils/data/dataloader.py:1285)
    train_step (megatron/training.py:421)
    <module> (pretrain.py:239)
Thread 77 (idle): "QueueFeederThread"
    wait (threading.py:320)
"""


def test_stacks_in_different_places_diverge(rules: RuleSet) -> None:
    case = Case(scan_text(WAITS.format(pid=11) + WAITS.format(pid=12) + LOADS.format(pid=13), rules), rules)
    assert case.value("stacks.dumped") == 4
    assert case.value("stacks.diverging") == 1


def test_the_rank_that_waits_for_data_is_named_as_possible(rules: RuleSet) -> None:
    diagnosis = diagnose_text(WAITS.format(pid=11) + LOADS.format(pid=13), rules)
    assert {c.id for c in diagnosis.candidates[:2]} == {"data-pipeline-failure", "rank-divergence"}
    assert diagnosis.confidence < 0.8


def test_equal_stacks_prove_nothing_but_are_not_healthy(rules: RuleSet) -> None:
    diagnosis = diagnose_text(WAITS.format(pid=11) + WAITS.format(pid=12), rules)
    assert diagnosis.verdict == "unknown"
