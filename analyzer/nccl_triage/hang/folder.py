"""The folder of evidence: what the hosts sent, without secrets, under names that tell host, rank and process, and its manifest.

A diagnosis of the folder needs nothing else: stacks and reports are known by their form, ``hang.json`` says which processes are
ranks of the job, and ``tool_reports`` reads it.
"""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from nccl_triage import messages
from nccl_triage._version import __version__
from nccl_triage.errors import OutputError
from nccl_triage.hang.hosts import HostReply
from nccl_triage.hang.words import said
from nccl_triage.hosts.links import unique_names
from nccl_triage.recorder.lines import spans
from nccl_triage.redaction import mask_secrets

#: Name of the manifest, and what it calls itself.
MANIFEST, KIND = "hang.json", "nccl-triage-hang"
#: Kinds that are often missing, and whose absence is told in the manifest only.
QUIET = frozenset({"ras", "gpus", "kernel", "connections", "recorder"})
_NAME = re.compile(r"[^A-Za-z0-9._+=-]")
_BINARY = "flight-recorder/"
#: What is known of a rank and only used here.
_PASSED_OVER = frozenset({"workers", "host_ranks", "by"})


def host_name(name: str) -> str:
    """Return the name of a host as it stands in file names: without its domain."""
    short = name if re.fullmatch(r"[\d.:]+", name) else name.partition(".")[0]
    return _NAME.sub("-", short).strip("-.") or "localhost"


def name_hosts(replies: Sequence[HostReply]) -> None:
    """Give each reply the name of its host as files have it; hosts of one name are numbered."""
    names = unique_names([host_name(str(reply.found.get("host") or reply.name)) for reply in replies])
    for reply, name in zip(replies, names, strict=True):
        reply.name = host_name(name)


def create(path: Path) -> None:
    """Create the folder, for this user only; raises OutputError when there is something of that name."""
    try:
        path.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise OutputError("{path} already exists", remedy="give another folder with --out", path=path) from None
    except OSError as error:
        raise OutputError("cannot write {path}", cause="{why}", path=path, why=error.strerror or error) from None


def write(
    path: Path,
    job: str,
    hosts: Sequence[tuple[HostReply, list[dict[str, Any]]]],
    advanced: bool = False,
    whole: bool = False,
) -> dict[str, Any]:
    """Write what the hosts sent, each with its ranks, and return the manifest; raises OutputError.

    ``advanced``: the logs show that the job went on between the two samples. ``whole``: these are all hosts of the job.
    """
    made = {**manifest(job, hosts, whole), "advanced": advanced}
    try:
        shown = mask_secrets(made)  # first, so that no file of a host has its name
        _put(path, MANIFEST, json.dumps(shown, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n")
        for (reply, _), told in zip(hosts, made["hosts"], strict=True):
            for name, text in _stacks(reply, told):
                _put(path, name, _masked(text.encode()))
            for name, data in reply.files.items():
                inside = _inside(name, told["host"])
                _put(path, inside, bytes(data) if inside.startswith(_BINARY) else _masked(bytes(data)))
    except OSError as error:
        raise OutputError("cannot write {path}", cause="{why}", path=path, why=error.strerror or error) from None
    return made


def _put(path: Path, inside: str, data: bytes) -> None:
    """Write a new file below the folder, under another name where there is one already."""
    for number in range(1, 1000):
        place = path / (inside if number == 1 else f"more/{number}/{inside}")
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except (FileExistsError, NotADirectoryError):
            continue
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        return


def _inside(name: str, host: str) -> str:
    """Return a path below the folder for a name that a host sent; logs of several hosts may have one name."""
    parts = [part for part in (_NAME.sub("-", part) for part in PurePosixPath(name).parts) if part.strip("-.")]
    return "/".join(["logs", host, *parts[1:]] if parts[:1] == ["logs"] else parts[-4:]) or "evidence"


def _masked(data: bytes) -> bytes:
    """Return a text without secrets."""
    lines = data.decode("utf-8", "replace").split("\n")
    masked = mask_secrets({"lines": lines})["lines"]
    return "\n".join(masked).encode("utf-8", "replace")


def _stacks(reply: HostReply, host: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a file for each process with a dumped stack: its samples, one after the other."""
    ranks = {one["pid"]: one["rank"] for one in host["ranks"]}
    texts: dict[int, list[str]] = {}
    for sample in reply.samples:
        if isinstance(sample.get("stacks"), str) and sample["stacks"]:
            texts.setdefault(sample["pid"], []).append(sample["stacks"].rstrip() + "\n")
    for pid, found in texts.items():
        rank = f".rank{ranks[pid]}" if ranks.get(pid) is not None else ""
        yield f"stack.{host['host']}.{pid}{rank}.txt", "\n".join(found)


def manifest(job: str, hosts: Sequence[tuple[HostReply, list[dict[str, Any]]]], whole: bool = False) -> dict[str, Any]:
    """Return what ``hang.json`` says."""
    told = [_host(reply, ranks, job) for reply, ranks in hosts]
    empty = [host for host in told if not host["ranks"]]
    if whole and len(empty) == 1 and not any(host["problem"] for host in told):
        # All hosts have answered: what is nowhere was on the one that has none.
        seen = {rank for host in told for rank in host["without_process"]}
        empty[0]["without_process"] = [rank for rank in missing_ranks(told) if rank not in seen]
    return {
        "kind": KIND,
        "version": __version__,
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "job": job,
        "hosts": told,
        "missing_ranks": missing_ranks(told),
    }


def _host(reply: HostReply, ranks: Sequence[Mapping[str, Any]], job: str) -> dict[str, Any]:
    states: dict[int, list[dict[str, Any]]] = {}
    for sample in reply.samples:
        kept = {key: value for key, value in sample.items() if key not in ("answer", "pid", "stacks", "number")}
        states.setdefault(sample["pid"], []).append(kept)
    shown = [
        {**{key: value for key, value in one.items() if key not in _PASSED_OVER}, "samples": states.get(one["pid"], [])}
        for one in ranks
    ]
    told = reply.found.get("ended", {}).get(job, {})
    ended = {int(rank): code for rank, code in told.items()} if ranks else {}
    return {
        "host": reply.name,
        "problem": reply.problem,
        "ranks": shown,
        "without_process": sorted({*_without_process(ranks), *ended}),
        "exit_codes": {str(rank): code for rank, code in sorted(ended.items()) if code is not None},
        "unseen": [{"what": note.get("what"), "why": said(note, "en")} for note in reply.unseen],
    }


def _without_process(ranks: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the ranks of a host that its launcher started and that have no process any more."""
    numbers = {one["rank"] for one in ranks}
    started = {rank for one in ranks for rank in one.get("host_ranks") or ()}
    if started:
        return sorted(started - numbers)
    locals_ = {one["local_rank"]: one for one in ranks if one["local_rank"] is not None and one["rank"] is not None}
    if not locals_:
        return []
    first = next(iter(locals_.values()))
    base, size = first["rank"] - first["local_rank"], first.get("local_world_size") or 0
    if size > 1024 or any(one["rank"] - one["local_rank"] != base for one in locals_.values()):
        return []
    return [base + local for local in range(size) if local not in locals_]


def missing_ranks(hosts: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the ranks of the job that no host showed, as far as its size and the numbers of its ranks are known."""
    ranks = [one for host in hosts for one in host["ranks"]]
    world = max((one["world_size"] or 0 for one in ranks), default=0)
    numbers = {one["rank"] for one in ranks}
    if None in numbers or world > 1 << 20:
        return []
    return [rank for rank in range(world) if rank not in numbers]


def notes(made: Mapping[str, Any], replies: Sequence[HostReply], lang: str, whole: bool = False) -> list[str]:
    """Return what a person should know of what is missing, the most important first; ``whole``: all hosts were asked."""
    found = [messages.fill("the job went on between the two samples", {}, lang)] if made["advanced"] else []
    for host in made["hosts"]:
        if host["problem"]:
            began = any(one["samples"] for one in host["ranks"])
            template = "{host} stopped answering: {why}" if began else "{host} did not answer: {why}"
            found.append(messages.fill(template, {"host": host["host"], "why": host["problem"]}, lang))
        alike: dict[int | None, list[int]] = {}
        for rank in host["without_process"]:
            alike.setdefault(host["exit_codes"].get(str(rank)), []).append(rank)
        for code, ranks in alike.items():
            template = (
                "rank {ranks} has no process on {host} any more"
                if code is None
                else "rank {ranks} has no process on {host} any more: it ended with exit code {code}"
            )
            values = {"host": host["host"], "ranks": spans(ranks), "code": code}
            found.append(messages.fill(template, values, lang))
    told = {rank for host in made["hosts"] for rank in host["without_process"]}
    elsewhere = [rank for rank in made["missing_ranks"] if rank not in told]
    if elsewhere:
        template = (
            "rank {ranks} has no process on any host that answered"
            if whole or any(host["problem"] for host in made["hosts"])
            else "rank {ranks} was on no host that was asked; name the other hosts with --host, --slurm or --ray"
        )
        found.append(messages.fill(template, {"ranks": spans(elsewhere)}, lang))
    unseen: dict[str, list[str]] = {}
    for reply, host in zip(replies, made["hosts"], strict=True):
        for note in reply.unseen:
            if note.get("what") not in QUIET:
                unseen.setdefault(said(note, lang), []).append(host["host"])
    several = len(made["hosts"]) > 1
    for text, names in unseen.items():
        found.append(f"{', '.join(names[:4])}: {text}" if several else text)
    return found
