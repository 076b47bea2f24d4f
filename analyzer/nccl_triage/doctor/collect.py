"""Runs all probes of this host: one process per group, one thread per probe, with deadlines; what hangs or dies is reported and left behind."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import nccl_triage
from nccl_triage.doctor.probes import GROUPS, MODULES
from nccl_triage.doctor.probes.result import ProbeResult, ProbeTarget
from nccl_triage.hosts.agent import Answers, serve


def run_group(group: str, wish: str) -> None:
    """Run the probes of a group and end the process, even if a probe hangs."""
    asked = json.loads(wish)
    where = ProbeTarget(
        Path(asked["root"]), dict(os.environ), asked["python"], tuple(asked["paths"]), float(asked["timeout_factor"])
    )
    lock = threading.Lock()
    threads = [threading.Thread(target=_print_answer, args=(name, where, lock), daemon=True) for name in GROUPS[group]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)


def run_probe(name: str, where: ProbeTarget) -> ProbeResult:
    """Return the result of one probe; an exception in it is reported as something that could not be seen."""
    try:
        module = importlib.import_module(f"nccl_triage.doctor.probes.{MODULES.get(name, name)}")
        seen: ProbeResult = getattr(module, f"probe_{name}")(where)
    except Exception as error:
        seen = ProbeResult(None)
        seen.miss(name, "broke", error=f"{type(error).__name__}: {error}")
    return seen


def _print_answer(name: str, where: ProbeTarget, lock: threading.Lock) -> None:
    start = time.monotonic()
    seen = run_probe(name, where)
    told: dict[str, Any] = {
        "probe": name,
        "facts": seen.facts,
        "unseen": seen.unseen,
        "seconds": round(time.monotonic() - start, 3),
    }
    data = json.dumps(told).encode()
    with lock:
        sys.stdout.buffer.write(data + b"\n")
        sys.stdout.buffer.flush()


_START = "import sys; sys.path.insert(0, sys.argv[1]); from nccl_triage.doctor.collect import run_group; run_group(*sys.argv[2:])"
#: Seconds that a process may take to start on a busy machine, on top of what its probes may take.
_STARTING = 10.0
#: Bytes of a group's answers at most.
_MOST = 16 << 20


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """Options of the probes: the ``python`` whose torch is examined (default: this one), further ``paths``, a deadline factor."""

    python: str = ""
    paths: tuple[str, ...] = ()
    timeout_factor: float = 1.0
    root: str = "/"


class _Group:
    """The process of a group, and its answers so far."""

    def __init__(self, name: str, wish: ProbeOptions) -> None:
        self._start = time.monotonic()
        self._limits = {probe: (limit + _STARTING) * wish.timeout_factor for probe, limit in GROUPS[name].items()}
        self.answers: dict[str, dict[str, Any]] = {}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START, _home(), name, json.dumps(asdict(wish))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._left = b""
        self._read = 0

    def read(self) -> bool:
        """Read what is available; tells whether more may come."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        self._read += len(data)
        *lines, self._left = (self._left + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, TypeError, KeyError):
                told = json.loads(line)
                self.answers[told["probe"]] = told
        return bool(data) and self._read <= _MOST

    @property
    def deadline(self) -> float:
        """The latest deadline of the probes that have not answered."""
        left = [limit for probe, limit in self._limits.items() if probe not in self.answers]
        return self._start + max(left, default=0.0)

    def missing(self) -> list[dict[str, str]]:
        """Return why probes have not answered."""
        code = self.process.poll()
        return [
            {"what": name, **(_death(code) if code is not None else {"why": "hangs", "seconds": f"{limit:.0f}"})}
            for name, limit in self._limits.items()
            if name not in self.answers
        ]

    def close(self) -> None:
        """End the process and what it has started; one that hangs in a driver is not waited for."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        if self.process.stdout is not None:
            self.process.stdout.close()


def _death(code: int) -> dict[str, str]:
    name = f"signal {-code}" if code < 0 else f"exit code {code}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-code).name
    return {"why": "died", "error": name}


def _home() -> str:
    """Return the folder or archive that this package is imported from."""
    return str(Path(nccl_triage.__path__[0]).parent)


def collect(wish: ProbeOptions, groups: Sequence[str] = tuple(GROUPS)) -> dict[str, Any]:
    """Return ``facts`` by probe, ``unseen`` and the ``seconds`` that each probe took."""
    started: list[_Group] = []
    try:
        for name in groups:
            started.append(_Group(name, wish))
        _read_answers(started)
        missing = [entry for group in started for entry in group.missing()]
    finally:
        for group in started:
            group.close()
    answers: Mapping[str, dict[str, Any]] = {name: told for group in started for name, told in group.answers.items()}
    return {
        "facts": {name: told["facts"] for name, told in sorted(answers.items()) if told["facts"] is not None},
        "unseen": [entry for told in answers.values() for entry in told["unseen"]] + missing,
        "seconds": {name: told["seconds"] for name, told in sorted(answers.items())},
    }


def _read_answers(groups: Sequence[_Group]) -> None:
    """Read from all groups until they have ended or timed out."""
    with selectors.DefaultSelector() as selector:
        for group in groups:
            assert group.process.stdout is not None
            selector.register(group.process.stdout, selectors.EVENT_READ, group)
        while selector.get_map():
            now = time.monotonic()
            for key in list(selector.get_map().values()):
                if key.data.deadline <= now:
                    selector.unregister(key.fileobj)
            waiting = [key.data.deadline - now for key in selector.get_map().values()]
            for key, _ in selector.select(min(waiting)) if waiting else ():
                if not key.data.read():
                    selector.unregister(key.fileobj)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        key.data.process.wait(1.0)


def main() -> NoReturn:
    """Answer with the facts of this host; the wish has the options."""
    serve(_carry_out)


def _carry_out(wish: dict[str, Any], answers: Answers) -> None:
    answers.say("facts", **collect(ProbeOptions(**{**wish, "paths": tuple(wish.get("paths", ()))})))
