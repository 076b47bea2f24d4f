"""What a job prints while nothing is wrong: prepared lines, written in blocks in which only time and step are filled in."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from corpus.generate import clock, data
from corpus.generate.job import Job
from corpus.generate.launchers import pool_prefix
from corpus.generate.template import render

Template = tuple[str, str, str]  # who speaks, the text, a head that NCCL or c10 puts in front

_NCCL_HEAD = "{{host}}:{{pid}}:{{tid}} [{{local}}] NCCL INFO "


@dataclass(frozen=True, slots=True)
class Line:
    """A prepared line and the rank that prints it (-1: the driver)."""

    rank: int
    data: bytes


def templates(job: Job, *, nccl: float, progress: float, chatter: float, scary: float) -> list[tuple[float, Template]]:
    """Return the kinds of lines with their weights: NCCL's, the framework's progress, its chatter, harmless warnings."""
    found: list[tuple[float, Template]] = []
    running = data.load("nccl.yaml")["running"]
    found += [(nccl / len(running), ("any", text, _NCCL_HEAD)) for text in running]
    for share, name in ((progress, "progress"), (chatter, "chatter")):
        kinds = job.framework[name]
        total = sum(kind[0] for kind in kinds)
        found += [(share * weight / total, (who, text, "")) for weight, who, text in kinds]
    warnings = data.load("harmless.yaml")
    number = job.release.number
    lines = [w for w in warnings["lines"] if tuple(map(int, str(w.get("since", "0.0")).split("."))) <= number]
    total = sum(w.get("weight", 1) for w in lines)
    for warning in lines:
        head = (
            _NCCL_HEAD if warning.get("form") == "info" else str(job.release.texts["c10"]) if "level" in warning else ""
        )
        head = head.replace("{{level}}", str(warning.get("level"))).replace("{{where}}", str(warning.get("where")))
        found.append((scary * warning.get("weight", 1) / total, ("any", warning["text"], head)))
    return [item for item in found if item[0] > 0]


class Pool:
    """Prepared lines of a job, some of which are replaced before every block."""

    def __init__(self, job: Job, kinds: list[tuple[float, Template]], chance: Random, size: int = 3000) -> None:
        """Prepare ``size`` lines of the given kinds."""
        self.job = job
        self.chance = chance
        self._weights = [weight for weight, _ in kinds]
        self._templates = [template for _, template in kinds]
        picked = chance.choices(self._templates, self._weights, k=size)
        self.lines = [self._prepare(template) for template in picked]
        self._data = [line.data for line in self.lines]
        self.average = sum(map(len, self._data)) / size

    def _prepare(self, template: Template) -> Line:
        who, text, head = template
        job, chance = self.job, self.chance
        rank = chance.randrange(job.world_size)
        if who in ("rank0", "driver"):
            rank = 0
        elif who == "last":
            rank = job.world_size - 1
        ms, ns = f"{chance.randrange(1000):03d}", f"{chance.randrange(10**9):09d}"
        fields = {**job.rank_fields(rank), **clock.tokens(ms, ns), "number": str(rank + 1)}
        said = render(head + text, fields, chance)
        front = "" if who == "driver" and job.launcher in ("ray", "vllm") else pool_prefix(job, rank, fields, chance)
        lines = "".join(f"{front}{line}\n" for line in said.split("\n"))
        return Line(-1 if who == "driver" else rank, lines.encode())

    def refresh(self, count: int) -> None:
        """Replace some lines by new ones of the same kinds."""
        size = len(self.lines)
        for template in self.chance.choices(self._templates, self._weights, k=count):
            place = self.chance.randrange(size)
            self.lines[place] = line = self._prepare(template)
            self._data[place] = line.data

    def block(self, count: int, second: int, step: int) -> bytes:
        """Return ``count`` lines of one second."""
        text = b"".join(self.chance.choices(self._data, k=count))
        for token, value in clock.replacements(second, step):
            text = text.replace(token, value)
        return text

    def single_lines(self, count: int, second: int, step: int) -> list[Line]:
        """Return what ``block`` would, line by line and with their ranks."""
        picked = self.chance.choices(self.lines, k=count)
        filled = []
        values = clock.replacements(second, step)
        for line in picked:
            text = line.data
            for token, value in values:
                text = text.replace(token, value)
            filled.append(Line(line.rank, text))
        return filled
