"""The document of ``doctor``: the facts of each host, what they mean, what could not be seen, and the differences between hosts."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nccl_triage._version import __version__
from nccl_triage.doctor import checks, network_rows, wording
from nccl_triage.doctor.checks import BAD, DifferenceRule, judge
from nccl_triage.doctor.rows import rows

Facts = Mapping[str, Any]

#: Variables that naturally differ between hosts or processes.
_OWN = frozenset({"RANK", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES", "NCCL_HOSTID", "NCCL_DEBUG_FILE", "RAY_ADDRESS"})
_OWN_PREFIXES = ("TORCHELASTIC_", "OMPI_MCA_", "CUDA_MPS_")
#: Seconds by which clocks may differ: what asking over a network can tell.
CLOCK = 1.0


def comparable(facts: Facts) -> dict[str, str]:
    """Return the values of a host that should be those of all others, as texts, by their names in ``rules/doctor``."""
    return {name: value for name, value in _values(facts) if value}


def _values(facts: Facts) -> Iterator[tuple[str, str]]:
    tables = rows(facts)
    for row in tables["driver"]:
        yield "driver", str(row.get("version") or "")
    for row in tables["software"]:
        for name in ("cuda", "nccl", "torch", "python"):
            yield name, str(row.get(name) or "")
        for name, version in (row.get("wheels") or {}).items():
            if name.lower() in ("vllm", "ray"):
                yield name.lower(), str(version)
    system = facts.get("system")
    yield "kernel", str((system or {}).get("kernel") or "")
    for row in tables["gpus"]:
        yield "gpus", ", ".join(row["names"]) or ("none" if row["asked"] else "")
    yield from _network(facts, tables)
    for row in tables["limits"]:
        yield "memlock", wording.size(row["memlock"])
        yield "nofile", str(row["nofile"] if row["nofile"] is not None else "unlimited")
        yield "shm", _about(row["shm"])
    for name, value in network_rows.variables(facts).items():
        if name not in _OWN and not name.startswith(_OWN_PREFIXES):
            yield f"variable:{name}", value


def _about(size: int | None) -> str:
    """Return a size as the power of two that is nearest below: it follows the memory, which differs a little."""
    return wording.size(1 << (size.bit_length() - 1)) if size else ""


def _network(facts: Facts, tables: Mapping[str, list[dict[str, Any]]]) -> Iterator[tuple[str, str]]:
    for row in tables["choice"]:
        yield "interface", ", ".join(row["names"]) or "none"
    chosen = [row for row in tables["interface"] if row["chosen"]]
    yield "mtu", ", ".join(dict.fromkeys(str(row["mtu"]) for row in chosen))
    networks = (str(ipaddress.ip_network(f"{row['address']}/{row['netmask']}", strict=False)) for row in chosen)
    yield "network", ", ".join(dict.fromkeys(networks))
    ports = [row for row in tables["port"] if row.get("state") == "active"]
    if tables["port"]:
        yield "ports", ", ".join(f"{row['subject']} {row['rate']:g} Gbit/s" for row in ports if row["rate"]) or "none"
        yield "firmware", ", ".join(dict.fromkeys(str(row["firmware"]) for row in tables["port"] if row["firmware"]))
        yield "gid", _gids(facts)


def _gids(facts: Facts) -> str:
    """Return the indices of the entries for RoCE v2 over IPv4, which are those that a job can use."""
    infiniband = facts.get("infiniband")
    ports = infiniband.get("ports") or () if isinstance(infiniband, dict) else ()
    found = {
        str(gid.get("index"))
        for port in ports
        if port.get("link") == "Ethernet"
        for gid in port.get("gids") or ()
        if gid.get("type") == "RoCE v2" and str(gid.get("gid")).startswith("0000:0000:0000:0000:0000:ffff:")
    }
    return ", ".join(sorted(found, key=int))


def differences(
    hosts: Mapping[str, Facts], known: Mapping[str, DifferenceRule], clocks: Mapping[str, float] | None = None
) -> list[dict[str, Any]]:
    """Return what differs, the worst first: the hosts of every value, the majority's value and the minority.

    A value counts as the majority's when more than half of the hosts that tell one have it. ``clocks`` are seconds by
    which the hosts' clocks are ahead of ours.
    """
    values = {name: comparable(facts) for name, facts in hosts.items()}
    found = []
    for fact in sorted({fact for told in values.values() for fact in told}):
        rule = known.get(fact) or known.get(f"{fact.partition(':')[0]}:*")
        if rule is None:
            continue
        told = {host: mine.get(fact) for host, mine in values.items()}
        if not fact.startswith("variable:"):  # a variable that is not set is a difference, what was not seen is none
            told = {host: value for host, value in told.items() if value is not None}
        if len(set(told.values())) > 1:
            found.append(_difference(fact, rule, told))
    if clocks and (rule := known.get("clock")) and max(clocks.values()) - min(clocks.values()) > CLOCK:
        found.append(_difference("clock", rule, {host: f"{ahead:+.1f} s" for host, ahead in clocks.items()}))
    return sorted(found, key=lambda one: BAD.index(one["state"]))


def _difference(fact: str, rule: DifferenceRule, told: Mapping[str, str | None]) -> dict[str, Any]:
    by_value: dict[str | None, list[str]] = {}
    for host, value in told.items():
        by_value.setdefault(value, []).append(host)
    best = max(by_value, key=lambda value: len(by_value[value]))
    majority = len(by_value[best]) * 2 > len(told)
    title = wording.fill(rule.title, {"name": fact.partition(":")[2]})
    return {
        "fact": fact,
        "state": rule.state,
        "title": title["en"],
        "title_zh": title["zh"],
        "means": rule.means["en"],
        "means_zh": rule.means["zh"],
        "values": [
            {"value": value, "hosts": names}
            for value, names in sorted(by_value.items(), key=lambda item: (-len(item[1]), str(item[0])))
        ],
        "majority": best if majority else None,
        "has_majority": majority,
        "minority": [host for host, value in told.items() if value != best] if majority else [],
        "causes": list(rule.causes),
    }


#: The kind of the document, by which it is recognised.
KIND = "nccl-triage-doctor"
#: Verdict of a document by the worst of its states.
_VERDICTS = {"failed": "problems", "warning": "warnings"}


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """The answer of a host: that of ``collect``, or the ``problem`` why there is none. ``ahead``: its clock minus ours."""

    host: str
    told: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None
    ahead: float | None = None


def build(collected: Sequence[HostAnswer]) -> dict[str, Any]:
    """Return the document of some hosts."""
    known, differing = checks.shipped()
    hosts = [_host(one, known) for one in collected]
    facts = {one.host: one.told.get("facts") or {} for one in collected if one.problem is None}
    clocks = {one.host: one.ahead for one in collected if one.ahead is not None}
    found = differences(facts, differing, clocks)
    states = [check["state"] for host in hosts for check in host["checks"]]
    states += [difference["state"] for difference in found]
    states += ["failed" for host in hosts if host["problem"]]
    return {
        "schema_version": 1,
        "kind": KIND,
        "tool": {"name": "nccl-triage", "version": __version__},
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "verdict": next((word for state, word in _VERDICTS.items() if state in states), "healthy"),
        "hosts": hosts,
        "differences": found,
    }


def _host(one: HostAnswer, known: Mapping[str, checks.HostCheck]) -> dict[str, Any]:
    facts = one.told.get("facts") or {}
    return {
        "host": one.host,
        "problem": one.problem,
        "checks": [result.to_dict() for result in judge(facts, known)] if one.problem is None else [],
        "unseen": list(one.told.get("unseen") or ()),
        "facts": facts,
        "comparable": comparable(facts),
        "seconds": one.told.get("seconds") or {},
    }
