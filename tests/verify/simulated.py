"""Hosts that exist only in words: agents that answer at once, and ranks that do what a script says."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nccl_triage.hosts.links import HostPlace, Link
from nccl_triage.verify.worker.progress import STAGES
from tests.verify.host_facts import facts, interface

Answer = dict[str, Any]
#: What one rank says and how it ends; without an exit it hangs until it is killed.
Script = list[Answer]


@dataclass(frozen=True)
class Started:
    """One run as the agents were told: its spec, and the place and the variables of each rank."""

    label: str
    spec: Mapping[str, Any]
    places: tuple[int, ...]
    env: tuple[Mapping[str, str], ...]
    gpus: tuple[int | None, ...] = ()

    @property
    def slots(self) -> list[int]:
        """The ranks' numbers in the whole job."""
        return list(self.spec["slots"])


def mark(stage: str, **details: Any) -> Answer:
    return {"answer": "mark", "stage": stage, "t": 0.0, **details}


def reach(until: str, fits: int | None = None, **imported: Any) -> Script:
    """Come to a stage and stay there; there is memory for so many elements, or for all."""
    call = mark("call", call="all_reduce", message=["float32", 64], count=1)
    script: Script = []
    for stage in STAGES[: STAGES.index(until) + 1]:
        details: Answer = {"pid": 1} if stage == "start" else {}
        if stage == "imported":
            details = {"torch": "2.13.0", "nccl": None, **imported}
        if stage == "entered" and fits is not None:
            details = {"numel": fits}
        if stage == "done":
            details = {"wrong": 0, "median": 0.001, "seconds": [0.001] * 3}
        script += [call, mark(stage, **details)] if stage == "warm" else [mark(stage, **details)]
    return script


def leave(code: int = 0) -> Answer:
    return {"answer": "exit", "code": code}


def healthy(fits: int | None = None, **imported: Any) -> Script:
    return [*reach("done", fits, **imported), leave(0)]


def failing(after: str = "store", text: str = "Connection closed by peer") -> Script:
    """Come to a stage, raise, exit."""
    return [*reach(after), mark("error", type="RuntimeError", text=text), leave(3)]


Behaviour = Callable[[Started], Sequence[Script]]


def always(script: Callable[[], Script]) -> Behaviour:
    return lambda started: [script() for _ in started.places]


@dataclass
class World:
    """The hosts, the ways between them, and what runs on them come to."""

    hosts: list[dict[str, Any]]
    behave: Behaviour = field(default_factory=lambda: always(healthy))
    state: Callable[[str, str, str], str] = lambda origin, target, address: "reachable"
    #: What probes told elsewhere of each way (origin, target, address), in place of ``state``.
    recorded: Mapping[tuple[str, str, str], Sequence[Answer]] = field(default_factory=dict)
    torch_errors: dict[int, str] = field(default_factory=dict)
    gpus: dict[int, Any] = field(default_factory=dict)
    taken_ports: set[int] = field(default_factory=set)
    started: list[Started] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    let_go: list[str] = field(default_factory=list)
    links: list[SimulatedLink] = field(default_factory=list)
    ras: dict[int, str] = field(default_factory=dict)
    waiting: dict[str, dict[int, tuple[int, Mapping[str, str], int | None]]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [host["host"] for host in self.hosts]

    def run(self, place: int, command: Mapping[str, Any]) -> None:
        """Collect the ranks of a run; when all are there, let them speak."""
        spec, label = command["spec"], command["run"]
        ranks = self.waiting.setdefault(label, {})
        for rank in command["ranks"]:
            own = command["per_rank"].get(str(rank), {})
            ranks[rank] = place, {**spec["env"], **own.get("env", {})}, own.get("gpu")
        lost = [place for place, link in enumerate(self.links) if link.dead]
        if len(ranks) < spec["world"] and not lost:
            return
        told = [ranks[rank] for rank in sorted(ranks)]
        begun = Started(label, spec, *(tuple(column) for column in zip(*told, strict=True)))
        self.started.append(begun)
        for rank, script in zip(sorted(ranks), self.behave(begun), strict=True):
            link = self.links[ranks[rank][0]]
            link.hanging.setdefault(label, set()).add(rank)
            for answer in script:
                link.queue.append({**answer, "run": label, "rank": rank})
                if answer["answer"] == "exit":
                    link.hanging[label].discard(rank)


class SimulatedLink:
    """The line to one host of a world."""

    def __init__(self, world: World, place: int) -> None:
        self.world, self.place = world, place
        self.queue: list[Answer] = [{"answer": "hello"}]
        self.hanging: dict[str, set[int]] = {}
        self.dead = False

    def die(self, error: str = "exit code -9") -> None:
        """Lose the agent, and its ranks with it."""
        self.dead = True
        self.queue = [{"answer": "gone", "error": error}]

    def send(self, command: Mapping[str, Any]) -> None:
        if not self.dead:
            getattr(self, f"do_{command['do']}")(command)

    def receive(self) -> list[Answer]:
        # One by one: several runs at once have threads that add answers meanwhile.
        found = [self.queue.pop(0) for _ in range(len(self.queue))]
        self.dead = self.dead or any(answer["answer"] == "gone" for answer in found)
        return found

    def descriptor(self) -> None:
        return None

    def said(self) -> str:
        return ""

    def say(self, **answer: Any) -> None:
        self.queue.append(answer)

    def do_facts(self, command: Any) -> None:
        self.say(answer="facts", facts=self.world.hosts[self.place])

    def do_gpus(self, command: Any) -> None:
        told = self.world.gpus.get(self.place, {"gpus": [], "problem": "no NVIDIA GPU is visible"})
        self.say(answer="gpus", results={"torch": {"version": "2.13.0"}, **told} if isinstance(told, dict) else told)

    def do_preload(self, command: Any) -> None:
        self.say(answer="preload", torch="2.13.0", error=self.world.torch_errors.get(self.place))

    def do_port(self, command: Any) -> None:
        self.say(answer="port", port=40000)

    def do_check_port(self, command: Any) -> None:
        self.say(answer="check_port", port=command["port"], taken=command["port"] in self.world.taken_ports)

    def do_listen(self, command: Any) -> None:
        where = [
            {"interface": entry["name"], "address": entry["address"], "mtu": 1500, "ports": [4000], "also": []}
            for entry in self.world.hosts[self.place]["interfaces"]
            if not entry["loopback"]
        ]
        self.say(answer="listen", where=where)

    def do_end_listen(self, command: Any) -> None:
        self.say(answer="end_listen")

    def do_probe(self, command: Any) -> None:
        own = self.world.names[self.place]
        results = []
        for target in command["targets"]:
            way = own, target["host"], target["address"]
            about = {"to_host": target["host"], "to_interface": target["interface"], "address": target["address"]}
            told = self.world.recorded.get(way) or [{"state": self.world.state(*way)}]
            results += [{**about, "port": port, **answer} for port in target["ports"] for answer in told]
        self.say(answer="probe", results=results)

    def do_run(self, command: Any) -> None:
        self.world.run(self.place, command)

    def do_go(self, command: Any) -> None:
        self.world.let_go.append(command["run"])

    def do_inspect(self, command: Any) -> None:
        for rank in self.hanging.get(command["run"], ()):
            self.say(answer="state", run=command["run"], rank=rank, state="S")

    def do_ras(self, command: Any) -> None:
        self.say(answer="ras", run=command["run"], results=self.world.ras.get(self.place, ""))

    def do_stop(self, command: Any) -> None:
        for rank in sorted(self.hanging.pop(command["run"], ())):
            self.say(answer="exit", run=command["run"], rank=rank, code=-signal.SIGKILL)
        self.world.stopped.append(command["run"])
        self.say(answer="stopped", run=command["run"])


class Launcher:
    """Reaches the hosts of a world."""

    at_once, reach = 8, 30.0

    def __init__(self, world: World) -> None:
        self.world = world
        self.places: Sequence[HostPlace] = [HostPlace(name) for name in world.names]

    def open(self, place: int) -> Link:
        self.world.links[place:] = [SimulatedLink(self.world, place)]
        return self.world.links[place]

    def ready(self) -> None:
        pass

    def end(self) -> None:
        pass

    def reserve(self, gpus: Mapping[int, int]) -> dict[int, str]:
        return {}

    def close(self) -> None:
        pass


def hosts(count: int, networks: Sequence[str] = ("10.0.0",)) -> list[dict[str, Any]]:
    """Return hosts n0, n1, ... with one interface in each network."""
    return [
        facts(
            f"n{place}",
            *(interface(f"eth{k}", f"{network}.{place + 1}") for k, network in enumerate(networks)),
            own=[f"{networks[0]}.{place + 1}"],
        )
        for place in range(count)
    ]
