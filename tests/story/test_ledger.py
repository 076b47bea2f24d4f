"""The ledger of collectives: who went on, who stayed behind, where everybody is; from counters of any origin."""

from __future__ import annotations

import pytest

from nccl_triage.diagnosis.case import Case
from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text, scan_text

SIGNAL = (
    "[rank{rank}]:[E703 17:54:18.884528282 ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Received a dump "
    "signal due to a collective timeout from {who} and we will try our best to dump the debug info. Last enqueued NCCL work: "
    "{enqueued}, last completed NCCL work: {completed}.\n"
)
WATCHDOG = (
    "[rank{rank}]:[E703 17:54:18.884528282 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000) ran for 600012 milliseconds "
    "before timing out.\n"
)
START = "".join(f"[rank{rank}]: step 1/9 loss 2.1\n" for rank in range(8))


def case(text: str, rules: RuleSet) -> Case:
    return Case(scan_text(text, rules), rules)


def signals(counters: dict[int, tuple[int, int]], local: int) -> str:
    return "".join(
        SIGNAL.format(rank=rank, who="this local rank" if rank == local else f" rank {local}", enqueued=e, completed=c)
        for rank, (e, c) in counters.items()
    )


def test_who_goes_on_alone_is_named_by_dump_signals(rules: RuleSet) -> None:
    text = START + signals({0: (56116, 56116), 5: (56116, 56116), 7: (56390, 56116)}, 7)
    found = diagnose_text(text, rules)
    assert found.case.value("collective.ahead_ranks") == [7]
    assert (found.cause, found.candidates[0].culprits[0].rank) == ("rank-divergence", 7)


@pytest.mark.parametrize(
    "counters",
    [
        {0: (77, 76), 1: (77, 76), 2: (77, 76)},
        {0: (77, 77), 1: (77, 77)},
        {0: (90, 76), 1: (77, 77)},
        {0: (90, 80), 1: (77, 77), 2: (77, 77)},
    ],
    ids=["all wait", "nobody waits", "no majority", "it had completed more"],
)
def test_who_did_not_go_on_alone_is_not_named(counters: dict[int, tuple[int, int]], rules: RuleSet) -> None:
    assert case(START + signals(counters, 0), rules).value("collective.ahead_ranks") is None


def test_all_in_one_operation_acquits_everybody(rules: RuleSet) -> None:
    text = START + "".join(WATCHDOG.format(rank=rank, seq=40, op="ALLREDUCE", numel=8) for rank in range(8))
    found = diagnose_text(text.replace("1/9", "1/9 world_size=8"), rules)
    assert found.case.value("collective.all_entered") is True
    assert found.cause not in ("straggler", "rank-divergence", "timeout-too-short")


@pytest.mark.parametrize(
    ("op", "second", "spread"),
    [
        ("BROADCAST", 41, None),
        ("BROADCAST", 140, 100),
        ("ALLREDUCE", 400, None),
        ("ALLREDUCE", 41, 1),
        ("_ALLGATHER_BASE", 72, 32),
        ("SEND", 44, None),
    ],
)
def test_roots_and_senders_may_run_ahead(op: str, second: int, spread: int | None, rules: RuleSet) -> None:
    text = START + WATCHDOG.format(rank=0, seq=40, op=op, numel=8) + WATCHDOG.format(rank=1, seq=second, op=op, numel=8)
    assert case(text, rules).value("collective.seq_differs") == spread


COUNTERS = (
    "[rank{rank}]:[E703 17:54:18.884528282 ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected "
    "by watchdog at work sequence id: {seq} PG status: last enqueued work: 400, last completed work: {done}\n"
)


def waits(numbers: list[int], op: str = "ALLREDUCE", named: bool = True) -> str:
    return START + "".join(
        WATCHDOG.format(rank=rank, seq=seq, op=op, numel=8)
        + (COUNTERS.format(rank=rank, seq=seq, done=seq - 1) if named else "")
        for rank, seq in enumerate(numbers)
    )


def test_who_waits_for_what_all_others_finished_took_no_other_path(rules: RuleSet) -> None:
    found = diagnose_text(waits([390, 390, 7, 390]), rules)
    assert found.case.value("collective.unfinished_ranks") == [2]
    assert found.candidates[0].id == "gpu-hardware-fault" and found.candidates[0].confidence < 0.6
    assert [one.rank for one in found.candidates[0].culprits] == [2]
    assert "rank-divergence" not in [one.id for one in found.candidates if one.confidence >= 0.2]
    fact = found.case.fact("collective.unfinished_ranks")
    assert fact is not None and {found.case.rank(event) for event in fact.events} >= {2, 0}, "both sides are shown"


@pytest.mark.parametrize(
    ("numbers", "op", "named"),
    [
        ([390, 390, 7, 390], "ALLREDUCE", False),
        ([390, 390, 7, 390], "BROADCAST", True),
        ([390, 7, 7, 7], "ALLREDUCE", True),
        ([390, 390, 380, 390], "ALLREDUCE", True),
    ],
    ids=["no group named", "a root runs ahead", "most wait there", "not far behind"],
)
def test_who_may_not_have_finished_is_not_named(numbers: list[int], op: str, named: bool, rules: RuleSet) -> None:
    assert case(waits(numbers, op, named), rules).value("collective.unfinished_ranks") is None


def test_sequence_numbers_alone_accuse_nobody_firmly(rules: RuleSet) -> None:
    found = diagnose_text(waits([41, 40, 40, 40], named=False).removeprefix(START), rules)
    assert found.candidates[0].id == "rank-divergence" and found.candidates[0].confidence < 0.7
    assert not found.candidates[0].culprits
    named = diagnose_text(waits([41, 40, 40, 40]).removeprefix(START), rules)
    assert [one.rank for one in named.candidates[0].culprits] == [0] and named.candidates[0].confidence < 0.7


CALL = (
    "gpu1:{pid}:7 [{rank}] NCCL INFO {op}: opCount 5 sendbuff 0x7f10 recvbuff 0x7f20 count {count} datatype 7 op 0 root 0 comm "
    "0x55aa01 [nranks={nranks}] stream 0x55bb\n"
)


@pytest.mark.parametrize(
    ("nranks", "ranks", "odd"),
    [(4, range(4), [3]), (1, range(4), None), (2, range(4), None)],
    ids=["one communicator", "each has its own", "two of two ranks"],
)
def test_only_calls_of_one_communicator_are_compared(
    nranks: int, ranks: range, odd: list[int] | None, rules: RuleSet
) -> None:
    text = "".join(
        CALL.format(pid=100 + rank, rank=rank, op="AllReduce", count=64 if rank < 3 else 65, nranks=nranks)
        for rank in ranks
    )
    assert case(text, rules).value("mismatch.call_ranks") == odd


def ready(rank: int, host: str) -> str:
    return (
        f"{host}:{100 + rank}:{100 + rank} [{rank % 2}] NCCL INFO comm 0x7f01 rank {rank} nranks 4 cudaDev {rank % 2} nvmlDev "
        f"{rank % 2} busId {rank}000 - Init COMPLETE\n"
    )


def stuck(numbers: list[int], hosts: list[str]) -> str:
    return "".join(ready(rank, host) for rank, host in enumerate(hosts)) + "".join(
        WATCHDOG.format(rank=rank, seq=seq, op="ALLREDUCE", numel=8) for rank, seq in enumerate(numbers)
    )


@pytest.mark.parametrize(
    ("numbers", "hosts", "divided"),
    [
        ([40, 40, 42, 42], ["a", "a", "b", "b"], ["a", "b"]),
        ([40, 42, 42, 42], ["a", "a", "b", "b"], None),
        ([40, 40, 40, 40], ["a", "a", "b", "b"], None),
        ([40, 40, 42, 42], ["a", "a", "a", "a"], None),
        ([40, 42], ["a", "b"], None),
    ],
    ids=["host against host", "one rank", "all alike", "one host", "one rank a host"],
)
def test_progress_that_divides_along_hosts_blames_what_lies_between(
    numbers: list[int], hosts: list[str], divided: list[str] | None, rules: RuleSet
) -> None:
    found = diagnose_text(stuck(numbers, hosts), rules)
    assert found.case.value("collective.divided_hosts") == divided
    if divided:
        first = found.candidates[0]  # where between them is for a check to tell
        assert (first.id, first.status) == ("network-link-fault", "possible") and first.confidence < 0.6


def test_a_plug_in_through_which_the_data_goes_is_named_where_nobody_is_missing(rules: RuleSet) -> None:
    everybody = stuck([40, 40, 40, 40], ["a", "a", "b", "b"])
    plugin = "a:100:100 [0] NCCL INFO Using network AWS Libfabric\n"
    assert diagnose_text(plugin + everybody, rules).candidates[0].id == "network-plugin"
    own = diagnose_text(plugin.replace("AWS Libfabric", "Socket") + everybody, rules)
    assert "network-plugin" not in [candidate.id for candidate in own.candidates]
    assert own.to_dict()["headline"] == "The job hung; this log does not show why."
