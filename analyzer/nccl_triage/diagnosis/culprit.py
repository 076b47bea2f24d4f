"""Who did it: the ways by which a cause finds its rank, host or pair of hosts.

What the evidence names comes first: a message whose signature has ``culprit``, then facts whose ranks are to blame.
After these come the ways that suit the cause's family (``culprit_families``); the first that finds somebody wins.
"""

from __future__ import annotations

import re
from collections import defaultdict

from nccl_triage.diagnosis import (  # noqa: F401  (their methods register themselves)
    culprit_actors,
    culprit_device,
    culprit_hosts,
    culprit_stacks,
    culprit_victim,
    placeholders,
)
from nccl_triage.diagnosis.case import BLAMES, Case
from nccl_triage.diagnosis.culprit_base import (
    MAX_CULPRITS,
    METHODS,
    Culprit,
    by_weight,
    method,
    of_event,
    of_rank,
    strongest,
)  # fmt: skip
from nccl_triage.diagnosis.culprit_families import BY_RANK, BY_SPEAKER, FAMILIES, NAMED, NOBODY
from nccl_triage.diagnosis.culprit_named import BY_MESSAGE
from nccl_triage.diagnosis.weigh import Contribution, Weighed
from nccl_triage.engine.schema import Cause
from nccl_triage.observations.event import Event
from nccl_triage.story import devices
from nccl_triage.story.addresses import parse
from nccl_triage.story.exceptions import is_communication, tracebacks
from nccl_triage.story.survived_failures import NUMBERS

__all__ = ["METHODS", "Culprit", "find"]

#: The methods by which all that said the same are to blame.
BY_WORDS = ("exception", "evidence")
#: The method that reads the facts on which the evidence rests.
BY_FACTS = "evidence-facts"
#: How facts end that are lists of ranks.
RANKS = "_ranks"
#: Families of causes that lie in what all ranks share.
OF_THE_JOB = ("application", "configuration", "collective")
#: Characters by which errors of ranks are the same; one number of another value, and they are not.
WORDS = 400
#: Who speaks of itself says the same as the others.
_OF_RANK = re.compile(r"\brank[ :=]?\d+\b", re.IGNORECASE)


def ways() -> frozenset[str]:
    """Return everything that a cause may list under ``culprit``."""
    return frozenset({*METHODS, *BLAMES, *NOBODY})


def find(case: Case, weighed: Weighed) -> list[Culprit]:
    """Return the culprits by the first way that finds any."""
    return found_by(case, weighed)[1]


def found_by(case: Case, weighed: Weighed) -> tuple[str | None, list[Culprit]]:
    """Return the first method or fact that names any culprits, and these; None where nobody is found."""
    listed = weighed.cause.culprit or FAMILIES[weighed.cause.family]
    if listed == NOBODY:
        return None, []
    together = raised_alike(case, weighed)
    alike = weighed.cause.family in OF_THE_JOB and len(together) > 1 and together >= set(case.identity.ranks)
    hosts = case.identity.hosts
    out = _ruled_out(weighed.cause)
    for name in (BY_MESSAGE, BY_FACTS, *listed):
        if name in out or (alike and name in BY_SPEAKER):
            continue
        found = METHODS[name](case, weighed) if name in METHODS else _blamed(case, name)
        if name in BY_WORDS and 1 < len(together) <= MAX_CULPRITS and found and found[0].rank in together:
            # Which of them came first is chance.
            host = _host_of_all(case, together)
            why = {"en": "every rank of this host raised the same", "zh": "这台主机上的所有 rank 都抛出了同样的异常"}
            found = (
                [Culprit(None, host, None, None, None, why)]
                if host is not None
                else [of_rank(case, rank, found[0].why["en"], found[0].why["zh"]) for rank in sorted(together)]
            )
        found = found[:MAX_CULPRITS]
        for culprit in found:
            if _is_loopback(culprit.host):
                culprit.host = None  # everybody's own
            # A host of which only the address is known goes by its address; the only host of a job is everybody's.
            culprit.host = culprit.host or culprit.address or (hosts[0] if len(hosts) == 1 else None)
        found = [one for one in found if (one.rank, one.host, one.pid, one.gpu) != (None, None, None, None)]
        if found:
            return name, found
    return None, []


def _ruled_out(cause: Cause) -> frozenset[str]:
    """Return the ways that blame who speaks, where that is not who is to blame."""
    if cause.host_wide:
        return BY_RANK
    return BY_RANK - NAMED if cause.victims_speak or cause.between_sides else frozenset()


def _is_loopback(name: str | None) -> bool:
    """Tell whether a name stands for the machine of whoever says it."""
    if name is None:
        return False
    address = parse(name)
    return name.split(".")[0].lower() in ("localhost", "ip6-localhost") or (address is not None and address.is_loopback)


def raised_alike(case: Case, weighed: Weighed) -> set[int]:
    """Return the ranks that by themselves raised what the evidence rests on, in the same words.

    All of them: a setting or an input of all, and nobody's fault.
    """
    if len(case.identity.ranks) < 2:
        return set()
    raised = [event for event in case.of("exception") if not is_communication(event)]
    lines = {(event.source, event.line): _words(event) for event in raised}
    words = {lines[place] for event in strongest(weighed) if (place := (event.source, event.line)) in lines}
    # An assembled traceback knows whose it is, where another process only hands it on.
    ranks = {(event.source, event.line): case.rank(event) for event in [*raised, *tracebacks(case)]}
    by_words: dict[str, set[int]] = defaultdict(set)
    for place, said in lines.items():
        if (rank := ranks[place]) is not None:
            by_words[said].add(rank)
    return max((by_words[said] for said in sorted(words)), key=len, default=set())


def _host_of_all(case: Case, ranks: set[int]) -> str | None:
    """Return the host whose ranks these are, all of them and nobody else, where the job has other hosts."""
    hosts: dict[str | None, set[int]] = defaultdict(set)
    for rank, info in case.identity.ranks.items():
        hosts[info.host or info.address].add(rank)
    return next((host for host, own in hosts.items() if own == ranks and host is not None and len(hosts) > 1), None)


def _words(event: Event) -> str:
    return _OF_RANK.sub("rank", event.fields.get("message") or event.text)[:WORDS]


@method(BY_FACTS)
def _by_facts(case: Case, weighed: Weighed) -> list[Culprit]:
    """The ranks of the facts on which the evidence rests: those its words tell of, then those that are to blame by themselves."""
    listed = FAMILIES[weighed.cause.family]
    asked = sorted(
        (
            (listed.index(name) if name in listed else len(listed), number, name, item)
            for number, item in enumerate(by_weight(weighed))
            if item.explained_by is None and item.evidence.when is not None
            for name in item.evidence.when.literals("fact")
        ),
        key=lambda one: one[:3],
    )
    most = max((item.evidence.log_odds for *_, item in asked), default=0.0)
    for *_, name, item in asked:
        words = item.evidence.says["en"] if item.evidence.log_odds == most else ""
        if f"{{fact:{name}}}" in words and (found := _told(case, name, item)):
            return found
    return next((found for *_, name, _ in asked if (found := _blamed(case, name))), [])


def _told(case: Case, name: str, item: Contribution) -> list[Culprit]:
    """Return the ranks of a fact of which a row's words tell.

    Fewer than half of those that are known: of a majority it tells what they suffer.
    """
    if not name.endswith(RANKS):
        return []
    says = placeholders.fill_both(item.evidence.says, case, item.events)
    found = _ranks(case, name, says["en"], says.get("zh", says["en"]))
    world = max(case.identity.world_size or 0, len(case.identity.ranks))
    return found if len(found) == 1 or not world or 2 * len(found) < world else []


def _blamed(case: Case, name: str) -> list[Culprit]:
    """Return the ranks or hosts that are the value of a fact, if they are to blame."""
    return _ranks(case, name, *BLAMES[name]) if name in BLAMES else []


def _ranks(case: Case, name: str, en: str, zh: str) -> list[Culprit]:
    named = case.value(name)
    if not named or not isinstance(named, list):
        return []
    why = {"en": en, "zh": zh}
    hosts = [Culprit(None, host, None, None, None, why) for host in named if isinstance(host, str)]
    return hosts or [of_rank(case, rank, en, zh) for rank in named if isinstance(rank, int) and rank >= 0]


@method("evidence")
def _evidence(case: Case, weighed: Weighed) -> list[Culprit]:
    """The process that printed the strongest evidence first."""
    for event in strongest(weighed):
        if devices.is_kernel(event):
            found = of_event(case, event, "its kernel reports the fault", "其内核报告了该故障")
        else:
            found = of_event(case, event, "its own lines report the fault", "它自己的日志报告了该故障")
        if found.rank is not None:
            return [found]
    # The last line of a traceback that Ray hands on carries no process; the traceback's header does.
    for event in strongest(weighed):
        for block in tracebacks(case):
            inside = block.source == event.source and block.line <= event.line <= block.last_line
            if inside and (case.rank(block) is not None or case.host(block) or block.context.address):
                return [of_event(case, block, "raised the deciding exception", "抛出了决定性的异常")]
    return []


@method("exception")
def _exception(case: Case, weighed: Weighed) -> list[Culprit]:
    """The rank that raised the first application exception."""
    found = _ranks(case, "exception.ranks", "raised the first exception", "最先抛出异常")
    if found and case.value("exception.all_ranks"):
        return []
    if not found and case.value("exception.application") is not None:
        # The traceback carries no rank; the launcher says which one ended first, and by itself.
        first = case.value("process.first_exit_ranks") or []
        if len(first) == 1 and case.value("process.first_exit_code") == 1:
            return [
                of_rank(case, first[0], "ended first, as after an uncaught exception", "最先退出，与未捕获异常相符")
            ]
    return found[:1]


@method("bad-numbers")
def _bad_numbers(case: Case, weighed: Weighed) -> list[Culprit]:
    """The ranks whose own numbers were bad, while others show none: what is raised of a mean of all tells nobody apart."""
    raised = {(event.source, event.line) for event in case.of("exception")}
    ranks = case.ranks([e for e in case.of(NUMBERS) if (e.source, e.line) not in raised])
    if 2 * len(ranks) > len(case.identity.ranks):
        return []
    return [of_rank(case, rank, "its own numbers were bad", "它自己的数值异常") for rank in ranks]


@method("stalled-actor")
def _stalled_actor(case: Case, weighed: Weighed) -> list[Culprit]:
    """Where a driver gave up on actors: the rank that shows no progress while others do."""
    if not case.of("call.timeout"):
        return []
    moving = {r for e in case.events if e.role == "progress" and "step" in e.fields and (r := case.rank(e)) is not None}
    still = sorted(set(case.identity.ranks) - moving)
    if not moving or not still or len(still) > len(moving):
        return []
    return [
        of_rank(case, rank, "made no progress while the others did", "其他 rank 有进展时它没有进展") for rank in still
    ]


@method("main-rank")
def _main_rank(case: Case, weighed: Weighed) -> list[Culprit]:
    """Rank 0, where the others timed out during long work that no line ties to a rank and rank 0 did not."""
    timed_out = case.value("collective.timed_out_ranks") or []
    unnamed = case.value("progress.long_task_ranks") == [-1] or case.value("progress.long_bar")
    if not timed_out or 0 in timed_out or not unnamed:
        return []
    return [
        of_rank(
            case,
            0,
            "long work without a rank prefix was under way, and rank 0 is not among those that timed out",
            "有未注明 rank 的耗时工作在进行，而 rank 0 不在超时的 rank 之中",
        )
    ]
