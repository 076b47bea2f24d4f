"""What a document asks: real diagnoses of small logs, and documents that nobody honest would write."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_triage.api import diagnose
from nccl_triage.engine.schema import RuleSet
from nccl_triage.hosts.links import HostPlace
from nccl_triage.verify import plan
from nccl_triage.verify.api import question_of
from nccl_triage.verify.means import Means
from nccl_triage.verify.plan import PlanOptions
from nccl_triage.verify.question import MOST_MILLISECONDS, MOST_RANKS, AccusedGpu, Question, ask
from nccl_triage.verify.record import plan_record
from nccl_triage.verify.worker.ops import OPERATIONS, UNKNOWN_NUMEL

WATCHDOG = (
    "[rank{rank}]:[E302 10:30:00.000000000 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=7, OpType={op}, NumelIn={numel}, NumelOut={out}, Timeout(ms)=600000) ran for 600050 "
    "milliseconds before timing out."
)
LOG = "\n".join(
    [
        "node-a:101:101 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>",
        "node-a:101:101 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0",
        "node-a:101:101 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.",
        "node-b:202:202 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 0.",
        "node-a:101:101 [0] NCCL INFO NCCL_DEBUG set by environment to INFO.",
        "node-a:101:101 [0] NCCL INFO NCCL version 2.21.5+cuda12.4",
        WATCHDOG.format(rank=0, op="ALLGATHER", numel=1024, out=8192),
        WATCHDOG.format(rank=1, op="ALLGATHER", numel=1024, out=8192),
        "[W302 10:30:00 socket.cpp:1] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address "
        "already in use).",
    ]
)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory, rules: RuleSet) -> dict[str, Any]:
    return diagnosed(tmp_path_factory.mktemp("log"), LOG, rules)


def diagnosed(folder: Path, text: str, rules: RuleSet) -> dict[str, Any]:
    path = folder / "trainer.log"
    path.write_text(text + "\n")
    found: dict[str, Any] = diagnose([str(path)], rules=rules, model=None).to_dict()
    return found


def test_a_real_log_is_read(document: dict[str, Any]) -> None:
    question = ask(document)
    assert question.suspects[0].cause == "port-in-use"
    assert (question.op, question.numel, question.world, question.timeout) == ("ALLGATHER", 1024, 8, 600.0)
    assert question.dtype is None
    assert question.hosts == ("node-a", "node-b")
    assert question.addresses["node-a"] == ("10.0.0.1",)
    assert question.versions["nccl"] == "2.21.5"
    assert (question.backend, question.port) == ("nccl", 29500)


def test_variables_that_ranks_disagree_on_give_one_value_and_are_named(document: dict[str, Any]) -> None:
    assert document["job"]["env"]["NCCL_IB_DISABLE"] == ["1", "0"]
    assert ask(document).env == {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "eth0"}
    assert ask(document).left_out == ("NCCL_IB_DISABLE",), "on one of the hosts it was another"


def test_a_log_without_a_collective(tmp_path: Path, rules: RuleSet) -> None:
    question = ask(
        diagnosed(tmp_path, 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: x', rules)
    )
    assert (question.op, question.numel, question.world, question.timeout) == (None, None, None, None)
    assert question.env == {} and question.hosts == ()


def test_the_suspect_variables_are_those_that_its_evidence_names(tmp_path: Path, rules: RuleSet) -> None:
    log = "node-a:1:1 [0] NCCL WARN NCCL_IB_HCA set by environment to mlx5_9\nnode-a:1:1 [0] misc/socket.cc:1 NCCL WARN Bootstrap : no socket interface found"
    found = diagnosed(tmp_path, log, rules)
    named = {suspect.cause: suspect.variables for suspect in ask(found).suspects}
    for entry in found["diagnoses"]:
        texts = " ".join(line["text"] for line in entry["evidence"])
        assert all(name in texts for name in named[entry["cause"]])


@pytest.mark.parametrize("name", [*OPERATIONS, "ALLGATHER_COALESCED", "allreduce"])
def test_every_operation_of_a_log_is_known(name: str) -> None:
    found = ask({"collective": {"op": name}}).op
    assert found in OPERATIONS and found.upper() == name.upper()


@pytest.mark.parametrize("name", [None, "", "ALLSUM", 5, ["ALLREDUCE"], {}, "UNKNOWN"])
def test_no_operation_is_none(name: Any) -> None:
    assert ask({"collective": {"op": name}}).op is None


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(1, 1), ("1024", 1024), (UNKNOWN_NUMEL - 1, UNKNOWN_NUMEL - 1), (UNKNOWN_NUMEL, None), (10**40, None), (0, None),
     (-5, None), ("-5", None), ("many", None), ("٣٤", None), pytest.param("9" * 5000, None, id="endless"), (1.5, None), (float("nan"), None), (float("inf"), None),
     (True, None), (None, None), ([3], None), ({}, None)],
)  # fmt: skip
def test_the_number_of_elements(value: Any, wanted: int | None) -> None:
    assert ask({"collective": {"numel_in": value}}).numel == wanted


@pytest.mark.parametrize("value", [0, -1, MOST_RANKS + 1, 1e9, "eight", [8], {}, False, None])
def test_a_world_that_is_none(value: Any) -> None:
    assert ask({"collective": {"world_size": value}, "job": {"world_size": value}}).world is None


def test_the_world_of_the_group_goes_before_that_of_the_job() -> None:
    assert ask({"collective": {"world_size": 4}, "job": {"world_size": 16}}).world == 4
    assert ask({"collective": {"world_size": None}, "job": {"world_size": 16}}).world == 16


@pytest.mark.parametrize("value", [0, -1, MOST_MILLISECONDS + 1, 1e300, "long", [1], None])
def test_a_timeout_that_is_none(value: Any) -> None:
    assert ask({"collective": {"timeout_ms": value}}).timeout is None


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("The server socket has failed to bind to [::]:29500 (errno: 98", 29500),
        ("bind to 0.0.0.0:29501", 29501),
        ("port: 29502, useIpv6: 0, code: -98", 29502),
        ("MASTER_PORT=29503", 29503),
        ("'master_port': 29504", 29504),
        ("port=99999", None),
        ("port: 443", None),
        ("NET/IB transport 12345", None),
        ("support 2024", None),
        ("viewport: 8080", None),
    ],
)
def test_the_port_of_the_log(text: str, port: int | None) -> None:
    assert ask({"timeline": [{"text": text}]}).port == port


def test_variables_are_repeated_or_named() -> None:
    env = {"NCCL_ALGO": "Ring", "NCCL_NET_PLUGIN": "aws-ofi", "NCCL_DEBUG": "INFO", "PATH": "/evil"}
    question = ask({"job": {"env": env}})
    assert question.env == {"NCCL_ALGO": "Ring"}
    assert question.left_out == ("NCCL_NET_PLUGIN",)


def test_the_user_may_trust_the_variables_of_a_log() -> None:
    document = {"job": {"env": {"NCCL_NET_PLUGIN": "aws-ofi", "NCCL_TOPO_FILE": "/etc/nccl/topo.xml"}}}
    question = question_of(document, PlanOptions(trust_env=True))
    assert question.env == document["job"]["env"]
    assert question.left_out == ()
    assert question_of(document, PlanOptions()).env == {}


def test_a_name_that_is_none_is_cut_and_still_names_a_host() -> None:
    """Left out it would look as if the log named no host, and any host would do."""
    hosts = [{"name": "x" * 300_000, "addresses": ["y" * 300_000]}]
    question = ask(
        {"job": {"hosts": hosts, "software": {"nccl": "z" * 300_000}}, "collective": {"dtype": "t" * 300_000}}
    )
    (name,) = question.hosts
    assert (len(name), len(question.addresses[name][0])) == (255, 255)
    assert max(len(question.dtype or ""), len(question.versions["nccl"])) == 255


def test_an_empty_document_asks_nothing() -> None:
    assert ask({}) == Question(suspects=())


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [entry for key, below in items for entry in [(*path, key), *paths_of(below, (*path, key))]]


HOSTILE: tuple[Any, ...] = (
    None, True, 0, -1, 2**64, 10**30, -(10**30), 1.5, 1e308, "", "x", "\x00", "9" * 400, "'; rm -rf ~ #", [], {}, [None], [[]],
    {"a": {"b": []}},
)  # fmt: skip


def read(document: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return the paths that the question looks at."""
    wanted = {"diagnoses", "collective", "job", "symptoms", "timeline", "excerpts"}
    return [path for path in paths_of(document) if path[0] in wanted]


def planned(document: dict[str, Any], rules: RuleSet) -> None:
    """Ask and plan as the command does: neither may fail, nor plan anything beyond bounds."""
    question = question_of(document, PlanOptions())
    for means in (
        Means.alike((HostPlace("here"),), torch="2.13"),
        Means.alike((HostPlace("a"), HostPlace("b")), 8, 80 << 30, torch="2.13"),
    ):
        made = plan.build(question, rules.causes, means, PlanOptions())
        json.dumps(plan_record(made))
        for entry in made.experiments:
            assert entry.control is None or 1 <= entry.control.world <= 16


def test_any_field_may_be_missing(document: dict[str, Any], rules: RuleSet) -> None:
    for path in read(document):
        broken = copy.deepcopy(document)
        *front, last = path
        holder = broken
        for key in front:
            holder = holder[key]
        del holder[last]
        planned(broken, rules)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_field_may_be_anything(data: st.DataObject, document: dict[str, Any], rules: RuleSet) -> None:
    broken = copy.deepcopy(document)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(read(broken)) if read(broken) else st.just(("job",)))
        *front, last = path
        holder: Any = broken
        for key in front:
            holder = holder[key]
        # A copy: a later draw may write into what an earlier one put in.
        holder[last] = copy.deepcopy(data.draw(st.sampled_from(HOSTILE)))
    planned(broken, rules)


@pytest.mark.parametrize(
    ("collective", "uneven"),
    [
        ({"op": "ALLTOALL_BASE", "numel_in": 100, "numel_out": 100}, False),
        ({"op": "ALLTOALL_BASE", "numel_in": 100, "numel_out": 90}, True),
        ({"op": "ALLTOALL_BASE", "numel_in": 100}, False),
        ({"op": "ALLGATHER", "numel_in": 2**64 - 1, "numel_out": 2**64 - 1}, True),
        ({"op": "ALLGATHER", "numel_in": 100, "numel_out": 800}, False),
        ({"op": "REDUCE_SCATTER", "numel_in": "18446744073709551615"}, True),
        ({"op": "ALLREDUCE_COALESCED", "numel_in": 2**64 - 1}, False),  # its size is unknown, no more
        ({"op": 5, "numel_in": "many", "numel_out": None}, False),
    ],
)
def test_shares_that_are_not_alike(collective: dict[str, Any], uneven: bool) -> None:
    found = ask({"collective": collective})
    assert found.uneven is uneven
    assert found.numel != 2**64 - 1


@pytest.mark.parametrize(("told", "root"), [(3, 3), ("3", 3), (0, 0), (None, 0), (-1, 0), (1 << 30, 0), (2.5, 0)])
def test_the_root(told: Any, root: int) -> None:
    assert ask({"collective": {"op": "BROADCAST", "root": told}}).root == root


def accused(found: list[dict[str, Any]], ranks: object = None) -> tuple[AccusedGpu, ...]:
    whole = {"diagnoses": [{"cause": "gpu-hardware-fault", "culprits": found}], "job": {"ranks": ranks}}
    return ask(whole).suspects[0].gpus


RANKS = [{"rank": 9, "host": "gpu-b", "gpu": None, "local_rank": 1}, {"rank": 10, "host": "gpu-b", "gpu": 4}]


@pytest.mark.parametrize(
    ("culprit", "expected"),
    [
        ({"host": "gpu-a", "gpu": 6}, AccusedGpu("gpu-a", 6)),
        ({"host": "gpu-a", "gpu": "00000000:4F:00.0"}, AccusedGpu("gpu-a", None, "0000:4f:00")),
        (
            {"host": "gpu-a", "gpu": None, "why": "GPU 0000:4f:00 (GPU 3) on gpu-a is named"},
            AccusedGpu("gpu-a", None, "0000:4f:00"),
        ),
        ({"host": "gpu-a", "gpu": 3, "why": "GPU 0000:4f:00 (GPU 3)"}, AccusedGpu("gpu-a", 3, "0000:4f:00")),
        ({"host": None, "rank": 9}, AccusedGpu("gpu-b", 1)),
        ({"host": "gpu-b.x", "rank": 10}, AccusedGpu("gpu-b.x", 4)),
        ({"host": "gpu-a", "rank": 77}, None),
        ({"host": "gpu-a", "gpu": -1, "why": "NVSwitch 0000:4f:00"}, None),
        ({"host": 7, "gpu": True, "rank": "9x"}, None),
    ],
)
def test_the_gpu_that_is_blamed(culprit: dict[str, Any], expected: AccusedGpu | None) -> None:
    assert accused([culprit], RANKS) == (() if expected is None else (expected,))


def test_a_gpu_is_blamed_once() -> None:
    assert accused([{"host": "a", "gpu": 1}, {"host": "a", "gpu": 1}, {"host": "b", "gpu": 1}]) == (
        AccusedGpu("a", 1), AccusedGpu("b", 1),
    )  # fmt: skip
    assert [str(gpu) for gpu in accused([{"host": "a", "gpu": 1}, {"gpu": "4f:00.0"}])] == [
        "GPU 1 of a",
        "GPU 0000:4f:00",
    ]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("INFO worker.py:1841 -- Connecting to existing Ray cluster at address: 10.0.1.9:6379...", "10.0.1.9:6379"),
        ("Connecting to existing Ray cluster at address: head.cluster:6379...", "head.cluster:6379"),
        ("Connecting to existing Ray cluster at address: 10.0.1.9", None),
        ("Connected to Ray cluster.", None),
    ],
)
def test_the_ray_cluster_of_the_job(text: str, address: str | None) -> None:
    assert ask({"timeline": [{"text": text}]}).ray_address == address
    assert ask({"job": {"ray_address": address}}).ray_address == address


def test_what_is_no_address_of_a_ray_cluster_is_dropped() -> None:
    for value in ("ray://x:1", "a b:6379", "x:1;y:2", 7, None, ["10.0.0.1:6379"]):
        assert ask({"job": {"ray_address": value}}).ray_address is None
