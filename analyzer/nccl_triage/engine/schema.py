"""Rules as data classes: a Signature says what a line means, a Cause what makes a job fail."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from nccl_triage.engine.expression import Expression
from nccl_triage.engine.line_prefixes import PrefixRules
from nccl_triage.engine.metric_formats import SeriesRules
from nccl_triage.engine.path_layouts import LayoutRules
from nccl_triage.engine.pattern import Pattern
from nccl_triage.engine.regex_analysis import Anchors
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Role

#: Weights and their log-odds. Only ``decisive`` alone can establish a cause.
WEIGHTS: dict[str, float] = {"decisive": 6.0, "strong": 3.2, "moderate": 1.6, "weak": 0.7}
#: Whether a row of evidence is proven (stable) or not yet (experimental); an experimental one is strong at most.
STATUSES = ("stable", "experimental")
ROLES: tuple[Role, ...] = ("root", "cascade", "context", "progress")
#: What a message may name of the culprit.
NAMED = ("rank", "host", "gpu")
STANDS = ("waiting", "elsewhere", "helper")
LANGUAGES = ("en", "zh")
FAMILIES = ("network", "hardware", "host", "collective", "configuration", "application")

#: Where a job runs, as far as its log shows: its scheduler, its accelerators, its hosts; "alive": its processes still run.
SCHEDULERS = ("slurm", "pbs", "lsf", "kubernetes", "ray")
ACCELERATORS = ("nvidia", "amd", "ascend", "intel", "habana", "tpu")
PLATFORMS = (*SCHEDULERS, *ACCELERATORS, "one-host", "several-hosts", "alive")
#: Stands for every platform in a command that differs by platform.
OTHERWISE = "otherwise"

#: What a log shows, named in a text: ``{fact:NAME}``, ``{f:FIELD}``, ``{rank}``, ``{host}``, ``{count}``.
PLACEHOLDER = lazily(r"\{(?P<kind>fact:|f:|version:|env:)?(?P<name>[A-Za-z_][\w.-]*)\}")

#: A part of a text in square brackets, which is left out if a placeholder in it has no value.
_OPTIONAL = lazily(r"\[(?P<part>[^\[\]{}]*\{[^\[\]]*)\]")

#: The fields that a line with a number of ``rules/codes`` gets from the row of the number.
CODE_FIELDS = ("code_name", "code_kind", "code_severity", "code_action", "code_action_zh")

#: Words of the title by which a fix is named.
_NAMING_WORDS = 8
_WORD = lazily(r"[A-Za-z0-9_]+")

#: A text by language.
Text = dict[str, str]


def text_parts(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a text in order, each with whether it is optional; optional parts come without their brackets."""
    end = 0
    for found in _OPTIONAL.finditer(text):
        yield text[end : found.start()], False
        yield found["part"], True
        end = found.end()
    yield text[end:], False


def with_named_placeholders(text: str) -> str:
    """Return a command with its placeholders shown as names, for catalogues that have no log."""
    return PLACEHOLDER.sub(lambda match: f"<{match['name']}>", text)


def in_catalogue(text: str) -> str:
    """Return a text with its optional parts and its placeholders shown as names, for catalogues that have no log."""
    return with_named_placeholders("".join(part for part, _ in text_parts(text)))


def slug(text: str, words: int | None = None) -> str:
    """Return the first words of a text in lower case, joined by hyphens."""
    return "-".join(_WORD.findall(text)[:words]).lower()


class CulpritFields(NamedTuple):
    """The fields of a message that name the culprit, and why.

    It counts if the message is evidence, or stands ``within`` that many lines of evidence.
    """

    fields: dict[str, str]
    why: Text
    within: int = 0


class Signature(NamedTuple):
    """One shape of messages: ``pattern`` is searched for in the peeled message (or the raw line).

    ``kind`` is one of ``observations.kinds``. ``codes`` names a table of ``rules/codes``, and also the field that holds
    a number of that table; the table's row determines the role of the line and adds fields that say what the number
    means. ``sets`` are fields that every line has besides those that the pattern captures: what the wording alone says.
    ``premise`` is a condition that the fields must fulfil (two numbers that should differ do). ``culprit`` says which
    fields name the culprit.
    """

    id: str
    kind: str
    program: str
    pattern: Pattern
    role: Role
    meaning: str
    where: str
    sets: dict[str, str]
    level: str = "info"
    source: str | None = None
    since: str | None = None
    until: str | None = None
    raw_line: bool = False
    anchors: Anchors | None = None
    keep_by: tuple[str, ...] = ()
    codes: str | None = None
    premise: Expression | None = None
    culprit: CulpritFields | None = None
    overlaps: tuple[str, ...] = ()
    match_samples: tuple[str, ...] = ()
    not_samples: tuple[str, ...] = ()


class Evidence(NamedTuple):
    """One reason for or against a cause.

    With ``signatures`` it holds if one of them was seen (in an event that satisfies ``where``). ``when`` is a condition
    over everything that was observed. If both are given, both must hold. ``harmless`` are texts for which it does not
    hold. ``status`` is ``experimental`` until two incidents, or a test of a document that no log holds, have proven it.
    """

    id: str
    weight: str
    says: Text
    where_defined: str
    signatures: tuple[str, ...] = ()
    where: Expression | None = None
    when: Expression | None = None
    unless_explained: bool = False
    where_signatures: str = ""
    harmless: tuple[str, ...] = ()
    status: str = STATUSES[0]

    @property
    def log_odds(self) -> float:
        """The weight as a number."""
        return WEIGHTS[self.weight]


class PlatformCommand(NamedTuple):
    """A command, or one for each platform that needs its own: (platform, command), the first that fits is taken."""

    choices: tuple[tuple[str, str], ...]

    def on(self, platform: Collection[str]) -> str | None:
        """Return the command for a job on a platform, None if there is none."""
        return next((text for word, text in self.choices if word == OTHERWISE or word in platform), None)

    def listed(self) -> list[str]:
        """Return the commands for all platforms, for catalogues that have no log."""
        if len(self.choices) == 1:
            return [self.choices[0][1]]
        return [text if word == OTHERWISE else f"{text}  # {word}" for word, text in self.choices]


class Fix(NamedTuple):
    """What to do about a cause, with its risk."""

    title: Text
    env: dict[str, str]
    commands: tuple[PlatformCommand, ...] = ()
    caution: Text | None = None
    applies_to: str | None = None
    when: Expression | None = None
    #: Only where no other fix of the cause fits.
    otherwise: bool = False
    references: tuple[str, ...] = ()
    where: str = ""

    @property
    def name(self) -> str:
        """The first words of its English title, as one word."""
        return slug(PLACEHOLDER.sub(" ", self.title["en"]), _NAMING_WORDS)


class Support(NamedTuple):
    """One entry under ``supports`` of a signature: the row ``id`` of a cause, described here or (no ``weight``) elsewhere."""

    signature: str
    cause: str
    id: str
    where: str
    weight: str | None = None
    says: Text | None = None
    unless_explained: bool = False
    fix: Fix | None = None
    status: str = STATUSES[0]


class ProducerRow(NamedTuple):
    """A row of evidence and its cause."""

    cause: str
    evidence: Evidence


class NextCheck(NamedTuple):
    """The cheapest check that distinguishes this cause from its rivals; one without ``when`` is for every log."""

    what: Text
    command: PlatformCommand | None
    if_yes: Text
    if_no: Text
    rivals: tuple[str, ...] = ()
    when: Expression | None = None
    where: str = ""


@dataclass(frozen=True, slots=True)
class Treatment:
    """The control with one thing changed: environment variables, or one of ``read_causes.VARIABLES`` and its new value."""

    variable: str
    value: str = ""
    env: dict[str, str] = field(default_factory=dict)


class Experiment(NamedTuple):
    """What would confirm or refute a cause on the hardware; kind "none" means that no collective can show it.

    ``control``, ``confirmed_if``, ``refuted_if`` and ``needs`` describe it in words. The planner reads the rest:
    ``scope`` (which ranks the control runs on), ``backend`` (nccl if Gloo cannot stand in), ``iterations``, ``vary``
    (each a control with one thing changed), ``predicts`` (causes, or kinds of findings, that count as "failed as
    diagnosed"; if empty, the cause itself), ``passing`` (what a control that passes says about the cause;
    ``not-reproduced``: the fault may be gone by now), ``check``
    (what settles it without a collective) and ``told_by_stages`` (the stages of a run show it better than what its
    ranks print).
    """

    kind: str
    control: Text | None = None
    scope: str = "all"
    backend: str = "any"
    iterations: int = 3
    vary: tuple[Treatment, ...] = ()
    predicts: tuple[str, ...] = ()
    passing: str = "refutes"
    confirmed_if: Text | None = None
    refuted_if: Text | None = None
    needs: Text | None = None
    why_not: Text | None = None
    check: str | None = None
    told_by_stages: bool = False


class Step(NamedTuple):
    """One thing to do at a stage: ``what``, or ``use``, the name of a step that several causes share.

    ``urgency`` is high, medium or low; by default the stage determines it. With ``when`` it is for some logs only.
    """

    what: Text | None = None
    command: PlatformCommand | None = None
    urgency: str | None = None
    use: str | None = None
    when: Expression | None = None
    where: str = ""


class Headline(NamedTuple):
    """A template that says what happened; it is used if its condition holds and every placeholder has a value.

    The fields that it names are those of one line of the evidence, with ``of`` one of these kinds and ids; with ``anywhere``
    the line may stand outside the evidence.
    """

    text: Text
    where: str
    when: Expression | None = None
    of: tuple[str, ...] = ()
    anywhere: bool = False


class Cause(NamedTuple):
    """One root cause: title, evidence, culprit methods, fixes, next check, experiment, and what to do at which stage.

    ``victims_speak``: the lines of its evidence come from ranks that wait for the culprit. ``between_sides``: no line
    tells at which end of a path it lies. ``of_host``: a host may be to blame, so the host's earlier failures are
    listed. ``host_wide``: it concerns a whole host, so no rank is named. ``catch_all``: it covers every exception whose
    message no rule knows. ``ruled_out``: where this holds, it is not considered at all, not even by likeness.
    """

    id: str
    family: str
    title: Text
    explanation: Text
    where: str
    evidence: tuple[Evidence, ...]
    against: tuple[Evidence, ...]
    explains: tuple[str, ...]
    culprit: tuple[str, ...]
    fixes: tuple[Fix, ...]
    checks: tuple[NextCheck, ...]
    experiment: Experiment
    stages: dict[str, tuple[Step, ...]]
    places: dict[str, str]
    aliases: tuple[str, ...] = ()
    victims_speak: bool = False
    between_sides: bool = False
    of_host: bool = False
    host_wide: bool = False
    catch_all: bool = False
    headlines: tuple[Headline, ...] = ()
    ruled_out: Expression | None = None

    @property
    def general_check(self) -> NextCheck | None:
        """The check for every log, which comes last."""
        return self.checks[-1] if self.checks else None

    def place(self, key: str) -> str:
        """Return file and line of a key in the cause's file."""
        return self.places.get(key, self.where)

    def conditions(self) -> Iterator[Expression]:
        """Yield the conditions of its evidence, its advice and its headlines, and the one that rules it out."""
        for item in (*self.evidence, *self.against):
            yield from (condition for condition in (item.when, item.where) if condition is not None)
        advice = [
            *(fix.when for fix in self.fixes),
            *(check.when for check in self.checks),
            *(step.when for stage in self.stages.values() for step in stage),
            *(headline.when for headline in self.headlines),
        ]
        yield from (condition for condition in (*advice, self.ruled_out) if condition is not None)


class MissingEvidence(NamedTuple):
    """A source of evidence that a complete record would hold: when it is missing, and how to have it next time.

    ``families`` are the families of causes for which it matters if one is among the first candidates (empty: all).
    """

    id: str
    when: Expression
    what: Text
    why: Text
    where: str
    env: dict[str, str]
    families: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


class Activity(NamedTuple):
    """What a frame of a dumped stack (``function (path:line)``) says its process is doing.

    ``stands`` is "waiting" (for other ranks), "elsewhere" (it does something that needs no other rank), or "helper"
    (the process is not a rank).
    """

    id: str
    stands: str
    frame: Pattern
    meaning: str
    where: str
    match_samples: tuple[str, ...] = ()
    not_samples: tuple[str, ...] = ()


class Premise(NamedTuple):
    """A named condition, to which other conditions refer as ``premise(NAME)``."""

    id: str
    meaning: str
    when: Expression
    where: str


class Words(NamedTuple):
    """A named list of words, to which conditions refer as ``words(NAME)``."""

    id: str
    meaning: str
    texts: tuple[str, ...]
    where: str


class Threshold(NamedTuple):
    """A number that rules of the story compare with, its unit, and why it is what it is."""

    value: float
    unit: str
    meaning: str


class StorySample(NamedTuple):
    """Lines of a log by file, and the line that a rule of the story decides about (None: the run or the input).

    ``instead`` is the rule that decides about a counter-sample. ``in_part``: the reading was interrupted. ``recalls`` are
    the fields of what the history knows of the cause. ``votes``: the shipped classifier votes.
    """

    files: tuple[tuple[str, str], ...]
    path: str
    line: int | None
    instead: str | None
    where: str
    in_part: bool = False
    recalls: tuple[tuple[str, str], ...] = ()
    votes: bool = False


class StoryRule(NamedTuple):
    """A rule of the story: what it answers, in a sentence, and what would have decided otherwise.

    ``kinds`` are the kinds of lines that it looks at (none: all). ``thresholds`` and ``numbers`` are what its sentences
    may show: numbers of the table, and those that its condition finds. A rule that ``overrules`` is asked even if an
    earlier one has decided that a failure counts. What an ``uncertain`` rule decides is only likely.
    """

    id: str
    answer: str
    says: Text
    otherwise: Text
    where: str
    kinds: tuple[str, ...] = ()
    thresholds: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    overrules: bool = False
    uncertain: bool = False
    samples: tuple[StorySample, ...] = ()
    counter_samples: tuple[StorySample, ...] = ()


class StoryTable(NamedTuple):
    """An ordered table of rules that answer one question; the first one that holds decides."""

    id: str
    question: Text
    answers: dict[str, Text]
    thresholds: dict[str, Threshold]
    rules: tuple[StoryRule, ...]
    where: str


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules in use: signatures, causes, missing evidence, metric formats, activities of stacks, terms, prefixes, layouts."""

    signatures: dict[str, Signature]
    causes: dict[str, Cause]
    digest: str
    missing_evidence: dict[str, MissingEvidence] = field(default_factory=dict)
    series: SeriesRules = field(default_factory=SeriesRules)
    activities: dict[str, Activity] = field(default_factory=dict)
    premises: dict[str, Premise] = field(default_factory=dict)
    words: dict[str, Words] = field(default_factory=dict)
    prefixes: PrefixRules = field(default_factory=PrefixRules)
    layouts: LayoutRules = field(default_factory=LayoutRules)
    #: The files of the rules that are not shipped.
    foreign: frozenset[str] = frozenset()

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of every signature."""
        return {name: signature.kind for name, signature in self.signatures.items()}

    def conditions(self) -> Iterator[Expression]:
        """Yield the conditions of all causes, missing evidence and premises."""
        for cause in self.causes.values():
            yield from cause.conditions()
        yield from (item.when for item in self.missing_evidence.values())
        yield from (item.when for item in self.premises.values())
