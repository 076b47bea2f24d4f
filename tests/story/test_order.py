"""Events of several files in one order, as far as their clocks tell."""

from __future__ import annotations

from collections.abc import Sequence

from nccl_triage.diagnosis.case import Case
from nccl_triage.engine.schema import RuleSet
from nccl_triage.ingest import rotation
from nccl_triage.observations.store import Observations
from tests.scan_helpers import diagnose_text, scan_text

STOPPED = "W1121 22:58:02.866000 10948 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 10954 closing signal SIGTERM\n"
SAVES = "2025-11-21 22:57:50,100 INFO [rank 0/2] saving checkpoint step_5 (26.9 GB) to /mnt/nfs/checkpoints\n"
RAISED = (
    "2025-11-21 22:57:40,100 INFO [rank 1/2] step 5/10 loss 2.0\n"
    "Traceback (most recent call last):\n"
    '  File "/a/train.py", line 7, in <module>\n'
    "    dist.barrier()\n"
    "RuntimeError: [/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 10000ms for recv operation to complete\n"
)


def ordered(rules: RuleSet, **files: str) -> Case:
    found = Observations()
    for name, text in files.items():
        found.absorb(scan_text(text, rules, name))
    return Case(found, rules)


def test_a_file_with_few_stamps_stands_behind_them(rules: RuleSet) -> None:
    """Most lines of a traceback carry no time: they come behind the last line that does, and not wherever in the file."""
    case = ordered(rules, a_launcher=STOPPED * 3, rank0=SAVES, rank1=RAISED)
    assert next(e.source for e in case.events if e.kind in ("task.started", "process.stopped")) == "rank0"
    assert not case.order_known


def test_files_without_any_stamp_stand_by_their_share(rules: RuleSet) -> None:
    undated = "step 1 loss 2.0\nKeyError: 'a'\n"
    case = ordered(rules, one=undated, two=undated)
    assert [e.source for e in case.events if e.kind == "step"] == ["one", "two"]
    assert not case.order_known


def test_an_export_with_the_newest_line_first_is_read_from_its_end(rules: RuleSet) -> None:
    """Consoles of log stores write it so. What stands at the top came last, and is not what the job went on after."""
    lines = [f"2025-11-21T22:57:{n:02d}.100Z w-{n % 2} [rank{n % 2}]: step {n}/90 loss 2.0" for n in range(10, 30)]
    lines += [
        "2025-11-21T22:57:31.100Z w-1 [rank1]: KeyError: 'label'",
        "2025-11-21T22:57:32.100Z w-0 [rank0]: RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.3]:24001",
    ]
    for order in (lines, lines[::-1]):
        found = diagnose_text("\n".join(order) + "\n", rules)
        assert (found.cause, found.case.story.outcome.state) == ("application-exception", "failed")
        assert [culprit.rank for culprit in found.candidates[0].culprits] == [1]


def test_a_clock_that_is_set_back_turns_nothing_round(rules: RuleSet) -> None:
    lines = [f"2025-11-21 22:57:{n:02d},100 INFO step {n}/90 loss 2.0\n" for n in range(10, 30)]
    set_back = [f"2025-11-21 22:50:{n:02d},100 INFO step {n}/90 loss 2.0\n" for n in range(30, 33)]
    case = ordered(rules, log="".join(lines + set_back))
    assert [e.line for e in case.events if e.kind == "step"][-1] == 23


def rotated(rules: RuleSet, *texts: str, numbers: Sequence[int] = (2, 1)) -> Case:
    """Return the case of a log whose older parts have these numbers."""
    found = Observations()
    for name, text in zip((*(f"t.log.{number}" for number in numbers), "t.log"), texts, strict=True):
        found.absorb(scan_text(text, rules, name))
    rotation.link(found.sources.values())
    return Case(found, rules)


STEPS = ("step 1/9 loss 2.0\n", "step 2/9 loss 1.9\nKeyError: 'a'\n", "step 3/9 loss 1.8\ntraining finished\n")


def test_the_parts_of_a_rotated_log_are_one_log(rules: RuleSet) -> None:
    """Each part alone says little: the error in the middle one was survived, as the last one shows."""
    case = rotated(rules, *STEPS)
    assert [e.source for e in case.events if e.kind == "step"] == ["t.log.2", "t.log.1", "t.log"]
    assert case.order_known
    assert case.story.outcome.is_well


def test_times_tell_which_part_is_older(rules: RuleSet) -> None:
    """Some programs count their parts upwards."""
    dated = [f"2025-11-21 22:5{at}:02,100 INFO step {at}/9 loss 2.0\n" for at in range(3)]
    case = rotated(rules, *dated, numbers=(1, 2))
    assert [e.source for e in case.events if e.kind == "step"] == ["t.log.1", "t.log.2", "t.log"]


def test_a_rotated_log_stands_among_others_as_a_whole(rules: RuleSet) -> None:
    """Without times lines are placed by their share of the whole log, not of a part of it."""
    found = Observations()
    for name, text in {"t.log.1": STEPS[0] * 8, "t.log": STEPS[1], "other": "step 1/9 loss 2.0\n" * 2}.items():
        found.absorb(scan_text(text, rules, name))
    rotation.link(found.sources.values())
    sources = [e.source for e in Case(found, rules).events]
    assert sources.index("other") < sources.index("t.log")
    assert sources[-1] != "t.log.1"
