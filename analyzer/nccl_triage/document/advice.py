"""What to do about a cause in this job: fixes, the next check and steps, for its platform and with its own names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from nccl_triage.diagnosis import placeholders
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.conditions import Conditions
from nccl_triage.diagnosis.facts import software
from nccl_triage.diagnosis.findings import Candidate
from nccl_triage.diagnosis.weigh import VOTE_ID
from nccl_triage.document import known_issues
from nccl_triage.document.evidence import pair
from nccl_triage.document.job import ray_address, scheduled
from nccl_triage.document.restart import WITHOUT_HOST, accuses_every_host
from nccl_triage.document.verify_commands import job_place, ready_commands
from nccl_triage.engine.expression import Expression
from nccl_triage.engine.schema import Fix, PlatformCommand, Step, Text, slug
from nccl_triage.knowledge import catalogue, report_advice
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.redaction.secrets import mask_text

#: What the id of a fix begins with that stands in no cause: a known issue, and what a message itself advises.
KNOWN_ISSUE, STATED = "known-issue", "stated"
#: Characters of a remedy that a message states; weights of the evidence whose messages are searched for one.
_LONGEST, _PROVING = 200, ("decisive", "strong")
_VERB = (
    r"(?:try|consider|please|set|use|increase|decrease|reduce|lower|raise|remove|delete|upgrade|downgrade|update|install|"
    r"reinstall|make sure|ensure|enable|disable|add|pass|specify|rebuild|switch|change|provide|"
    r"you (?:can|may|should|must|could|might|need to|have to)|to (?:fix|resolve|avoid|solve|work around|use|enable))"
)
#: A sentence, or the part behind a comma, that tells the reader to do something; it ends with its line.
_REMEDY = lazily(
    rf"(?i)(?:\A|(?:[.;!:]|=>)\s{{1,4}}|,\s{{1,4}}|\n\s{{0,40}})(?P<says>{_VERB}(?=\s)[^\n]{{8,400}}?)(?=[.!;](?:\s|\Z)|\n|\Z)"
)
#: What looks for the fault or reports it instead of mending it, and what hides it.
_NO_REMEDY = lazily(
    r"(?i)\b(?:report\w*|debug\w*|details?|logs?|logging|log\w*_\w+|verbose|track|later|find the|detection|monitor\w*|reasons?|"
    r"support|contact|alternatively|check your|have set|url)\b|https?:|[A-Z_]+(?:DEBUG|LOGERR|VERBOSE|LOGS|BLOCKING)\b|"
    r"disable this error|error_if_nonfinite|heartbeat|entire process down|^\w+ ?[\w.]*[(\[{]"
)
#: The command of a rule that tests a cause; it is given that of the job's platform, with its hosts.
_VERIFY = lazily(r"\bnccl-triage verify LOGS?\b")
_SAYS = {"en": "Do what the program itself advises: “{says}”", "zh": "按程序自身的提示操作：“{says}”"}


class CauseAdvice:
    """The advice on one cause of a verdict, as documents hold it."""

    def __init__(self, case: Case, candidate: Candidate) -> None:
        self._case = case
        self._candidate, self._weighed = candidate, candidate.weighed
        self._cause = candidate.weighed.cause
        self._conditions = Conditions(case)
        self._platform = software.platform(case)
        #: The lines of the evidence, whose fields placeholders name: those that prove most come first.
        items = [item for item in self._weighed.for_items if item.evidence.id != VOTE_ID]
        items.sort(key=lambda item: item.evidence.weight not in _PROVING)
        self._events = [event for item in items for event in item.events]
        self._accused = [culprit.host for culprit in candidate.culprits if culprit.host is not None]
        self._known = placeholders.command_words(case, candidate.culprits, self._events)

    def fixes(self) -> list[dict[str, Any]]:
        """Return what mends the cause: a known issue of its messages first, then what a message itself advises.

        A fix whose title names what the log does not tell is left out.
        """
        issue = known_issues.of_cause(self._case, self._candidate)
        stated = self._stated()
        fitting = [fix for fix in self._cause.fixes if self._fits(fix.when, fix.title)]
        fixes = [fix for fix in fitting if not fix.otherwise] or fitting[:1]
        return [
            *([_remark(f"{KNOWN_ISSUE}/{issue.id}", issue.repair, (issue.url,))] if issue is not None else []),
            *([self._quoted(stated)] if stated else []),
            *map(self._fix, fixes),
        ]

    def next_check(self) -> dict[str, Any] | None:
        """Return the cheapest check that tells the cause from its rivals: the first one that fits."""
        check = next((one for one in self._cause.checks if self._fits(one.when, one.what)), None)
        if check is None:
            return None
        return {
            **pair("what", self._text(check.what)),
            "command": self._command(check.command),
            **pair("if_yes", self._text(check.if_yes)),
            **pair("if_no", self._text(check.if_no)),
        }

    def stages(self) -> list[dict[str, Any]]:
        """Return the steps in the order in which they are taken."""
        rows = report_advice.staged_steps(self._cause, self._fits_step)
        return [{**row, "command": self._step_command(row["command"])} for row in rows]

    def _fits_step(self, step: Step) -> bool:
        without_all = step.use == WITHOUT_HOST and accuses_every_host(self._candidate, self._case)
        return not without_all and self._fits(step.when)

    def _step_command(self, command: PlatformCommand | None) -> str | None:
        """Return the command of a step; one that acts on a host is left out unless the log names the host."""
        text = self._command(command)
        return None if text is None or {"NODE", "HOST"}.intersection(placeholders.open_words(text)) else text

    def _fits(self, when: Expression | None, text: Text | None = None) -> bool:
        """Return whether a piece of advice is for this job: its condition holds, and all that it names is known."""
        if text is not None and not placeholders.tells(text["en"], self._case, self._events):
            return False
        return when is None or self._conditions.holds(when)[0]

    def _text(self, text: Text) -> Text:
        return placeholders.fill_both(text, self._case, self._events)

    def _command(self, command: PlatformCommand | None) -> str | None:
        """Return the command of the platform; None if there is none, or if it names what the log does not tell."""
        text = command.on(self._platform) if command is not None else None
        if text is None:
            return None
        # The names in the command that tests the cause are filled in already.
        parts = [placeholders.fill_command(part, self._case, self._events) for part in _VERIFY.split(text)]
        known = [placeholders.fill_words(part, self._known) for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return self._verify().join(known) if len(known) > 1 else known[0]

    def _verify(self) -> str:
        """Return the command that tests the cause on the job's own hosts."""
        case, experiment = self._case, self._cause.experiment
        known = scheduled(case)
        ranks = Counter(info.host for info in case.identity.ranks.values())
        place = job_place(
            sorted(case.observations.sources),
            [(name, sorted(case.identity.host_addresses.get(name, ())), ranks[name]) for name in case.identity.hosts],
            accused=self._accused,
            scope=experiment.scope,
            world=case.identity.world_size,
            scheduler=known["scheduler"],
            job_id=known["id"],
            launcher=software.launcher(case),
            ray_address=ray_address(case),
        )
        return ready_commands(place)[0].lines[0]

    def _commands(self, commands: tuple[PlatformCommand, ...]) -> Iterator[str]:
        """Yield the commands of the platform; one that needs a name which no line tells comes after one that finds it."""
        looked_for: set[str] = set()
        for command in commands:
            text = self._command(command)
            if text is None:
                continue
            for word in placeholders.open_words(text):
                finder = catalogue.finders().get(word)
                find = self._command(finder) if finder is not None and word not in looked_for else None
                looked_for.add(word)
                if find is not None:
                    yield find
            yield text

    def _fix(self, fix: Fix) -> dict[str, Any]:
        caution = self._text(fix.caution) if fix.caution else None
        return {
            "id": f"{self._cause.id}/{fix.name}",
            **pair("title", self._text(fix.title)),
            "commands": list(dict.fromkeys(self._commands(fix.commands))),
            "env": dict(fix.env),
            "caution": caution["en"] if caution else None,
            "caution_zh": caution["zh"] if caution else None,
            "applies_to": fix.applies_to,
            "references": list(fix.references),
        }

    @staticmethod
    def _quoted(says: str) -> dict[str, Any]:
        return _remark(f"{STATED}/{slug(says)}", {language: text.format(says=says) for language, text in _SAYS.items()})

    def _stated(self) -> str | None:
        """Return the remedy that a message which proves the cause states itself, in its own words."""
        items = [item for item in self._weighed.for_items if item.evidence.id != VOTE_ID]
        strong = [item for item in items if item.evidence.weight in _PROVING]
        told = (event for item in strong or items for event in item.events[:2])
        return next((found for event in told if (found := remedy(event))), None)


def _remark(name: str, title: Text, references: Sequence[str] = ()) -> dict[str, Any]:
    """Return a fix without commands."""
    return {
        "id": name,
        **pair("title", title),
        "commands": [],
        "env": {},
        "caution": None,
        "caution_zh": None,
        "applies_to": None,
        "references": list(references),
    }


def remedy(event: Event) -> str | None:
    """Return the first sentence of a message that tells the reader what to do about the failure, masked."""
    for match in _REMEDY.finditer(event.text[:4_000]):
        says = " ".join(match["says"].split())
        if len(says) <= _LONGEST and not _NO_REMEDY.search(says):
            return mask_text(says[:1].upper() + says[1:])
    return None
