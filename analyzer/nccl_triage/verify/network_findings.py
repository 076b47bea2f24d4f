"""What interfaces and paths show to be wrong for a backend with given variables, as findings with their direction."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nccl_triage.engine.schema import Text
from nccl_triage.verify.collective_run import RunFinding
from nccl_triage.verify.decide import OTHERWISE, cause_of
from nccl_triage.verify.reachability import BROKEN, DEGRADED, Path, ReachabilityMatrix, chosen, same_network

Facts = Mapping[str, Any]
#: The variables of every host, or of each host its own.
Environment = Mapping[str, str] | Sequence[Mapping[str, str]]
#: The kind of finding of a path that only one of two hosts can open.
ONE_WAY = "path-one-way"
#: States in which no connection comes about.
_NO_CONNECTION = frozenset({"refused", "prohibited", "silent"})
#: Losses in one direction count as its own when they are this many times those of the other one.
_MOSTLY = 3


def env_of(env: Environment, index: int) -> Mapping[str, str]:
    """Return the variables of one host."""
    return env if isinstance(env, Mapping) else env[index]


def interface_findings(
    names: Sequence[str], facts: Sequence[Facts], backend: str, env: Environment
) -> list[RunFinding]:
    """Return what is wrong with the interfaces that the backend would take on these hosts."""
    taken = [chosen(entry, backend, env_of(env, index)) for index, entry in enumerate(facts)]
    found = []
    for (one, mine), (two, theirs) in itertools.combinations(zip(names, taken, strict=True), 2):
        shared = {entry["address"] for entry in mine} & {entry["address"] for entry in theirs}
        if shared and not any(entry["loopback"] for entry in mine):
            interface = next(entry["name"] for entry in mine if entry["address"] in shared)
            address = sorted(shared)[0]
            en = (
                f"{one} and {two} both have {address} on {interface}: a bridge on each host, not a network between them"
            )
            zh = f"{one} 和 {two} 的 {interface} 地址都是 {address}：这是各自的网桥，而不是互通的网络"
            found.append(_wrong_interface("same-address", en, zh, one, two))
    variable = "NCCL_SOCKET_IFNAME" if backend == "nccl" else "GLOO_SOCKET_IFNAME"
    for index, (name, interfaces, entry) in enumerate(zip(names, taken, facts, strict=True)):
        if not interfaces or not any(one["up"] for one in interfaces):
            wish, have = env_of(env, index).get(variable), ", ".join(one["name"] for one in entry["interfaces"])
            en = f"{name} has no usable interface {wish or ''} (it has {have})".replace("  ", " ")
            zh = f"{name} 没有可用的网络接口 {wish or ''}（现有 {have}）"
            found.append(_wrong_interface("no-interface", en, zh, name))
        elif len(names) > 1 and all(one["loopback"] for one in interfaces):
            address = interfaces[0]["address"]
            en = f"{name} would use its loopback {address}, which no other host can reach"
            zh = f"{name} 将使用回环地址 {address}，其他主机无法访问"
            found.append(_wrong_interface("loopback", en, zh, name))
    return found


def _wrong_interface(kind: str, en: str, zh: str, *hosts: str) -> RunFinding:
    return RunFinding(cause_of(kind), kind, {"en": en, "zh": zh}, hosts=hosts)


def path_findings(
    names: Sequence[str], facts: Sequence[Facts], matrix: ReachabilityMatrix, backend: str, env: Environment
) -> list[RunFinding]:
    """Return what the probe found on the paths that the backend would take; one finding a pair of hosts, worst first."""
    broken, degraded = [], []
    for (a, one), (b, two) in itertools.combinations(enumerate(names), 2):
        mine, theirs = chosen(facts[a], backend, env_of(env, a)), chosen(facts[b], backend, env_of(env, b))
        # NCCL's sockets spread over all interfaces that it takes, Gloo has one.
        count = None if backend == "nccl" else 1
        there = matrix.between(one, two, [entry["address"] for entry in theirs[:count]])
        back = matrix.between(two, one, [entry["address"] for entry in mine[:count]])
        together = bool(mine and theirs) and same_network(mine[0], theirs[0])
        poor = [path for path in (*there, *back) if path.state in DEGRADED]
        if found := _broken(one, two, there, back, together):
            broken.append(found)
        elif poor:
            worst = next((path for path in poor if path.state == "lossy"), poor[0])
            says = _loss(one, two, there, back) if worst.state == "lossy" else _says(worst)
            degraded.append(_finding(f"path-{worst.state}", one, two, says))
    return broken + degraded


def _broken(one: str, two: str, there: list[Path], back: list[Path], together: bool) -> RunFinding | None:
    """Return the finding of a pair whose hosts cannot use some path between them, or None."""
    bad = [[path for path in way if path.state in BROKEN and path.kind == "free port"] for way in (there, back)]
    if not any(bad):
        return None
    worst = min((*bad[0], *bad[1]), key=lambda path: not path.numbers.get("answer_lost"))
    opposite = back if worst.origin == one else there
    other_way = [path for path in opposite if path.kind == "free port"]
    # A connection takes packets both ways: where one host can open it and the other cannot, something filters. Over
    # other interfaces it tells nothing.
    open_back = all(path.usable and path.by_interface in (None, worst.interface) for path in other_way)
    if worst.state in _NO_CONNECTION and other_way and open_back:
        return _finding(ONE_WAY, one, two, _one_way(worst))
    # Some ports of the same address answer: what is missing is no route.
    some_open = any(path.usable and path.origin == worst.origin for path in (*there, *back))
    situation = _situation(str(worst.numbers.get("error")), together or some_open)
    return _finding(f"path-{worst.state}", one, two, _says(worst), situation)


def _situation(error: str, together: bool) -> str:
    """Return what decides between a firewall and a missing route: whether both ends lie in one network, and the answer."""
    if not together:
        return OTHERWISE
    return "filtered" if error == "EHOSTUNREACH" else "one-network"


def _finding(kind: str, one: str, two: str, says: Text, situation: str = OTHERWISE) -> RunFinding:
    return RunFinding(cause_of(kind, situation), kind, says, hosts=(one, two))


def _says(path: Path) -> Text:
    """Return from where to where a path fails, and how."""
    where = f"{path.address}:{path.port} ({path.interface} of {path.target})"
    there = f"{path.address}:{path.port}（{path.target} 的 {path.interface}）"
    how = f"{path.state} {path.numbers.get('error', '')}".rstrip()
    en, zh = f"from {path.origin} to {where}: {how}", f"从 {path.origin} 到 {there}：{how}"
    if path.numbers.get("answer_lost"):
        en += (
            f"; {path.target} gets the requests and its answers are lost: "
            f"packets from {path.target} to {path.origin} are dropped"
        )
        zh += f"；{path.target} 收到了请求，但应答丢失：从 {path.target} 到 {path.origin} 的数据包被丢弃"
    return {"en": en, "zh": zh}


def _one_way(path: Path) -> Text:
    """Return what is wrong with a path that the other end can open."""
    says = _says(path)
    return {
        "en": f"{says['en']}; from {path.target} to {path.origin} every port answers. NCCL connects both ways, Gloo in "
        "one direction only, so a collective of Gloo may pass",
        "zh": f"{says['zh']}；从 {path.target} 到 {path.origin} 的所有端口都有应答。NCCL 需要双向建立连接，"
        "而 Gloo 只朝一个方向建立连接，因此 Gloo 的集合操作可能通过",
    }


def _loss(one: str, two: str, there: Iterable[Path], back: Iterable[Path]) -> Text:
    """Return in which direction messages are lost, from the probes of both hosts."""
    ways, counted = {(one, two): 0, (two, one): 0}, 0
    for path in (*there, *back):
        ways[path.origin, path.target] += path.numbers.get("sent_again", 0)
        ways[path.target, path.origin] += path.numbers.get("answers_sent_again", 0)
        counted += path.numbers.get("messages", 0)
    (worse, most), (_, least) = sorted(ways.items(), key=lambda item: -item[1])
    if most > _MOSTLY * least:
        en, zh, lost, sent = f"from {worse[0]} to {worse[1]}", f"从 {worse[0]} 到 {worse[1]}", most, counted
    else:
        en, zh = f"between {one} and {two}, both ways,", f"{one} 与 {two} 之间双向"
        lost, sent = most + least, 2 * counted
    share = 100 * lost / max(1, sent)
    return {
        "en": f"{en} about {share:.2g} % of the packets are lost: lossy",
        "zh": f"{zh}约有 {share:.2g} % 的数据包丢失：lossy",
    }
