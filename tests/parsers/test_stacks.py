"""Stacks as py-spy, faulthandler, pystack and gdb print them: one event per process, of its main thread."""

from __future__ import annotations

import pytest

from nccl_triage.observations.event import Event
from nccl_triage.parsers.stacks import StackParser
from nccl_triage.parsers.stateful import PeeledLine
from tests.prefix_reading import peel

PY_SPY = """Process 6327: /usr/bin/python3 -u train.py --local_rank=1
Python v3.11.7 (/usr/bin/python3.11)

Thread 6327 (idle): "MainThread"
    _PollLikeSelector.select (selectors.py:415)
    Queue.get (multiprocessing/queues.py:113)
    _MultiProcessingDataLoaderIter._try_get_data (torch/utils/data/dataloader.py:1291)
    main (train.py:21)
    <module> (train.py:24)
Thread 6377 (idle): "QueueFeederThread"
    Condition.wait (threading.py:327)
    Thread._bootstrap (threading.py:1002)
Process 6326: /usr/bin/python3 -u train.py --local-rank 0
Python v3.11.7 (/usr/bin/python3.11)

Thread 6326 (active+gil): "MainThread"
    cuStreamSynchronize (libcuda.so.550.54.15)
        Arguments:
            stream: 0
    synchronize (torch/cuda/__init__.py:1083)
    <module> (train.py:24)
"""
FAULTHANDLER = """Timeout (0:00:20)!
Thread 0x00007f5b536546c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Thread 0x00007f5b7c036b80 (most recent call first):
  File "/opt/venv/lib/python3.11/site-packages/torch/autograd/graph.py", line 979 in _engine_run_backward
  File "/opt/train/train.py", line 13 in train_step
  File "/opt/train/train.py", line 24 in <module>
Timeout (0:00:20)!
Thread 0x00007f4fae3ceb80 (most recent call first):
  File "/opt/train/train.py", line 21 in main
  File "/opt/train/train.py", line 24 in <module>
step 12 done
"""
PYSTACK = """Traceback for thread 6380 (python3) [] (most recent call last):
    (Python) File "/usr/lib/python3.11/threading.py", line 1002, in _bootstrap
        self._bootstrap_inner()

Traceback for thread 6326 (python3) [Has the GIL] (most recent call last):
    (Python) File "/opt/train/train.py", line 24, in <module>
        if __name__=="__main__": main()
    (Python) File "/opt/train/train.py", line 13, in train_step
        loss.backward()
"""
GDB = """Thread 2 (Thread 0x7f2a1c0ff700 (LWP 9121) "pt_nccl_watchdg"):
#0  0x00007f2b5bd1e117 in clock_nanosleep () from /lib/x86_64-linux-gnu/libc.so.6

Thread 1 (Thread 0x7f2b5c0b8740 (LWP 9100) "python"):
#0  0x00007f2b5bd8a9cf in poll () from /lib/x86_64-linux-gnu/libc.so.6
#1  0x00007f2ad1e21b60 in ncclGroupEndInternal (simInfo=0x0) at group.cc:712
#2  main () at train.cc:9
"""


def read(text: str) -> list[Event]:
    parser = StackParser()
    found: list[Event] = []
    for number, line in enumerate(text.splitlines(), 1):
        peeled = peel(line)
        found += parser.feed(PeeledLine("log", number, peeled.text, peeled.context))
    return found + parser.finish()


def frames(event: Event) -> list[str]:
    return event.fields["frames"].split("\n")


def test_py_spy_tells_process_rank_and_frames() -> None:
    loads, waits = read(PY_SPY)
    assert (loads.context.pid, loads.context.local_rank, loads.line, loads.end_line) == (6327, 1, 7, 9)
    assert frames(loads)[2] == "_MultiProcessingDataLoaderIter._try_get_data (torch/utils/data/dataloader.py:1291)"
    assert loads.fields["threads"] == "2" and "cut" not in loads.fields
    assert (waits.context.pid, waits.context.local_rank) == (6326, 0)
    assert frames(waits) == [
        "cuStreamSynchronize (libcuda.so.550.54.15)",
        "synchronize (torch/cuda/__init__.py:1083)",
        "<module> (train.py:24)",
    ]


def test_faulthandler_prints_the_main_thread_last_and_one_dump_for_each_process() -> None:
    one, two = read(FAULTHANDLER)
    assert frames(one)[0] == "_engine_run_backward (torch/autograd/graph.py:979)"
    assert frames(two) == ["main (/opt/train/train.py:21)", "<module> (/opt/train/train.py:24)"]
    assert two.end_line == 13


def test_a_crash_is_no_hang() -> None:
    crash = FAULTHANDLER.replace("Timeout (0:00:20)!", "Fatal Python error: Segmentation fault")
    assert read(crash) == []


def test_pystack_prints_the_outermost_frame_first() -> None:
    (main,) = read(PYSTACK)
    assert main.context.pid == 6326
    assert frames(main) == ["train_step (/opt/train/train.py:13)", "<module> (/opt/train/train.py:24)"]


def test_of_gdb_the_first_thread_is_the_program() -> None:
    (main,) = read(GDB)
    assert main.context.pid == 9100
    assert frames(main)[1] == "ncclGroupEndInternal (group.cc:712)"


def test_ranks_that_share_a_log_are_told_apart_by_their_prefix() -> None:
    dump = [line for line in FAULTHANDLER.splitlines()[:9] if line]
    mixed = "\n".join(f"[rank{rank}]: {line}" for line in dump for rank in (0, 1))
    assert sorted(event.context.rank or 0 for event in read(mixed)) == [0, 1]


def test_the_thread_that_runs_pytorch_is_chosen_where_the_main_one_only_serves() -> None:
    text = """Thread 90 (idle): "MainThread"
    main_loop (ray/_private/worker.py:876)
    <module> (default_worker.py:297)
Thread 95 (idle): "ThreadPoolExecutor-0_0"
    barrier (torch/distributed/distributed_c10d.py:4159)
    sync (worker.py:12)
    _bootstrap (threading.py:1002)
"""
    (found,) = read(text)
    assert frames(found)[0].startswith("barrier (torch/distributed/")


@pytest.mark.parametrize("line", ["Process 12 of 64 is ready", "Process group 3: done", "Thread 9 (idle) and (LWP 3)"])
def test_lines_that_only_sound_like_a_dump_make_none(line: str) -> None:
    assert read(f"{line}\nstep 3 loss 2.0\n") == []


def test_a_dump_without_end_is_closed() -> None:
    endless = 'Thread 9 (idle): "MainThread"\n' + "    f (x.py:1)\n" * 9000
    found = read(endless)
    assert len(found) == 1 and len(frames(found[0])) == 40
