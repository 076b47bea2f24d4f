"""Put a log together: start, uneventful middle of any length, incident; as pieces in order, in constant memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from corpus.generate import cast, variants
from corpus.generate import job as jobs
from corpus.generate.job import Job
from corpus.generate.launchers import prefix
from corpus.generate.noise import Pool, templates
from corpus.generate.play import play
from corpus.generate.scene import Event, Scene
from corpus.generate.startup import start
from corpus.generate.variants import Choice
from corpus.generate.views import Piece

_STEP_SECONDS = 3.1


@dataclass(frozen=True)
class Recipe:
    """Everything that a log depends on."""

    cause: str
    seed: int
    length: int
    choice: Choice | None
    launcher: str
    framework: str
    release: jobs.Release
    world_size: int
    per_host: int | None
    nccl_debug: str | None = None
    folder: bool = False

    def chance(self, purpose: str) -> Random:
        """Return the random numbers for one purpose: drawing more for one does not change another."""
        return Random(f"{self.cause}/{self.seed}/{purpose}")

    def job(self) -> Job:
        """Draw the job."""
        made = jobs.make(
            self.chance("job"),
            world_size=self.world_size,
            launcher=self.launcher,
            framework=variants.framework(self.framework),
            release=self.release,
            per_host=self.per_host,
        )
        spec = self.choice.variant.spec if self.choice else {}
        split = (made.hosts + 1) // 2 if spec.get("network") == "split" else None
        return replace(made, split_at=split, interface=spec.get("iface"))

    def scene(self, most: int) -> Scene:
        """Return the scene, always the same for the same number of victims that speak."""
        job = self.job()
        if self.choice is None:
            chance = self.chance("scene")
            debug = self.nccl_debug or chance.choice(("WARN", "INFO", "INFO"))
            return Scene(job, chance, [], [], {}, debug, chance.choice(("ib", "ib", "socket")))
        return cast.set_the_scene(self.choice.variant, job, self.chance("scene"), most=most, nccl_debug=self.nccl_debug)


def _render(events: list[Event], scene: Scene, pattern: re.Pattern[str] | None, folder: bool) -> list[Piece]:
    """Return the pieces of events; the first telling line that the pattern finds is marked."""
    pieces = []
    chance = Random(f"{scene.job.salt}/prefixes")
    for event in events:
        front = "" if folder else prefix(scene.job, event, chance)
        mark = -1
        lines = event.text.split("\n")
        if pattern is not None and event.telling:
            mark = next((i for i, line in enumerate(lines) if pattern.search(line)), -1)
            if mark >= 0:
                pattern = None
        rank = (
            event.rank
            if event.voice == "rank"
            else -1 - scene.job.host_of(event.rank)
            if event.voice == "node"
            else None
        )
        pieces.append(Piece("".join(f"{front}{line}\n" for line in lines).encode(), mark, rank))
    return pieces


def _incident(recipe: Recipe, at: float, budget: int) -> tuple[list[Piece], Scene, str | None]:
    """Return the incident's pieces, with as many victims as the budget allows."""
    assert recipe.choice is not None
    most = max(1, min(recipe.world_size, 4096, budget // 2600))
    scene = recipe.scene(most)
    scene.chance = recipe.chance("play")
    events = play(recipe.choice.variant, scene, at)
    pattern = cast.telling_pattern(recipe.choice.variant, scene)
    pieces = _render(events, scene, pattern, recipe.folder)
    if not any(piece.mark >= 0 for piece in pieces):
        for event in events:
            event.telling = True
        pieces = _render(events, scene, pattern, recipe.folder)
    return _shorten(pieces, budget), scene, pattern.pattern


def _shorten(pieces: list[Piece], budget: int) -> list[Piece]:
    """Cut the end of an incident that is longer than its log may be; the telling line stays."""
    marked = next((i for i, piece in enumerate(pieces) if piece.mark >= 0), 0)
    first = marked
    size = len(pieces[marked].data) if pieces else 0
    while first > 0 and size + len(pieces[first - 1].data) <= budget // 2:
        first -= 1
        size += len(pieces[first].data)
    last = marked
    while last + 1 < len(pieces) and size + len(pieces[last + 1].data) <= budget:
        last += 1
        size += len(pieces[last].data)
    return pieces[first : last + 1]


def _pool(recipe: Recipe, scene: Scene, *, running: bool) -> Pool:
    chance = recipe.chance("noise")
    info = scene.nccl_debug == "INFO"
    kinds = templates(
        scene.job,
        nccl=chance.choice((0.0, 0.1, 0.5)) if info and running else 0.0,
        progress=1.0 if running else 0.0,
        chatter=0.05,
        scary=0.02 if running else 0.05,
    )
    job = replace(scene.job, launcher="plain") if recipe.folder else scene.job
    return Pool(job, kinds, chance, size=min(3000, 50 + recipe.length // 300))


@dataclass
class Outcome:
    """What is known after a log was composed."""

    scene: Scene | None = None
    pattern: str | None = None


def compose(recipe: Recipe, outcome: Outcome) -> Iterator[Piece]:
    """Yield the pieces of a log; the outcome is filled in before the first one."""
    running = recipe.choice is None or not recipe.choice.variant.startup
    tail: list[Piece] = []
    started = recipe.job().started
    if recipe.choice is not None:
        tail, outcome.scene, outcome.pattern = _incident(recipe, started + 600.0, recipe.length)
    scene = outcome.scene or recipe.scene(0)
    outcome.scene = scene
    room = recipe.length - sum(len(piece.data) for piece in tail)
    beginning = Scene(scene.job, recipe.chance("start"), [], [], {}, scene.nccl_debug, scene.fabric)
    events, at = start(beginning, budget=room * 2 // 5, complete=running)
    head = _render(events, beginning, None, recipe.folder)
    yield from head
    room -= sum(len(piece.data) for piece in head)
    if room > 150:
        pool = _pool(recipe, scene, running=running)
        for piece, moment in _middle(pool, room, at, recipe.folder):
            at = moment
            yield piece
    if recipe.choice is not None:
        tail, _, _ = _incident(recipe, at + 7.0, recipe.length)
        yield from tail


def _middle(pool: Pool, room: int, at: float, folder: bool) -> Iterator[tuple[Piece, float]]:
    """Yield blocks of lines until the room is used up, with the moment after each."""
    total = max(1, int(room / pool.average))
    count = max(1, min(2000, total // 400))
    step = pool.chance.randrange(10, 400)
    while room > pool.average / 2:
        count = max(1, min(count, int(room / pool.average)))
        at += _STEP_SECONDS * (1 + 0.1 * pool.chance.random())
        step += 1
        if folder:
            for line in pool.single_lines(count, int(at), step):
                room -= len(line.data)
                yield Piece(line.data, -1, line.rank if line.rank >= 0 else None), at
            continue
        block = pool.block(count, int(at), step)
        pool.refresh(count // 40)
        room -= len(block)
        yield Piece(block), at
