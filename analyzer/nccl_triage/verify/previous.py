"""Earlier results of the same hosts: reports of ``verify`` and documents of ``preflight``, given as files.

Nothing is kept unasked: for a history, keep the JSON that these commands print.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nccl_triage.errors import InputError

#: op, elements, dtype, backend, ranks, hosts: what must be the same for two bandwidths to be compared.
Key = tuple[str, int, str, str, int, tuple[str, ...]]
Previous = Mapping[Key, Sequence[float]]
#: Bytes of such a file at most.
_MOST = 200 << 20


def key_of(run: Mapping[str, Any], message: Mapping[str, Any] | None = None) -> Key:
    """Return what identifies a measurement; ``message`` is a further collective of the run."""
    part = message or run
    hosts = tuple(sorted(run["hosts"]))
    return (part["op"], part["numel"], part["dtype"], run["backend"], run["world_size"], hosts)


def read(paths: Iterable[Path]) -> dict[Key, list[float]]:
    """Return the bus bandwidths (GB/s) of earlier runs that passed with nothing changed; raises InputError."""
    found: dict[Key, list[float]] = {}
    for path in paths:
        for key, value in _measured(_load(path), path):
            found.setdefault(key, []).append(value)
    return found


def _load(path: Path) -> dict[str, Any]:
    import orjson

    try:
        if path.stat().st_size > _MOST:
            raise InputError("{path} is too large for earlier results", path=path)
        document = orjson.loads(path.read_bytes())
    except OSError as error:
        raise InputError("cannot read {path}", cause="{why}", path=path, why=error.strerror) from None
    except orjson.JSONDecodeError as error:
        raise InputError("{path} is not a JSON document", cause="{why}", path=path, why=error) from None
    if not isinstance(document, dict):
        raise InputError("{path} contains no results of verify or preflight", path=path)
    return document


def _runs(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from document.get("runs") or ()
    for diagnosis in document.get("diagnoses") or ():
        yield from (diagnosis.get("verification") or {}).get("runs") or ()


def _measured(document: Mapping[str, Any], path: Path) -> Iterator[tuple[Key, float]]:
    try:
        for run in _runs(document):
            if run["outcome"] != "passed" or run["changed"]:
                continue
            for part in (run, *run.get("parts", ())):
                if part.get("bandwidth"):
                    yield key_of(run, part), float(part["bandwidth"]["busbw"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            "{path} contains unreadable results",
            cause="{name}: {error}",
            path=path,
            name=type(error).__name__,
            error=error,
        ) from None
