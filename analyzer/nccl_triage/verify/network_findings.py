"""What interfaces and paths show to be wrong for a backend with given variables, as findings with their direction."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from nccl_triage.engine.schema import Text
from nccl_triage.hosts.interfaces import BRIDGES, Interface, chosen, same_network
from nccl_triage.verify.collective_run import RunFinding
from nccl_triage.verify.decide import OTHERWISE, cause_of
from nccl_triage.verify.reachability import BROKEN, Path, ReachabilityMatrix
from nccl_triage.verify.worker.refusal import FILTER, GATEWAY, NO_NEIGHBOUR, OWN_ROUTE, WRONG_NEIGHBOUR

Facts = Mapping[str, Any]
#: The variables of every host, or of each host its own.
Environment = Mapping[str, str] | Sequence[Mapping[str, str]]
#: The kind of finding of a path that only one of two hosts can open.
ONE_WAY = "path-one-way"
#: The kind of finding of the port of the log that is closed where free ports of the address are open.
LOG_PORT = "path-log-port"
#: The kind of finding of an interface that the backend takes, or would take, and that has no link.
LINK_DOWN = "link-down"
#: States in which no connection comes about, the most telling first: what a kernel or a host says comes before silence.
_NO_CONNECTION = ("no-route", "prohibited", "refused", "reset", "failed", "silent")
#: All states that no collective can use, the most telling first.
_TELLING = (*_NO_CONNECTION, "no-data", "large-packets-lost")
#: Error numbers that only the own routing table gives, for a probe that does not tell who gave them.
_OWN_ROUTE = ("ENETUNREACH", "EACCES", "EINVAL")
#: Who says that packets do not get to the other host: they cannot take answers there, either.
_UNDELIVERED = frozenset({OWN_ROUTE, WRONG_NEIGHBOUR, NO_NEIGHBOUR, GATEWAY})
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
        down = _without_link(entry, backend, env_of(env, index)) if len(names) > 1 else []
        if down:
            which = ", ".join(f"{one['name']} ({one['address']})" for one in down)
            en, zh = f"the link of {which} of {name} is down", f"{name} 的 {which} 链路已断开"
            found.append(RunFinding(cause_of(LINK_DOWN), LINK_DOWN, {"en": en, "zh": zh}, hosts=(name,)))
        elif not interfaces or not any(one["up"] for one in interfaces):
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


def _without_link(entry: Facts, backend: str, env: Mapping[str, str]) -> list[Interface]:
    """Return the interfaces that a backend would take on a host if their links were up, where it has none that is up."""
    taken = chosen(entry, backend, env)
    if any(one["up"] and not one["loopback"] for one in taken):
        return []
    repaired = chosen({**entry, "interfaces": [{**one, "up": True} for one in entry["interfaces"]]}, backend, env)
    off = {one["name"] for one in entry["interfaces"] if not one["up"]}
    return [
        one for one in repaired if one["name"] in off and not one["loopback"] and not one["name"].startswith(BRIDGES)
    ]


def _wrong_interface(kind: str, en: str, zh: str, *hosts: str) -> RunFinding:
    return RunFinding(cause_of(kind), kind, {"en": en, "zh": zh}, hosts=hosts)


def path_findings(
    names: Sequence[str], facts: Sequence[Facts], matrix: ReachabilityMatrix, backend: str, env: Environment
) -> list[RunFinding]:
    """Return what the probe found on the paths that the backend would take, worst first.

    Each direction between two hosts is a finding of its own, unless both show the same.
    """
    broken, degraded = [], []
    down = {name for index, name in enumerate(names) if _without_link(facts[index], backend, env_of(env, index))}
    for (a, one), (b, two) in itertools.combinations(enumerate(names), 2):
        mine, theirs = chosen(facts[a], backend, env_of(env, a)), chosen(facts[b], backend, env_of(env, b))
        # NCCL's sockets spread over all interfaces that it takes, Gloo has one.
        count = None if backend == "nccl" else 1
        there = _Way(one, two, matrix, mine[:count], theirs[:count])
        back = _Way(two, one, matrix, theirs[:count], mine[:count])
        broken += _broken(there, back, bool(down & {one, two}))
        degraded += _poor(there, back)
    return broken + degraded


@dataclass(frozen=True)
class _Way:
    """One direction between two hosts: the interfaces of both that the backend would take, and what was probed."""

    origin: str
    target: str
    matrix: ReachabilityMatrix
    own: Sequence[Interface]
    theirs: Sequence[Interface]

    @cached_property
    def paths(self) -> list[Path]:
        """All paths to the addresses that the backend would take."""
        return self.matrix.between(self.origin, self.target, [entry["address"] for entry in self.theirs])

    @cached_property
    def free(self) -> list[Path]:
        """Those to free ports, which stand for the ports of the collective."""
        return [path for path in self.paths if path.kind == "free port"]

    @cached_property
    def worst(self) -> Path | None:
        """The path that cannot be used and tells the most."""
        bad = [path for path in self.free if path.state in BROKEN]
        return min(bad, key=_telling, default=None)

    def together(self, path: Path) -> bool:
        """Tell whether the address of a path lies in a network of this end."""
        theirs = [entry for entry in self.theirs if entry["address"] == path.address]
        return any(same_network(mine, entry) for mine in self.own for entry in theirs)

    def opens(self, path: Path) -> bool:
        """Tell whether some ports of the address of a path answer."""
        return any(other.usable and other.address == path.address for other in self.paths)

    def open_by(self, interface: str) -> bool:
        """Tell whether every path can be used, by this interface as far as that is known."""
        return bool(self.free) and all(p.usable and p.by_interface in (None, interface) for p in self.free)


def _broken(there: _Way, back: _Way, down: bool) -> list[RunFinding]:
    """Return the findings of a pair whose hosts cannot use some path between them."""
    found: list[tuple[tuple[int, bool, bool], RunFinding]] = []
    for way, opposite in ((there, back), (back, there)):
        worst = way.worst
        if worst is None:
            found += _log_port(way, there)
            continue
        # A connection takes packets both ways: where one host can open it and the other cannot, something filters. Over
        # other interfaces it tells nothing.
        if worst.state in _NO_CONNECTION and opposite.open_by(worst.interface) and not _told_by_route(worst):
            found.append((_telling(worst), _finding(ONE_WAY, there, _one_way(worst))))
            continue
        situation = LINK_DOWN if down else _situation(way, worst, opposite)
        says = _says(worst, _explained(worst, opposite))
        found.append((_telling(worst), _finding(f"path-{worst.state}", there, says, situation)))
    return _merged([finding for _, finding in sorted(found, key=lambda entry: entry[0])])


def _telling(path: Path) -> tuple[int, bool, bool]:
    """Return the sort key of paths that fail, the most telling first."""
    return _TELLING.index(path.state), _said_by(path) is None, not path.numbers.get("answer_lost")


def _merged(findings: Sequence[RunFinding]) -> list[RunFinding]:
    """Return the findings of both directions, as one where they show the same."""
    if len(findings) < 2 or findings[0] != findings[1]:
        return list(findings)
    (one, two), stops = findings, {"en": "; ", "zh": "；"}
    return [replace(one, says={lang: one.says[lang] + stop + two.says[lang] for lang, stop in stops.items()})]


def _log_port(way: _Way, there: _Way) -> list[tuple[tuple[int, bool, bool], RunFinding]]:
    """Return the finding of a direction in which free ports answer and the port of the log does not."""
    others = [path for path in way.paths if path.kind != "free port" and path.state in _NO_CONNECTION]
    closed = [path for path in others if way.opens(path)]
    return [(_telling(path), _finding(LOG_PORT, there, _says(path))) for path in closed[:1]]


def _poor(there: _Way, back: _Way) -> list[RunFinding]:
    """Return the findings of a pair between which messages pass badly: lost, or late."""
    paths = [*there.paths, *back.paths]
    found = []
    for state in ("lossy", "delayed"):
        poor = [path for path in paths if path.state == state]
        if poor:
            says = _loss(there.origin, there.target, there.paths, back.paths) if state == "lossy" else _says(poor[0])
            found.append(_finding(f"path-{state}", there, says))
    return found


def _said_by(path: Path) -> str | None:
    """Return who keeps connections off a path, where the probe or the error number tells."""
    by = path.numbers.get("said_by")
    return by or (OWN_ROUTE if path.numbers.get("error") in _OWN_ROUTE else None)


def _told_by_route(path: Path) -> bool:
    """Tell whether the probe itself says that no packet gets to the target."""
    return path.numbers.get("said_by") in _UNDELIVERED


def _explained(path: Path, opposite: _Way) -> bool:
    """Tell whether a path is silent because the other host cannot send its answers here."""
    return path.state == "silent" and opposite.worst is not None and _said_by(opposite.worst) in _UNDELIVERED


def _situation(way: _Way, path: Path, opposite: _Way) -> str:
    """Return what decides between a firewall and a missing route: who says it, what else answers, where both ends lie."""
    by = _said_by(path)
    if by is not None:
        return by
    if _explained(path, opposite) and opposite.worst is not None:
        return _said_by(opposite.worst) or OTHERWISE
    # Some ports of the same address answer: what is missing is no route.
    if not (way.together(path) or way.opens(path)):
        return OTHERWISE
    return FILTER if path.numbers.get("error") == "EHOSTUNREACH" else "one-network"


def _finding(kind: str, there: _Way, says: Text, situation: str = OTHERWISE) -> RunFinding:
    return RunFinding(cause_of(kind, situation), kind, says, hosts=(there.origin, there.target))


#: Who keeps connections off a path, in words: {origin} and {target} are its ends.
_BY: dict[str, Text] = {
    OWN_ROUTE: {
        "en": "the routing table of {origin} itself leads nowhere for this address",
        "zh": "{origin} 自身的路由表中没有到该地址的可用路由",
    },
    WRONG_NEIGHBOUR: {
        "en": "{origin} has a permanent neighbour entry for this address that is not the hardware address of {target}",
        "zh": "{origin} 上该地址的永久邻居表项与 {target} 的硬件地址不符",
    },
    NO_NEIGHBOUR: {
        "en": "nobody answers ARP for the next hop on the link of {origin}",
        "zh": "在 {origin} 的链路上，下一跳没有应答 ARP",
    },
    GATEWAY: {
        "en": "a gateway on the way answers that it knows no way there",
        "zh": "途中的网关应答称没有到该处的路由",
    },
    FILTER: {
        "en": "a filter answers that it lets nothing pass",
        "zh": "过滤规则应答称不予放行",
    },
}  # fmt: skip


def _says(path: Path, explained: bool = False) -> Text:
    """Return from where to where a path fails, how, and who says so; ``explained``: it fails on the way back."""
    where = f"{path.address}:{path.port} ({path.interface} of {path.target})"
    there = f"{path.address}:{path.port}（{path.target} 的 {path.interface}）"
    how = f"{path.state} {path.numbers.get('error', '')}".rstrip()
    en, zh = f"from {path.origin} to {where}: {how}", f"从 {path.origin} 到 {there}：{how}"
    by = _BY.get(_said_by(path) or "")
    if by is not None:
        ends = {"origin": path.origin, "target": path.target}
        en, zh = f"{en}: {by['en'].format(**ends)}", f"{zh}：{by['zh'].format(**ends)}"
    if explained:
        en, zh = f"{en}; {path.target} cannot send its answers back", f"{zh}；{path.target} 无法把应答发回"
    elif path.numbers.get("answer_lost"):
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
