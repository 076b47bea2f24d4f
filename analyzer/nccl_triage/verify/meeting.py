"""Where the ranks of an experiment meet: an address or a port of a log is used only on a host that it belongs to.

A log may name any machine. Whether a host has a name or an address is what the host itself says, or the user who named
it; no name of a log is resolved for that, and no address of a log is contacted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nccl_triage.engine.schema import Text
from nccl_triage.hosts.links import HostPlace
from nccl_triage.verify import host_names
from nccl_triage.verify.plan import Planned
from nccl_triage.verify.question import Question


def has_name(place: HostPlace, facts: Mapping[str, Any], name: str) -> bool:
    """Tell whether a host is called exactly so or has this address; its own name may be cut at the first dot."""
    own = str(facts.get("host", ""))
    interfaces = [entry["address"] for entry in facts.get("interfaces", [])]
    known = [place.name, place.address, own, own.split(".")[0], *facts.get("own_addresses", []), *interfaces]
    return name.casefold() in {"localhost", *(str(entry).casefold() for entry in known if entry)}


def is_of_job(question: Question, place: HostPlace, facts: Mapping[str, Any]) -> bool:
    """Tell whether a host is one of the failed job's by name or address; where the log names none, any may be."""
    own = host_names.keys((place.name, place.address)) | host_names.known_as(facts)
    return not question.hosts or host_names.name_in_log(question, own) is not None


def at_hand(
    planned: Planned, question: Question, places: Sequence[HostPlace], facts: Sequence[Mapping[str, Any]]
) -> Planned:
    """Return an experiment without an address and a port of the log that are not those of rank 0's host."""
    run, missing = planned.control, list[Text]()
    if run is None or not facts:
        return planned
    first = run.slots[0].place
    if run.store_address is not None and not has_name(places[first], facts[first], run.store_address):
        missing.append(other_address(run.store_address))
        run = replace(run, store_address=None)
    if run.port is not None and not is_of_job(question, places[first], facts[first]):
        missing.append(
            {"en": f"on a free port instead of {run.port}", "zh": f"使用空闲端口，原作业为 {run.port}"},
        )
        run = replace(run, port=None)
    if not missing:
        return planned
    return replace(planned, control=run, differs=(*planned.differs, *missing), complete=False)


def other_address(name: str) -> Text:
    """Return the difference of a store that is not at the address of the log."""
    return {
        "en": f"the store is not at {name} as in the log: rank 0's host does not have this address",
        "zh": f"store 不在日志中的 {name}：rank 0 所在主机没有该地址",
    }
