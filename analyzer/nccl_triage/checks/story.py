"""Tests the rules of the story: every rule has a condition, decides its samples, and does not decide its counter-samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from nccl_triage.checks.problem import RuleProblem
from nccl_triage.classifier import model as models
from nccl_triage.diagnosis import verdict
from nccl_triage.diagnosis.findings import Findings
from nccl_triage.document import trace
from nccl_triage.engine import story_rules
from nccl_triage.engine.schema import RuleSet, StoryRule, StorySample, StoryTable
from nccl_triage.execution.engines import scan_sources
from nccl_triage.history.signatures import CAUSE, SOURCE
from nccl_triage.ingest.layouts import LayoutReader
from nccl_triage.ingest.sources import find_sources
from nccl_triage.observations.event import Context, Event
from nccl_triage.observations.store import Interruption
from nccl_triage.story.decisions import REGISTERED, Decision


def check_story(rules: RuleSet, tables: Mapping[str, StoryTable] | None = None) -> list[RuleProblem]:
    """Return what is wrong with the rules of the story."""
    found = story_rules.tables() if tables is None else tables
    return [*_conditions(found), *_samples(found.values(), _Reader(rules))]


def _conditions(tables: Mapping[str, StoryTable]) -> Iterator[RuleProblem]:
    """Find rules without a condition in code, and conditions without a rule."""
    for name in sorted(REGISTERED.keys() - tables.keys()):
        yield RuleProblem("error", "rules/story", name, "the code asks this table, but no file has it")
    for table in tables.values():
        registered = REGISTERED.get(table.id)
        names = set() if registered is None else set(registered.conditions)
        for rule in table.rules:
            if rule.id.partition(".")[2] not in names:
                yield RuleProblem("error", rule.where, rule.id, "no condition in code has this name")
        listed = {rule.id.partition(".")[2] for rule in table.rules}
        for name in sorted(names - listed):
            yield RuleProblem(
                "error", table.where, f"{table.id}.{name}", "is a condition in code, but not in the table"
            )


def _samples(tables: Iterable[StoryTable], reader: _Reader) -> Iterator[RuleProblem]:
    for table in tables:
        for rule in table.rules:
            if not rule.samples:
                yield RuleProblem("error", rule.where, rule.id, "has no sample under 'samples'")
            if not rule.counter_samples:
                yield RuleProblem("error", rule.where, rule.id, "has no sample under 'counter_samples'")
            for sample in rule.samples:
                yield from _decides(rule, sample, reader)
            for sample in rule.counter_samples:
                yield from _leaves(rule, sample, reader)


def _decides(rule: StoryRule, sample: StorySample, reader: _Reader) -> Iterator[RuleProblem]:
    found = list(_about(sample, rule.id, reader))
    if rule.id not in [decision.rule for decision in found]:
        others = ", ".join(sorted({decision.rule for decision in found})) or "no rule of the table"
        yield RuleProblem("error", sample.where, rule.id, f"does not decide its sample; {others} does", _shown(sample))


def _leaves(rule: StoryRule, sample: StorySample, reader: _Reader) -> Iterator[RuleProblem]:
    found = [decision.rule for decision in _about(sample, rule.id, reader)]
    if rule.id in found:
        yield RuleProblem("error", sample.where, rule.id, "decides its counter-sample", _shown(sample))
    elif sample.instead is not None and sample.instead not in found:
        others = ", ".join(sorted(set(found))) or "no rule of the table"
        yield RuleProblem(
            "error",
            sample.where,
            rule.id,
            f"its counter-sample is decided by {others}, not {sample.instead}",
            _shown(sample),
        )
    elif sample.line is not None and not found and not _is_read(sample, reader):
        yield RuleProblem(
            "error", sample.where, rule.id, "no signature reads the line of its counter-sample", _shown(sample)
        )


def _about(sample: StorySample, rule: str, reader: _Reader) -> Iterator[Decision]:
    """Yield the decisions of the rule's table about the line of a sample, or about any of its runs."""
    table = rule.partition(".")[0]
    folder, findings = reader.findings(sample)
    for decision in trace.decisions(findings):
        subject = decision.subject
        if decision.table == table and (
            sample.line is None
            or (subject is not None and (subject.source, subject.line) == (folder + sample.path, sample.line))
        ):
            yield decision


def _is_read(sample: StorySample, reader: _Reader) -> bool:
    folder, findings = reader.findings(sample)
    return any(
        (event.source, event.line) == (folder + sample.path, sample.line)
        for run in findings.case.story.runs
        for event in run.printed
    )


def _shown(sample: StorySample) -> str:
    texts = dict(sample.files)
    return texts[sample.path].splitlines()[sample.line - 1][:200] if sample.line is not None else ""


class _Reader:
    """Reads samples as folders of logs, each once: several rules share their logs."""

    def __init__(self, rules: RuleSet) -> None:
        self._rules = rules
        self._known: dict[tuple[object, ...], tuple[str, Findings]] = {}

    def findings(self, sample: StorySample) -> tuple[str, Findings]:
        """Return what the paths of a sample's lines begin with, and its findings."""
        key = (sample.files, sample.in_part, sample.recalls, sample.votes)
        if key not in self._known:
            self._known[key] = self._read(sample)
        return self._known[key]

    def _read(self, sample: StorySample) -> tuple[str, Findings]:
        with TemporaryDirectory() as folder:
            for path, text in sample.files:
                place = Path(folder, path)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, "utf-8")
            sources, _ = find_sources([folder], None, names=LayoutReader(self._rules.layouts))
            observations = scan_sources(sources, self._rules)
        if sample.in_part:
            observations.interruption = Interruption(15, 1, None)
        if sample.recalls:
            observations.add(Event(CAUSE, SOURCE, 1, "", Context(), fields=dict(sample.recalls)), ("cause",))
        return f"{folder}/", verdict.decide(observations, self._rules, models.shipped() if sample.votes else None)
