"""The profiles of the benches: logs whose mix of lines is known, written as fast as a disk takes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from corpus.generate import cascade, cast, variants
from corpus.generate import job as jobs
from corpus.generate.job import Job, releases
from corpus.generate.launchers import pool_prefix
from corpus.generate.noise import Line, Pool, Template, templates

_BLOCK_LINES = 2000


@dataclass(frozen=True)
class Profile:
    """A mix: shares of NCCL INFO lines, of errors, of the rest; by lines."""

    says: str
    world_size: int
    nccl: float
    errors: float
    progress: float
    chatter: float
    scary: float
    framework: str


PROFILES = {
    "verbose": Profile("70 % NCCL INFO, training for the rest", 512, 0.70, 0.0, 0.28, 0.015, 0.005, "verl"),
    "storm": Profile("36 % lines of errors, of 512 ranks", 512, 0.30, 0.36, 0.30, 0.02, 0.02, "openrlhf"),
    "quiet": Profile("training steps, hardly anything else", 512, 0.0, 0.0, 0.97, 0.02, 0.01, "hf"),
    "healthy": Profile("start-up lines and training of 256 ranks", 256, 0.25, 0.0, 0.65, 0.05, 0.05, "script"),
}


def _job(profile: Profile, chance: Random) -> Job:
    framework = variants.framework(profile.framework)
    release = next(r for r in releases() if r.version == "2.5.1")
    launcher = "ray" if "ray" in framework["launchers"] else framework["launchers"][0]
    return jobs.make(
        chance, world_size=profile.world_size, launcher=launcher, framework=framework, release=release, per_host=8
    )


class _Storm(Pool):
    """A pool a known share of whose lines are errors of all kinds."""

    def __init__(
        self, job: Job, kinds: list[tuple[float, Template]], chance: Random, share: float, errors: list[bytes]
    ):
        super().__init__(job, kinds, chance, size=8000)
        quiet = len(self.lines) * (1 - share)
        wanted = int(quiet * share / (1 - share))
        self._errors = [Line(0, error) for error in errors]
        keep = int(quiet)
        self._own = keep
        self.lines = self.lines[:keep] + chance.choices(self._errors, k=wanted)
        self._data = [line.data for line in self.lines]
        self.average = sum(map(len, self._data)) / len(self._data)

    def refresh(self, count: int) -> None:
        """Replace some lines, each by one of its own sort."""
        for _ in range(count):
            place = self.chance.randrange(len(self.lines))
            if place < self._own:
                line = self._prepare(self.chance.choices(self._templates, self._weights)[0])
            else:
                line = self.chance.choice(self._errors)
            self.lines[place] = line
            self._data[place] = line.data


def _error_lines(job: Job, chance: Random) -> list[bytes]:
    """Return single lines of the cascades of a time-out and of a lost peer."""
    found: list[bytes] = []
    for cause, kind in (("rank-divergence", "timeout"), ("gpu-out-of-memory", "lost")):
        variant = next(v for v in variants.all_variants()[cause] if "torch" not in v.spec or v.name == "backward")
        scene = cast.set_the_scene(variant, job, chance, most=job.world_size, nccl_debug="WARN")
        result = cascade.Aftermath()
        cascade.CASCADES[kind](scene, variant.spec, job.started, result)
        for event in chance.sample(result.events, min(2500, len(result.events))):
            fields = {**job.rank_fields(event.rank), **job.moment(event.at, job.host_of(event.rank))}
            front = pool_prefix(job, event.rank, fields, chance)
            found += [f"{front}{line}\n".encode() for line in event.text.split("\n") if line]
    return found


def stream(profile: str, size: int, seed: int = 0, ranks: int | None = None) -> Iterator[bytes]:
    """Yield a log of a profile in chunks, exactly ``size`` bytes (the last line may be cut); ``ranks``: of so many."""
    if profile not in PROFILES:
        raise ValueError(f"no profile {profile!r}; known are: {', '.join(PROFILES)}")
    chosen = PROFILES[profile] if ranks is None else replace(PROFILES[profile], world_size=ranks)
    chance = Random(f"bench/{profile}/{seed}")
    job = _job(chosen, chance)
    kinds = templates(job, nccl=chosen.nccl, progress=chosen.progress, chatter=chosen.chatter, scary=chosen.scary)
    pool = Pool(job, kinds, chance)
    if chosen.errors:
        pool = _Storm(job, kinds, chance, chosen.errors, _error_lines(job, chance))
    second, step = int(job.started), 1
    while size > 0:
        block = pool.block(_BLOCK_LINES, second, step)
        pool.refresh(_BLOCK_LINES // 50)
        second, step = second + 1, step + 1
        yield block[:size]
        size -= len(block)
