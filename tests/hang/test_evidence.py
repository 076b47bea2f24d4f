"""Each kind of evidence, from real processes, pipes, sockets and files of this host."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nccl_triage.hang import evidence, stacks
from nccl_triage.hang.processes import HostProcess, JobRank, own_processes, read_process
from nccl_triage.hang.stacks import Unseen

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def this_process(**variables: str) -> HostProcess:
    """Return this process, with other variables."""
    process = read_process(os.getpid())
    assert process is not None
    process.variables = variables
    return process


@contextlib.contextmanager
def child(code: str, **options: object) -> Iterator[HostProcess]:
    """Run Python code that prints a line when it is ready."""
    words = [sys.executable, "-S", "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:  # type: ignore[call-overload]
        try:
            assert process.stderr.readline() == b"ready\n"
            found = read_process(process.pid)
            assert found is not None
            yield found
        finally:
            process.kill()


READY = "import sys, time; print('ready', file=sys.stderr, flush=True); time.sleep(600)"


def test_a_reader_of_the_pipe_is_asked_for_a_new_dump(tmp_path: Path) -> None:
    """As PyTorch's watchdog: it opens the pipe without blocking, and writes a dump after any byte."""
    pipe, dump = tmp_path / "fr_3.pipe", tmp_path / "trace_3"
    os.mkfifo(pipe)
    dump.write_bytes(b"an old dump")
    os.utime(dump, (1, 1))
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def watchdog() -> None:
        select.select([reader], [], [], 10.0)
        if os.read(reader, 128):
            dump.write_bytes(b"")
            time.sleep(0.3)
            dump.write_bytes(b"a new dump")

    thread = threading.Thread(target=watchdog)
    thread.start()
    try:
        given = {
            "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "fr_"),
            "TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "trace_"),
        }
        assert evidence.recorded(JobRank(this_process(**given), 3)) == b"a new dump"
    finally:
        thread.join()
        os.close(reader)


@pytest.mark.parametrize("kind", ["no pipe", "no reader", "a file"])
def test_a_pipe_that_nobody_reads_holds_nothing_up(tmp_path: Path, kind: str) -> None:
    pipe = tmp_path / "fr_0.pipe"
    if kind == "no reader":
        os.mkfifo(pipe)
    elif kind == "a file":
        pipe.write_bytes(b"")
    given = {
        "TORCH_FR_DEBUG_INFO_PIPE_FILE": str(tmp_path / "fr_"),
        "TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "trace_"),
    }
    start = time.monotonic()
    with pytest.raises(Unseen, match="dead-pipe"):
        evidence.recorded(JobRank(this_process(**given), 0))
    assert time.monotonic() - start < 2.0
    assert kind != "no pipe" or not pipe.exists()
    assert kind != "a file" or pipe.read_bytes() == b""


def test_a_dump_of_this_process_is_taken_although_no_pipe_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "trace_0").write_bytes(b"after a timeout")
    given = {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(tmp_path / "trace_")}
    assert evidence.recorded(JobRank(this_process(**given), 0)) == b"after a timeout"
    os.utime(tmp_path / "trace_0", (1, 1))  # of a run before
    with pytest.raises(Unseen, match="no-pipe"):
        evidence.recorded(JobRank(this_process(**given), 0))


def test_ras_is_asked_at_the_address_of_the_job() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            for report in (b"NCCL version 2.28.3\nJob summary\n", b"ERROR: Unknown command\n"):
                connection, _ = server.accept()
                with connection, connection.makefile("rwb") as stream:
                    stream.readline()
                    stream.write(b"SERVER PROTOCOL 2\n")
                    stream.flush()
                    stream.readline()
                    stream.write(b"OK\n")
                    stream.flush()
                    stream.readline()
                    stream.write(report)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        told = evidence.ask_ras([JobRank(this_process(NCCL_RAS_ADDR=f"localhost:{port}"))])
        thread.join(5.0)
    assert told == "NCCL version 2.28.3\nJob summary\n"
    with pytest.raises(Unseen, match="no-ras"):
        evidence.ask_ras([JobRank(this_process(NCCL_RAS_ADDR=f"localhost:{port}"))])


KERNEL = """[    1.000000] Command line: quiet
[{now:.6f}] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
[{before:.6f}] NVRM: Xid (PCI:0000:3b:00): 48, double bit ECC error
[{before:.6f}] earlier[4241]: segfault at 0 ip 00007f10a2b3c4d5 sp 00007ffd1a2b3c40 error 6 in libc.so.6[7f10a2b30000+1a000]
[{now:.6f}] python3[4242]: segfault at 0 ip 00007f10a2b3c4d5 sp 00007ffd1a2b3c40 error 6 in libc.so.6[7f10a2b30000+1a000]
[{now:.6f}] traps: python3[4243] general protection fault ip:7f1 sp:7ff error:0
[{now:.6f}] pt_data_worker[4244]: segfault at 0 ip 00007f10a2b3c4d5 sp 00007ffd1a2b3c40 error 6 in libc.so.6[7f10a2b30000+1a000]
"""


@pytest.mark.parametrize(
    ("of_host", "crashed"),
    [
        ({"here": 1}, ["pt_data_worker"]),
        ({"here": 2}, ["python3", "traps", "pt_data_worker"]),
        ({"beside": [3]}, ["pt_data_worker"]),
        ({"beside": [3, 4]}, ["python3", "traps", "pt_data_worker"]),
        ({}, ["python3", "traps", "pt_data_worker"]),
    ],
)
def test_a_crash_is_none_of_the_ranks_that_are_all_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_host: dict[str, object], crashed: list[str]
) -> None:
    """Other users' programs crash on this host, too. The kernel's own log is not for tests to write to."""
    now = float(Path("/proc/uptime").read_text().split()[0])
    process = this_process()
    before = process.started / os.sysconf("SC_CLK_TCK") - 5
    (tmp_path / "log").write_text(KERNEL.format(now=now, before=before))
    (tmp_path / "dmesg").write_text(f"#!/bin/sh\ncat {tmp_path}/log\n")
    (tmp_path / "dmesg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    told = evidence.kernel_log([JobRank(process, 3, **of_host)])  # type: ignore[arg-type]
    assert told.count("Xid") == 2 and "Command line" not in told and "earlier" not in told
    assert [name for name in ("python3", "traps", "pt_data_worker") if name in told] == crashed


def test_connections_show_what_waits_in_them() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        with far:
            near.sendall(b"x" * 700)
            lines = evidence.connections([JobRank(this_process(), 5)]).splitlines()
            here, there = (f"127.0.0.1:{one.getsockname()[1]}" for one in (near, far))
    mine = [line for line in lines if f"{there} -> {here}" in line]
    assert mine == [f"rank 5 pid {os.getpid()} ESTAB send-q 0 recv-q 700 retransmits 0 {there} -> {here}"]


def test_logs_are_found_by_the_files_that_are_open(tmp_path: Path) -> None:
    log, own, data = tmp_path / "train.log", tmp_path / "nccl.7.log", tmp_path / "results.csv"
    log.write_text("x" * 100 + "\nlast line\n", "utf-8")
    own.write_text("NCCL INFO\n", "utf-8")
    data.write_text("secret data\n", "utf-8")
    code = f"a = open({str(own)!r}, 'a'); b = open({str(data)!r}, 'a'); c = open({str(tmp_path / 'read.log')!r}, 'w+');{READY}"
    with log.open("ab") as stdout, child(code, stdout=stdout) as process:
        processes = {process.pid: process}
        sizes = evidence.log_sizes([JobRank(process, 0)], processes)
        with own.open("a") as more:
            more.write("NCCL WARN\n")
        found = list(evidence.logs([JobRank(process, 0)], processes, sizes))
    assert {one.name.rpartition("/")[2]: (one.data, one.grown) for one in found} == {
        "train.log": (log.read_bytes(), 0),
        "nccl.7.log": (b"NCCL INFO\nNCCL WARN\n", 10),
    }


def test_a_log_behind_a_pipe_is_found_at_its_other_end(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text("step 1\n", "utf-8")
    reading, writing = os.pipe()
    try:
        with (
            child(READY, stdout=writing) as rank,
            child(f"f = open({str(log)!r}, 'a');{READY}", pass_fds=(reading,)) as tee,
        ):
            processes = {one.pid: one for one in (rank, tee)}
            found = list(evidence.logs([JobRank(rank, 0)], processes, {}))
    finally:
        os.close(reading)
        os.close(writing)
    assert [(one.name.rpartition("/")[2], one.data, one.grown) for one in found] == [("job.out", b"step 1\n", 0)]


def test_of_a_long_log_the_last_lines_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "LOG", 100)
    log = tmp_path / "train.log"
    log.write_text("".join(f"step {number}\n" for number in range(1000)), "utf-8")
    with log.open("ab") as stdout, child(READY, stdout=stdout) as process:
        [(_, text, _)] = evidence.logs([JobRank(process, 0)], {process.pid: process}, {})
    assert text.startswith(b"step ") and text.endswith(b"step 999\n") and len(text) <= 100


def test_the_state_of_a_process_and_one_that_is_gone() -> None:
    with child(READY) as process:
        told = stacks.state(process)
        assert told is not None
        assert told["state"] in "RS" and told["gpu"] is False and sum(told["threads"].values()) == 1
    assert stacks.state(process) is None
    assert stacks.state(HostProcess(os.getpid(), 1, 1, "x", ["x"], {}, True)) is None, "another process has its number"


def test_what_cannot_be_dumped_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unseen, match="no-python"):
        stacks.dump(HostProcess(1, 0, 1, "x", ["x"], {}, False))
    monkeypatch.setattr(stacks, "py_spy", lambda process: "/nonexistent/py-spy")
    with pytest.raises(Unseen, match="no-start"):
        stacks.dump(this_process())


def test_a_py_spy_that_others_could_have_put_there_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing/python"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    program = tmp_path / "bin" / "py-spy"
    program.parent.mkdir(mode=0o755)
    program.write_text("#!/bin/sh\n", "utf-8")
    program.chmod(0o755)
    process = this_process()
    process.words = [str(tmp_path / "bin/python")]
    assert stacks.py_spy(process) == str(program)
    program.parent.chmod(0o777)
    assert stacks.py_spy(process) is None


def test_a_signal_is_sent_only_to_who_handles_it() -> None:
    with child(READY) as process, pytest.raises(Unseen, match="no-handler"):
        stacks.send_signal(process, "USR1")
    code = "import faulthandler, signal, sys; faulthandler.register(signal.SIGUSR1, file=sys.stdout);" + READY
    with subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None and process.stdout is not None
            process.stderr.readline()
            found = read_process(process.pid)
            assert found is not None
            stacks.send_signal(found, "USR1")
            assert "most recent call first" in process.stdout.readline()
            assert process.poll() is None
        finally:
            process.kill()


def test_this_process_and_its_parents_are_no_ranks() -> None:
    found = own_processes()
    assert found[os.getpid()].variables == {} and not found[os.getpid()].python
    assert found[os.getpid()].parent not in found or found[found[os.getpid()].parent].variables == {}
