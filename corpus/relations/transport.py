"""The ways of ``collectors``, ``copies`` and ``exports`` tried: whether the answer on a log is the same however it comes."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from corpus.gate.golden import ROOT
from corpus.relations import copies  # noqa: F401
from corpus.relations.collectors import WAYS, carried
from corpus.relations.exports import EXPORTS
from corpus.relations.world import LONGEST, RECORDED, Answer, ask, ask_of_file
from nccl_triage.evaluation import cases
from nccl_triage.evaluation.cases import LabelledCase

WRITTEN = ROOT / "corpus" / "written"
#: All ways that a log may come.
EVERY = (*WAYS, *EXPORTS)
#: Shares of trials in which verdict and first cause hold, and in which the culprit holds besides.
SAME_CAUSE, SAME_CULPRIT = 0.99, 0.98


@dataclass(frozen=True, slots=True)
class Trial:
    """One log by one way: the answers without and with it."""

    way: str
    case: str
    before: Answer
    after: Answer

    @property
    def cause_holds(self) -> bool:
        """Whether verdict and first cause are the same."""
        return (self.before.verdict, self.before.cause) == (self.after.verdict, self.after.cause)

    @property
    def culprit_holds(self) -> bool:
        """Whether the culprit is the same, or the cause is another one already."""
        return not self.cause_holds or self.before.culprit == self.after.culprit


def logs(share: int) -> list[LabelledCase]:
    """Return one case in so many, recorded and written."""
    every = [*cases.read(RECORDED), *cases.read(WRITTEN)]
    return [case for case in every if zlib.crc32(case.id.encode()) % share == 0]


def _answer(way: str, text: str, chance: random.Random) -> Answer:
    if way in WAYS:
        return ask(carried(way, text, chance))
    name, pack = EXPORTS[way]
    return ask_of_file(name, pack(text.splitlines(), chance))


def trials(case: LabelledCase, ways: Sequence[str] = EVERY) -> list[Trial]:
    """Return the trials of one log, the same ones every time; none of a log that is too long."""
    text = case.log.read_bytes().decode("utf-8", "surrogateescape")
    if len(text) > LONGEST:
        return []
    before = ask(text)
    chances = {name: random.Random(zlib.crc32(f"{name}/{case.id}".encode())) for name in ways}
    return [Trial(name, case.id, before, _answer(name, text, chance)) for name, chance in chances.items()]


def table(tried: Sequence[Trial]) -> str:
    """Return the table of all ways, in Markdown."""
    rows = []
    for name in EVERY:
        own = [trial for trial in tried if trial.way == name]
        if own:
            cause = sum(trial.cause_holds for trial in own) / len(own)
            culprit = sum(trial.culprit_holds for trial in own) / len(own)
            rows.append(f"| {name} | {len(own)} | {100 * cause:.1f} % | {100 * culprit:.1f} % |\n")
    return "| how the log comes | logs | verdict and first cause hold | culprit holds |\n|---|---|---|---|\n" + "".join(
        rows
    )


def below(tried: Sequence[Trial]) -> list[str]:
    """Return the ways that change more answers than they may."""
    found = []
    for name in EVERY:
        own = [trial for trial in tried if trial.way == name]
        if sum(trial.cause_holds for trial in own) < SAME_CAUSE * len(own) or sum(
            trial.culprit_holds for trial in own
        ) < SAME_CULPRIT * len(own):
            found.append(name)
    return found
