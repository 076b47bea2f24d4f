"""Which configuration files of projects the user has allowed, as direnv asks for an ``.envrc``.

A file that was merely found (in a folder that was unpacked, cloned or shared) decides nothing until the user has said so,
once for its place and content. What it names and what decides the verdict, rules and a model, is part of that content.
Each answer is a file of its own in the user's state folder, so that two commands at once lose none.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nccl_triage import files
from nccl_triage.cli.config_files import ConfigEntry, Layer, others_cannot_write
from nccl_triage.errors import OutputError, TriageError
from nccl_triage.history import place

#: The keys whose files decide what the verdict says.
NAMING = ("model", "rules")
#: Bytes of an answer at most.
_MAX_ANSWER = 1 << 16


@dataclass(frozen=True, slots=True)
class Consent:
    """The user's answer for a file: the digest of the allowed content, or that it is denied."""

    path: str
    digest: str = ""
    denied: bool = False


def folder() -> Path | None:
    """Return the folder of the answers, None when the user has no home."""
    state = place.state_folder()
    return state / "allowed" if state is not None else None


def of(path: Path) -> Consent | None:
    """Return the user's answer for a file, None when there is none or it cannot be read."""
    known = _answer(path)
    return _read(known) if known is not None else None


def every() -> list[Consent]:
    """Return all answers, by path."""
    kept = folder()
    try:
        entries = sorted(kept.iterdir()) if kept is not None else []
    except OSError:
        return []
    return sorted(filter(None, map(_read, entries)), key=lambda one: one.path)


def say(path: Path, digest: str = "", *, denied: bool = False) -> None:
    """Store an answer; raises OutputError when that is not possible."""
    kept = _answer(path)
    if kept is None:
        raise OutputError(
            "there is no home folder to record this in", remedy="set XDG_STATE_HOME, or use --config FILE"
        )
    data = {"path": os.path.realpath(path), "digest": digest, "denied": denied}
    try:
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Private: who could change it could have other files used.
        files.replace(kept, json.dumps(data).encode(), 0o600)
    except OSError as error:
        raise OutputError("cannot write {path}", path=kept, cause="{why}", why=error.strerror or error) from None


def _answer(path: Path) -> Path | None:
    """Return the file of an answer, named by the resolved path of the configuration."""
    kept = folder()
    real = os.path.realpath(path)
    return kept / hashlib.sha256(os.fsencode(real)).hexdigest()[:32] if kept is not None else None


def _read(answer: Path) -> Consent | None:
    try:
        data, state = files.read_with_state(answer, _MAX_ANSWER)
        found = json.loads(data)
        consent = Consent(str(found["path"]), str(found["digest"]), found["denied"] is True)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return consent if others_cannot_write(state) else None


def digest(layer: Layer) -> str:
    """Return the digest of what a file says, and of the rules and models that it names."""
    said = [
        [list(words), key, entry.value]
        for words, entries in sorted(layer.sections.items())
        for key, entry in sorted(entries.items())
    ]
    whole = hashlib.sha256(json.dumps(said).encode("utf-8", "surrogateescape"))
    for path in named(layer):
        for name, content in _contents(path):
            whole.update(hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest() + content)
    return whole.hexdigest()


def named(layer: Layer, keys: Iterable[str] = NAMING) -> list[Path]:
    """Return the folders of rules and the models that a file names under these keys, each once."""
    entries = [section[key] for key in keys for section in layer.sections.values() if key in section]
    texts = [text for entry in entries for text in _items(entry)]
    return list(dict.fromkeys(_placed(text, layer.path) for text in texts if text != "none"))


def _items(entry: ConfigEntry) -> list[str]:
    parts = entry.value if isinstance(entry.value, list) else entry.value.replace("\n", ",").split(",")
    return [part.strip() for part in parts if part.strip()]


def _placed(text: str, path: Path) -> Path:
    try:
        return path.parent / Path(text).expanduser()
    except RuntimeError:  # no home for ~
        return path.parent / text


def _contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the names and digests of the files of a rules folder or a model, unreadable ones included."""
    from nccl_triage.classifier import model
    from nccl_triage.engine import load

    try:
        if path.is_dir():
            for kind, name, text in load.texts_of(path):
                # Not the whole name: the same folder may be come upon by several ways.
                yield f"{kind}/{Path(name).name}", hashlib.sha256(text.encode()).digest()
        else:
            yield "", hashlib.sha256(files.read_regular(path, model.MAX_BYTES)).digest()
    except (OSError, TriageError):
        yield "", b"unreadable"


def exposed(path: Path) -> Path | None:
    """Return the first file of a rules folder or model that others than the user and root own or can write, or None."""
    from nccl_triage.engine import load

    try:
        if not path.is_dir():
            return None if others_cannot_write(path.stat()) else path
        inside = [path, *(path / kind for kind in load.KINDS), *load.paths_of(path)]
    except (OSError, TriageError):
        return None  # it is refused with a reason when it is read
    return next((one for one in inside if _is_exposed(one)), None)


def _is_exposed(path: Path) -> bool:
    try:
        state = path.stat()
    except OSError:
        return False
    regular = stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode)
    return regular and not others_cannot_write(state)
