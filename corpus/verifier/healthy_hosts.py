"""Hosts on which everything passes, in words only: agents that answer at once, ranks that finish with the right data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nccl_triage.hosts.links import HostPlace, Link
from nccl_triage.verify.worker.progress import STAGES

Answer = dict[str, Any]
#: Bytes of a GPU's memory, of which nearly all is free.
MEMORY = 80 << 30
#: Seconds of one iteration: below 1 % of any timeout.
_QUICK = 0.0005


def interface(name: str, address: str, *, default: bool = False) -> dict[str, Any]:
    """Return an interface of a host as an agent tells it."""
    loopback = name == "lo"
    return {
        "name": name,
        "address": address,
        "netmask": "255.0.0.0" if loopback else "255.255.255.0",
        "mtu": 65536 if loopback else 1500,
        "up": True,
        "loopback": loopback,
        "default": default,
        "speed_mbit": None,
    }


def facts(name: str, interfaces: Sequence[dict[str, Any]], versions: Mapping[str, str]) -> dict[str, Any]:
    """Return what a healthy host says of itself; ``versions`` are the job's own where its log names them."""
    return {
        "host": name,
        "own_addresses": [entry["address"] for entry in interfaces[:1]],
        "interfaces": [interface("lo", "127.0.0.1"), *interfaces],
        "python": "3.11.7",
        "executable": "/usr/bin/python3",
        "torch": versions.get("torch", "2.13.0"),
        "nccl": versions.get("nccl", "2.27.5"),
        "driver": "550.127.05",
        "kernel": "6.8.0",
        "shm": {"size": 64 << 30, "free": 64 << 30},
        "limits": {"nofile": 1048576, "memlock": -1, "nproc": -1},
        "cores": 64,
        "memory": 1 << 40,
        "env": {},
    }


def gpu(host: int, index: int) -> dict[str, Any]:
    """Return an idle healthy GPU as an agent tells it."""
    return {
        "index": index,
        "uuid": f"GPU-{host:08x}-0000-4000-8000-{index:012x}",
        "name": "NVIDIA H100 80GB HBM3",
        "memory_total": MEMORY,
        "memory_used": 1 << 20,
        "memory_free": MEMORY - (1 << 20),
        "utilisation": 0,
        "processes": [],
        "compute_mode": "default",
        "mig": False,
        "recovery_action": "none",
        "ecc_uncorrected": 0,
        "remap_pending": False,
        "remap_failure": False,
        "fault": None,
        "bus": f"0000:{0x19 + 8 * index:02x}:00",
        "busy": [0, 0, 0],
        "instances": [],
        "instance": False,
    }


def marks(spec: Mapping[str, Any], host: Mapping[str, Any]) -> list[Answer]:
    """Return what a rank says that does everything right."""
    said: list[Answer] = []
    about: dict[str, Answer] = {
        "start": {"pid": 1},
        "imported": {
            "torch": host["torch"],
            "nccl": host["nccl"] if spec["backend"] == "nccl" else None,
            "cuda": "12.8",
        },
        "device": {"device": spec["device"]},
        "warm": {"seconds": _QUICK, "wrong": 0},
        "done": {"wrong": 0, "median": _QUICK, "seconds": [_QUICK] * 3},
    }
    for stage in STAGES:
        if stage == "done":
            said += [{"stage": "part", **part, "wrong": 0, "median": _QUICK} for part in spec.get("more", ())]
        said.append({"stage": stage, **about.get(stage, {})})
    return said


class HealthyLink:
    """The line to one host on which everything passes."""

    def __init__(self, place: int, told: Mapping[str, Any], gpus: int) -> None:
        self._place, self._facts, self._gpus = place, told, gpus
        self._queue: list[Answer] = [{"answer": "hello", "pid": 1}]

    def send(self, command: Mapping[str, Any]) -> None:
        """Answer a command as a host in order does."""
        name = str(command["do"])
        if name == "run":
            self._run(command)
        elif name != "inspect":
            self._queue.append({"answer": name, **self._answer(name, command)})

    def _answer(self, name: str, command: Mapping[str, Any]) -> Answer:
        outside = [entry for entry in self._facts["interfaces"] if not entry["loopback"]]
        gpus = [gpu(self._place, index) for index in range(self._gpus)]
        torch = {"version": self._facts["torch"], "cuda": "12.8", "nccl": self._facts["nccl"], "has_nccl": True}
        listed = {"source": "nvml", "driver": self._facts["driver"], "problem": None, "gpus": gpus, "torch": torch}
        if not gpus:
            listed["problem"] = "no NVIDIA GPU is visible"
        answers: dict[str, Answer] = {
            "facts": {"facts": self._facts},
            "gpus": {"results": listed},
            "preload": {"torch": self._facts["torch"], "error": None},
            "port": {"port": 40000},
            "check_port": {"port": command.get("port"), "taken": False, "why": None},
            "resolve": {"name": command.get("name"), "addresses": self._facts["own_addresses"]},
            "listen": {
                "where": [
                    {"interface": entry["name"], "address": entry["address"], "mtu": 1500, "ports": [4000], "also": []}
                    for entry in outside
                ]
            },
            "probe": {
                "results": [
                    {
                        "to_host": target["host"],
                        "to_interface": target["interface"],
                        "address": target["address"],
                        "port": port,
                        "state": "reachable",
                        "by_interface": target["interface"],
                    }
                    for target in command.get("targets", ())
                    for port in target["ports"]
                ]
            },
            "stop": {"answer": "stopped", "run": command.get("run")},
        }
        return answers.get(name, {})

    def _run(self, command: Mapping[str, Any]) -> None:
        for rank in command["ranks"]:
            about = {"run": command["run"], "rank": rank}
            said = marks(command["spec"], self._facts)
            self._queue += [{"answer": "mark", "t": 0.0, **about, **mark} for mark in said]
            self._queue.append({"answer": "exit", "code": 0, **about})

    def receive(self) -> list[Answer]:
        """Return all answers."""
        found, self._queue = self._queue, []
        return found

    def descriptor(self) -> None:
        """There is none: it must be polled."""

    def said(self) -> str:
        """Nothing is wrong."""
        return ""


class HealthyLauncher:
    """Reaches hosts on which everything passes."""

    at_once, reach = 8, 30.0

    def __init__(self, places: Sequence[HostPlace], told: Sequence[Mapping[str, Any]], gpus: int) -> None:
        self.places: Sequence[HostPlace] = places
        self._links = [HealthyLink(place, host, gpus) for place, host in enumerate(told)]

    def open(self, place: int) -> Link:
        """Return the link to a host."""
        return self._links[place]

    def ready(self) -> None:
        """All agents have started."""

    def end(self) -> None:
        """Nothing was started."""

    def reserve(self, gpus: Mapping[int, int]) -> dict[int, str]:
        """Nobody shares the GPUs out."""
        return {}

    def close(self) -> None:
        """Nothing was started."""
