"""What bandwidth is expected of a link, and what a measured one says."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from nccl_triage import resources
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import RuleError
from nccl_triage.verify import bandwidth
from nccl_triage.verify.bandwidth import Band, BandwidthRow

GIB, MIB = 1 << 30, 1 << 20
H100 = "NVIDIA H100 80GB HBM3"
BAND = Band("some-link", "ib", 30.0, 100.0, "measured", peak=50.0, candidates=("network-ib-misconfig",))


@pytest.mark.parametrize("row", bandwidth.table(), ids=lambda row: row.id)
def test_every_row_takes_its_own_example_alone(row: BandwidthRow) -> None:
    gpu, link, world = row.example
    assert [other.id for other in bandwidth.matching(bandwidth.table(), gpu, link, world)] == [row.id]
    assert bandwidth.expectation(gpu, link, world) == row.band


@pytest.mark.parametrize("row", [row for row in bandwidth.table() if row.band], ids=lambda row: row.id)
def test_every_band_is_possible_and_sourced(row: BandwidthRow, rules: RuleSet) -> None:
    band = row.band
    assert band is not None
    assert band.peak is not None
    assert 0 < band.low < band.high
    assert band.low < 0.7 * band.peak  # a band that starts near the wire's rate would accuse healthy links
    assert band.high <= 2.0 * band.peak
    assert band.high > 0.7 * band.peak or band.kind == "tcp"
    assert band.why.endswith(".")
    assert all(re.fullmatch(r"https://\S+ \(read \d{4}-\d\d-\d\d\)", source) for source in band.sources)
    assert band.sources
    assert band.candidates
    assert set(band.candidates) <= set(rules.causes)


def test_the_links_that_must_be_known() -> None:
    kinds = {row.band.kind: 0 for row in bandwidth.table() if row.band}
    for row in bandwidth.table():
        if row.band:
            kinds[row.band.kind] += 1
    assert kinds.keys() == {"nvlink", "pcie", "ib", "tcp"}
    names = {row.example[0] for row in bandwidth.table()}
    for gpu in ("V100", "A100", "H100", "H200", "H20", "B200", "GB200", "L40S", "A10G", "T4", "RTX 4090"):
        assert any(gpu in name for name in names), gpu


@pytest.mark.parametrize(
    ("gpu", "link", "world", "expected"),
    [
        (H100, "nvlink", 8, "h100-sxm"),
        (H100, "nvlink", 2, "h100-pair"),
        (H100, "NVLink", 4, "h100-sxm"),
        (H100, " pcie 5 x16 ", 8, "pcie5-x16"),
        (H100, "InfiniBand 400Gb/s", 64, "ib-400"),
        (H100, "RoCE 100", 64, "ib-100"),
        ("NVIDIA GeForce RTX 4090", "PCIe Gen4 x16", 2, "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "PCIe Gen4 x8", 2, "pcie4-x8"),
        ("NVIDIA GeForce RTX 4090", "pcie 3 x16", 2, "pcie3-x16"),
        ("NVIDIA A100-SXM4-40GB", "tcp 10", 2, "tcp-10"),
        ("NVIDIA A100-SXM4-40GB", "tcp 1GbE", 2, "tcp-1"),
        # What is not known, or not one thing, has no expectation.
        ("NVIDIA H100 NVL", "nvlink", 2, None),
        ("NVIDIA H200 NVL", "nvlink", 4, None),
        ("NVIDIA GH200 480GB", "nvlink", 2, None),
        ("NVIDIA B300 SXM6 AC", "nvlink", 8, None),
        ("AMD Instinct MI300X", "xgmi", 8, None),
        (H100, "nvlink", 64, None),
        (H100, "", 8, None),
        (H100, "pcie", 8, None),
        (H100, "pcie 4 x4", 8, None),
        (H100, "tcp 200", 16, None),
        (H100, "ib 56", 16, None),
        (H100, "loopback", 4, None),
        (H100, "one gpu", 4, None),
        (H100, "nvlink", 1, None),
    ],
)
def test_expectations(gpu: str, link: str, world: int, expected: str | None) -> None:
    band = bandwidth.expectation(gpu, link, world)
    assert (band.id if band else None) == expected


def test_several_ranks_on_one_gpu_have_no_expectation() -> None:
    assert bandwidth.expectation(H100, "nvlink", 8, several_on_one_gpu=True) is None


def test_ports_add_up() -> None:
    one, eight = (bandwidth.expectation(H100, "ib 400", 64, ports=ports) for ports in (1, 8))
    assert one
    assert eight
    assert (eight.low, eight.high, eight.peak) == (8 * one.low, 8 * one.high, 400)
    assert bandwidth.expectation(H100, "nvlink", 8, ports=8) == bandwidth.expectation(H100, "nvlink", 8)


@pytest.mark.parametrize(
    ("gpu", "link", "world", "ports", "size", "busbw"),
    [
        # Outputs of nccl-tests and all_reduce_bench.py on healthy hardware, from the table's sources.
        ("NVIDIA H200", "nvlink", 8, 1, 64 * MIB, 346.51),
        ("NVIDIA H200", "nvlink", 8, 1, 256 * MIB, 436.15),
        ("NVIDIA H200", "nvlink", 8, 1, 16 * GIB, 482.26),
        ("NVIDIA H200", "nvlink", 4, 1, 8 * GIB, 363.3),
        ("NVIDIA H200", "nvlink", 8, 1, 16 * GIB, 361.4),
        ("NVIDIA B200", "nvlink", 4, 1, 8 * GIB, 673.2),
        ("NVIDIA B200", "nvlink", 8, 1, 8 * GIB, 838.0),
        ("NVIDIA GB200", "nvlink", 8, 1, 8 * GIB, 811.0),
        ("NVIDIA A100-SXM4-80GB", "nvlink", 8, 1, 4 * GIB, 232.54),
        ("NVIDIA B200", "ib 400", 32, 8, 64 * MIB, 197.77),
        ("NVIDIA B200", "ib 400", 32, 8, 256 * MIB, 283.23),
        ("NVIDIA B200", "ib 400", 32, 8, 16 * GIB, 376.71),
        ("NVIDIA A100-SXM4-40GB", "ib 200", 24, 4, 127 * MIB, 95.94),
        ("NVIDIA GeForce RTX 5090", "pcie 5 x16", 8, 1, GIB, 28.0),
        ("Tesla V100-SXM2-32GB", "tcp 100", 32, 1, 128 * MIB, 4.0),
    ],
)
def test_healthy_results_are_within_their_bands(
    gpu: str, link: str, world: int, ports: int, size: int, busbw: float
) -> None:
    judged = bandwidth.judge(busbw, size, bandwidth.expectation(gpu, link, world, ports=ports))
    assert (judged.state, judged.candidates) == ("in-band", ())


@pytest.mark.parametrize(
    ("gpu", "link", "busbw", "first"),
    [
        (H100, "nvlink", 40.0, "gpu-nvls-fabricmanager"),  # over PCIe instead
        ("NVIDIA A40", "pcie 4 x16", 1.1, "gpu-p2p-broken"),
        (H100, "ib 400", 12.0, "network-ib-misconfig"),  # over sockets, or without GPUDirect
        (H100, "tcp 25", 0.11, "network-link-fault"),  # a link that came up with 1 Gbit/s
    ],
)
def test_a_slow_link_is_a_finding_with_candidates(gpu: str, link: str, busbw: float, first: str) -> None:
    judged = bandwidth.judge(busbw, GIB, bandwidth.expectation(gpu, link, 8))
    assert judged.state == "below"
    assert judged.candidates[0] == first
    assert "slower than" in judged.says_en
    assert "低于" in judged.says_zh


@pytest.mark.parametrize(
    ("busbw", "size", "state"),
    [
        (29.9, 256 * MIB, "below"),
        (30.0, 256 * MIB, "in-band"),
        (100.0, GIB, "in-band"),
        (100.1, GIB, "above"),
        (21.1, 256 * MIB - 1, "in-band"),  # a share of the band before it holds
        (20.9, 256 * MIB - 1, "below"),
        (0.0, GIB, "below"),
        (1.0, 64 * MIB - 1, "message-too-small"),
        (1.0, 64 * MIB, "below"),
        (float("nan"), GIB, "no-expectation"),
    ],
)
def test_limits(busbw: float, size: int, state: str) -> None:
    judged = bandwidth.judge(busbw, size, BAND)
    assert judged.state == state
    assert bool(judged.candidates) == (state == "below")
    assert judged.says_en != judged.says_zh


def test_unknown_hardware_is_not_judged() -> None:
    judged = bandwidth.judge(3.0, GIB, None)
    assert (judged.state, judged.band, judged.candidates) == ("no-expectation", None, ())
    assert "no expectation known" in judged.says_en


def test_earlier_results_of_the_host_go_before_the_table() -> None:
    for busbw, state in ((44.0, "below"), (49.0, "in-band"), (71.0, "in-band"), (73.0, "above")):
        judged = bandwidth.judge(busbw, GIB, BAND, [60.0, 61.0, 5.0])
        assert judged.state == state
        assert judged.band
        assert judged.band.id == "previous"
        assert (judged.band.low, judged.band.high) == (48.0, 72.0)
        assert "earlier results" in judged.says_en
    assert bandwidth.judge(44.0, GIB, BAND, [60.0]).candidates == BAND.candidates
    assert bandwidth.judge(44.0, 65 * MIB, BAND, [60.0]).state == "below"  # measured at this size, so no share
    assert bandwidth.judge(44.0, GIB, None, [60.0]).state == "below"
    assert bandwidth.judge(44.0, GIB, BAND, [0.0, float("nan")]).band == BAND
    assert bandwidth.judge(44.0, MIB, BAND, [60.0]).state == "message-too-small"


def test_the_shipped_table_stands_among_the_rules() -> None:
    assert (resources.rules_dir() / "verification" / "bandwidth.yaml").is_file()
    setup = Path(__file__).parents[2] / "setup.cfg"
    assert "verification/*.yaml" in setup.read_text()


GOOD = """candidates: {nvlink: [a], pcie: [b], ib: [c], tcp: [d]}
bands:
  - id: some-nvlink
    kind: nvlink
    gpu: A\\d
    link: nvlink
    worlds: [2, 8]
    peak: 300
    busbw: [100, 250]
    basis: measured
    why: Because.
    sources:
      - {url: https://example.org/, read: 2026-11-22}
    example: {gpu: A1, link: nvlink, world: 8}
  - id: some-tcp
    kind: none
    link: loopback
    why: Nothing.
    example: {gpu: A1, link: loopback, world: 2}
"""


def test_a_good_table() -> None:
    first, second = bandwidth.parse(GOOD, "x.yaml")
    assert first.band == Band(
        "some-nvlink",
        "nvlink",
        100.0,
        250.0,
        "measured",
        300.0,
        "Because.",
        ("https://example.org/ (read 2026-11-22)",),
        ("a",),
    )
    assert second == replace(second, band=None, gpu=None, worlds=None)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("kind: nvlink", "kind: infinity-fabric", 4, "not one of nvlink"),
        ("    basis: measured\n", "", 3, "'basis' is missing"),
        ("basis: measured", "basis: guessed", 10, "not one of published"),
        ("gpu: A\\d", "gpu: A(", 5, "regular expression"),
        ("busbw: [100, 250]", "busbw: [250, 100]", 9, "lower one first"),
        ("busbw: [100, 250]", "busbw: [100]", 9, "two numbers"),
        ("peak: 300", "peak: fast", 8, "number above 0"),
        ("https://example.org/", "example.org", 13, "not an https address"),
        ("read: 2026-11-22", "read: yesterday", 13, "not a date"),
        (
            "example: {gpu: A1, link: nvlink, world: 8}",
            "example: {gpu: B1, link: nvlink, world: 8}",
            3,
            "matches no row",
        ),
        (
            "link: loopback\n    why",
            "link: nvlink|loopback\n    gpu: A1\n    why",
            3,
            "matched by some-nvlink, some-tcp",
        ),
        ("id: some-tcp", "id: some-nvlink", 15, "listed twice"),
        ("{nvlink: [a], ", "{", 1, "'nvlink' is missing"),
        ("    why: Nothing.\n", "    why: Nothing.\n    speed: 1\n", 19, "unknown key 'speed'"),
    ],
)
def test_a_wrong_table_is_told_with_its_line(old: str, new: str, line: int, message: str) -> None:
    assert old in GOOD
    with pytest.raises(RuleError, match=re.escape(message)) as caught:
        bandwidth.parse(GOOD.replace(old, new, 1), "x.yaml")
    assert caught.value.where == f"x.yaml:{line}"
