"""Peeling of prefixes in any nesting, and what they say about rank, host, process and time."""

from __future__ import annotations

import pytest

from nccl_triage.parsers import times
from tests.prefix_reading import peel, sniff


@pytest.mark.parametrize(
    ("line", "text", "expected"),
    [
        (
            "2025-06-03T14:14:31.645427617Z stderr F \x1b[36m(LLMRayActor pid=585804, ip=10.0.0.4)\x1b[0m "
            "(EngineCore_DP0 pid=586112) ERROR 06-03 14:14:31 [core.py:1094] Traceback (most recent call last): "
            "[repeated 3x across cluster]",
            "Traceback (most recent call last):",
            {"address": "10.0.0.4", "pid": 586112, "repeated": 3, "stream": "stderr", "level": "ERROR"},
        ),
        ("[default3]:[rank11]: ValueError: x", "ValueError: x", {"local_rank": 3, "rank": 11}),
        ("(RayTrainWorker(rank=3) pid=8118, ip=10.0.3.213) step 1", "step 1", {"rank": 3, "address": "10.0.3.213"}),
        ("(worker1, rank=1, pid=1816, ip=10.0.3.213) step 1", "step 1", {"rank": None, "group_rank": 1, "pid": 1816}),
        ("(raylet, ip=10.0.0.162) A worker died", "A worker died", {"address": "10.0.0.162", "program": "ray"}),
        ("[1,12]<stderr>:Traceback (most recent call last):", "Traceback (most recent call last):", {"rank": 12}),
        (
            "Thu Nov 12 14:22:41 2020[13]<stderr>:Fatal Python error: Aborted",
            "Fatal Python error: Aborted",
            {"rank": 13},
        ),
        ("Thu Nov 12 14:22:41 2020[1,13]<stderr>:boom", "boom", {"rank": 13}),
        ("[1,mpirank:7,algo-1]<stderr>:boom", "boom", {"rank": 7, "host": "algo-1"}),
        ("(Trainer pid=12, ip=gpu-node-3) boom", "boom", {"host": "gpu-node-3", "address": None, "pid": 12}),
        ("(raylet, ip=gpu-node-3) boom", "boom", {"host": "gpu-node-3", "address": None}),
        ("#033[36m(Trainer pid=12, ip=10.0.0.3)#033[0m boom", "boom", {"address": "10.0.0.3", "pid": 12}),
        ("2024-09-27 07:59:39.732000: [rank2]: ValueError: x", "ValueError: x", {"rank": 2}),
        ("[24 similar log lines] step 1", "step 1", {"repeated": 23}),
        ("[rank: 1] Received SIGTERM: 15", "Received SIGTERM: 15", {"rank": 1}),
        ("[RANK 4] 2026-05-17 19:40:29,604 [ERROR] boom", "boom", {"rank": 4, "level": "ERROR"}),
        (
            "[default2]:2026-11-21 02:38:12,631 - INFO - train - [rank 2/4] step 3/20 loss 5.0",
            "step 3/20 loss 5.0",
            {"rank": 2, "world_size": 4, "local_rank": 2},
        ),
        (
            "[2025-06-03 22:14:31] [2025-06-03 14:14:31,348] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 1",
            "Killing subprocess 1",
            {"level": "INFO"},
        ),
        (
            "E1123 10:22:31.418000 40112 torch/distributed/elastic/multiprocessing/api.py:826] failed (exitcode: -9)",
            "failed (exitcode: -9)",
            {"pid": 40112, "level": "E"},
        ),
        (
            "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 1 (pid: 33664)",
            "failed (exitcode: -9) local_rank: 1 (pid: 33664)",
            {"level": "ERROR"},
        ),
        (
            "Jun  3 14:14:31 gpu-4 kernel: [12345.678901] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
            "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
            {"place": "gpu-4", "program": "kernel"},
        ),
        (
            "2025-06-03T14:14:32+0800 gpu-7 systemd[1]: nvidia-fabricmanager.service: Failed",
            "nvidia-fabricmanager.service: Failed",
            {"place": "gpu-7", "writer": 1},
        ),
        ('{"log":"[rank3]: boom\\n","stream":"stderr","time":"2025-06-03T14:14:32.5Z"}', "boom", {"rank": 3}),
        ('{"ts": "2025-06-03T14:14:31Z", "level": "error", "msg": "boom", "rank": 3}', "boom", {"rank": 3}),
        ("[pod/train-worker-3/pytorch] loss 1.2", "loss 1.2", {"place": "train-worker-3"}),
        (
            "2025-06-03 14:14:31.123 | ERROR    | train:main:42 - boom",
            "boom",
            {"level": "ERROR"},
        ),
        ("2025-06-03:14:14:31,348 ERROR    [evaluator.py:14] boom", "boom", {"level": "ERROR"}),
        ("[36m(ActorModelRayActor pid=1048, ip=10.0.195.96)[0m hello", "hello", {"pid": 1048}),
        ("[2025-06-03 10:05:00 DP1 TP3] Decode batch.", "Decode batch.", {"group_rank": 3, "program": "sglang"}),
        ("(Worker_TP3_EP3 pid=901) ERROR boom", "ERROR boom", {"group_rank": 3, "program": "vllm"}),
        (
            "RuntimeError: [/w/ProcessGroupUCC.cpp:463] [Rank 1][ProcessGroupUCC-1][READY]failed",
            "RuntimeError: [/w/ProcessGroupUCC.cpp:463] [Rank 1][ProcessGroupUCC-1][READY]failed",
            {"group_rank": 1},
        ),
        ("(Worker_DP1_TP3 pid=901) ERROR boom", "ERROR boom", {"group_rank": None, "program": "vllm"}),
        ("(Worker_PP1_TP0 pid=901) ERROR boom", "ERROR boom", {"group_rank": None, "program": "vllm"}),
        ("[PID:1673] [RANK:3] boom", "boom", {"host": None, "pid": 1673, "local_rank": 3}),
        ("[PID:1670] boom", "boom", {"host": None, "local_rank": 0}),
        ("04/16 10:21:33 - mmengine - INFO - loss: 0.5", "loss: 0.5", {"host": None, "program": "mmengine"}),
        ("2024-05-01T10:00:00.12Z ERROR shard-manager: boom", "ERROR shard-manager: boom", {"host": None}),
        ("10:21:33 [7] some INFO about a loss", "10:21:33 [7] some INFO about a loss", {"host": None, "pid": None}),
    ],
)
def test_prefixes_are_peeled_and_read(line: str, text: str, expected: dict[str, object]) -> None:
    peeled = peel(line)
    assert peeled.text == text
    for name, value in expected.items():
        assert getattr(peeled.context, name) == value, name


def test_program_headers_stay_in_the_message_but_are_read() -> None:
    line = "(WorkerDict pid=7712, ip=10.8.0.12) gn12:7712:9001 [2] transport/net_ib.cc:1295 NCCL WARN NET/IB : x"
    peeled = peel(line)
    assert peeled.text.startswith("gn12:7712:9001 [2]")
    assert (peeled.context.host, peeled.context.gpu, peeled.context.program) == ("gn12", 2, "nccl")


def test_rank_inside_a_group_is_not_taken_for_a_global_rank() -> None:
    peeled = peel("[rank7]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [PG ID 2 PG GUID 5(mesh_tp) Rank 1] x")
    assert (peeled.context.rank, peeled.context.group_rank) == (7, 1)


def test_error_glued_behind_a_progress_bar_keeps_its_rank() -> None:
    line = "  1%|2    | 24/1752 [01:08<1:22, 2.88s/it][rank5]:[E602 01:47:02.185053341 ProcessGroupNCCL.cpp:632] [Rank 5] W"
    assert peel(line).context.rank == 5


def test_exception_text_inside_json_comes_as_further_lines() -> None:
    peeled = peel(
        '{"message": "failed", "exc_info": "Traceback (most recent call last):\\nValueError: x", "level": "ERROR"}'
    )
    assert peeled.text == "failed"
    assert peeled.extra == ["Traceback (most recent call last):", "ValueError: x"]


@pytest.mark.parametrize(
    "line", ["ValueError: 3", "Epoch 3: loss", "[2] is a list", "3: not a label", "node1: no prefix"]
)
def test_ordinary_text_keeps_its_words_without_a_profile(line: str) -> None:
    assert peel(line).text == line


def test_srun_labels_are_believed_when_the_whole_source_has_them() -> None:
    lines = [f"{i % 4}: step {i}" for i in range(40)]
    profile = sniff(lines)
    peeled = peel("3: [rank3]: boom", profile)
    assert (peeled.text, peeled.context.rank, peeled.context.group_rank) == ("boom", 3, 3)


def test_node_names_are_believed_when_they_repeat() -> None:
    lines = [f"node{i % 2}: step {i}" for i in range(20)] + ["ValueError: node"]
    profile = sniff(lines)
    assert peel("node1: hello", profile).context.host == "node1"
    assert peel("ValueError: node", profile).text == "ValueError: node"


def test_counted_lines_of_a_paste_are_no_ranks() -> None:
    profile = sniff([f"[{1743 + i}] line" for i in range(10)])
    peeled = peel("[1755] [rank0]: x", profile)
    assert (peeled.text, peeled.context.rank) == ("x", 0)


def test_peeling_ends_on_hostile_nesting() -> None:
    assert peel("[rank1]: " * 10_000).text


@pytest.mark.parametrize(
    ("stamp", "shown"),
    [
        ("2025-06-03 14:14:31,348", "2025-06-03 14:14:31"),
        ("2025-06-03:14:14:31,348", "2025-06-03 14:14:31"),
        ("06/03/2025 14:00:00", "2025-06-03 14:00:00"),
        ("Jun  3 14:14:31", "06-03 14:14:31"),
        ("Tue Jun  3 14:14:31 2025", "2025-06-03 14:14:31"),
    ],
)
def test_time_stamps(stamp: str, shown: str) -> None:
    time = times.from_stamp(stamp)
    assert time is not None
    assert times.show(time) == shown


@pytest.mark.parametrize(
    ("mmdd", "month_day"), [("129", "01-29"), ("1206", "12-06"), ("0603", "06-03"), ("06-03", "06-03")]
)
def test_month_and_day_without_year(mmdd: str, month_day: str) -> None:
    time = times.from_month_day(mmdd, "03:04:10.000012345")
    assert time is not None
    assert times.show(time) == f"{month_day} 03:04:10"
    placed = times.with_year_of(time, times.from_stamp("2025-03-01 00:00:00") or 0)
    assert times.show(placed) == f"2025-{month_day} 03:04:10"


def test_impossible_times_are_no_times() -> None:
    assert times.from_stamp("2025-13-40 99:99:99") is None
    assert times.from_month_day("99", "00:00:00") is None


def test_pods_and_tasks_in_brackets_are_believed_where_they_stand_in_front_of_the_lines() -> None:
    lines = [f"[workers-0-{n % 3}] Train Epoch: {n} loss 2.1" for n in range(6)]
    profile = sniff(lines)
    peeled = peel(lines[4], profile)
    assert (peeled.text, peeled.context.place) == ("Train Epoch: 4 loss 2.1", "workers-0-1")
    assert peel(lines[4], sniff([*lines, "loss 1.9"])).text == lines[4]
    assert "bracketed" not in sniff(["[step-1] loss 2.1", "[step-1] loss 2.0", "[step-1] loss 1.9"]).believed

    tasks = ["I0804 step 57", *[f"[task {n}] E0804 stream failed" for n in (317, 317, 0, 12)]]
    peeled = peel(tasks[1], sniff(tasks))
    assert (peeled.text, peeled.context.group_rank) == ("E0804 stream failed", 317)
    assert "task" not in sniff([f"[task 3] item {n}" for n in range(9)]).believed


def test_behind_the_launching_node_stands_the_one_that_speaks() -> None:
    lines = [f"10.0.0.143: 10.0.0.{n % 3}: step {n} loss 2.1" for n in range(9)]
    peeled = peel(lines[4], sniff(lines))
    assert (peeled.text, peeled.context.address) == ("step 4 loss 2.1", "10.0.0.1")
    one = [f"10.0.0.{n % 3}: step {n} loss 2.1" for n in range(9)]
    assert peel(one[4], sniff(one)).context.address == "10.0.0.1"


def test_a_script_that_argparse_names_on_every_line_is_no_node() -> None:
    lines = [
        "usage: finetune.py [-h] [--deepspeed DEEPSPEED]",
        "finetune.py: error: argument --deepspeed: invalid dict value",
    ]
    profile = sniff(lines * 4)
    assert [peel(line, profile).text for line in lines] == lines
    assert peel("launch.sh: line 3: 81 Killed", sniff(["launch.sh: line 3: 81 Killed"] * 6)).context.host is None


@pytest.mark.parametrize(
    ("line", "host", "text"),
    [
        ("dgx-west: Killed", "dgx-west", "Killed"),
        ("gamma: [rank6]: RuntimeError: broke", "gamma", "RuntimeError: broke"),
        ("hint: read the manual", None, "hint: read the manual"),
        ("ValueError: [rank6]: broke", None, "ValueError: [rank6]: broke"),
    ],
)
def test_a_host_that_speaks_for_the_first_time_is_known_by_its_kin_or_by_a_rank(
    line: str, host: str | None, text: str
) -> None:
    peeled = peel(line, sniff([f"dgx-east: step {n} loss 2.{n}" for n in range(9)]))
    assert (peeled.context.host, peeled.text) == (host, text)


def test_hosts_between_the_time_and_the_message_are_believed_where_every_line_has_one() -> None:
    lines = [f"2025-06-03 14:14:{n % 60:02d} node{n % 3 + 1:02d} step {n} loss 2.{n}" for n in range(30)]
    profile = sniff(lines)
    peeled = peel("2025-06-03 14:14:31 node02 KeyError: 'tokens'", profile)
    assert (peeled.context.place, peeled.text) == ("node02", "KeyError: 'tokens'")
    ranks = sniff([f"2025-06-03 14:14:{n:02d} rank{n % 3} step {n}" for n in range(30)])
    assert peel("2025-06-03 14:14:31 rank2 step 7", ranks).context.place is None


def test_two_clocks_of_one_line_are_kept_apart() -> None:
    line = "2025-06-03T01:00:00.500Z stderr F [rank0]:[E603 09:00:00.123456789 ProcessGroupNCCL.cpp:629] [Rank 0] late"
    context = peel(line).context
    assert (context.time, context.clock) == (times.from_stamp("2025-06-03 01:00:00.500"), "cri")
    assert context.printed == times.from_month_day("603", "09:00:00")
    alone = peel("[E603 09:00:00.123456789 ProcessGroupNCCL.cpp:629] [Rank 0] late").context
    assert (alone.time, alone.printed) == (times.from_month_day("603", "09:00:00"), None)


def test_prefixes_are_known_among_many_lines_of_another_program() -> None:
    own = [f"{n % 4}: step {n} of rank {n % 4}, loss {'abcdefgh'[n % 8] * (n % 5)}" for n in range(20)]
    lines = [line for one in own for line in (*["INFO: exporter scrape 12 took 3 ms"] * 9, one)]
    assert "srun" in sniff(lines).believed
    assert "srun" not in sniff(["INFO: exporter scrape 12 took 3 ms"] * 90).believed


def test_blanks_at_the_end_of_a_line_say_nothing() -> None:
    assert peel("[rank0]: KeyError: 'x'  \t\r\n").text == "KeyError: 'x'"


def test_what_stands_behind_a_stamp_keeps_its_indent() -> None:
    assert peel('2025-06-03T01:00:00Z   File "x.py", line 3, in f').text == '  File "x.py", line 3, in f'


def test_a_source_file_in_brackets_is_no_host() -> None:
    assert peel("[rank 0] [pretrain.py:288] INFO: step 1").context.host is None
    assert peel("[gpu01:4711] mca_btl_tcp: failed").context.host == "gpu01"


def test_a_stamp_without_a_year_beside_the_last_second_that_dates_have() -> None:
    last = times.from_stamp("9999-12-31T23:59:60")
    assert last is not None
    moved = times.with_year_of(times.seconds(times.NO_YEAR, 11, 26, 10, 0, 0) or 0.0, last)
    assert times.has_year(moved)


@pytest.mark.parametrize(
    ("put", "place"),
    [
        ("[pod/train-{n}/c] 2025-06-03T01:00:00.123456789Z {line}", "train-{n}"),
        ("trainer-{n}  | 2025-06-03T01:00:00.123Z {line}", "trainer-{n}"),
        ("train_trainer.{n}.abc123@node-{n}    | {line}", "node-{n}"),
        ("train-{n} trainer 2025-06-03T01:00:00.123Z {line}", "train-{n}"),
        ("2025-06-03T01:00:00+0000 node{n} python3[47{n}]: {line}", "node{n}"),
        ("Jun 03 01:00:00.123456 node{n} python3[47{n}]: {line}", "node{n}"),
        ("/var/log/containers/train-{n}_ns_c-0abc.log:2025-06-03T01:00:00.1Z stderr F {line}", "train-{n}"),
        ("2025-06-03T01:00:00.123Z train-{n}/algo-1-abc {line}", "train-{n}/algo-1-abc"),
    ],
)
def test_places_of_collectors(put: str, place: str) -> None:
    own = [
        "[rank0]: KeyError: 'x'",
        "step 3/10 loss 2.1",
        '  File "x.py", line 1, in f',
        "gpu01:4:4 [0] NCCL INFO x",
    ] * 4
    lines = [put.format(n=n % 2, line=line) for n, line in enumerate(own)]
    profile = sniff(lines)
    for n, line in enumerate(own):
        peeled = peel(lines[n], profile)
        assert (peeled.text, peeled.context.place) == (peel(line).text, place.format(n=n % 2))
