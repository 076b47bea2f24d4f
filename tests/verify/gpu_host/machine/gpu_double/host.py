"""The host of this process: what its file says, and which processes hold its GPUs."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def read(folder: str | Path) -> dict[str, Any]:
    """Return the host's description; a test may change it between two questions."""
    told: dict[str, Any] = json.loads((Path(folder) / "host.json").read_text())
    with contextlib.suppress(FileNotFoundError):
        known = json.loads((Path(folder).parent / "names.json").read_text())
        told["names"] = {**known, **told["names"]}
    return told


def _named(entry: str, gpus: list[dict[str, Any]]) -> tuple[dict[str, Any], str | None] | None:
    """Return the GPU that an entry of CUDA_VISIBLE_DEVICES names, and the MIG instance if it is one."""
    if entry.isdigit():
        found = [(gpu, None) for gpu in gpus if gpu["index"] == int(entry)]
    elif entry.startswith("MIG-"):
        found = [(gpu, uuid) for gpu in gpus for uuid in gpu["instances"] if uuid.startswith(entry)]
    else:
        found = [(gpu, None) for gpu in gpus if entry.startswith("GPU-") and gpu["uuid"].startswith(entry)]
    return found[0] if len(found) == 1 else None


def devices(told: Mapping[str, Any], environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the GPUs that a CUDA program sees, in its order, as CUDA_VISIBLE_DEVICES leaves them.

    A GPU that is divided by MIG stands for its first instance; a program sees one instance only.
    """
    gpus = [gpu for gpu in told["gpus"] if gpu["fault"] is None]
    wanted = environment.get("CUDA_VISIBLE_DEVICES")
    entries = [str(gpu["index"]) for gpu in gpus] if wanted is None else [part.strip() for part in wanted.split(",")]
    found: list[dict[str, Any]] = []
    for entry in entries:
        named = _named(entry, gpus)
        if named is None:
            break
        gpu, instance = named
        if gpu["mig"]:
            instance = instance or next(iter(gpu["instances"]), None)
            if instance is None:
                continue
            return [{**gpu, "uuid": instance, "name": f"{gpu['name']} MIG 1g.10gb"}]
        if gpu in found:
            return []
        found.append(gpu)
    return found


_held: dict[str, Any] = {}


def hold(folder: Path, gpu: Mapping[str, Any]) -> bool:
    """Make this process one that uses a GPU; returns False where exclusive-process mode keeps it out."""
    if gpu["uuid"] in _held:
        return True
    place = folder / "use" / gpu["uuid"]
    place.mkdir(parents=True, exist_ok=True)
    exclusive = (place / "exclusive").open("w")
    mode = fcntl.LOCK_EX if gpu["compute_mode"].lower() == "exclusive_process" else fcntl.LOCK_SH
    try:
        fcntl.flock(exclusive, mode | fcntl.LOCK_NB)
    except OSError as error:
        exclusive.close()
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False
    own = (place / f"{os.getpid()}").open("w")
    fcntl.flock(own, fcntl.LOCK_EX)
    _held[gpu["uuid"]] = (exclusive, own)
    with (folder / "used.jsonl").open("a") as log:
        log.write(json.dumps({"pid": os.getpid(), "index": gpu["index"], "uuid": gpu["uuid"]}) + "\n")
    return True


def users(folder: Path, uuid: str) -> Iterator[int]:
    """Yield the processes that use a GPU now: their files are locked as long as they live."""
    for path in (folder / "use" / uuid).glob("[0-9]*"):
        with contextlib.suppress(OSError), path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                yield int(path.name)
