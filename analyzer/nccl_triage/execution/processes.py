"""Scans in several processes of this machine."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from nccl_triage import interrupts
from nccl_triage.engine.schema import RuleSet
from nccl_triage.execution import reading
from nccl_triage.execution.reading import SourcePart
from nccl_triage.observations.store import Foresight, Observations
from nccl_triage.scan.scanner import Scanner, scanner_for
from nccl_triage.stopping import ReadingStop

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

#: Seconds between two checks of the progress, and of a stop request.
_GLANCE = 0.2

_scanner: Scanner | None = None
_stop: ReadingStop | None = None
_foresight: Foresight | None = None
#: Bytes that all processes have read.
_counter: Synchronized[int] | None = None


def scan(
    groups: Sequence[Sequence[SourcePart]],
    rules: RuleSet,
    workers: int,
    whole: reading.ReadingProgress,
    take: Callable[[int, Observations], None],
) -> None:
    """Give ``take`` what each group of parts holds; raises OSError or BrokenExecutor where processes cannot be had."""
    counter = multiprocessing.Value("q", 0) if whole.watched else None
    with concurrent.futures.ProcessPoolExecutor(workers, initializer=_start, initargs=(rules, counter)) as pool:
        scans = {pool.submit(_work, group): number for number, group in enumerate(groups)}
        waiting = set(scans)
        try:
            while waiting:
                done, waiting = concurrent.futures.wait(
                    waiting, None if counter is None else _GLANCE, concurrent.futures.FIRST_COMPLETED
                )
                if counter is not None:
                    whole.reached(counter.value)
                for scan in done:
                    number = scans.pop(scan)  # or it would hold its result to the end
                    if not scan.cancelled():
                        take(number, scan.result())
                if whole.asked:  # at every look: a process that only just starts does not hear
                    for scan in waiting:
                        scan.cancel()
                    interrupts.ask_workers()
        except BaseException:
            interrupts.stop_workers()  # or leaving the pool would wait for results that nobody wants
            raise


def _start(rules: RuleSet, counter: Any) -> None:
    global _scanner, _counter, _stop, _foresight
    _foresight = Foresight()
    _stop = ReadingStop()
    interrupts.in_worker(_stop.ask)
    _scanner, _counter = scanner_for(rules), counter


def _count(size: int) -> None:
    if _counter is not None:
        with _counter.get_lock():
            _counter.value += size


def _work(group: Sequence[SourcePart]) -> Observations:
    if _scanner is None:
        raise RuntimeError("the worker was not started")
    tell, total = _count if _counter is not None else None, Observations()
    for part in group:
        total.absorb(reading.scan_part(part, _scanner, tell, _stop, _foresight))
    return total
