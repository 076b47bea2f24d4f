"""Make each faulty world several times, let the verifier loose on it, and count what it gets right."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from corpus.scenarios.network import HOSTS, Lab
from corpus.verifier.documents import document
from corpus.verifier.kinds import Kind
from nccl_triage.engine import load
from nccl_triage.verify import api
from nccl_triage.verify.plan import PlanOptions


@dataclass
class Shot:
    """One session against one faulty world: what was right, what came out, and how long it took."""

    outcome: str
    decided_by: str
    found: list[str]
    ranks: list[int]
    hosts: list[str]
    verdict_right: bool
    culprit_right: bool
    seconds: float
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        """Whether verdict and culprit are right."""
        return self.verdict_right and self.culprit_right


def _commands(lab: Lab, count: int) -> tuple[str, ...]:
    """Return the ``--host`` values that reach the namespaces, each with a host name of its own."""
    return tuple(
        f"""{HOSTS[i]}=ip netns exec {lab.hosts[i]} unshare -u sh -c 'hostname {HOSTS[i]}; exec "$@"' sh"""
        for i in range(count)
    )


def shoot(kind: Kind, backend: str = "gloo") -> Shot:
    """Make the world, run one session in it, and judge what it came to."""
    rules = load.load(())
    # The log names the hosts that are at hand: experiments elsewhere prove nothing.
    hosts = HOSTS[: kind.places] if kind.places > 1 else (os.uname().nodename,)
    asked = document(kind.cause, world=kind.world, hosts=hosts, backend=backend, **kind.asks)
    world = kind.make() if kind.make is not None else contextlib.nullcontext(None)
    with world as lab:
        commands = _commands(lab, kind.places) if lab is not None and kind.places > 1 else ()
        options = PlanOptions(backend=backend, timeout_factor=kind.patience, budget=240.0, allow_busy=True)
        settings = api.Settings(hosts=commands, options=options, wait=600.0)
        started = time.monotonic()
        changed, _ = api.verify(asked, rules, settings, faults=kind.faults)
        seconds = time.monotonic() - started
    record = changed["diagnoses"][0]["verification"]
    found = [str(item["cause"]) for item in record["findings"]]
    ranks = sorted({rank for item in record["findings"] for rank in item["ranks"]})
    named = sorted({host for item in record["findings"] for host in item["hosts"]})
    if not named and record["narrowed"]:
        named = sorted(record["narrowed"].get("hosts", []))
    culprit = (not kind.ranks or ranks == list(kind.ranks)) and (not kind.hosts or named == sorted(kind.hosts))
    told = any(kind.says in item["says"] for item in record["findings"]) if kind.says else True
    return Shot(
        outcome=record["outcome"],
        decided_by=record["decided_by"],
        found=found,
        ranks=ranks,
        hosts=named,
        verdict_right=record["outcome"] == kind.outcome and (kind.found is None or kind.found in found),
        culprit_right=culprit and told,
        seconds=seconds,
        record=record,
    )


def prove(kinds: Sequence[Kind], runs: int, backend: str, say: Callable[[str], None]) -> dict[str, list[Shot]]:
    """Return the shots of every kind."""
    results: dict[str, list[Shot]] = {}
    for kind in kinds:
        for index in range(runs):
            shot = shoot(kind, backend)
            results.setdefault(kind.name, []).append(shot)
            verdict = "right" if shot.right else "WRONG"
            say(
                f"{kind.name} {index + 1}/{runs}: {verdict}: {shot.outcome} ({shot.decided_by}) {shot.found} {shot.ranks} {shot.hosts} {shot.seconds:.1f} s"
            )
    return results


def table(kinds: Sequence[Kind], results: dict[str, list[Shot]]) -> str:
    """Return the results as Markdown."""
    lines = [
        "| world | suspected | verdict wanted | found | culprit | verdicts right | culprits right | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind in kinds:
        shots = results.get(kind.name)
        if not shots:
            continue
        who = ", ".join([*(f"rank {rank}" for rank in kind.ranks), *kind.hosts]) or "-"
        middle = sorted(shot.seconds for shot in shots)[len(shots) // 2]
        lines.append(
            f"| {kind.does} | {kind.cause} | {kind.outcome} | {kind.found or '-'} | {who} "
            f"| {sum(s.verdict_right for s in shots)}/{len(shots)} | {sum(s.culprit_right for s in shots)}/{len(shots)} | {middle:.1f} |"
        )
    return "\n".join(lines) + "\n"


def gone(kind: Kind) -> bool:
    """Tell whether the suspected cause is one that may be gone by now, so that a healthy present refutes nothing."""
    return load.load(()).causes[kind.cause].experiment.passing == "not-reproduced"


def false_alarms(kinds: Sequence[Kind], results: dict[str, list[Shot]]) -> tuple[int, int]:
    """Return how often a healthy world was called faulty, and how often a cause that may be gone was contradicted."""
    shots = [(kind, shot) for kind in kinds for shot in results.get(kind.name, [])]
    confirmed = sum(kind.healthy and shot.outcome == "confirmed" for kind, shot in shots)
    return confirmed, sum(shot.outcome == "refuted" and gone(kind) for kind, shot in shots)


def summary(kinds: Sequence[Kind], results: dict[str, list[Shot]]) -> str:
    """Return one sentence with the figures that count."""
    shots = [(kind, shot) for kind in kinds for shot in results.get(kind.name, [])]
    faulty = [(kind, shot) for kind, shot in shots if not kind.healthy]
    healthy = [shot for kind, shot in shots if kind.healthy]
    named = [shot for kind, shot in faulty if kind.ranks or kind.hosts]
    right = sum(shot.verdict_right for _, shot in shots)
    confirmed, contradicted = false_alarms(kinds, results)
    return (
        f"{len({kind.name for kind, _ in faulty})} kinds of faults, {len(faulty)} sessions, and {len(healthy)} sessions in healthy worlds: "
        f"{right} of {len(shots)} verdicts right ({100 * right / max(1, len(shots)):.1f} %), "
        f"culprit named in {sum(s.culprit_right for s in named)} of {len(named)}, "
        f"{confirmed} healthy worlds called confirmed, {contradicted} causes contradicted that may be gone by now."
    )
