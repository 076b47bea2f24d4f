"""The agent of one host: starts ranks, forwards their progress marks, reports how they ended, and kills what it started.

It reads commands and writes answers as JSON lines on standard input and output, whatever carries them (a pipe, ssh, a Ray
actor). When its input ends, everything that it started is killed. torch is imported once, before the ranks are forked
(``preload``), or by each rank (``spawn``: CUDA must not be initialised before a fork). On a host that shares no folder
with the driver, logs are unnamed files whose ends are sent back, so nothing has to be removed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nccl_triage.hosts.probes import host, inventory, ras
from nccl_triage.hosts.probes.children import helper

from . import children, control, rank_files
from .rank_files import RankFiles

#: Seconds that the listener gets to say what it saw.
ENDING = 2.0
#: Seconds between two looks at the children.
TICK = 0.02


@dataclass
class RankProcess:
    """One rank: its process, and the pipes to it."""

    run: str
    rank: int
    pid: int
    marks: int
    control: int
    files: RankFiles
    rest: bytes = b""
    popen: subprocess.Popen[bytes] | None = None


@dataclass
class Agent:
    """The loop and what it watches; one that ``carries`` sends the ranks' logs with their ends instead of keeping them."""

    children: dict[int, RankProcess] = field(default_factory=dict)
    helpers: dict[int, tuple[dict[str, Any], subprocess.Popen[bytes], bytes]] = field(default_factory=dict)
    ras: dict[str, str] = field(default_factory=dict)
    listener: subprocess.Popen[bytes] | None = None
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    loaded: bool = False
    carries: bool = False

    def say(self, **answer: Any) -> None:
        """Write one answer."""
        data = json.dumps(answer, default=str).encode() + b"\n"
        while data:
            data = data[os.write(1, data) :]

    # commands

    def do_facts(self, command: dict[str, Any]) -> None:
        """Tell what this host is."""
        self.say(answer="facts", facts=host.facts())

    def do_gpus(self, command: dict[str, Any]) -> None:
        """Tell which GPUs this host has, whether they are in use, and what torch can do with them.

        Where there may be some, a process of its own asks: a driver that hangs must not hold up the agent.
        """
        if inventory.likely_present():
            self._help("gpus", json.dumps({"imports": command.get("imports") is not False}).encode())
        else:
            self.say(answer="gpus", results=inventory.answer(look=False))

    def do_preload(self, command: dict[str, Any]) -> None:
        """Import torch, so that ranks start quickly."""
        from . import rank

        started = time.monotonic()
        try:
            version: str | None = rank.preload()
            error = None
            self.loaded = True
        except Exception as failure:  # a broken torch is a finding, not the end of the agent
            version, error = None, f"{type(failure).__name__}: {failure}"[:600]
        self.say(answer="preload", torch=version, error=error, seconds=round(time.monotonic() - started, 3))

    def do_port(self, command: dict[str, Any]) -> None:
        """Find a free port."""
        self.say(answer="port", port=host.free_port())

    def do_check_port(self, command: dict[str, Any]) -> None:
        """Tell whether something listens on a port; that it may not be used (below 1024) is another matter."""
        why = host.port_free(int(command["port"]))
        self.say(answer="check_port", port=command["port"], taken=why == os.strerror(errno.EADDRINUSE), why=why)

    def do_listen(self, command: dict[str, Any]) -> None:
        """Start the listener of the reachability probe."""
        self._end_listener()
        loopback = "1" if command.get("loopback") else "0"
        arguments = ["listen", str(int(command.get("ports", 3))), loopback, str(int(command.get("also") or 0))]
        self.listener = helper(*arguments)
        assert self.listener.stdout is not None
        line = self.listener.stdout.readline()
        self.say(answer="listen", where=json.loads(line) if line else [])

    def do_probe(self, command: dict[str, Any]) -> None:
        """Probe targets in a process of its own; the answer comes when it is done."""
        self._help("probe", json.dumps(command).encode())

    def do_ras(self, command: dict[str, Any]) -> None:
        """Ask the RAS of the ranks of one experiment what it knows, in a process of its own."""
        address = self.ras.get(command["run"])
        if not address:
            self.say(answer="ras", run=command["run"], results="")
        else:
            self._await({"answer": "ras", "run": command["run"]}, helper("ras", address))

    def _await(self, answer: dict[str, Any], process: subprocess.Popen[bytes]) -> None:
        """Give an answer with the results of a helper, when it is done."""
        assert process.stdout is not None
        self.helpers[process.stdout.fileno()] = (answer, process, b"")
        self.selector.register(process.stdout, selectors.EVENT_READ, "helper")

    def do_run(self, command: dict[str, Any]) -> None:
        """Start the ranks of one experiment on this host."""
        own = ras.variables(command["spec"])
        self.ras[command["run"]] = own.get("NCCL_RAS_ADDR", "")
        for rank in command["ranks"]:
            spec = {**command["spec"], **command.get("per_rank", {}).get(str(rank), {})}
            spec["env"] = {**own, **spec.get("env", {})}
            try:
                self._start(command, rank, spec)
            except (OSError, TypeError, ValueError) as error:  # a folder, or a variable that cannot be set
                self.say(answer="exit", run=command["run"], rank=rank, code=None, error=str(error))

    def do_go(self, command: dict[str, Any]) -> None:
        """Let the ranks of one experiment meet: all of them are ready."""
        self._tell(command["run"], control.GO)

    def do_inspect(self, command: dict[str, Any]) -> None:
        """Tell the kernel's state of each rank and ask each for its flight recorder."""
        for child in list(self.children.values()):
            if child.run == command["run"]:
                self.say(answer="state", run=child.run, rank=child.rank, state=host.state_of(child.pid))
        self._tell(command["run"], control.DUMP)

    def _tell(self, run: str, what: bytes) -> None:
        for child in self.children.values():
            if child.run == run:
                with contextlib.suppress(OSError):
                    os.write(child.control, what)

    def do_stop(self, command: dict[str, Any]) -> None:
        """Kill the ranks of one experiment and tell when they are gone."""
        self._kill(command["run"])
        self.say(answer="stopped", run=command["run"])

    def do_end_listen(self, command: dict[str, Any]) -> None:
        """End the listener; tell from which addresses a connection was asked for whose answer never arrived there."""
        self.say(answer="end_listen", half_open=self._end_listener())

    # children

    def _help(self, name: str, question: bytes = b"") -> None:
        """Start a part of this program whose output is the answer of this name."""
        process = helper(name)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(question)
        process.stdin.close()
        self._await({"answer": name}, process)

    def _start(self, command: dict[str, Any], rank: int, spec: dict[str, Any]) -> None:
        nccl = spec.get("backend") == "nccl"
        files = rank_files.opened(Path(command["folder"]), rank, carried=self.carries, nccl=nccl)
        marks_in, marks_out = os.pipe()
        control_in, control_out = os.pipe()
        spec = {**spec, "local_rank": command["ranks"].index(rank), "nccl_log": files.nccl_name}
        given, popen = (files.output, marks_out, control_in, files.inherited), None
        started = False
        try:
            if command.get("method") == "fork" and self.loaded:
                pid = children.forked(spec, rank, *given)
            else:
                popen = children.spawned(spec, rank, *given)
                pid = popen.pid
            started = True
        finally:
            for descriptor in (marks_out, control_in, *(() if started else (marks_in, control_out))):
                os.close(descriptor)
            if not (started and self.carries):
                files.close()
        child = RankProcess(command["run"], rank, pid, marks_in, control_out, files, popen=popen)
        self.children[marks_in] = child
        self.selector.register(marks_in, selectors.EVENT_READ, "marks")

    def _read(self, child: RankProcess) -> None:
        try:
            data = os.read(child.marks, 65536)
        except OSError:
            data = b""
        if not data:
            self._bury(child)
            return
        *lines, child.rest = (child.rest + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                self.say(answer="mark", run=child.run, **json.loads(line))

    def _bury(self, child: RankProcess) -> None:
        """Report how a rank ended; its pipe is closed, so it is killed if it has not ended."""
        self.selector.unregister(child.marks)
        os.close(child.marks)
        os.close(child.control)
        del self.children[child.marks]
        status = children.waited(child.pid)
        if child.popen is not None:
            child.popen.returncode = status  # waited for here: keep subprocess from waiting again
        self.say(answer="exit", run=child.run, rank=child.rank, code=status, **child.files.contents())

    def _kill(self, run: str | None) -> None:
        """Kill whole sessions; a stopped process dies of SIGKILL, too."""
        chosen = [child for child in self.children.values() if run is None or child.run == run]
        for child in chosen:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        for child in chosen:
            while child.marks in self.children:
                self._read(child)

    def _end_listener(self) -> list[str]:
        listener, self.listener = self.listener, None
        if listener is None:
            return []
        try:
            told, _ = listener.communicate(timeout=ENDING)
        except subprocess.TimeoutExpired:
            listener.kill()
            told, _ = listener.communicate()
        return list(json.loads(told)) if told.strip() else []

    def _helper(self, descriptor: int) -> None:
        answer, process, rest = self.helpers[descriptor]
        data = os.read(descriptor, 1 << 16)
        if data:
            self.helpers[descriptor] = (answer, process, rest + data)
            return
        self.selector.unregister(descriptor)
        del self.helpers[descriptor]
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        results: Any = []
        with contextlib.suppress(ValueError):  # it was killed, and the answer is cut
            results = json.loads(rest.strip().rpartition(b"\n")[2])
        self.say(**answer, results=results)

    # the loop

    def serve(self) -> None:
        """Read commands until the input ends."""
        self.selector.register(0, selectors.EVENT_READ, "commands")
        self.say(answer="hello", pid=os.getpid())
        rest = b""
        try:
            while True:
                for key, _ in self.selector.select(TICK if self.children else None):
                    if key.data == "marks":
                        if key.fd in self.children:
                            self._read(self.children[key.fd])
                    elif key.data == "helper":
                        self._helper(key.fd)
                    else:
                        data = os.read(0, 65536)
                        if not data:
                            return
                        *lines, rest = (rest + data).split(b"\n")
                        for line in lines:
                            self._obey(line)
        finally:
            self._kill(None)
            self._end_listener()
            for _, process, _ in self.helpers.values():
                process.kill()
                process.wait()

    def _obey(self, line: bytes) -> None:
        name = None
        try:
            command = json.loads(line)
            name = str(command["do"])
            getattr(self, f"do_{name}")(command)
        except Exception as error:  # ranks may run that must not end with a command that is none
            self.say(answer="error", do=name, error=f"{type(error).__name__}: {error}"[:600])
