"""What the first screen says of the job: what it was, how it ended, what that cost, and whether it may be started again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from nccl_triage.render.phrases import duration, hours, incident_cost, incident_started
from nccl_triage.render.rank_charts import world
from nccl_triage.render.unknown_text import counted
from nccl_triage.render.vocabulary import Pair
from nccl_triage.render.words import Document, Lang, visible, word

#: Scheduler -> its name as it is written.
_SCHEDULERS = {"slurm": "Slurm", "pbs": "PBS", "lsf": "LSF", "kubernetes": "Kubernetes"}
#: Software that the first screen tells the version of.
_ASKED = {"torch": "PyTorch", "nccl": "NCCL"}
_BOTH: tuple[Lang, Lang] = ("en", "zh")
#: Fewest rank-hours worth telling, and the number of hosts up to which they are named.
WORTH_TELLING, _NAMED_HOSTS = 0.05, 3
#: Most transports that are told.
_TRANSPORTS = 6


def work_lost(document: Document, lang: Lang) -> str:
    """Return the GPU-hours since the last checkpoint, else what the wait cost where that is worth a word; empty otherwise."""
    found = document.get("incident") or {}
    since, gpu_hours, ranks = (found.get(key) for key in ("checkpoint_seconds", "gpu_hours", "ranks"))
    if isinstance(since, (int, float)) and isinstance(gpu_hours, (int, float)) and ranks:
        key = "lost_since_checkpoint_one" if ranks == 1 else "lost_since_checkpoint"
        told = (
            word("hours_at_least", lang).format(hours=hours(gpu_hours)) if found.get("at_least") else hours(gpu_hours)
        )
        return word(key, lang).format(hours=told, span=duration(since, lang), ranks=ranks)
    lost = found.get("rank_hours")
    return incident_cost(document, lang) if isinstance(lost, (int, float)) and lost >= WORTH_TELLING else ""


def outcome_text(document: Document, lang: Lang) -> str:
    """Return how the job ended, when the failure began and how long it lasted, as far as known."""
    found, incident = document.get("outcome") or {}, document.get("incident") or {}
    began = incident_started(document, lang)
    seconds, lost = incident.get("seconds"), work_lost(document, lang)
    parts = [
        word(f"outcome_{found['state']}", lang) if found.get("state") else "",
        word("began", lang).format(time=began) if began else str(found.get("since") or ""),
        # What the wait cost names its length already.
        word("lasted", lang).format(span=duration(seconds, lang))
        if isinstance(seconds, (int, float)) and (incident.get("gpu_hours") or not lost)
        else "",
    ]
    return word("comma", lang).join(part for part in parts if part)


def world_text(document: Document, lang: Lang) -> str:
    """Return the number of ranks, or the fewest that the log shows; empty without any."""
    number, known = world(document)
    if not number:
        return ""
    key = "ranks_known" if known else "ranks_seen"
    return word(f"{key}_one" if number == 1 else key, lang).format(n=number)


def job_line(document: Document) -> list[Pair]:
    """Return what the job was in a few words: its scheduler, id and cluster, its size and its software, as far as known."""
    job = document.get("job") or {}
    names, software = [h.get("name") for h in job.get("hosts") or [] if h.get("name")], job.get("software") or {}
    scheduler = _SCHEDULERS.get(str(job.get("scheduler")), "")
    found = [
        Pair(scheduler, scheduler),
        *(_named(key, job[key]) for key in ("id", "cluster") if job.get(key)),
        Pair(world_text(document, "en"), world_text(document, "zh")),
    ]
    if names:
        key = "job_hosts_named" if len(names) <= _NAMED_HOSTS else "job_hosts"
        shown = [visible(name, 60) for name in names[:_NAMED_HOSTS]]
        found.append(Pair(*(word(key, x).format(n=len(names), hosts=word("list_comma", x).join(shown)) for x in _BOTH)))
    found += [Pair(text, text) for text in (visible(job.get("launcher") or "", 40), *_versions(software))]
    return [pair for pair in found if pair.en]


def _named(key: str, name: object) -> Pair:
    return Pair(*(word(f"job_{key}", lang).format(name=visible(name, 80)) for lang in _BOTH))


def _versions(software: Mapping[str, Any]) -> list[str]:
    """Return the versions that a reader asks for first."""
    return [f"{name} {visible(software[key], 40)}" for key, name in _ASKED.items() if software.get(key)]


def transports(document: Document) -> str:
    """Return over what the connections of the log run, the commonest first, with how many there are of each."""
    links = (document.get("peers") or {}).get("links") or []
    kinds = Counter("/".join(str(link.get("via") or "?").split("/")[:2]) for link in links)
    return ", ".join(f"{visible(kind, 40)} {number}" for kind, number in kinds.most_common(_TRANSPORTS))


def collective_text(document: Document, lang: Lang) -> str:
    """Return the collective in which the job stood: operation, number, size, group and timeout as far as known."""
    found = document.get("collective") or {}
    parts = [visible(found.get("op") or "", 60)]
    for key in ("seq", "numel_in", "numel_out", "dtype", "process_group"):
        value = found.get(key)
        if value is not None and not (key == "numel_out" and value == found.get("numel_in")):
            shown = f"{value:,}" if key.startswith("numel") and isinstance(value, int) else visible(value, 60)
            parts.append(word(f"collective_{key}", lang).format(value=shown))
    for key in ("timeout_ms", "elapsed_ms"):
        if isinstance(found.get(key), (int, float)):
            parts.append(word(f"collective_{key}", lang).format(value=duration(found[key] / 1000, lang)))
    return word("comma", lang).join(part for part in parts if part)


def healthy_text(document: Document, lang: Lang) -> str:
    """Return how much was read without a failure."""
    inputs = document.get("inputs") or []
    lines = sum(item.get("lines") or 0 for item in inputs)
    return word("healthy_text", lang).format(
        inputs=counted("input", len(inputs), lang), lines=counted("line", lines, lang)
    )
