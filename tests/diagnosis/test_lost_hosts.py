"""Hosts that fall silent, limits of hosts, stamps of collectors."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from tests.prefix_reading import peel
from tests.scan_helpers import diagnose_text

LOST = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:2284"
)


def job(hosts: int) -> str:
    ranks = [(host, 2 * host + local) for host in range(hosts) for local in range(2)]
    ready = "".join(f"node-{host}: train [rank {rank}/{2 * hosts}] step 1/9 loss 2.0\n" for host, rank in ranks)
    ready += "".join(f"node-{host}: train [rank {rank}/{2 * hosts}] step 2/9 loss 2.0\n" for host, rank in ranks)
    return ready


def test_a_host_that_falls_silent_with_its_launcher_is_lost(rules: RuleSet) -> None:
    text = job(2) + "".join(f"node-0: [rank{rank}]: {LOST}\n" for rank in (0, 1))
    found = diagnose_text(text, rules)
    top = found.candidates[0]
    assert top.id == "process-crashed"
    assert {culprit.rank for culprit in top.culprits} == {2, 3}


def test_a_host_whose_launcher_still_speaks_is_not_lost(rules: RuleSet) -> None:
    text = job(2) + "".join(f"node-0: [rank{rank}]: {LOST}\n" for rank in (0, 1))
    text += "node-1: W1122 20:14:09.000000 99 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 7 closing signal SIGTERM\n"
    assert diagnose_text(text, rules).case.fact("progress.lost_host_ranks") is None


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("OSError: [Errno 27] File too large", "os-limit"),
        ("run.sh: line 1: 17313 CPU time limit exceeded (core dumped) python train.py", "os-limit"),
    ],
    ids=["file size", "processor time"],
)
def test_limits_of_a_host(line: str, cause: str, rules: RuleSet) -> None:
    assert diagnose_text(job(1) + line + "\n", rules).candidates[0].id == cause


@pytest.mark.parametrize(
    ("module", "cause"),
    [("multiprocessing/synchronize.py", "shared-memory-exhausted"), ("site-packages/a/files.py", "storage-fault")],
)
def test_a_semaphore_without_room_is_no_full_disk(module: str, cause: str, rules: RuleSet) -> None:
    text = f"""Traceback (most recent call last):
  File "/app/train.py", line 7, in pool
  File "/usr/lib/python3.11/{module}", line 57, in __init__
OSError: [Errno 28] No space left on device
"""
    assert diagnose_text(job(1) + text, rules).candidates[0].id == cause


@pytest.mark.parametrize("stamp", ["Nov 22 20:09:03 ", "Nov  2 20:09:03 ", "[     7.416s] "])
def test_stamps_of_collectors_keep_the_indent(stamp: str) -> None:
    assert peel(stamp + '  File "/a.py", line 7, in step').text == '  File "/a.py", line 7, in step'


@pytest.mark.parametrize("text", ["Nov 22 20:09:03 2026 was the day", "[7] 3.2 s"])
def test_other_texts_are_no_stamps(text: str) -> None:
    assert peel(text).text == text
