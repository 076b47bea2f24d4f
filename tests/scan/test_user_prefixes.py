"""A user's own prefixes and layouts reach whatever reads the logs: this process, others, and the nodes of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage.engine import load
from nccl_triage.engine.schema import RuleSet
from nccl_triage.execution.cluster import codec
from nccl_triage.execution.engines import LocalEngine
from nccl_triage.execution.processes import _start, _work  # what each process of a pool runs
from nccl_triage.execution.reading import SourcePart
from nccl_triage.ingest.layouts import LayoutReader
from nccl_triage.ingest.sources import find_sources
from nccl_triage.observations.store import Observations

PREFIX = r"""prefixes:
  - id: site
    meaning: What our launcher prints.
    starts: '@'
    pattern: '@(?P<rank>\d{1,6}) '
    sets: {rank: rank}
    match: [{line: '@3 step 1', text: 'step 1', context: {rank: 3}}]
    not: ['@x step 1']
"""
LAYOUT = r"""layouts:
  - id: site
    layout: site-file
    meaning: How our launcher names the log of a host.
    pattern: '(?:^|/)(?P<host>blade\d{1,4})\.joblog$'
    match: [{path: 'blade7.joblog', gives: {host: blade7}}]
    not: ['blade.joblog']
"""


@pytest.fixture
def own(tmp_path: Path) -> RuleSet:
    for name, text in (("prefixes", PREFIX), ("layouts", LAYOUT)):
        (tmp_path / "rules" / name).mkdir(parents=True)
        (tmp_path / "rules" / name / "site.yaml").write_text(text, encoding="utf-8")
    return load.load((tmp_path / "rules",))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / "blade7.joblog"
    path.parent.mkdir()
    path.write_text("".join(f"@{n % 4} ValueError: bad sample {n}\n" for n in range(8)), encoding="utf-8")
    return path


def speakers(found: Observations) -> set[tuple[int | None, str | None]]:
    return {(event.context.rank, event.context.host) for event in found.all_events()}


def test_in_this_process(own: RuleSet, log: Path) -> None:
    found = LocalEngine(1).scan([str(log.parent)], own, None)
    assert speakers(found) == {(rank, "blade7") for rank in range(4)}
    assert [info.layout for info in found.sources.values()] == ["site-file"]


def test_without_them_the_same_log_tells_less(rules: RuleSet, log: Path) -> None:
    found = LocalEngine(1).scan([str(log)], rules, None)
    assert speakers(found) <= {(None, None)}


def test_in_a_worker_and_on_a_node(own: RuleSet, log: Path) -> None:
    sent = codec.unpack_rules(codec.pack_rules(own))
    assert sent.prefixes.rows["site"].user
    sources, _ = find_sources([str(log)], None, names=LayoutReader(sent.layouts))
    _start(sent, None)
    assert speakers(_work([SourcePart(source) for source in sources])) == {(rank, "blade7") for rank in range(4)}
