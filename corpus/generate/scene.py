"""The scene of an incident: the job, who is to blame, who else speaks, and how each of them writes a line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from corpus.generate import data
from corpus.generate.job import Job
from corpus.generate.template import render

ERRORS = {"nccl": "nccl_error", "cuda": "cuda_error", "store": "store_error"}


@dataclass(slots=True)
class Event:
    """Text that one program prints at one moment; ``voice`` says who prefixes it: a rank, a node's agent, nobody."""

    at: float
    text: str
    rank: int
    voice: str = "rank"
    telling: bool = False


@dataclass
class Scene:
    """Everything that the forms of lines need."""

    job: Job
    chance: Random
    culprits: list[int]
    victims: list[int]
    values: dict[str, str] = field(default_factory=dict)
    nccl_debug: str = "WARN"
    fabric: str = "ib"
    ray_errors: int = 0

    def fields(self, rank: int, at: float) -> dict[str, str]:
        """Return the fields of a rank at a moment, and those of the incident."""
        host = self.job.host_of(rank)
        return {
            **self.job.rank_fields(rank),
            **self.job.moment(at, host),
            "number": str(rank + 1),
            "nccl_error_at": str(self.job.release.texts["nccl_error_at"]),
            "thread": str(140_000_000_000_000 + self.job.agent_pid(host) * 4096),
            **self.values,
        }

    def fill(self, text: str, rank: int, at: float, **extra: str) -> str:
        """Fill in a template for a rank at a moment."""
        return render(text, {**self.fields(rank, at), **extra}, self.chance)

    def plain(self, text: str, rank: int, at: float) -> Event:
        """Return a line that the program prints as it is."""
        return Event(at, self.fill(text, rank, at), rank)

    def c10(
        self,
        text: str,
        rank: int,
        at: float,
        *,
        level: str,
        where: str,
        early: bool = False,
        extra: dict[str, str] | None = None,
    ) -> Event:
        """Return a line of PyTorch's C++ side; ``early``: before the rank is known."""
        prefix = str(self.job.release.texts["c10"])
        if early:
            prefix = prefix.replace("[rank{{rank}}]:", "")
        head = self.fill(prefix, rank, at, level=level, where=self.fill(where, rank, at))
        return Event(at, head + self.fill(text, rank, at, **(extra or {})), rank)

    def nccl(self, text: str, rank: int, at: float, where: str | None = None) -> Event:
        """Return an NCCL INFO line, or with ``where`` a WARN line and the empty line before it."""
        head = "{{host}}:{{pid}}:{{tid}} [{{local}}] "
        if where is None:
            return Event(at, self.fill(head + "NCCL INFO " + text, rank, at), rank)
        stamp = "[{{iso}}] " if self.job.release.nccl_number >= (2, 26) else ""
        return Event(at, "\n" + self.fill(f"{stamp}{head}{where} NCCL WARN {text}", rank, at), rank)

    def kernel(self, text: str, rank: int, at: float) -> Event:
        """Return a kernel message of a rank's host, as the system log has it."""
        lines = self.fill(text, rank, at).split("\n")
        head = self.fill("{{syslog}} {{host}} kernel: [{{uptime}}] ", rank, at)
        return Event(at, "\n".join(head + line for line in lines), rank, "raw")

    def agent(self, text: str, rank: int, at: float, *, level: str, line: str) -> Event:
        """Return a line of torchelastic's agent on a rank's host."""
        names = {"E": "ERROR", "W": "WARNING", "I": "INFO"}
        head = self.fill(
            str(self.job.release.texts["agent"]), rank, at, level=level, level_name=names[level], line=line
        )
        return Event(at, head + self.fill(text, rank, at), rank, "node")

    def device(self, rank: int, at: float) -> list[Event]:
        """Return how the watchdog reports that CUDA failed."""
        return self.sequence("device", rank, at)

    def sequence(self, name: str, rank: int, at: float, **extra: str) -> list[Event]:
        """Return the lines that the release prints in a situation."""
        stack = "\n".join(self.fill(frame, rank, at) for frame in data.load("torch.yaml")["cpp_frames"])
        events = []
        for number, (after, level, where, text) in enumerate(self.job.release.texts[name]):
            moment = at + float(after) + 0.0003 * number
            if level == "-":
                events.append(Event(moment, self.fill(text, rank, moment, cpp_frames=stack, **extra), rank))
            else:
                known = {"cpp_frames": stack, **extra}
                events.append(self.c10(text, rank, moment, level=level, where=where, extra=known))
        return events

    def error_class(self, name: str) -> str:
        """Return the class that a release gives to a kind of error; other names stand for themselves."""
        if name == "network":
            new = self.job.release.number >= (2, 3)
            return "torch.distributed.DistNetworkError" if new else "RuntimeError"
        return str(self.job.release.texts[ERRORS[name]]) if name in ERRORS else name

    def frames(self, names: Iterable[str], rank: int, at: float) -> list[str]:
        """Return the lines of a stack; ``@`` stands for the folder of installed packages."""
        known: dict[str, Any] = self.job.framework["frames"]
        source = str(self.job.framework["source"])
        lines = []
        for name in names:
            for path, number, function, code in known[name]:
                place = "{{packages}}/" + path[1:] if path.startswith("@") else f"{source}/{path}"
                lines.append(self.fill(f'  File "{place}", line {number}, in {function}', rank, at))
                lines.append(f"    {code}")
        return lines

    def traceback(self, rank: int, at: float, *, frames: str, error: str, text: str, item: dict[str, Any]) -> Event:
        """Return an uncaught exception, as the release, the framework and the launcher show it."""
        name = self.error_class(self.fill(error, rank, at))
        said = self.fill(text, rank, at)
        last = f"{name}{item.get('joined', ': ') if said else ''}{said}"
        stack = self.frames(dict.fromkeys(("main", frames)), rank, at)
        if self.job.launcher == "ray":
            return self._ray_error(rank, at, name, stack, last)
        lines = ["Traceback (most recent call last):", *stack, *last.split("\n")]
        if "before" in item:
            first = [*lines[:-1], self.fill(str(item["before"]), rank, at)]
            lines = [*first, "", "During handling of the above exception, another exception occurred:", "", *lines]
        if "after" in item:
            lines = ["", *str(item["after"]).split("\n")[1:], *lines]
        if self.job.framework["title"].startswith("vLLM"):
            head = self.fill("ERROR {{md}} {{hms}} [multiproc_executor.py:527] ", rank, at)
        elif self.job.release.texts["tracebacks"] == "rank" and not item.get("unranked"):
            head = f"[rank{rank}]: "
        else:
            head = ""
        return Event(at, "\n".join(head + line if line.strip() else line for line in lines), rank)

    def _ray_error(self, rank: int, at: float, name: str, stack: list[str], last: str) -> Event:
        self.ray_errors += 1
        if self.ray_errors > 1:
            head = "Unhandled error (suppress with 'RAY_IGNORE_UNHANDLED_ERRORS=1'): ray::{{actor}}.fit() (pid={{pid}}, ip={{ip}}, actor_id={{actor_id}}, repr=<{{actor}} object at 0x7f{{hex 10}}>)"
        else:
            head = str(data.load("launchers.yaml")["ray_task_error"])
        text = self.fill(
            head, rank, at, error_class=name.rsplit(".", 1)[-1], method="fit", module="trainer.ray.launcher"
        )
        return Event(at + 0.4, "\n".join([text, *stack, last]), rank, "raw")
