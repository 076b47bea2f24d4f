"""What the hosts' own facts and the reachability matrix show before any collective runs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from nccl_triage.verify.findings import OTHERWISE, cause_of
from nccl_triage.verify.interfaces import chosen, same_network
from nccl_triage.verify.model import Finding
from nccl_triage.verify.reachability import BROKEN, DEGRADED, Matrix

Facts = Mapping[str, Any]


def interface_findings(
    names: Sequence[str], facts: Sequence[Facts], backend: str, env: Mapping[str, str]
) -> list[Finding]:
    """Return what is wrong with the interfaces that the backend would take on these hosts."""
    taken = [chosen(entry, backend, env) for entry in facts]
    wish = env.get("NCCL_SOCKET_IFNAME" if backend == "nccl" else "GLOO_SOCKET_IFNAME")
    found = []
    for (one, mine), (two, theirs) in itertools.combinations(zip(names, taken, strict=True), 2):
        shared = {entry["address"] for entry in mine} & {entry["address"] for entry in theirs}
        if shared and not any(entry["loopback"] for entry in mine):
            interface = next(entry["name"] for entry in mine if entry["address"] in shared)
            address = sorted(shared)[0]
            en = (
                f"{one} and {two} both have {address} on {interface}: a bridge of their own, not a network between them"
            )
            zh = f"{one} 和 {two} 的 {interface} 地址都是 {address}：这是各自的网桥，而不是互通的网络"
            found.append(_wrong_interface("same-address", en, zh, one, two))
    for name, interfaces, entry in zip(names, taken, facts, strict=True):
        if not interfaces or not any(one["up"] for one in interfaces):
            have = ", ".join(one["name"] for one in entry["interfaces"])
            en = f"{name} has no usable interface {wish or ''} (it has {have})".replace("  ", " ")
            zh = f"{name} 没有可用的网络接口 {wish or ''}（现有 {have}）"
            found.append(_wrong_interface("no-interface", en, zh, name))
        elif len(names) > 1 and all(one["loopback"] for one in interfaces):
            address = interfaces[0]["address"]
            en = f"{name} would use its loopback {address}, which no other host can reach"
            zh = f"{name} 将使用回环地址 {address}，其他主机无法访问"
            found.append(_wrong_interface("loopback", en, zh, name))
    return found


def _wrong_interface(kind: str, en: str, zh: str, *hosts: str) -> Finding:
    return Finding(cause_of(kind), kind, {"en": en, "zh": zh}, hosts=hosts)


def path_findings(
    names: Sequence[str], facts: Sequence[Facts], matrix: Matrix, backend: str, env: Mapping[str, str]
) -> list[Finding]:
    """Return what the probe found on the paths that the backend would take; one finding a pair of hosts, worst first."""
    broken, degraded = [], []
    for (a, one), (b, two) in itertools.combinations(enumerate(names), 2):
        mine, theirs = chosen(facts[a], backend, env), chosen(facts[b], backend, env)
        # NCCL's sockets spread over all interfaces that it takes, Gloo has one.
        count = None if backend == "nccl" else 1
        paths = [
            *matrix.between(one, two, [entry["address"] for entry in theirs[:count]]),
            *matrix.between(two, one, [entry["address"] for entry in mine[:count]]),
        ]
        together = bool(mine and theirs) and same_network(mine[0], theirs[0])
        bad = [path for path in paths if path.state in BROKEN and path.kind == "free port"]
        poor = [path for path in paths if path.state in DEGRADED]
        if bad:
            worst = bad[0]
            # Some ports of the same address answer: what is missing is no route.
            some_open = any(path.usable and path.origin == worst.origin for path in paths)
            situation = _situation(str(worst.numbers.get("error")), together or some_open)
            broken.append(_finding(worst.state, one, two, worst, situation))
        elif poor:
            degraded.append(_finding(poor[0].state, one, two, poor[0]))
    return broken + degraded


def _situation(error: str, together: bool) -> str:
    """Return what decides between a firewall and a missing route: whether both ends lie in one network, and the answer."""
    if not together:
        return OTHERWISE
    return "filtered" if error == "EHOSTUNREACH" else "one-network"


def _finding(state: str, one: str, two: str, path: Any, situation: str = OTHERWISE) -> Finding:
    kind = f"path-{state}"
    where = f"{path.address}:{path.port} ({path.interface} of {path.target})"
    return Finding(
        cause_of(kind, situation),
        kind,
        {
            "en": f"from {path.origin} to {where}: {state} {path.numbers.get('error', '')}".rstrip(),
            "zh": f"从 {path.origin} 到 {where}：{state} {path.numbers.get('error', '')}".rstrip(),
        },
        hosts=(one, two),
    )
