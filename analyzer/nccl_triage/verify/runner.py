"""Runs one collective on some ranks: starts them, enforces the deadlines, stops the rest, and tells how the run ended.

A rank that hangs, crashes or is killed is a result. The library's own timeout is half of the parent's deadline, so that a
library that works reports first. Traces of ranks are made here for live runs and for results from files alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nccl_triage.verify.cluster import Cluster
from nccl_triage.verify.collective_run import CollectiveRun, Deadlines, RankTrace, RunOutcome, RunResult
from nccl_triage.verify.worker.progress import STAGES


def spec_of(run: CollectiveRun, limits: Deadlines, port: int, host: str) -> dict[str, Any]:
    """Return the spec of a run whose store is on ``port`` (0: rank 0 chooses) of ``run.store_address``, else of ``host``.

    Time-outs are in seconds. torch's are half of the parent's, so that the library reports first.
    """
    message = run.message
    return {
        "op": message.op,
        "numel": message.numel,
        "dtype": message.dtype,
        "root": message.root,
        "pair": list(message.pair),
        "world": run.world,
        "backend": run.backend,
        "device": run.device,
        "env": run.env,
        "iterations": run.iterations,
        "slots": [slot.number for slot in run.slots],
        "store": {"host": run.store_address or host, "port": port},
        "store_timeout": limits.store / 2,
        "timeout": limits.library(run.timeout),
        "faults": run.faults,
        "more": [
            {"op": part.op, "numel": part.numel, "dtype": part.dtype, "pair": list(part.pair)} for part in run.more
        ],
        "joins": run.joins,
        "sweep": list(run.sweep),
        "timed": limits.timed,
        "go": True,
        "alone": run.alone,
    }


def note(trace: RankTrace, mark: Mapping[str, Any], now: float, started: float) -> bool:
    """Fold one mark into a rank's trace; returns whether it tells of a failure."""
    stage = mark["stage"]
    if stage == "call":
        trace.calls.append(dict(mark))
    elif stage == "flight":
        trace.flight = list(mark.get("entries", []))
    elif stage == "error":
        trace.error = dict(mark)
        return True
    elif stage in ("part", "size"):
        (trace.parts if stage == "part" else trace.sizes).append(dict(mark))
        trace.since = now
    elif stage == "iteration":
        trace.since = now
    elif stage in STAGES:
        trace.stage = stage
        trace.since = now if stage != STAGES[0] else trace.since  # to start and to import have one limit
        trace.times[stage] = now - started
        trace.details[stage] = dict(mark)
    return False


def outcome_of(traces: Mapping[int, RankTrace]) -> RunOutcome:
    """Return how a run ended, from how its ranks ended."""
    ranks = traces.values()
    if all(trace.done for trace in ranks):
        return "wrong-data" if any(_wrong(trace) for trace in ranks) else "passed"
    if any(trace.own_failure is not None for trace in ranks):
        return "not-run"
    if any(trace.exit_code is not None and trace.exit_code < 0 and not trace.killed for trace in ranks):
        return "crashed"
    if any(trace.error is not None for trace in ranks):
        return "error"
    return "hung" if any(trace.killed for trace in ranks) else "crashed"


def _wrong(trace: RankTrace) -> bool:
    further = (*trace.parts, *trace.sizes)
    return bool(trace.details["done"].get("wrong") or any(part["wrong"] for part in further))


def first_missing(traces: Mapping[int, RankTrace]) -> str:
    """Return the first mark that not every rank reached, or ``end``; a rank that is done has left out what it need not."""
    reached = [set(STAGES) if trace.done else set(trace.times) for trace in traces.values()]
    return next((stage for stage in STAGES if not all(stage in seen for seen in reached)), "end")


def as_run(run: CollectiveRun, traces: Mapping[int, RankTrace]) -> CollectiveRun:
    """Return a run with the sizes that its ranks had memory for, as far as they tell them."""
    told = {size for trace in traces.values() if (size := _numel(trace.details.get("entered"))) is not None}
    parts = list(run.more)
    for trace in traces.values():
        for index, part in enumerate(trace.parts[: len(parts)]):
            if (size := _numel(part)) is not None:
                parts[index] = replace(parts[index], numel=min(parts[index].numel, size))
    message = replace(run.message, numel=min([run.message.numel, *told]))
    return replace(run, message=message, more=tuple(parts))


def _numel(mark: Mapping[str, Any] | None) -> int | None:
    value = (mark or {}).get("numel")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def next_mark(stage: str) -> str:
    """Return the mark that is due after ``stage``."""
    if stage == "started":
        return STAGES[0]
    return STAGES[min(STAGES.index(stage) + 1, len(STAGES) - 1)]


#: The mark after which ranks wait until all have come as far.
READY = "device"
#: Seconds that ranks get to answer the last question before they are killed.
_INSPECTION = 0.25
#: Seconds that NCCL's RAS gets for its report while the ranks still live, and characters that are kept of one.
_RAS, RAS_TEXT = 7.0, 1 << 18
#: Seconds within which killed ranks must be reported gone.
_STOPPING = 2.0

Watch = Callable[[CollectiveRun, dict[int, RankTrace]], None]


def execute(
    cluster: Cluster,
    run: CollectiveRun,
    folder: Path,
    deadlines: Deadlines,
    *,
    method: str = "fork",
    budget: float = math.inf,
    watch: Watch | None = None,
) -> RunResult:
    """Carry out a run and return its result; ``watch`` receives the traces after each change."""
    return _Execution(cluster, run, folder, deadlines, method, budget, watch).carry_out()


class _Execution:
    def __init__(
        self,
        cluster: Cluster,
        run: CollectiveRun,
        folder: Path,
        deadlines: Deadlines,
        method: str,
        budget: float,
        watch: Watch | None,
    ) -> None:
        self.cluster, self.run, self.folder, self.deadlines, self.method = cluster, run, folder, deadlines, method
        self.watch = watch
        self.started = time.monotonic()
        self.end = self.started + min(budget, deadlines.longest())
        self.traces = {rank: RankTrace(rank, slot, since=self.started) for rank, slot in enumerate(run.slots)}
        self.first_failure: float | None = None
        self.gone = False
        self.stopped_for: str | None = None
        self.ras_asked: set[int] = set()
        self.ras: dict[int, str] = {}

    def carry_out(self) -> RunResult:
        port = self.run.port or self._port()
        if port is None:
            return self._result("not-run", "the host of rank 0 reported no port")
        self._start(port)
        while self._running():
            for place, answer in self.cluster.receive(self._timeout()):
                self._take(place, answer)
            if self.watch is not None:
                self.watch(self.run, self.traces)
            if self.stopped_for is None:
                self.stopped_for = self._why_stop()
            if self.stopped_for is not None:
                break
        cleaned = self._stop()
        return self._result(outcome_of(self.traces), self.stopped_for or "", cleaned)

    def _port(self) -> int | None:
        place = self.run.slots[0].place
        answer = self.cluster.ask("port", [place], 5.0).get(place)
        return answer["port"] if answer else None

    def _start(self, port: int) -> None:
        spec = spec_of(self.run, self.deadlines, port, "127.0.0.1")
        for place in self.run.places:
            ranks = [rank for rank, slot in enumerate(self.run.slots) if slot.place == place]
            extra = {str(rank): own for rank in ranks if (own := self._own(rank))}
            self.cluster.send(
                place,
                do="run",
                run=self.run.label,
                ranks=ranks,
                spec=spec,
                per_rank=extra,
                folder=str(self.folder),
                method=self.method,
            )
        for place, error in self.cluster.gone.items():  # lost in an earlier run: it will not say so again
            self._take(place, {"answer": "gone", "error": error})

    def _own(self, rank: int) -> dict[str, Any]:
        """Return what of the spec is a rank's own: its variables, and which of the visible GPUs is its."""
        gpu = self.run.slots[rank].gpu
        own: dict[str, Any] = {} if gpu is None else {"gpu": gpu.device}
        if rank in self.run.per_rank_env:
            own["env"] = self.run.env_of(rank)
        return own

    def _let_go(self) -> None:
        """Let the ranks go to the store, all at once: a slow import must not look like a rank that never joins."""
        if self.gone or any(READY not in trace.times for trace in self.traces.values()):
            return
        self.gone = True
        now = time.monotonic()
        for trace in self.traces.values():
            trace.since = max(trace.since, now) if trace.stage == READY else trace.since
        for place in self.run.places:
            self.cluster.send(place, do="go", run=self.run.label)

    def _running(self) -> bool:
        return any(trace.exited_at is None for trace in self.traces.values())

    def _timeout(self) -> float:
        now = time.monotonic()
        ends = [self.end, *(self._limit(trace) for trace in self.traces.values() if trace.exited_at is None)]
        if self.first_failure is not None:
            ends.append(self.first_failure + self.deadlines.grace)
        return max(0.01, min(min(ends) - now, 1.0))

    def _limit(self, trace: RankTrace) -> float:
        if trace.stage == READY and not self.gone:  # it waits for others, whose limits hold
            return math.inf
        return trace.since + self.deadlines.before(next_mark(trace.stage))

    def _why_stop(self) -> str | None:
        now = time.monotonic()
        if not self._running():
            return None
        late = [t for t in self.traces.values() if t.exited_at is None and now > self._limit(t)]
        if late:
            return (
                f"deadline before {next_mark(late[0].stage)!r}: {self.deadlines.before(next_mark(late[0].stage)):.0f} s"
            )
        if self.first_failure is not None and not self.gone:
            return "a rank failed before the ranks could meet"
        if self.first_failure is not None and now > self.first_failure + self.deadlines.grace:
            return "the others did not exit after the first failure"
        return "the time for this run is up" if now > self.end else None

    def _take(self, place: int, answer: dict[str, Any]) -> None:
        kind = answer.get("answer")
        if kind == "gone":
            for trace in self.traces.values():
                if trace.slot.place == place and trace.exited_at is None:
                    trace.exited_at = time.monotonic()
                    # Lost while its ranks meet or work, a host may well be what the job has lost.
                    lost = {"type": "AgentLost", "text": str(answer.get("error", ""))}
                    trace.error = lost if self.gone else {**lost, "own": True}
                    self._failed(trace)
            return
        if kind == "ras" and answer.get("run") == self.run.label:
            self.ras[place] = str(answer.get("results") or "")[:RAS_TEXT]
        if answer.get("run") != self.run.label or answer.get("rank") not in self.traces:
            return
        trace = self.traces[answer["rank"]]
        if kind == "mark":
            # A rank that loses its peer because that was killed first says so: of the experiment it tells nothing.
            if trace.killed and answer["stage"] == "error":
                return
            if note(trace, answer, time.monotonic(), self.started):
                self._failed(trace)
            self._let_go()
        elif kind == "exit":
            trace.exit_code, trace.exited_at = answer.get("code"), time.monotonic()
            if answer.get("error"):
                trace.error = {"type": "NotStarted", "text": str(answer["error"]), "own": True}
            if not trace.done:
                self._failed(trace)
        elif kind == "state":
            trace.state = answer.get("state")

    def _failed(self, trace: RankTrace) -> None:
        if self.first_failure is None:
            self.first_failure = time.monotonic()
            if self._running():
                self._inspect()

    def _inspect(self) -> None:
        for place in self.run.places:
            self.cluster.send(place, do="inspect", run=self.run.label)
            if self.run.backend == "nccl" and place not in self.ras_asked:
                self.ras_asked.add(place)
                self.cluster.send(place, do="ras", run=self.run.label)

    def _stop(self) -> float:
        """Ask the ranks for their last collectives and kill them; returns the seconds from the first kill to the last end."""
        if not self._running():
            return 0.0
        self._inspect()
        self._gather(_INSPECTION, lambda: False)
        self._gather(_RAS, lambda: self.ras_asked <= {*self.ras, *self.cluster.gone})
        begun = time.monotonic()
        left = [trace for trace in self.traces.values() if trace.exited_at is None]
        for trace in left:
            trace.killed = True
        for place in self.run.places:
            self.cluster.send(place, do="stop", run=self.run.label)
        self._gather(_STOPPING, lambda: not self._running())
        return time.monotonic() - begun

    def _gather(self, timeout: float, enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and not enough():
            for place, answer in self.cluster.receive(deadline - time.monotonic()):
                self._take(place, answer)

    def _result(self, outcome: RunOutcome, reason: str, cleaned: float = 0.0) -> RunResult:
        seconds = time.monotonic() - self.started
        return RunResult(
            ras=self._ras_reports(),
            run=as_run(self.run, self.traces),
            outcome=outcome,
            stage=first_missing(self.traces),
            seconds=seconds,
            ranks=self.traces,
            reason=reason,
            folder=str(self.folder),
            cleaned_s=cleaned,
        )

    def _ras_reports(self) -> dict[str, str]:
        """Return what RAS said by host, and leave it beside the logs of the ranks, where it is read as any log."""
        told = {place: text for place, text in self.ras.items() if text.strip()}
        for place, text in told.items():
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / f"ras-{place}.log").write_text(text, encoding="utf-8")
        return {self.cluster.name(place): text for place, text in sorted(told.items())}
