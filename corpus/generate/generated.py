"""A generated log: its bytes as often as one asks for them, and its label."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

from corpus.generate import variants
from corpus.generate.compose import Outcome, Recipe, compose
from corpus.generate.job import releases
from corpus.generate.template import render
from corpus.generate.views import VIEWS, Piece

DEFAULT_LENGTH = 60_000
#: Folders keep one file a rank: more would be a nuisance to every file system.
MOST_FILES = 1024
_BUFFERED = 8 << 20


@dataclass
class Generated:
    """A log that does not exist until it is asked for; the same every time."""

    recipe: Recipe
    view: str
    _found: dict[str, Any] | None = field(default=None, repr=False)

    def _pieces(self, outcome: Outcome) -> Iterator[Piece]:
        return VIEWS[self.view](compose(self.recipe, outcome))

    def chunks(self) -> Iterator[bytes]:
        """Yield the log's bytes, in constant memory."""
        line, found = 1, None
        outcome = Outcome()
        for piece in self._pieces(outcome):
            if piece.mark >= 0 and found is None:
                found = line + piece.mark
            line += piece.data.count(b"\n")
            yield piece.data
        self._found = self._label(outcome, found)

    @property
    def log(self) -> bytes:
        """The whole log."""
        return b"".join(self.chunks())

    @property
    def label(self) -> dict[str, Any]:
        """The label, in the form of ``corpus/cases.jsonl``."""
        if self._found is None:
            for _ in self.chunks():
                pass
        assert self._found is not None
        return self._found

    def write(self, stream: BinaryIO) -> dict[str, Any]:
        """Write the log and return its label."""
        for chunk in self.chunks():
            stream.write(chunk)
        return self.label

    def write_folder(self, folder: Path) -> dict[str, Any]:
        """Write one file a rank and the launcher's own; the label names the file of the telling line."""
        if self.recipe.world_size > MOST_FILES:
            raise ValueError(f"a folder of {self.recipe.world_size} files: at most {MOST_FILES} ranks are written so")
        if not self.recipe.folder:
            raise ValueError("this log was made as one stream: ask for it with folder=True")
        folder.mkdir(parents=True, exist_ok=True)
        outcome = Outcome()
        waiting: dict[str, list[bytes]] = {}
        lines: dict[str, int] = {}
        size, found, where = 0, None, None
        for piece in self._pieces(outcome):
            assert outcome.scene is not None
            name = _file(piece.rank, outcome.scene.job.per_host)
            if piece.mark >= 0 and found is None:
                found, where = lines.get(name, 0) + 1 + piece.mark, name
            lines[name] = lines.get(name, 0) + piece.data.count(b"\n")
            waiting.setdefault(name, []).append(piece.data)
            size += len(piece.data)
            if size > _BUFFERED:
                _flush(folder, waiting)
                size = 0
        _flush(folder, waiting)
        return {**self._label(outcome, found), "evidence_file": where}

    def _label(self, outcome: Outcome, line: int | None) -> dict[str, Any]:
        recipe, scene = self.recipe, outcome.scene
        assert scene is not None
        entry: dict[str, Any] = {
            "cause": recipe.cause,
            "also_acceptable": [],
            "culprit": None,
            "evidence_line": line,
            "evidence": outcome.pattern,
            "world_size": recipe.world_size,
            "determinable": "yes",
            "source": "generated",
            "lang": "en",
            "family": f"generated-{recipe.cause}",
            "generated": {
                "seed": recipe.seed,
                "launcher": recipe.launcher,
                "framework": recipe.framework,
                "torch": recipe.release.version,
                "nccl_debug": scene.nccl_debug,
                "length": recipe.length,
                "view": self.view,
                "hosts": scene.job.hosts,
            },
        }
        if recipe.choice is None:
            return entry
        variant = recipe.choice.variant
        entry["family"] = f"generated-{recipe.cause}-{variant.name}"
        entry["generated"]["variant"] = variant.name
        entry["also_acceptable"] = list(variant.spec.get("also", []))
        entry["determinable"] = variant.spec.get("determinable", "yes")
        ranks = scene.culprits[:8]
        hosts = list(dict.fromkeys(name for rank in ranks for name in scene.job.host_names(scene.job.host_of(rank))))
        host_only = variant.spec.get("culprit") in ("host", "last-host")
        first = ranks[0] if ranks else 0
        with contextlib.suppress(KeyError):
            entry["culprit"] = {
                "rank": ranks[0] if len(ranks) == 1 else None,
                "ranks": ranks,
                "host": hosts[0] if len({scene.job.host_of(rank) for rank in ranks}) == 1 else None,
                "hosts": hosts,
                "why": render(str(variant.spec["why"]), scene.fields(first, scene.job.started), Random(0)),
            }
            entry["generated"]["culprit_is_a_host"] = host_only
        if line is None:
            entry |= {
                "cause": "unknown",
                "true_cause": recipe.cause,
                "also_acceptable": [recipe.cause, *entry["also_acceptable"]],
                "determinable": "no",
            }
        return entry


def _file(rank: int | None, per_host: int) -> str:
    if rank is None:
        return "launcher.log"
    if rank < 0:
        return f"node_{-1 - rank}/agent.log"
    return f"node_{rank // per_host}/rank_{rank}.log"


def _flush(folder: Path, waiting: dict[str, list[bytes]]) -> None:
    for name, parts in waiting.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as stream:
            stream.write(b"".join(parts))
    waiting.clear()


def _view(view: str) -> str:
    if view not in VIEWS:
        raise ValueError(f"no view {view!r}; known are: {', '.join(VIEWS)}")
    return view


def incident(
    cause: str,
    seed: int,
    *,
    world_size: int | None = None,
    launcher: str | None = None,
    framework: str | None = None,
    torch: str | None = None,
    variant: str | None = None,
    length: int = DEFAULT_LENGTH,
    view: str = "full",
    nccl_debug: str | None = None,
    folder: bool = False,
) -> Generated:
    """Return a log with one incident; what is not given is drawn. Raises NoSuchIncident when nothing fits.

    ``length`` is the size aimed at before a view is taken. A log is never cut before its telling line.
    """
    chance = Random(f"{cause}/{seed}/choice")
    # Most short logs come from small jobs; some are excerpts of a large one's.
    most = max(8, length // 2500) if chance.random() < 0.85 else 1 << 20
    choice = variants.choose(
        cause,
        chance,
        world_size=world_size,
        launcher=launcher,
        framework_name=framework,
        torch=torch,
        variant=variant,
        most_ranks=most,
    )
    recipe = Recipe(
        cause=cause,
        seed=seed,
        length=length,
        choice=choice,
        launcher=choice.launcher,
        framework=choice.framework,
        release=choice.release,
        world_size=choice.world_size,
        per_host=choice.per_host,
        nccl_debug=nccl_debug,
        folder=folder,
    )
    return Generated(recipe, _view(view))


def healthy(
    seed: int,
    *,
    world_size: int | None = None,
    launcher: str | None = None,
    framework: str | None = None,
    length: int = DEFAULT_LENGTH,
    view: str = "full",
    nccl_debug: str | None = None,
    folder: bool = False,
) -> Generated:
    """Return the log of a job in which nothing went wrong, although it prints frightening lines."""
    chance = Random(f"healthy/{seed}/choice")
    name = framework or chance.choice(variants.frameworks())
    usual = variants.framework(name)["launchers"]
    recipe = Recipe(
        cause="healthy",
        seed=seed,
        length=length,
        choice=None,
        launcher=launcher or chance.choice(usual),
        framework=name,
        release=chance.choice(releases()),
        world_size=world_size or chance.choice((2, 8, 16, 64, 256, 512)),
        per_host=None,
        nccl_debug=nccl_debug,
        folder=folder,
    )
    return Generated(recipe, _view(view))
