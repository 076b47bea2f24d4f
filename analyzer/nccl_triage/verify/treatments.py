"""Turns a treatment into a run: the control with exactly one thing changed, by what the session knows of the hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nccl_triage.engine.schema import Text, Treatment
from nccl_triage.hosts.interfaces import chosen
from nccl_triage.lazy_regex import lazily
from nccl_triage.verify.collective_run import LONGEST, CollectiveRun, Deadlines, Slot
from nccl_triage.verify.means import Means
from nccl_triage.verify.placement import gpu_env, inside
from nccl_triage.verify.reachability import ReachabilityMatrix

#: Ranks inside one host when the placement changes.
_INSIDE = 8
_LONGER = 10.0
#: Elements of a small message: 64 bytes of float32.
_FEW = 16
#: Variables that choose a network or switch a transport: suspects when the evidence names none.
_SUSPECT = lazily(r"^(NCCL|GLOO)_(?!SOCKET_IFNAME$)")
#: What the runs before a control are, for people.
ALONE: Text = {"en": "NCCL alone on one GPU", "zh": "在单块 GPU 上单独运行 NCCL"}
TRIVIAL: Text = {"en": "a trivial all-reduce on the same ranks", "zh": "在相同 rank 上运行极小的 all-reduce"}


@dataclass(slots=True)
class KnownHosts:
    """What a session knows when it makes a treatment: the hosts' facts, the matrix, and who stood out."""

    names: Sequence[str]
    facts: Sequence[Mapping[str, Any]]
    matrix: ReachabilityMatrix
    deadlines: Deadlines
    means: Means | None = None
    odd_slots: tuple[int, ...] = ()
    odd_hosts: tuple[str, ...] = ()
    suspect_variables: tuple[str, ...] = field(default=())


def make(treatment: Treatment, control: CollectiveRun, known: KnownHosts) -> list[CollectiveRun]:
    """Return the runs of a treatment; none when it is impossible here."""
    if treatment.variable == "env":
        return [_with_env(control, {**control.env, **treatment.env})]
    maker, _, _ = _TABLE[treatment.variable]
    return maker(control, known)


def words(treatment: Treatment) -> Text:
    """Return what a treatment changes, for people."""
    if treatment.variable == "env":
        pairs = " ".join(f"{name}={value}" for name, value in treatment.env.items())
        return {"en": f"with {pairs}", "zh": f"设置 {pairs}"}
    _, english, chinese = _TABLE[treatment.variable]
    return {"en": english, "zh": chinese}


def _with_env(control: CollectiveRun, env: dict[str, str]) -> CollectiveRun:
    """Return the control with other variables; the interface that Gloo takes after them is found anew."""
    names = {name for name in {*env, *control.env} if env.get(name) != control.env.get(name)}
    per_rank = control.per_rank_env
    if any(name.endswith("SOCKET_IFNAME") for name in names):
        per_rank = {
            rank: {name: value for name, value in own.items() if name != "GLOO_SOCKET_IFNAME"}
            for rank, own in per_rank.items()
        }
    return replace(control, env=env, per_rank_env=per_rank)


def _interface(control: CollectiveRun, known: KnownHosts) -> list[CollectiveRun]:
    name = "NCCL_SOCKET_IFNAME" if control.backend == "nccl" else "GLOO_SOCKET_IFNAME"
    per_place: dict[int, str] = {}
    for place in control.places:
        env = control.env_of(control.first_rank(place))
        now = {entry["name"] for entry in chosen(known.facts[place], control.backend, env)[:1]}
        usable = [entry for entry in known.facts[place]["interfaces"] if entry["up"]]
        if len(control.places) > 1:
            reached = known.matrix.reached_by_all(known.names[place], [known.names[p] for p in control.places])
            usable = [entry for entry in usable if entry["address"] in reached and not entry["loopback"]]
        else:
            usable.sort(key=lambda entry: (entry["loopback"], not entry["default"]))
        others = [entry["name"] for entry in usable if entry["name"] not in now]
        same = [entry["name"] for entry in usable if entry["name"] in now]
        if not others and not same:
            return []
        per_place[place] = (others or same)[0]
    changed = {
        rank: {**control.per_rank_env.get(rank, {}), name: per_place[slot.place]}
        for rank, slot in enumerate(control.slots)
    }
    if all(control.env_of(rank).get(name) == env[name] for rank, env in changed.items()):
        return []
    return [replace(control, per_rank_env=changed)]


def _placement(control: CollectiveRun, known: KnownHosts) -> list[CollectiveRun]:
    if len(control.places) < 2:
        return []
    runs = []
    for place in control.places[:2]:
        slots = _moved(control, place, known)
        if not slots:
            continue
        # What is a rank's own there stays: interfaces, and the GPUs of that host.
        own = control.per_rank_env.get(control.first_rank(place), {})
        env = {name: value for name, value in own.items() if name not in ("NCCL_HOSTID", "CUDA_VISIBLE_DEVICES")}
        devices = gpu_env(slots, known.means) if known.means is not None else {}
        per_rank = {rank: {**env, **devices.get(rank, {})} for rank in range(len(slots))}
        runs.append(
            replace(control, slots=slots, per_rank_env=per_rank if any(per_rank.values()) else {}, store_address=None)
        )
    return runs


def _moved(control: CollectiveRun, place: int, known: KnownHosts) -> tuple[Slot, ...]:
    """Return the slots of a run inside one host; they keep their numbers, so that nothing moves to another rank."""
    count = min(_INSIDE, max(2, len(control.slots)))
    if known.means is None or control.backend != "nccl":
        slots = [Slot(0, place)] * count
    else:
        slots = inside(place, count, known.means)
    numbers = [control.slots[k % len(control.slots)].number for k in range(len(slots))]
    return tuple(replace(slot, number=number) for slot, number in zip(slots, numbers, strict=True))


def without(control: CollectiveRun, slots: Sequence[int] = (), places: Sequence[int] = ()) -> CollectiveRun | None:
    """Return the control without some ranks or hosts, or None when less than two ranks would be left."""
    kept = [
        (rank, slot) for rank, slot in enumerate(control.slots) if slot.number not in slots and slot.place not in places
    ]
    if len(kept) < 2 or len(kept) == len(control.slots):
        return None
    per_rank = {new: control.per_rank_env[old] for new, (old, _) in enumerate(kept) if old in control.per_rank_env}
    return replace(control, slots=tuple(slot for _, slot in kept), per_rank_env=per_rank, store_address=None)


def _members(control: CollectiveRun, known: KnownHosts) -> list[CollectiveRun]:
    places = [index for index, name in enumerate(known.names) if name in known.odd_hosts]
    smaller = without(control, slots=known.odd_slots) if known.odd_slots else without(control, places=places)
    return [smaller] if smaller is not None else []


def _size(control: CollectiveRun, known: KnownHosts) -> list[CollectiveRun]:
    message, *more = (replace(part, numel=min(part.numel, _FEW)) for part in (control.message, *control.more))
    return [replace(control, message=message, more=tuple(more))] if message.numel < control.message.numel else []


def _timeout(control: CollectiveRun, known: KnownHosts) -> list[CollectiveRun]:
    usual = known.deadlines.first / 2
    now = control.timeout if control.timeout is not None else usual
    longer = min(now * _LONGER, known.deadlines.first * LONGEST)
    return [replace(control, timeout=longer)] if longer >= 2 * now else []


def _port(control: CollectiveRun, known: KnownHosts) -> list[CollectiveRun]:
    return [replace(control, port=None)] if control.port is not None else []


def _address(control: CollectiveRun, known: KnownHosts) -> list[CollectiveRun]:
    return [replace(control, store_address=None)] if control.store_address is not None else []


def _variables(control: CollectiveRun, known: KnownHosts) -> list[CollectiveRun]:
    named = [name for name in known.suspect_variables if name in control.env]
    dropped = named or [name for name in control.env if _SUSPECT.match(name)]
    if not dropped:
        return []
    return [_with_env(control, {name: value for name, value in control.env.items() if name not in dropped})]


#: Each variable that can be changed: what makes the runs, and what they are called in English and Chinese.
_TABLE: dict[str, tuple[Callable[[CollectiveRun, KnownHosts], list[CollectiveRun]], str, str]] = {
    "interface": (_interface, "on an interface that all hosts can reach", "改用所有主机都能访问的网络接口"),
    "placement": (_placement, "with all ranks on one host", "所有 rank 放在同一台主机内"),
    "members": (_members, "without the anomalous rank or host", "去掉异常的 rank 或主机"),
    "size": (_size, "with a message of 64 bytes", "消息改为 64 字节"),
    "timeout": (_timeout, "with a longer timeout", "延长超时"),
    "port": (_port, "on a free port", "改用空闲端口"),
    "address": (_address, "at an address that all hosts can reach", "改用所有主机都能访问的地址"),
    "variables": (_variables, "without the suspect variables", "去掉可疑的环境变量"),
}
