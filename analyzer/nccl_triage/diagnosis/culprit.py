"""Find the culprits of a cause: ranks, hosts, or both ends of a path.

What the evidence itself names is tried first: a message whose signature has ``culprit``, then facts whose ranks are to
blame. The methods and facts of the cause's family follow (``FAMILIES``). The first one that finds somebody wins.
"""

from __future__ import annotations

import re
from collections import defaultdict

# Importing the modules of methods registers the methods.
from nccl_triage.diagnosis import culprit_by_name, culprit_hosts, culprit_ranks  # noqa: F401
from nccl_triage.diagnosis.case import BLAMES, Case
from nccl_triage.diagnosis.culprit_base import (
    BY_RANK,
    BY_SPEAKER,
    EXITS,
    FAMILIES,
    MAX_CULPRITS,
    METHODS,
    NAMED,
    NOBODY,
    Culprit,
    of_rank,
    strongest,
)  # fmt: skip
from nccl_triage.diagnosis.culprit_by_name import BY_MESSAGE
from nccl_triage.diagnosis.culprit_ranks import BY_FACTS, blamed
from nccl_triage.diagnosis.weigh import Weighed
from nccl_triage.engine.schema import Cause
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.story.addresses import parse
from nccl_triage.story.exceptions import is_communication, tracebacks

__all__ = ["METHODS", "Culprit", "find"]

#: Methods that name whoever spoke first: if several ranks raised the same exception, all of them are culprits.
BY_WORDS = ("exception", "evidence")
#: Families of causes that lie in what all ranks share, such as the program or its settings.
OF_THE_JOB = ("application", "configuration", "collective")
#: How many leading characters of two error messages must agree for them to count as the same.
WORDS = 400
#: A rank number in a message. It is ignored when messages of ranks are compared.
_OF_RANK = lazily(r"\brank[ :=]?\d+\b", re.IGNORECASE)


def ways() -> frozenset[str]:
    """Return everything that a cause may list under ``culprit``."""
    return frozenset({*METHODS, *BLAMES, *NOBODY})


def find(case: Case, weighed: Weighed) -> list[Culprit]:
    """Return the culprits that the first successful method or fact names."""
    return found_by(case, weighed)[1]


def found_by(case: Case, weighed: Weighed) -> tuple[str | None, list[Culprit]]:
    """Return the first method or fact that names culprits, and the culprits; None and no culprits if none does."""
    together = raised_alike(case, weighed)
    hosts = [host for host in case.identity.hosts if not _is_loopback(host)]
    for name in _order(case, weighed, together):
        found = METHODS[name](case, weighed) if name in METHODS else blamed(case, name)
        if name in BY_WORDS and 1 < len(together) <= MAX_CULPRITS and found and found[0].rank in together:
            # It is chance which of them came first.
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
                culprit.host = None  # every host has this name
            # A host without a known name goes by its address. If the job has one host only, every culprit is on it.
            culprit.host = culprit.host or culprit.address or (hosts[0] if len(hosts) == 1 else None)
        found = [one for one in found if (one.rank, one.host, one.pid, one.gpu) != (None, None, None, None)]
        if found:
            return name, found
    return None, []


def tried(case: Case, weighed: Weighed) -> list[str]:
    """Return the methods and facts that may name the culprits of a cause, in the order in which they are asked."""
    return _order(case, weighed, raised_alike(case, weighed))


def _order(case: Case, weighed: Weighed, together: set[int]) -> list[str]:
    """Return the methods and facts to ask, where the ranks ``together`` raised the same exception."""
    listed = weighed.cause.culprit or FAMILIES[weighed.cause.family]
    if listed == NOBODY:
        return []
    ended = case.fact("process.ended_alike") is not None
    raised = len(together) > 1 and together >= set(case.identity.ranks)
    alike = weighed.cause.family in OF_THE_JOB and (raised or (ended and case.fact("exception.application") is None))
    out = _ruled_out(weighed.cause)
    if ended:
        out |= frozenset(EXITS)  # which of them a launcher saw first is chance
    return [name for name in (BY_MESSAGE, BY_FACTS, *listed) if name not in out and not (alike and name in BY_SPEAKER)]


def _ruled_out(cause: Cause) -> frozenset[str]:
    """Return the methods that blame the speaker of a line, if the cause says that the speaker is not to blame."""
    if cause.host_wide:
        return BY_RANK
    return BY_RANK - NAMED if cause.victims_speak or cause.between_sides else frozenset()


def _is_loopback(name: str | None) -> bool:
    """Tell whether a name means the local machine, whichever that is."""
    if name is None:
        return False
    address = parse(name)
    return name.split(".")[0].lower() in ("localhost", "ip6-localhost") or (address is not None and address.is_loopback)


def raised_alike(case: Case, weighed: Weighed) -> set[int]:
    """Return the ranks that raised the exception behind the evidence with the same message.

    If these are all ranks of the job, the cause lies in a setting or an input that they share.
    """
    if len(case.identity.ranks) < 2:
        return set()
    raised = [event for event in case.of("exception") if not is_communication(event)]
    lines = {(event.source, event.line): _words(event) for event in raised}
    words = {lines[place] for event in strongest(weighed) if (place := (event.source, event.line)) in lines}
    # An assembled traceback knows its rank even if another process relayed it.
    ranks = {(event.source, event.line): case.rank(event) for event in [*raised, *tracebacks(case)]}
    by_words: dict[str, set[int]] = defaultdict(set)
    for place, said in lines.items():
        if (rank := ranks[place]) is not None:
            by_words[said].add(rank)
    return max((by_words[said] for said in sorted(words)), key=len, default=set())


def _host_of_all(case: Case, ranks: set[int]) -> str | None:
    """Return the host that has exactly these ranks, if the job has other hosts, too."""
    hosts: dict[str | None, set[int]] = defaultdict(set)
    for rank, info in case.identity.ranks.items():
        hosts[info.host or info.address].add(rank)
    return next((host for host, own in hosts.items() if own == ranks and host is not None and len(hosts) > 1), None)


def _words(event: Event) -> str:
    return _OF_RANK.sub("rank", event.fields.get("message") or event.text)[:WORDS]
