"""Whole verifications on hosts with GPUs that exist only in files: a document, a session, and what became of it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from corpus.verifier.documents import document
from nccl_triage.engine import load
from nccl_triage.verify import api
from nccl_triage.verify.judge import Report
from nccl_triage.verify.plan import PlanOptions
from tests.verify.gpu_host import GpuHost

Document = dict[str, Any]
#: A job on two hosts.
JOB = ("gpu-a", "gpu-b")


def asked(
    cause: str,
    *,
    world: int = 2,
    hosts: Sequence[str] = JOB,
    culprits: Sequence[Mapping[str, Any]] = (),
    evidence: Sequence[str] = (),
    also: Mapping[str, float] | None = None,
    versions: Mapping[str, str] | None = None,
    addresses: Mapping[str, Sequence[str]] | None = None,
    dtype: str | None = None,
    **more: Any,
) -> Document:
    """Return a document that blames ``cause``, and others less (``also``: cause -> confidence).

    Ranks lie on the hosts in blocks, as launchers place them; each rank's GPU is its local rank.
    """
    made = document(cause, world=world, hosts=hosts, backend="nccl", **more)
    first = made["diagnoses"][0]
    first["culprits"] = [{"rank": None, "host": None, "gpu": None, "why": "", **culprit} for culprit in culprits]
    first["evidence"] += [{"path": "made.log", "line": 2 + n, "text": text} for n, text in enumerate(evidence)]
    for name, confidence in (also or {}).items():
        rival = {**first, "cause": name, "confidence": confidence, "score": 2.4 - 3 * (0.7 - confidence)}
        made["diagnoses"].append({**rival, "contributions": [], "culprits": [], "evidence": list(first["evidence"])})
    each = -(-world // max(1, len(hosts)))
    made["job"]["hosts"] = [
        {
            "name": host,
            "addresses": list((addresses or {}).get(host, ())),
            "ranks": list(range(place * each, min(world, (place + 1) * each))),
        }
        for place, host in enumerate(hosts)
    ]
    made["job"]["ranks"] = [
        {"rank": rank, "host": hosts[rank // each], "local_rank": rank % each} for rank in range(world if hosts else 0)
    ]
    made["job"]["software"] = dict(versions or {})
    made["collective"]["dtype"] = dtype
    for entry in made["diagnoses"]:
        entry.update(title=entry["cause"], title_zh=entry["cause"])
    return made


@dataclass
class Session:
    """A finished verification: the document before and after, and the report."""

    before: Document
    after: Document
    report: Report

    def of(self, cause: str | None = None) -> dict[str, Any]:
        """Return the verification of a cause, by default of the first one before."""
        wanted = cause or self.before["diagnoses"][0]["cause"]
        entry = next(item for item in self.after["diagnoses"] if item["cause"] == wanted)
        found: dict[str, Any] = entry["verification"]
        return found

    @property
    def controls(self) -> list[dict[str, Any]]:
        """The control's runs for the cause that stood first: the collective of the log, with nothing changed."""
        return [run for run in self.of()["runs"] if not run["changed"]]

    @property
    def outcome(self) -> str:
        """The outcome for the cause that stood first."""
        return str(self.of()["outcome"])

    @property
    def says(self) -> str:
        """All that is said of the outcome for the cause that stood first."""
        found = self.of()
        return " ".join([found["outcome"], found["reason"], *found["differs"], *found["problems"]])

    @property
    def unmoved(self) -> bool:
        """Whether confidence, status, order and headline are what they were."""
        about = [
            [(item["cause"], item["confidence"], item["status"]) for item in document["diagnoses"]]
            + [document["headline"], document["headline_zh"]]
            for document in (self.before, self.after)
        ]
        return about[0] == about[1]

    @property
    def outcomes(self) -> set[str]:
        """The outcomes of all causes that were put to the test."""
        return {item["verification"]["outcome"] for item in self.after["diagnoses"] if item["verification"]}


def options(**given: Any) -> PlanOptions:
    """Return options for a session that takes seconds."""
    return PlanOptions(**{"timeout_factor": 0.2, "budget": 60.0, **given})


def settings(hosts: Sequence[GpuHost] = (), **given: Any) -> api.Settings:
    """Return settings for some hosts; fields of the options and of the settings may be given."""
    own = {name: given.pop(name) for name in list(given) if name in api.Settings.__dataclass_fields__}
    return api.Settings(hosts=tuple(host.option for host in hosts), wait=60.0, **own, options=options(**given))


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Keep the lock of a session to this process: what else verifies on this machine uses other hosts."""
    with tempfile.TemporaryDirectory(prefix="gpu-session-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        patch.delenv("XDG_RUNTIME_DIR", raising=False)
        yield


def verified(wanted: Document, hosts: Sequence[GpuHost] = (), *, here: GpuHost | None = None, **given: Any) -> Session:
    """Verify a document on hosts named by ``--host``, or on the one that asks (``here``)."""
    with alone(), here.here() if here is not None else contextlib.nullcontext():
        if here is not None and not hosts:
            given.setdefault("python", here.python)
        changed, report = api.verify(wanted, load.load(), settings(hosts, **given))
    return Session(wanted, changed, report)


def ranks_of(host: GpuHost) -> Iterator[int]:
    """Yield the GPU of each rank that set up a communicator on a host."""
    for entry in host.communicators:
        yield entry["index"]
