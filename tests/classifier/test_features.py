"""What the vote for a cause sees of a run: the words of the lines that tell most."""

from __future__ import annotations

from nccl_triage.classifier.features import LINES, Features, extract, top_lines
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.verdict import told_lines
from nccl_triage.engine.schema import RuleSet
from nccl_triage.learned import form
from nccl_triage.observations.event import Context, Event
from nccl_triage.observations.store import Observations
from tests.scan_helpers import scan_text


def features_of(observations: Observations, rules: RuleSet) -> Features:
    return extract(told_lines(Case(observations, rules, form.shipped())))


def line(number: int, text: str) -> Event:
    return Event("line.salient", "log", number, text, Context())


def test_words_are_those_of_the_lines_that_tell_most() -> None:
    lines = [line(9, "RdmaTransport failed"), line(5, "no gargoyle"), line(7, "a third"), line(8, "a fourth")]
    found = extract(lines)
    assert {"p:failed", "w:failed", "w:rdma", "w:gargoyle", "w:third", "s:line.salient"} <= found.names
    assert "p:gargoyle" not in found.names, "only the first line has its words twice"
    assert "w:fourth" not in found.names and len(lines) > LINES


def test_a_word_points_to_its_line() -> None:
    lines = [line(9, "the pump failed"), line(5, "no gargoyle")]
    found = extract(lines)
    assert top_lines(found, ["w:gargoyle", "w:unknown", "p:pump"]) == [lines[1], lines[0]]


def test_without_a_model_of_telling_lines_the_first_failures_count(rules: RuleSet) -> None:
    text = "step 1/9 loss 2.1\nValueError: gargoyle\nRuntimeError: Connection closed by peer [10.0.0.1]:1000\n"
    case = Case(scan_text(text, rules), rules)
    assert told_lines(case) == case.failures[:LINES]
    assert "p:gargoyle" in extract(told_lines(case)).names


def test_a_line_that_no_rule_knows_may_tell_most(rules: RuleSet) -> None:
    text = "step 1/9 loss 2.1\nERROR: the flux capacitor of this board failed\nexited with exit code 1\n"
    assert "w:capacitor" in features_of(scan_text(text, rules), rules).names
