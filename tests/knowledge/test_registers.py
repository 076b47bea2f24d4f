"""What the registers behind Xid 74 and 144 to 150 tell, by lines as the driver prints them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage import diagnose
from nccl_triage.engine import nodes
from nccl_triage.errors import RuleError
from nccl_triage.knowledge import catalogue, registers

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
    told = registers.read(rows, line)
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
        registers.load(nodes.parse(f"{{code: 74, {finding}{row}}}", "row.yaml"), ("none",), {"some": ""})
