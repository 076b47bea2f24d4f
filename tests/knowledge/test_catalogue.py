"""Advice, numbers, symptoms, steps and time-outs: how they are read, and what they must hold."""

from __future__ import annotations

from collections import Counter

import pytest

from nccl_triage.engine import nodes
from nccl_triage.errors import RuleError
from nccl_triage.knowledge import catalogue

#: What people are told and must not be told again without a word on it.
FOLKLORE = """
network-segments-must-match clock-synchronisation use-mpi-backend vllm-use-v1-is-stable add-vllm-sync-backend-nccl
timeout-720-minutes-is-nccl-default remove-model-eval delete-cache-folder diagnose-py-check-nccl plus-nccl-timeout
trainer-dist-backend-gloo nccl-ibext-disable-cures nvls-enable-1-disables nccl-max-rings nccl-ib-mtu
nccl-buffsize-2m-increases nccl-timeout-variable minimum-versions-folklore timeouts-by-model-size numel-are-megabytes
error-on-all-ranks-is-global healthy-nccl-lines packet-loss-cured-by-timeouts
"""


@pytest.mark.parametrize("name", FOLKLORE.split())
def test_folklore_is_judged(name: str) -> None:
    item = catalogue.advice()[name]
    assert item.verdict != "right"
    assert item.sources
    assert item.why["en"] != item.instead["en"]


def test_verdicts_are_not_all_the_same() -> None:
    counts = Counter(item.verdict for item in catalogue.advice().values())
    assert set(counts) == {"right", "partly", "wrong", "unsupported", "dangerous", "no-op"}


def test_what_makes_things_worse_is_called_so() -> None:
    dangerous = {name for name, item in catalogue.advice().items() if item.verdict == "dangerous"}
    assert {"remove-model-eval", "delete-cache-folder"} <= dangerous


def test_the_tables_of_numbers() -> None:
    tables = catalogue.tables()
    assert set(tables) == {"cuda", "nccl", "ib-status", "exit", "xid", "sxid"}
    names = {(code.table, code.number): code.name for table in tables.values() for code in table.codes}
    assert names["cuda", 802] == "cudaErrorSystemNotReady"
    assert names["cuda", 807] == "cudaErrorMps.."
    assert names["nccl", 6] == "ncclRemoteError"
    assert names["ib-status", 12] == "IBV_WC_RETRY_EXC_ERR"
    assert names["exit", -9] == names["exit", 137] == "SIGKILL"
    assert [code.number for code in tables["ib-status"].codes] == list(range(22))
    assert [code.number for code in tables["nccl"].codes] == list(range(9))


def test_the_catalogues_of_the_driver_are_complete() -> None:
    tables = catalogue.tables()
    xid = {code.number: code for code in tables["xid"].codes}
    sxid = {code.number: code for code in tables["sxid"].codes}
    assert sorted(xid) == list(range(1, 173))
    assert len(sxid) == 93
    for table, rows in (("xid", xid), ("sxid", sxid)):
        assert tables[table].as_of and tables[table].references
        for code in rows.values():
            assert code.severity and code.role and code.kind and code.action, code
            assert (code.role == "root") <= bool(code.causes), f"{table} {code.number} blames nothing"


@pytest.mark.parametrize(
    ("role", "numbers"),
    [
        ("root", (13, 31, 48, 62, 64, 74, 79, 94, 95, 109, 119, 120, 136, 140, 143, 167)),
        ("cascade", (43, 44, 45, 137)),
        ("context", (63, 92, 93, 106, 121, 154)),
    ],
)
def test_roles_of_well_known_xids(role: str, numbers: tuple[int, ...]) -> None:
    xid = {code.number: code.role for code in catalogue.tables()["xid"].codes}
    assert {number: xid[number] for number in numbers} == dict.fromkeys(numbers, role)


def test_signals_have_both_numbers() -> None:
    codes = {code.number: code for code in catalogue.tables()["exit"].codes}
    for number, code in codes.items():
        if number < 0:
            assert codes[128 - number].name == code.name


def test_the_symptom_table_tells_victims_from_causes() -> None:
    rows = catalogue.symptoms()
    assert len(rows) >= 25
    counts = Counter(row.tells for row in rows.values())
    assert counts["victim"] >= 10
    assert counts["cause"] >= 3
    assert rows["watchdog-timeout"].tells == "victim"
    assert {row.urgency for row in rows.values()} == {"high", "medium", "low"}


@pytest.mark.parametrize(
    ("read", "text", "line", "message"),
    [
        ("_advice", "id: Bad Id\nverdict: wrong\nclaim: {en: a, zh: 啊}\nwhy: {en: a, zh: 啊}\ninstead: {en: a, zh: 啊}", 1, "is no id"),
        ("_advice", "id: x\nverdict: sure\nclaim: {en: a, zh: 啊}\nwhy: {en: a, zh: 啊}\ninstead: {en: a, zh: 啊}", 2, "none of right"),
        ("_symptom", "id: x\nsees: x", 1, "keys 'signatures', 'means', 'tells', 'urgency', 'look' are missing"),
        ("_step", "id: x\nwhat: {en: a}", 2, "'zh' is missing"),
        ("_owner", "milliseconds: soon\nprogram: torch\nwho: {en: a, zh: 啊}", 1, "positive whole number"),
        ("_knob", "id: x\nprogram: x\ntitle: x\nwrite: x\nunit: days\ndefault: {en: a, zh: 啊}", 5, "none of seconds"),
    ],
)  # fmt: skip
def test_errors_point_at_the_line(read: str, text: str, line: int, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        getattr(catalogue, read)(nodes.parse(text, "rules/x.yaml"))
    assert message in str(caught.value)
    assert caught.value.where == f"rules/x.yaml:{line}"


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ("[{code: 1, name: a, meaning: {en: a, zh: 啊}}, {code: 1, name: b, meaning: {en: a, zh: 啊}}]", "exists already"),
        ("[{code: some, name: a, meaning: {en: a, zh: 啊}}]", "neither a number nor a range"),
        ("[{code: 1, name: a, tells: nobody, meaning: {en: a, zh: 啊}}]", "none of cause"),
        ("[{code: 1, name: a, severity: awful, meaning: {en: a, zh: 啊}}]", "none of fatal"),
        ("[{code: 1, name: a, action: unheard-of, meaning: {en: a, zh: 啊}}]", "none of"),
    ],
)  # fmt: skip
def test_wrong_tables_of_numbers(codes: str, message: str) -> None:
    text = f"id: x\ntitle: {{en: a, zh: 啊}}\nabout: {{en: a, zh: 啊}}\ncodes: {codes}"
    with pytest.raises(RuleError, match=message):
        catalogue._table(nodes.parse(text, "rules/codes/x.yaml"))
