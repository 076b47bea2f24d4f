"""Run one collective on some ranks: start them, keep the deadlines, stop what is left, say how it ended.

A rank that hangs, crashes or is killed is a result. The library's own time-out is half of the parent's deadline, so
that a library that keeps its word reports first; the parent never waits longer than its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nccl_triage.verify.cluster import Cluster
from nccl_triage.verify.model import Deadlines, Outcome, RankTrace, Run, RunResult
from nccl_triage.verify.spec import spec_of
from nccl_triage.verify.traces import first_missing, next_mark, note, outcome_of

#: Seconds that ranks get to answer the last question before they are killed.
_INSPECTION = 0.25
#: Seconds within which killed ranks must be reported gone.
_STOPPING = 2.0

Watch = Callable[[Run, dict[int, RankTrace]], None]


def execute(
    cluster: Cluster,
    run: Run,
    folder: Path,
    deadlines: Deadlines,
    *,
    method: str = "fork",
    budget: float = math.inf,
    watch: Watch | None = None,
) -> RunResult:
    """Carry out a run and return its result; ``watch`` sees the traces after each news."""
    return _Execution(cluster, run, folder, deadlines, method, budget, watch).carry_out()


class _Execution:
    def __init__(
        self,
        cluster: Cluster,
        run: Run,
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
        self.stopped_for: str | None = None

    def carry_out(self) -> RunResult:
        port = self.run.port or self._port()
        if port is None:
            return self._result("not-run", "the host of rank 0 gave no port")
        self._start(port)
        while self._running():
            for place, answer in self.cluster.receive(self._patience()):
                self._take(place, answer)
            if self.watch is not None:
                self.watch(self.run, self.traces)
            if self.stopped_for is None:
                self.stopped_for = self._why_stop()
            if self.stopped_for is not None:
                break
        cleaned = self._stop()
        outcome = outcome_of(self.traces)
        return self._result(outcome, self.stopped_for or "", cleaned)

    def _port(self) -> int | None:
        place = self.run.slots[0].place
        answer = self.cluster.ask("port", [place], 5.0).get(place)
        return answer["port"] if answer else None

    def _start(self, port: int) -> None:
        spec = spec_of(self.run, self.deadlines, port, "127.0.0.1")
        for place in self.run.places:
            ranks = [rank for rank, slot in enumerate(self.run.slots) if slot.place == place]
            extra = {str(rank): {"env": self.run.env_of(rank)} for rank in ranks if rank in self.run.per_rank_env}
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

    def _running(self) -> bool:
        return any(trace.exited_at is None for trace in self.traces.values())

    def _patience(self) -> float:
        now = time.monotonic()
        ends = [self.end, *(self._limit(trace) for trace in self.traces.values() if trace.exited_at is None)]
        if self.first_failure is not None:
            ends.append(self.first_failure + self.deadlines.grace)
        return max(0.01, min(min(ends) - now, 1.0))

    def _limit(self, trace: RankTrace) -> float:
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
        if self.first_failure is not None and now > self.first_failure + self.deadlines.grace:
            return "the others did not end after the first failure"
        return "the time for this run is over" if now > self.end else None

    def _take(self, place: int, answer: dict[str, Any]) -> None:
        kind = answer.get("answer")
        if kind == "gone":
            for trace in self.traces.values():
                if trace.slot.place == place and trace.exited_at is None:
                    trace.exited_at = time.monotonic()
                    trace.error = {"type": "AgentLost", "text": str(answer.get("error", ""))}
                    self._failed(trace)
            return
        if answer.get("run") != self.run.label or answer.get("rank") not in self.traces:
            return
        trace = self.traces[answer["rank"]]
        if kind == "mark":
            # A rank that loses its peer because that was killed first says so: of the experiment it tells nothing.
            if trace.killed and answer["stage"] == "error":
                return
            if note(trace, answer, time.monotonic(), self.started):
                self._failed(trace)
        elif kind == "exit":
            trace.exit_code, trace.exited_at = answer.get("code"), time.monotonic()
            if answer.get("error"):
                trace.error = {"type": "NotStarted", "text": str(answer["error"])}
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

    def _stop(self) -> float:
        """Ask the ranks what they are in, kill what still runs; returns the seconds from the first kill to the last end."""
        if not self._running():
            return 0.0
        self._inspect()
        self._gather(_INSPECTION, lambda: False)
        begun = time.monotonic()
        left = [trace for trace in self.traces.values() if trace.exited_at is None]
        for trace in left:
            trace.killed = True
        for place in self.run.places:
            self.cluster.send(place, do="stop", run=self.run.label)
        self._gather(_STOPPING, lambda: not self._running())
        return time.monotonic() - begun

    def _gather(self, patience: float, enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and not enough():
            for place, answer in self.cluster.receive(deadline - time.monotonic()):
                self._take(place, answer)

    def _result(self, outcome: Outcome, reason: str, cleaned: float = 0.0) -> RunResult:
        seconds = time.monotonic() - self.started
        return RunResult(
            run=self.run,
            outcome=outcome,
            stage=first_missing(self.traces),
            seconds=seconds,
            ranks=self.traces,
            reason=reason,
            folder=str(self.folder),
            cleaned_s=cleaned,
        )
