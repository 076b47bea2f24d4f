"""Tracebacks out of interleaved streams: the innermost first exception is the evidence."""

from __future__ import annotations

import pytest

from nccl_triage.observations.event import Context, Event
from nccl_triage.parsers import tracebacks
from nccl_triage.parsers.elastic_report import ElasticReportParser
from nccl_triage.parsers.stateful import PeeledLine, StatefulParser
from nccl_triage.parsers.tracebacks import TracebackParser
from tests.prefix_reading import peel, sniff


def run(parser: StatefulParser, text: str) -> list[Event]:
    events: list[Event] = []
    for number, line in enumerate(text.splitlines(), 1):
        peeled = peel(line)
        events += parser.feed(PeeledLine("log", number, peeled.text, peeled.context))
    return [*events, *parser.finish()]


def test_interleaved_ranks_are_kept_apart() -> None:
    events = run(
        TracebackParser(),
        """[rank0]: Traceback (most recent call last):
[rank1]: Traceback (most recent call last):
[rank1]:   File "/app/train.py", line 7, in main
[rank0]:   File "/app/train.py", line 9, in step
[rank1]:     x = data[k]
[rank0]:     y = f(x)
[rank1]: KeyError: 'pixel_values'
[rank0]: ValueError: bad batch
""",
    )
    found = {event.context.rank: event for event in events}
    assert found[1].fields["type"] == "KeyError"
    assert found[1].line == 7
    assert found[0].fields["message"] == "bad batch"
    assert found[0].fields["file_line"] == "9"


@pytest.mark.parametrize(
    "line",
    ["KeyErrorKeyError: : 'a''a'", "KeyErrorKeyErrorKeyError: : : 'a''a''a'", "KeyError: 'a'"],
    ids=["two", "three", "one"],
)
def test_what_several_ranks_print_into_one_line_is_one_exception(line: str) -> None:
    head = 'Traceback (most recent call last):\n  File "/app/train.py", line 7, in main\n    x = data[k]\n'
    fields = run(TracebackParser(), head + line + "\n")[0].fields
    assert (fields["type"], fields["message"]) == ("KeyError", "'a'")


def test_the_first_exception_of_a_chain_is_the_evidence() -> None:
    events = run(
        TracebackParser(),
        """Traceback (most recent call last):
  File "/app/loader.py", line 3, in read
    open(path)
FileNotFoundError: [Errno 2] No such file or directory: 'a.bin'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/app/train.py", line 5, in <module>
    main()
RuntimeError: loading failed
""",
    )
    assert len(events) == 1
    assert events[0].fields["type"] == "FileNotFoundError"
    assert events[0].fields["last_type"] == "RuntimeError"
    assert events[0].fields["chain"] == "2"
    assert events[0].line == 4


@pytest.mark.parametrize(
    ("frame", "loading"),
    [
        ('"/v/site-packages/torch/utils/data/_utils/fetch.py", line 54, in fetch', True),
        ('"/v/site-packages/torch/utils/data/_utils/collate.py", line 272, in collate_tensor_fn', True),
        ('"/v/site-packages/datasets/arrow_dataset.py", line 2777, in __getitem__', True),
        ('"/v/site-packages/streaming/base/dataset.py", line 529, in __init__', False),
        ('"/v/site-packages/torch/utils/data/dataloader.py", line 351, in __init__', False),
    ],
)
def test_exceptions_while_a_batch_is_fetched(frame: str, loading: bool) -> None:
    (event,) = run(
        TracebackParser(),
        f"""Traceback (most recent call last):
  File "/app/train.py", line 3, in <module>
    main()
  File {frame}
    data = call()
  File "/app/data.py", line 12, in __getitem__
    raise ValueError("bad record")
ValueError: bad record
""",
    )
    assert ("loading" in event.fields) is loading


@pytest.mark.parametrize(
    ("files", "inside"),
    [
        (("/opt/venv/bin/vllm", "/v/site-packages/vllm/cli.py", "/v/lib/python3.11/json/decoder.py"), "vllm"),
        (("/v/site-packages/vllm/cli.py", "/v/site-packages/torch/nn/module.py"), "torch"),
        (("/sgl-workspace/sglang/python/sglang/srt/scheduler.py",), "sglang"),
        (("/work/Megatron-LM/megatron/training.py",), "megatron"),
        (("/work/acme/acme/train.py",), None),
        (("/v/site-packages/vllm/cli.py", "/job/plugin.py"), None),
        (("/root/slime/slime/ray/rollout.py",), "slime"),
    ],
)
def test_the_package_that_failed_inside_itself(files: tuple[str, ...], inside: str | None) -> None:
    frames = "".join(f'  File "{file}", line 3, in run\n' for file in files)
    (event,) = run(TracebackParser(), f"Traceback (most recent call last):\n{frames}KeyError: 'a'\n")
    assert event.fields.get("inside") == inside


def test_ray_task_errors_name_the_failing_actor() -> None:
    events = run(
        TracebackParser(),
        """Traceback (most recent call last):
  File "/app/driver.py", line 3, in <module>
    ray.get(refs)
ray.exceptions.RayTaskError(ValueError): ray::Worker.train() (pid=27987, ip=192.0.2.2, actor_id=ab, repr=<x>)
  File "/app/worker.py", line 27, in train
    raise ValueError("lr")
ValueError: lr
""",
    )
    worker = [event for event in events if event.fields["type"] == "ValueError"]
    assert worker
    assert worker[0].context.pid == 27987
    assert worker[0].context.address == "192.0.2.2"
    assert worker[0].fields["function"] == "train"


def test_multi_line_messages_belong_to_the_exception() -> None:
    events = run(
        TracebackParser(),
        """[rank4]: Traceback (most recent call last):
[rank4]:   File "/x/distributed_c10d.py", line 2213, in all_reduce
[rank4]: torch.distributed.DistBackendError: NCCL error in: a.cpp:1970, unhandled system error, NCCL version 2.20.5
[rank4]: ncclSystemError: System call failed.
[rank4]: Last error:
[rank4]: socketProgress: Call to recv from 192.0.2.21<46311> failed : Connection reset by peer
""",
    )
    assert events[0].end_line == 6
    assert "Connection reset by peer" in events[0].fields["message"]


def test_a_cpp_stack_is_no_traceback() -> None:
    assert (
        run(TracebackParser(), "Exception raised from checkTimeout at x.cpp:1 (most recent call first):\nframe #0: f\n")
        == []
    )


def test_unfinished_tracebacks_do_not_leak() -> None:
    parser = TracebackParser()
    run(parser, "\n".join(f"[rank{i}]: Traceback (most recent call last):" for i in range(6000)))
    assert not parser.is_open()


REPORT = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-23_10:22:31
  host      : gpu07.cluster.local
  rank      : 9 (local_rank: 1)
  exitcode  : -15 (pid: 40231)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 40231
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-23_10:22:29
  host      : gpu07.cluster.local
  rank      : 11 (local_rank: 3)
  exitcode  : -9 (pid: 40233)  (SIGKILL)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 40233
============================================================
"""


def test_elastic_report_gives_one_event_a_worker() -> None:
    events = run(ElasticReportParser(), REPORT)
    assert [(e.fields["rank"], e.fields["exitcode"], e.fields["root"]) for e in events] == [
        ("9", "-15", "0"),
        ("11", "-9", "1"),
    ]
    assert events[1].context.rank == 11
    assert events[1].context.host == "gpu07.cluster.local"
    assert events[1].fields["signal"] == "SIGKILL"


def test_two_agents_reports_interleave() -> None:
    doubled = "\n".join(f"node{n}: {line}" for line in REPORT.splitlines() for n in (0, 1))
    profile = sniff(doubled.splitlines())
    parser, events = ElasticReportParser(), []
    for number, line in enumerate(doubled.splitlines(), 1):
        peeled = peel(line, profile)
        events += parser.feed(PeeledLine("log", number, peeled.text, peeled.context))
    events += parser.finish()
    assert len(events) == 4
    assert {event.context.host for event in events} == {"node0", "node1"}


def test_headers_without_a_traceback_do_not_leak() -> None:
    parser = TracebackParser()
    for pid in range(tracebacks.MAX_OPEN + 100):
        line = PeeledLine("log", pid, "[Rank 1 Error Snippet]:", Context(pid=pid))
        assert parser.feed(line) == []
    assert len(parser._named) <= tracebacks.MAX_OPEN


def test_an_exception_without_a_message_takes_no_other_line_for_it() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/opt/app/layer.py", line 190, in __init__',
        "    assert self.num_experts % self.tp_size == 0",
        "AssertionError",
        "",
        "Received sigquit from a child process. It usually means the child failed.",
    ]
    parser = TracebackParser()
    events = [event for n, text in enumerate(lines, 1) for event in parser.feed(PeeledLine("log", n, text, Context()))]
    (event,) = events + parser.finish()
    assert (event.fields["type"], event.fields["message"], event.text) == ("AssertionError", "", "AssertionError")


@pytest.mark.parametrize(("last", "kinds"), [("Exception: no such layer", ["Exception"]), ("Exception:", [])])
def test_a_plain_exception_counts_when_it_says_something(last: str, kinds: list[str]) -> None:
    text = f'Traceback (most recent call last):\n  File "/a/train.py", line 7, in main\n    run()\n{last}\n'
    assert [event.fields.get("type") for event in run(TracebackParser(), text)] == kinds


@pytest.mark.parametrize(
    "below",
    [
        "ERROR 11-27 21:03:13 [serve.py:47] Engine core proc EngineCore_0 died unexpectedly (exit code 1)",
        "Process EngineCore_0:",
        "Exception in thread Thread-3 (_monitor):",
    ],
)
def test_what_is_printed_below_is_no_part_of_the_message(below: str) -> None:
    text = 'Traceback (most recent call last):\n  File "/app/serve.py", line 24, in engine\n    x[k]\nIndexError: list index out of range\n'
    (event,) = [e for e in run(TracebackParser(), f"{text}{below}\n") if e.fields.get("type")]
    assert event.fields["message"] == "list index out of range"


def test_a_message_of_several_records_goes_on() -> None:
    lines = ["Traceback (most recent call last):", '  File "/app/serve.py", line 24, in engine', "    x[k]", "ValueError: bad sizes:", "4 and 5"]  # fmt: skip
    (event,) = run(TracebackParser(), "".join(f"ERROR 11-27 21:03:13 [core.py:586] {line}\n" for line in lines))
    assert event.fields["message"] == "bad sizes:\n4 and 5"


def test_the_original_exception_of_a_replica_is_the_evidence() -> None:
    (event,) = run(
        TracebackParser(),
        """Traceback (most recent call last):
  File "/app/train.py", line 90, in <module>
    main()
  File "/opt/venv/lib/python3.11/site-packages/torch/_utils.py", line 434, in reraise
    raise exception
RuntimeError: Caught RuntimeError in replica 0 on device 0.
Original Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/torch/nn/parallel/parallel_apply.py", line 61, in _worker
    output = module(*input, **kwargs)
  File "/app/model.py", line 12, in forward
    x = torch.cat([a, b], 1)
RuntimeError: Sizes of tensors must match except in dimension 1.
""",
    )
    assert event.fields["message"] == "Sizes of tensors must match except in dimension 1."
    assert (event.fields["file"], event.fields["fate"], event.fields["block"]) == ("/app/model.py", "uncaught", "1-12")


@pytest.mark.parametrize(
    ("outermost", "fate"),
    [
        ('"/app/train.py", line 3, in <module>', "uncaught"),
        ('"<frozen runpy>", line 198, in _run_module_as_main', "uncaught"),
        ('"/opt/venv/lib/python3.11/site-packages/bitsandbytes/cextension.py", line 85, in <module>', "handled"),
        ('"/opt/venv/lib/python3.11/site-packages/lm_eval/__main__.py", line 4, in <module>', "uncaught"),
        ('"/app/serve.py", line 12, in handle', None),
    ],
)
def test_the_outermost_frame_tells_who_caught_the_exception(outermost: str, fate: str | None) -> None:
    text = f"Traceback (most recent call last):\n  File {outermost}\n    load()\nAttributeError: no such table\n"
    (event,) = run(TracebackParser(), text)
    assert event.fields.get("fate") == fate


def test_what_logging_says_of_its_own_errors_is_ignored() -> None:
    text = '100%|##| 5/5--- Logging error ---\nTraceback (most recent call last):\n  File "/app/train.py", line 3, in <module>\n'
    (event,) = run(TracebackParser(), text + "TypeError: not all arguments converted during string formatting\n")
    assert event.fields["fate"] == "ignored"
