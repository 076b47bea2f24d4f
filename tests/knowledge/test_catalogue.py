"""Advice, numbers, symptoms, steps and time-outs: how they are read, and what they must hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from nccl_triage import diagnose
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
        ("_advice", "id: Bad Id\nverdict: wrong\nclaim: {en: a, zh: 啊}\nwhy: {en: a, zh: 啊}\ninstead: {en: a, zh: 啊}", 1, "is not an id"),
        ("_advice", "id: x\nverdict: sure\nclaim: {en: a, zh: 啊}\nwhy: {en: a, zh: 啊}\ninstead: {en: a, zh: 啊}", 2, "not one of right"),
        ("_symptom", "id: x\nsees: x", 1, "keys 'signatures', 'means', 'tells', 'urgency', 'look' are missing"),
        ("_step", "id: x\nwhat: {en: a}", 2, "'zh' is missing"),
        ("_owner", "milliseconds: soon\nprogram: torch\nwho: {en: a, zh: 啊}", 1, "positive whole number"),
        ("_knob", "id: x\nprogram: x\ntitle: x\nwrite: x\nunit: days\ndefault: {en: a, zh: 啊}", 5, "not one of seconds"),
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
        ("[{code: 1, name: a, meaning: {en: a, zh: 啊}}, {code: 1, name: b, meaning: {en: a, zh: 啊}}]", "already exists"),
        ("[{code: some, name: a, meaning: {en: a, zh: 啊}}]", "neither a number nor a range"),
        ("[{code: 1, name: a, tells: nobody, meaning: {en: a, zh: 啊}}]", "not one of cause"),
        ("[{code: 1, name: a, severity: awful, meaning: {en: a, zh: 啊}}]", "not one of fatal"),
        ("[{code: 1, name: a, action: unheard-of, meaning: {en: a, zh: 啊}}]", "not one of"),
    ],
)  # fmt: skip
def test_wrong_tables_of_numbers(codes: str, message: str) -> None:
    text = f"id: x\ntitle: {{en: a, zh: 啊}}\nabout: {{en: a, zh: 啊}}\ncodes: {codes}"
    with pytest.raises(RuleError, match=message):
        catalogue._table(nodes.parse(text, "rules/codes/x.yaml"))


REST = "0x00000000 0x00000000 0x00000000 0x00000000"
LINK = "pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 6"


@pytest.mark.parametrize(
    ("number", "line", "findings", "action"),
    [
        (144, f"SAW_MVB Fatal XC0 i0 Link 00 (0x00000001 0x00000002 {REST})", {"memory-lost"}, "reset-gpu"),
        (145, f"RLW_CTRL Nonfatal XC0 i0 Link 00 (0x00000003 0x80000000 {REST})", {"software"}, "none"),
        (145, f"RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x00000001 {REST})", {"application-ends"}, "follow-154"),
        (145, f"RLW_REMAP Fatal XC1 i0 Link 10 (0x00000082 0x00000040 {REST})", {"memory-lost"}, "reset-gpu"),
        (145, f"RLW_TAGSTATE Nonfatal XC0 i0 Link 00 (0x00000008 0x00010000 {REST})", {"corrected"}, "none"),
        (146, f"TLW_RX_PIPE1 Fatal XC0 i0 Link 03 (0x0000000b 0x00000005 {REST})", {"corrected", "memory-unit"}, None),
        (149, f"NETIR_LINK_EVT  Fatal   XC0 i0 Link 00 (0x004505c6 0x00000000 {REST})", {"link-down-signal"}, "reset-gpu"),
        (149, f"NETIR_LINK_DOWN Fatal XC0 i0 Link 07 (0x02000011 0x00000000 {REST})", {"link-down-peer"}, "reset-gpu"),
        (149, f"NETIR_BER_EVENT Nonfatal XC0 i0 Link 07 (0x00000013 0x00000002 {REST})", {"bit-errors"}, "none"),
        (150, f"MSE_WATCHDOG Fatal XC0 i0 Link 00 (0x00000000 0x00000000 {REST})", {"mse-firmware"}, "reset-gpu"),
        (74, f"{LINK}(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", {"link-mechanics"}, None),
        (74, f"{LINK}(0x0, 0x0, 0x4, 0x0, 0x900000, 0x0, 0x0)", {"link-memory", "link-memory-threshold"}, None),
        (149, f"NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x03f00000 0x00000000 {REST})", set(), None),
        (74, f"{LINK}", set(), None),
    ],
)  # fmt: skip
def test_what_a_line_tells(number: int, line: str, findings: set[str], action: str | None) -> None:
    rows = [row for row in catalogue.tables()["xid"].details if row.code == number]
    told = catalogue.read_registers(rows, line)
    assert {row.finding for row in told.details} == findings
    if action is not None:
        assert {row.action for row in told.details} == {action}


def verdict(folder: Path, line: str, number: int) -> dict[str, object]:
    (folder / "dmesg.log").write_text(f"[Tue Jun  3 14:00:00 2025] NVRM: Xid (PCI:0000:3b:00): {number}, {line}\n")
    return diagnose(folder, model=None).to_dict()


@pytest.mark.parametrize(("first", "expected"), [("0x800001", "unknown"), ("0x800101", "diagnosed")])
def test_what_nvidia_calls_harmless_blames_nobody_unless_more_is_set(first: str, expected: str, tmp_path: Path) -> None:
    assert verdict(tmp_path, f"{LINK}({first}, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", 74)["verdict"] == expected


def test_the_evidence_says_what_is_done(tmp_path: Path) -> None:
    found = verdict(tmp_path, f"NETIR_LINK_DOWN Fatal XC0 i0 Link 07 (0x02000011 0x00000000 {REST})", 149)
    (best, *_) = found["diagnoses"]  # type: ignore[misc]
    assert "The other end took the link down" in best["evidence"][0]["says"] and "Reset the GPU" in best["evidence"][0]["says"]  # fmt: skip
    assert "对端关闭了链路" in best["evidence"][0]["says_zh"]


def test_every_finding_is_used_and_known() -> None:
    table = catalogue.tables()["xid"]
    assert {row.finding for row in table.details} == set(table.findings)
    assert {row.code for row in table.details} == {74, *range(144, 151)}


@pytest.mark.parametrize(
    "row", ["bits: [32]", "bits: [x]", "bits: [1], values: [2]", "action: dance", "finding: nothing"]
)
def test_wrong_rows_are_told_with_their_place(row: str) -> None:
    finding = "" if "finding" in row else "finding: some, "
    with pytest.raises(RuleError, match=r"row\.yaml:1"):
        catalogue._detail(nodes.parse(f"{{code: 74, {finding}{row}}}", "row.yaml"), ("none",), {"some": ""})
