"""Which lines of a run tell why it ended."""

from __future__ import annotations

from nccl_triage.diagnosis.case import Case
from nccl_triage.engine.schema import RuleSet
from nccl_triage.learned import form, telling
from tests.scan_helpers import scan_text

STEPS = "".join(f"step {n}/50 loss 2.{n}\n" for n in range(1, 4))
RAISED = (
    "Traceback (most recent call last):\n"
    '  File "/opt/app/train.py", line 81, in <module>\n'
    "    main()\n"
    "KeyError: 'fr'\n"
)


def ranked(text: str, rules: RuleSet) -> list[telling.Told]:
    return Case(scan_text(text, rules), rules, form.shipped()).most_telling


def test_the_exception_tells_more_than_a_warning_and_the_report_of_its_launcher(rules: RuleSet) -> None:
    text = (
        "WARNING: cannot read the topology file\n"
        + STEPS
        + RAISED
        + "srun: error: n1: task 0: Exited with exit code 1\n"
    )
    first = ranked(text, rules)[0].event
    assert first.text.endswith("KeyError: 'fr'")


def test_a_line_that_no_rule_knows_is_among_them(rules: RuleSet) -> None:
    found = ranked(STEPS + "frobnicator: ERROR: the flux capacitor failed\n", rules)
    assert [told.event.line for told in found] == [4]
    assert 0 < found[0].score < 1


def test_every_line_is_told_once_and_repetitions_come_last(rules: RuleSet) -> None:
    text = STEPS + "".join(f"ERROR: wheel {n} is bent\n" for n in range(9)) + RAISED
    found = ranked(text, rules)
    places = [(told.event.source, told.event.line) for told in found]
    assert len(places) == len(set(places))
    bent = [number for number, told in enumerate(found) if "is bent" in told.event.text]
    others = [number for number, told in enumerate(found) if "is bent" not in told.event.text]
    assert bent[0] < max(others) or len(bent) == 1
    assert all(number > max(others) for number in bent[1:])


def test_of_many_lines_alike_the_first_two_and_the_last_are_candidates(rules: RuleSet) -> None:
    text = "".join(f"RuntimeError: wheel {n} is bent\n" for n in range(5))
    case = Case(scan_text(text, rules), rules)
    found = [one for one in telling.candidates(case.story.told.printed) if one.event.kind == "exception"]
    assert [one.event.line for one in found] == [1, 2, 5]
    assert found[0].times == 3, "itself, and those that are no candidates"


def test_progress_is_no_candidate_and_there_is_a_most(rules: RuleSet) -> None:
    case = Case(scan_text(STEPS, rules), rules)
    assert telling.candidates(case.story.told.printed) == []
    letters = "abcdefghijklmnopqrst"
    text = "".join(f"RuntimeError: {a}{b} is bent\n" for a in letters for b in letters)
    assert len(telling.candidates(Case(scan_text(text, rules), rules).story.told.printed)) <= 300


def test_without_a_model_there_is_no_ranking(rules: RuleSet) -> None:
    assert Case(scan_text(STEPS + RAISED, rules), rules).most_telling == []
