"""Descriptions of incidents: which causes and variants exist, and which fit a job."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

from corpus.generate import data
from corpus.generate.job import Release, releases
from corpus.generate.launchers import NAMES as LAUNCHERS

_CONDITION = re.compile(r"(>=|<|)([\d.]+)")
_COMPARE = {">=": operator.ge, "<": operator.lt, "": operator.eq}
_WORLDS = (2, 4, 4, 8, 8, 16, 16, 32, 64, 128, 256, 512)


class NoSuchIncident(ValueError):
    """No variant of the cause fits what was asked for."""


@dataclass(frozen=True)
class Variant:
    """One way in which a cause shows itself."""

    cause: str
    family: str
    spec: dict[str, Any]

    @property
    def name(self) -> str:
        """Name inside the cause."""
        return str(self.spec["name"])

    @property
    def startup(self) -> bool:
        """Whether the incident strikes before training begins."""
        return self.spec.get("phase") == "startup"


@dataclass(frozen=True)
class Choice:
    """A variant and the surroundings that it was given."""

    variant: Variant
    release: Release
    launcher: str
    framework: str
    world_size: int
    per_host: int | None


def satisfied(condition: str | None, number: tuple[int, ...]) -> bool:
    """Return whether a version meets a condition such as ``>=2.4``, ``<2.3`` or ``2.3``."""
    if condition is None:
        return True
    match = _CONDITION.fullmatch(str(condition))
    if match is None:
        raise ValueError(f"no condition over versions: {condition!r}")
    wanted = tuple(map(int, match[2].split(".")))
    return bool(_COMPARE[match[1]](number[: len(wanted)], wanted))


@lru_cache(maxsize=1)
def all_variants() -> dict[str, list[Variant]]:
    """Return the variants of every cause."""
    found: dict[str, list[Variant]] = {}
    for family in data.names("incidents"):
        for cause, specs in data.load(f"incidents/{family}.yaml").items():
            found[cause] = [Variant(cause, family, spec) for spec in specs]
    return found


def causes() -> list[str]:
    """Return the causes that can be generated."""
    return sorted(all_variants())


def framework(name: str) -> dict[str, Any]:
    """Return the description of a framework."""
    return data.load(f"frameworks/{name}.yaml")


def frameworks() -> list[str]:
    """Return the names of the frameworks."""
    return data.names("frameworks")


def _pairs(spec: dict[str, Any], launcher: str | None, name: str | None) -> list[tuple[str, str]]:
    wanted_launchers = [launcher] if launcher else [x for x in LAUNCHERS if x in spec.get("launchers", LAUNCHERS)]
    wanted_names = [name] if name else [x for x in frameworks() if x in spec.get("frameworks", frameworks())]
    if launcher and launcher not in spec.get("launchers", LAUNCHERS):
        return []
    if name and name not in spec.get("frameworks", frameworks()):
        return []
    if launcher and name:
        return [(launcher, name)]
    return [(x, n) for n in wanted_names for x in wanted_launchers if x in framework(n)["launchers"]]


def _fits_world(spec: dict[str, Any], world_size: int) -> bool:
    if spec.get("min_hosts", 1) > 1 and world_size < 2:
        return False
    return not (spec.get("max_hosts") == 1 and world_size > 8)


def choose(
    cause: str,
    chance: Random,
    *,
    world_size: int | None = None,
    launcher: str | None = None,
    framework_name: str | None = None,
    torch: str | None = None,
    variant: str | None = None,
    most_ranks: int = 1 << 20,
) -> Choice:
    """Draw a variant of a cause and surroundings that fit it; raises NoSuchIncident when nothing does.

    ``most_ranks`` limits a world size that is drawn: in a short log the ranks of a large job cannot all speak.
    """
    if cause not in all_variants():
        raise NoSuchIncident(f"no incident of cause {cause!r}; known are: {', '.join(causes())}")
    options = []
    for candidate in all_variants()[cause]:
        spec = candidate.spec
        pairs = _pairs(spec, launcher, framework_name)
        fitting = [r for r in releases() if satisfied(spec.get("torch"), r.number) and (torch in (None, r.version))]
        worlds = [w for w in ([world_size] if world_size else _WORLDS) if _fits_world(spec, w)]
        if world_size is None:
            worlds = [w for w in worlds if w <= most_ranks] or worlds[:1]
        if pairs and fitting and worlds and variant in (None, candidate.name):
            options.append((candidate, pairs, fitting, worlds))
    if not options:
        raise NoSuchIncident(
            f"no variant of {cause} fits world_size={world_size}, launcher={launcher}, framework={framework_name}, "
            f"torch={torch}, variant={variant}"
        )
    chosen, pairs, fitting, worlds = chance.choice(options)
    world = chance.choice(worlds)
    pair = chance.choice(pairs)
    per_host = None
    if chosen.spec.get("min_hosts", 1) > 1 and world <= 8:
        per_host = max(1, world // 2)
    elif chosen.spec.get("max_hosts") == 1:
        per_host = world
    return Choice(chosen, chance.choice(fitting), pair[0], pair[1], world, per_host)
