"""Who is who where no line says it outright: the number of ranks, and ranks known by local rank only."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage.api import diagnose
from nccl_triage.diagnosis.case import Case
from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.store import Observations
from tests.scan_helpers import diagnose_text, scan_text

GATHER = (
    "[E ProcessGroupNCCL.cpp:474] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=46175, "
    "OpType={op}, NumelIn={n}, NumelOut={out}, Timeout(ms)=1800000) ran for 1800014 milliseconds before timing out.\n"
)


def gathers(ranks: range | list[int], size: int, op: str = "_ALLGATHER_BASE") -> str:
    return "".join(GATHER.format(r=rank, op=op, n=1000, out=1000 * size) for rank in ranks)


def world(text: str, rules: RuleSet) -> int | None:
    return Case(scan_text(text, rules), rules).identity.world_size


def test_a_gather_that_nearly_all_ranks_time_out_in_tells_the_world_and_who_is_silent(rules: RuleSet) -> None:
    text = gathers([rank for rank in range(64) if rank != 39], 64)
    assert world(text, rules) == 64
    found = diagnose_text(text, rules).to_dict()
    assert [c["rank"] for c in found["diagnoses"][0]["culprits"]] == [39]
    assert next(r for r in found["job"]["ranks"] if r["rank"] == 39)["state"] in ("root", "missing")


@pytest.mark.parametrize(
    "text",
    [
        gathers(range(3), 4),  # an excerpt of three lines
        gathers(range(10), 64),  # too few of the ranks to say that the others are silent
        gathers(range(8, 16), 8),  # a subgroup: its members have higher ranks
        gathers(range(8), 8, op="ALLREDUCE"),
    ],
)
def test_what_does_not_tell_the_world(text: str, rules: RuleSet) -> None:
    assert world(text, rules) is None


TRACEBACK = """{prefix}Traceback (most recent call last):
{prefix}  File "/app/train.py", line 27, in <module>
{prefix}    main()
{prefix}{error}
"""
BAD = "ValueError: sample 7 has 3 tokens, expected 4"
CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:32995"


def torchrun_files(folder: Path, local_rank: int, prefix: str, error: str) -> None:
    """Write what ``torchrun --log-dir`` leaves of one process: its stream and its error file."""
    process = folder / "attempt_0" / str(local_rank)
    process.mkdir(parents=True)
    process.joinpath("stderr.log").write_text(TRACEBACK.format(prefix=prefix, error=error), encoding="utf-8")
    process.joinpath("error.json").write_text(TRACEBACK.format(prefix="", error=error), encoding="utf-8")


def culprits(folder: Path) -> list[int | None]:
    return [found["rank"] for found in diagnose([str(folder)]).to_dict()["diagnoses"][0]["culprits"]]


def test_a_local_rank_of_two_nodes_is_the_rank_that_its_own_files_state(tmp_path: Path) -> None:
    torchrun_files(tmp_path / "job7_aaaa", 0, "[rank1]: ", BAD)
    torchrun_files(tmp_path / "job7_bbbb", 0, "[rank0]: ", CLOSED)
    assert culprits(tmp_path) == [1]


def test_a_local_rank_of_two_nodes_that_no_file_states_is_no_rank(tmp_path: Path) -> None:
    torchrun_files(tmp_path / "job7_aaaa", 0, "", BAD)
    torchrun_files(tmp_path / "job7_bbbb", 0, "", CLOSED)
    assert [rank for rank in culprits(tmp_path) if rank is not None] == []


def test_a_local_rank_of_one_node_is_the_rank(tmp_path: Path) -> None:
    torchrun_files(tmp_path / "job7_aaaa", 0, "", CLOSED)
    torchrun_files(tmp_path / "job7_aaaa", 1, "", BAD)
    assert culprits(tmp_path) == [1]


def said_by(rules: RuleSet, **files: str) -> list[int | None]:
    """Return the ranks of the exceptions in files, which have no rank in their names."""
    found = Observations()
    for name, text in files.items():
        found.absorb(scan_text(text, rules, name))
    case = Case(found, rules)
    return sorted({case.rank(event) for event in case.of("python.exception_line")}, key=str)


RAISED = "[rank{}]: set-up begins\n[rank{}]: step 1/9 loss 2.1\nKeyError: 'label'\n"


def test_a_file_that_names_one_rank_is_its_own_where_every_rank_has_one(rules: RuleSet) -> None:
    output, again, other = (RAISED.format(rank, rank) for rank in (0, 1, 2))
    assert said_by(rules, output=output, output1=again, output2=other) == [0, 1, 2]
    assert said_by(rules, output=output, output8=RAISED.format(8, 8)) == [None], "the first ranks of two nodes"
    assert said_by(rules, output=output, output1=again, launcher="KeyError: 'label'\n") == [None]
    assert said_by(rules, output=output) == [None], "one file may hold the lines of all"


def _labelled(label: int, lines: str) -> str:
    return "".join(f"{label}: {line}\n" for line in lines.splitlines())


FAILS = 'Traceback (most recent call last):\n  File "train.py", line 7, in main\nValueError: no shard'
STARTS = "\n".join(f"loading part {n}" for n in range(6))


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        # The only task starts the ranks; of several each is one.
        (_labelled(0, f"{STARTS}\n{FAILS}"), None),
        (_labelled(0, STARTS) + _labelled(1, f"{STARTS}\n[rank1]: step 1 loss 2.0") + _labelled(1, FAILS), 1),
        # A driver passes on what its actors print.
        (_labelled(0, STARTS) + _labelled(1, STARTS) + _labelled(1, f"(Actor pid=7) step 1 loss 2.0\n{FAILS}"), None),
    ],
)
def test_the_number_of_a_task_is_a_rank_only_where_tasks_are_ranks(text: str, rank: int | None, rules: RuleSet) -> None:
    found = diagnose_text(text, rules).to_dict()["diagnoses"][0]
    assert found["cause"] == "application-exception"
    assert [culprit["rank"] for culprit in found["culprits"]] == ([] if rank is None else [rank])
