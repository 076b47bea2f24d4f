"""Where the ranks of a run were, as their results tell, and what that makes of the experiment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nccl_triage.engine.schema import Text
from nccl_triage.verify.interfaces import chosen, for_gloo
from nccl_triage.verify.judge import Trial
from nccl_triage.verify.launchers import static
from nccl_triage.verify.launchers.results import RankFile
from nccl_triage.verify.model import Finding, Run, Slot
from nccl_triage.verify.paths import interface_findings
from nccl_triage.verify.plan import Means, Planned
from nccl_triage.verify.question import Question


@dataclass(slots=True)
class Hosts:
    """The hosts on which ranks have run, in the order in which they are met, with their facts."""

    names: list[str] = field(default_factory=list)
    facts: list[dict[str, Any]] = field(default_factory=list)

    def index(self, name: str, facts: Mapping[str, Any] | None = None) -> int:
        """Return the index of a host, which is a new one when its name is."""
        if name not in self.names:
            self.names.append(name)
            self.facts.append(dict(facts) if facts else {"host": name, "interfaces": [], "own_addresses": []})
        return self.names.index(name)

    def findings(self, run: Run) -> list[Finding]:
        """Return what the hosts' interfaces show for a run."""
        seen = [place for place in run.places if self.facts[place]["interfaces"]]
        names = [self.names[place] for place in seen]
        return interface_findings(names, [self.facts[place] for place in seen], run.backend, run.env_of(0))


def hosts_of(files: Mapping[str, Mapping[int, RankFile]]) -> Hosts:
    """Return the hosts that the results of all runs speak of."""
    hosts = Hosts()
    for ranks in files.values():
        for _, entry in sorted(ranks.items()):
            hosts.index(entry.host, entry.facts)
    return hosts


def placed(run: Run, files: Mapping[int, RankFile], hosts: Hosts, means: Means) -> Run:
    """Return a run with its ranks where they were, and with the variables that they had.

    A rank without a result was, as far as one can know, where the others of its planned host were.
    """
    known = {run.slots[rank].place: entry.host for rank, entry in sorted(files.items(), reverse=True)}
    slots = []
    for rank, slot in enumerate(run.slots):
        if rank in files:
            place = hosts.index(files[rank].host)
        else:
            place = hosts.index(known.get(slot.place, means.places[slot.place].name))
        slots.append(Slot(slot.number, place))
    per_rank = {
        rank: {name: value for name, value in entry.env.items() if run.env.get(name) != value}
        for rank, entry in files.items()
    }
    return replace(run, slots=tuple(slots), per_rank_env={rank: env for rank, env in per_rank.items() if env})


def as_it_ran(planned: Planned, control: Trial, hosts: Hosts, question: Question, means: Means) -> Planned:
    """Return an experiment as its ranks were really placed; where they fell short of the plan, a pass says less."""
    wanted, run = planned.control, control.result.run
    gpus = Counter(place for place, _ in set(gpus_of(control)))
    if gpus:
        means = replace(means, gpus=min(gpus.values()))
    names = tuple(_known_as(question, hosts.facts[place]) for place in run.places)
    planned = static.compared(replace(planned, control=run), question, means, names)
    short: list[Text] = []
    one, two = len(run.places), len(wanted.places) if wanted is not None else 0
    if len(question.hosts) <= one < two:  # where the log names more hosts, that is said already
        short.append({"en": f"hosts: {one} instead of the {two} planned", "zh": f"实际 {one} 台主机，计划 {two} 台"})
    if planned.experiment.kind == "single":
        short.append({"en": "the health of the GPUs was not read", "zh": "未读取 GPU 的健康状态"})
    if run.backend == "gloo" and _elsewhere(run, hosts):
        text = "Gloo did not take the interface that NCCL would take"
        short.append({"en": text, "zh": "Gloo 使用的网络接口与 NCCL 会选用的不同"})
    return replace(planned, differs=(*planned.differs, *short), complete=planned.complete and not short)


def _known_as(question: Question, facts: Mapping[str, Any]) -> str:
    """Return what the log calls a host: by one of its addresses, else by its own name."""
    own = {str(entry["address"]) for entry in facts["interfaces"] if not entry["loopback"]}
    return next((host for host in question.hosts if own & {host, *question.addresses.get(host, ())}), facts["host"])


def gpus_of(control: Trial) -> list[tuple[int, str]]:
    """Return host and bus number of each rank's GPU, as far as they are told."""
    return [
        (trace.slot.place, str(trace.details["device"]["bus"]))
        for trace in control.result.ranks.values()
        if trace.details.get("device", {}).get("bus")
    ]


def _elsewhere(run: Run, hosts: Hosts) -> bool:
    """Tell whether Gloo, which stood in for NCCL, took another interface; within a host only a wish makes it matter."""
    if len(run.places) < 2 and not any(name.endswith("SOCKET_IFNAME") for name in run.env):
        return False
    for rank, slot in enumerate(run.slots):
        facts, env = hosts.facts[slot.place], run.env_of(rank)
        if not facts["interfaces"] or "GLOO_SOCKET_IFNAME" in run.env:
            continue
        taken = [entry["name"] for entry in chosen(facts, "gloo", env)]
        if taken[:1] != [for_gloo(facts, run.env).get("GLOO_SOCKET_IFNAME")]:
            return True
    return False
