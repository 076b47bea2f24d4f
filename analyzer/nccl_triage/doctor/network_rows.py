"""Rows of the network: ports, interfaces, host names, and which interfaces NCCL and Gloo would choose by which rule."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from nccl_triage.diagnosis.facts.network import is_virtual
from nccl_triage.hosts import interfaces as choices

Facts = Mapping[str, Any]
Row = dict[str, Any]

#: Why NCCL takes an interface.
WHY = {
    "wished": {"en": "set by NCCL_SOCKET_IFNAME={wish}", "zh": "由 NCCL_SOCKET_IFNAME={wish} 指定"},
    "infiniband": {
        "en": "NCCL_SOCKET_IFNAME is not set, and interfaces whose names begin with ib come first",
        "zh": "未设置 NCCL_SOCKET_IFNAME，名称以 ib 开头的接口优先",
    },
    "subnet": {
        "en": "NCCL_SOCKET_IFNAME is not set, and it is in the network of NCCL_COMM_ID",
        "zh": "未设置 NCCL_SOCKET_IFNAME，它与 NCCL_COMM_ID 的地址在同一网段",
    },
    "plain": {
        "en": "NCCL_SOCKET_IFNAME is not set and there is no ib*; interfaces other than lo, docker* and virbr* come next",
        "zh": "未设置 NCCL_SOCKET_IFNAME 且没有 ib*，其次选择 lo、docker*、virbr* 以外的接口",
    },
    "docker": {
        "en": "NCCL_SOCKET_IFNAME is not set and there are only docker* and lo",
        "zh": "未设置 NCCL_SOCKET_IFNAME，且除 docker* 和 lo 外没有其他接口",
    },
    "loopback": {
        "en": "NCCL_SOCKET_IFNAME is not set and there is only lo",
        "zh": "未设置 NCCL_SOCKET_IFNAME，且只有 lo",
    },
    "bridge": {
        "en": "NCCL_SOCKET_IFNAME is not set and there is only virbr*",
        "zh": "未设置 NCCL_SOCKET_IFNAME，且只有 virbr*",
    },
    "none": {
        "en": "no interface that is up and has an IPv4 address matches NCCL_SOCKET_IFNAME={wish}",
        "zh": "没有已启用且有 IPv4 地址的接口符合 NCCL_SOCKET_IFNAME={wish}",
    },
}


def _part(facts: Facts, name: str) -> dict[str, Any]:
    found = facts.get(name)
    return found if isinstance(found, dict) else {}


def variables(facts: Facts) -> dict[str, str]:
    """Return the variables that NCCL would see: its files count where the environment does not say otherwise."""
    told = _part(facts, "environment")
    found: dict[str, str] = {}
    for assignments in reversed(list(_part(told, "files").values())):
        found.update(assignments)
    return {**found, **_part(told, "variables")}


def _interfaces(facts: Facts) -> list[dict[str, Any]]:
    return list(_part(facts, "network").get("interfaces") or ())


def choice(facts: Facts) -> Iterator[Row]:
    """Yield what NCCL and Gloo take on this host, and why."""
    known = _interfaces(facts)
    if not known or _only_six(facts):
        return
    env = variables(facts)
    wish = env.get("NCCL_SOCKET_IFNAME")
    found, rule = choices.nccl_pick(known, wish, _root(env.get("NCCL_COMM_ID", "")))
    addresses = _part(facts, "names").get("addresses") or []
    gloo = choices.gloo_choice(known, env.get("GLOO_SOCKET_IFNAME"), addresses)
    ports = _part(facts, "infiniband").get("ports") or []
    yield {
        "interfaces": [f"{entry['name']} ({entry['address']})" for entry in found],
        "names": [entry["name"] for entry in found],
        "rule": rule,
        "wish": wish or "",
        "why": {language: text.format(wish=wish or "") for language, text in WHY[rule].items()},
        "virtual": [entry["name"] for entry in found if is_virtual(entry["name"])],
        "first_virtual": bool(found) and is_virtual(found[0]["name"]),
        "loopback": bool(found) and all(entry["loopback"] for entry in found),
        "networks": len({(entry["address"], entry["netmask"]) for entry in found}),
        "gloo": [f"{entry['name']} ({entry['address']})" for entry in gloo],
        "gloo_loopback": bool(gloo) and all(entry["loopback"] for entry in gloo),
        "others": [entry["name"] for entry in known if not entry["loopback"]],
        "data": "infiniband" if any(port.get("state") == "active" for port in ports) else "socket",
    }


def _only_six(facts: Facts) -> bool:
    """Tell whether the host has addresses for others, and none of IPv4: the rules of choice here are those of IPv4."""
    sixes = _part(facts, "network").get("ipv6")
    return bool(sixes) and all(entry["loopback"] for entry in _interfaces(facts))


def families(facts: Facts) -> Iterator[Row]:
    """Yield which kinds of addresses the host has, where both were looked at."""
    sixes = _part(facts, "network").get("ipv6")
    if sixes is None:
        return
    resolved = _part(facts, "names")
    yield {
        "only_ipv6": _only_six(facts),
        "addresses": [f"{entry['name']} ({entry['address']})" for entry in sixes],
        "family": variables(facts).get("NCCL_SOCKET_FAMILY") or "",
        "resolved": sum(not _is_loopback(str(one)) for one in resolved.get("ipv6") or ()),
        "name": resolved.get("name"),
    }


def _root(told: str) -> str | None:
    """Return the address of ``NCCL_COMM_ID=address:port``."""
    return told.rpartition(":")[0] or None


def interface(facts: Facts) -> Iterator[Row]:
    """Yield the interfaces that have addresses."""
    names = {name for row in choice(facts) for name in row["names"]}
    for entry in _interfaces(facts):
        yield {**entry, "subject": entry["name"], "chosen": entry["name"] in names}


def names(facts: Facts) -> Iterator[Row]:
    """Yield what the host's name resolves to."""
    told = _part(facts, "names")
    if not told:
        return
    addresses = [str(address) for address in told.get("addresses") or ()]
    sixes = told.get("ipv6") or ()
    own = {entry["address"] for entry in _interfaces(facts)}
    yield {
        **told,
        "unknown": not addresses and not (sixes and _only_six(facts)),
        "loopback": [address for address in addresses if _is_loopback(address)],
        "foreign": [address for address in addresses if own and address not in own and not _is_loopback(address)],
    }


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def port(facts: Facts) -> Iterator[Row]:
    """Yield the ports of InfiniBand and RoCE devices; ``wanted``: NCCL_IB_HCA leaves it in use."""
    env = variables(facts)
    for entry in _part(facts, "infiniband").get("ports") or ():
        gids = entry.get("gids") or []
        yield {
            **entry,
            "subject": f"{entry.get('device')}:{entry.get('port')}",
            "ethernet": entry.get("link") == "Ethernet",
            "gids": len(gids),
            "kinds": sorted({str(gid.get("type")) for gid in gids if gid.get("type")}),
            "errors": [f"{name} {count}" for name, count in _part(entry, "counters").items()],
            "downs": _part(entry, "counters").get("link_downed") or 0,
            "gid_index": env.get("NCCL_IB_GID_INDEX"),
            "gid_missing": _gid_missing(gids, env.get("NCCL_IB_GID_INDEX", "")),
            "off": env.get("NCCL_IB_DISABLE") == "1",
        }


def _gid_missing(gids: list[dict[str, Any]], wish: str) -> bool:
    return wish.isdigit() and bool(gids) and all(gid.get("index") != int(wish) for gid in gids)


def ports(facts: Facts) -> Iterator[Row]:
    """Yield all ports as one row."""
    told = _part(facts, "infiniband")
    found = told.get("ports") or []
    if found:
        active = [entry for entry in found if entry.get("state") == "active"]
        yield {
            "count": len(found),
            "active": len(active),
            "rates": sorted({str(entry.get("rate")) for entry in active}),
            "verbs": told.get("verbs"),
            "peer_memory": told.get("peer_memory"),
            "gpus": len(_part(facts, "gpus").get("gpus") or ()),
            "off": variables(facts).get("NCCL_IB_DISABLE") == "1",
        }
