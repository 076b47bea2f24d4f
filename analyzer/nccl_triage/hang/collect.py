"""The program that runs on a host of the job: finds its processes, or takes their evidence, and prints JSON, one object a line.

The first line of its standard input is the wish: ``{"do": "find", "pids": [..], "slurm": {"jobs": [..],
"step": ID}}`` or ``{"do": "take", "ranks": [..], "wait": SECONDS, "signal": NAME}``, where the ranks are those that were found.
Every kind of evidence has a thread and a deadline of its own: what hangs in the kernel is reported and left behind. Answers:
``found``, ``file`` (a piece of one: zlib, base64), ``grown`` (bytes added to a log meanwhile), ``unseen``, ``sample``.
"""

from __future__ import annotations

import base64
import os
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

from nccl_triage.hang import evidence, processes, stacks
from nccl_triage.hang.processes import HostProcess, JobRank
from nccl_triage.hang.stacks import Unseen
from nccl_triage.hosts.agent import Answers, serve

#: Seconds for looking at the processes, for one kind of evidence, and for all besides the wait between the samples.
FIND, KIND, ALL = 20.0, 40.0, 100.0
#: Processes below the ranks that are dumped, dumps at once, and bytes in one answer.
WORKERS, AT_ONCE, PIECE = 64, 8, 1 << 18


def main() -> NoReturn:
    """Do what the wish says."""
    serve(_carry_out)


def _carry_out(wish: dict[str, Any], output: Answers) -> None:
    if wish["do"] == "find":
        _within({"find": (lambda: _find(wish, output), FIND)}, FIND, output)
    else:
        _take(wish, output)


def _file(output: Answers, name: str, data: bytes) -> None:
    for at in range(0, len(data), PIECE):
        output.say("file", name=name, data=base64.b64encode(zlib.compress(data[at : at + PIECE])).decode())


def _within(tasks: Mapping[str, tuple[Callable[[], None], float]], seconds: float, output: Answers) -> None:
    """Run tasks at once, each until its deadline at most; says which have not ended."""

    def guarded(name: str, task: Callable[[], None]) -> None:
        try:
            task()
        except Unseen as error:
            output.say("unseen", what=name, why=error.why, values=error.values)
        except Exception as error:  # a defect of one kind must not cost the others
            output.say("unseen", what=name, why="broke", values={"error": f"{type(error).__name__}: {error}"[:300]})

    start = time.monotonic()
    threads = {
        name: (threading.Thread(target=guarded, args=(name, task), daemon=True), min(limit, seconds))
        for name, (task, limit) in tasks.items()
    }
    for thread, _ in threads.values():
        thread.start()
    for name, (thread, limit) in threads.items():
        thread.join(max(0.0, start + limit - time.monotonic()))
        if thread.is_alive():
            output.say("unseen", what=name, why="late", values={"seconds": f"{limit:.0f}"})


def host_identity() -> list[str]:
    """Return what tells two hosts, or containers, apart: names alone may be equal."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return [boot, str(Path("/proc/self/ns/pid").readlink())]
    except OSError:
        return []


def _find(wish: Mapping[str, Any], output: Answers) -> None:
    every = processes.own_processes()
    asked, slurm = wish.get("pids"), wish.get("slurm")
    found = processes.of_pids(every, asked) if asked else processes.jobs(every)
    told = {
        job: [described(one) for one in ranks if slurm is None or _is_of_slurm(one.process, slurm)]
        for job, ranks in found.items()
    }
    ended = {job: processes.ended(ranks, every) for job, ranks in found.items() if told[job]}
    output.say(
        "found",
        host=os.uname().nodename,
        identity=host_identity(),
        jobs={job: ranks for job, ranks in told.items() if ranks},
        ended=ended,
    )


def _is_of_slurm(process: HostProcess, slurm: Mapping[str, Any]) -> bool:
    given = process.variables
    return given.get("SLURM_JOB_ID") in slurm["jobs"] and slurm["step"] in (None, given.get("SLURM_STEP_ID", "batch"))


def described(one: JobRank) -> dict[str, Any]:
    """Return a rank as the answers and the folder's manifest have it."""
    return {
        "pid": one.process.pid,
        "started": one.process.started,
        "rank": one.rank,
        "local_rank": one.local,
        "world_size": one.world,
        "local_world_size": one.here,
        "host_ranks": one.beside,
        "by": one.by,
        "command": one.process.command,
        "variables": processes.shown_variables(one.process),
        "workers": [[worker.pid, worker.started] for worker in one.workers[:WORKERS]],
    }


def _same(pid: int, started: int) -> HostProcess | None:
    """Return a process that was found, if its number does not belong to another one by now."""
    found = processes.read_process(pid)
    return found if found is not None and found.started == started else None


def _take(wish: Mapping[str, Any], output: Answers) -> None:
    ranks = []
    for told in wish["ranks"]:
        process = _same(told["pid"], told["started"])
        if process is None:
            output.say("sample", pid=told["pid"], number=1, gone=True)
            continue
        workers = [found for pid, started in told["workers"] if (found := _same(pid, started)) is not None]
        ranks.append(
            JobRank(
                process,
                told["rank"],
                told["local_rank"],
                told["world_size"],
                told.get("local_world_size"),
                workers,
                beside=told.get("host_ranks") or [],
            )
        )
    host = str(wish["host"])
    sizes: dict[tuple[int, int], int] = {}
    noted = lambda: sizes.update(evidence.log_sizes(ranks, processes.own_processes()))  # noqa: E731
    _within({"logs": (noted, FIND)}, FIND, output)
    tasks: dict[str, tuple[Callable[[], None], float]] = {
        "stacks": (lambda: _sample(ranks, wish, output), ALL),
        "ras": (lambda: _file(output, f"ras.{host}.txt", evidence.ask_ras(ranks).encode()), KIND),
        "recorder": (lambda: _recorders(ranks, output), KIND),
        "gpus": (lambda: _file(output, f"nvidia-smi-q.{host}.txt", evidence.gpus().encode()), KIND),
        "kernel": (lambda: _file(output, f"dmesg.{host}.log", evidence.kernel_log(ranks).encode()), KIND),
        "connections": (lambda: _file(output, f"connections.{host}.txt", evidence.connections(ranks).encode()), KIND),
    }
    _within(tasks, float(wish["wait"]) + ALL, output)
    # Last: a signal may have made the ranks print their stacks.
    _within({"logs": (lambda: _logs(ranks, sizes, output), KIND)}, KIND, output)


def _recorders(ranks: Sequence[JobRank], output: Answers) -> None:
    missed: Unseen | None = None
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for one, future in [(one, pool.submit(evidence.recorded, one)) for one in ranks]:
            try:
                _file(output, f"flight-recorder/trace_rank_{one.rank}", future.result())
            except Unseen as error:
                missed = missed or error
    if missed is not None:
        raise missed


def _logs(ranks: Sequence[JobRank], sizes: Mapping[tuple[int, int], int], output: Answers) -> None:
    found = False
    for log in evidence.logs(ranks, processes.own_processes(), sizes):
        found = True
        _file(output, f"logs/{log.name}", log.data)
        output.say("grown", name=f"logs/{log.name}", bytes=log.grown)
    if not found:
        for one in ranks:
            stacks.check_files(one.process)
        raise Unseen("no-logs")


def _sample(ranks: Sequence[JobRank], wish: Mapping[str, Any], output: Answers) -> None:
    """Take stacks and states twice, and have the processes print their stacks if that was asked for."""
    workers = [worker for one in ranks for worker in one.workers][:WORKERS]
    every = [*(one.process for one in ranks), *workers]
    missed: dict[str, Unseen] = {}
    for number in (1, 2):
        start = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            pending = [(process, pool.submit(_dumped, process)) for process in every]
            for process, future in pending:
                text, state, unseen = future.result()
                output.say("sample", pid=process.pid, number=number, time=time.time(), stacks=text, **state)
                if unseen is not None:
                    missed.setdefault(unseen.why, unseen)
        if number == 1:
            for process in every[: len(ranks)] if wish.get("signal") else ():
                try:
                    stacks.send_signal(process, wish["signal"])
                except Unseen as error:
                    output.say("unseen", what="signal", why=error.why, values={**error.values, "pid": str(process.pid)})
            time.sleep(max(0.0, float(wish["wait"]) - (time.monotonic() - start)))
    for unseen in missed.values():
        output.say("unseen", what="stacks", why=unseen.why, values=unseen.values)


def _dumped(process: HostProcess) -> tuple[str, dict[str, Any], Unseen | None]:
    state = stacks.state(process)
    if state is None:
        return "", {"gone": True}, None
    try:
        return stacks.dump(process), state, None
    except Unseen as error:
        return "", state, error
