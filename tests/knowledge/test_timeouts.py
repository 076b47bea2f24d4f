"""Time-outs by arithmetic: against the formulas of nccl-tests and plain sums."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_triage.knowledge import amounts, catalogue, timeouts
from nccl_triage.knowledge.timeouts import Assumptions


@pytest.mark.parametrize(
    ("op", "numel", "world", "dtype", "size", "factor"),
    [
        ("ALLREDUCE", 1000, 8, "fp32", 4000, 1.75),
        ("_ALLGATHER_BASE", 116391936, 8, "bf16", 116391936 * 8 * 2, 0.875),
        ("_REDUCE_SCATTER_BASE", 800, 8, "fp32", 3200, 0.875),
        ("BROADCAST", 1000, 16, "bf16", 2000, 1.0),
        ("ALLTOALL_BASE", 1600, 16, "fp32", 6400, 0.9375),
        ("SEND", 10, 2, "float64", 80, 1.0),
        ("BARRIER", 1, 8, "fp32", 0, 1.0),
    ],
)
def test_what_a_collective_moves(op: str, numel: int, world: int, dtype: str, size: int, factor: float) -> None:
    found = timeouts.message(op, numel, world, dtype)
    assert found is not None
    assert (found.bytes, found.factor) == (size, factor)
    assert found.seconds(1.0) == pytest.approx(size * factor / 1e9)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("all_reduce", "ALLREDUCE"),
        ("AllReduce", "ALLREDUCE"),
        ("allgather", "ALLGATHER"),
        ("all_gather_into_tensor", "_ALLGATHER_BASE"),
        ("reduce-scatter", "REDUCE_SCATTER"),
        ("_reduce_scatter_base", "_REDUCE_SCATTER_BASE"),
        ("frobnicate", None),
        ("", None),
    ],
)
def test_names_of_operations(name: str, found: str | None) -> None:
    assert timeouts.operation_name(name) == found


@pytest.mark.parametrize(
    ("op", "numel", "world", "dtype"),
    [("NOPE", 1, 2, "fp32"), ("ALLREDUCE", 2**64 - 1, 2, "fp32"), ("ALLREDUCE", -1, 2, "fp32"), ("ALLREDUCE", 1, 0, "fp32"),
     ("ALLREDUCE", 1, 2, "complex")],
)  # fmt: skip
def test_sizes_that_no_log_means(op: str, numel: int, world: int, dtype: str) -> None:
    assert timeouts.message(op, numel, world, dtype) is None


def test_no_dtype_means_the_widest_that_is_usual() -> None:
    found = timeouts.message("ALLREDUCE", 100, 2)
    assert found is not None
    assert (found.dtype, found.bytes) == ("fp32", 400)


def owners(milliseconds: int, known: dict[str, str] | None = None, shown: tuple[str, ...] = ()) -> list[str]:
    return [owner.program for owner in timeouts.owners(milliseconds, known or {}, shown)]


def test_owners_of_a_number() -> None:
    assert owners(3600000) == ["openrlhf"]
    assert owners(123456) == []
    assert {"torch", "deepspeed", "verl", "accelerate", "megatron"} == set(owners(600000))


def test_a_version_rules_owners_out() -> None:
    assert "torch" in owners(600000, {"torch": "2.4.1+cu121"})
    assert "torch" not in owners(600000, {"torch": "2.1.2"})
    assert "torch" not in owners(1800000, {"torch": "2.4.1"})
    assert "deepspeed" in owners(1800000, {"deepspeed": "0.16.4"})
    assert "deepspeed" not in owners(600000, {"deepspeed": "0.16.4"})


def test_programs_that_the_log_shows_come_first() -> None:
    assert owners(1800000, shown=("lightning",))[0] == "lightning"
    assert set(owners(1800000, shown=("huggingface",))[:1]) == {"transformers"}


def test_every_owner_names_a_knob_that_exists() -> None:
    assert {owner.knob for owner in catalogue.owners() if owner.knob} <= set(catalogue.knobs())


@pytest.mark.parametrize(
    ("knob", "seconds", "text"),
    [
        ("deepspeed", 1201, "DEEPSPEED_TIMEOUT=21"),
        ("transformers", 1201, "--ddp_timeout 1201"),
        ("megatron", 3600, "--distributed-timeout-minutes 60"),
        ("verl", None, "actor_rollout_ref.nccl_timeout=SECONDS"),
    ],
)
def test_knobs_in_their_own_unit(knob: str, seconds: int | None, text: str) -> None:
    assert timeouts.written(catalogue.knobs()[knob], seconds) == text


def test_the_phases_of_a_model() -> None:
    found = {phase.id: phase.seconds for phase in timeouts.phases(Assumptions(70e9, storage=2, network=12.5))}
    assert found["load"] == pytest.approx(70)
    assert found["send"] == pytest.approx(11.2)
    assert found["save"] == pytest.approx(490 + 78.4)
    assert found["compile"] == 300
    assert "tokenise" not in found
    assert "measured" not in found


def test_the_longest_phase_comes_first_and_decides() -> None:
    given = Assumptions(70e9, storage=2, network=12.5)
    assert timeouts.phases(given)[0].id == "save"
    assert timeouts.recommended(given) == 1200
    assert timeouts.recommended(given._replace(measured=2000)) == 4500
    assert timeouts.recommended(given._replace(factor=1)) == 600


def test_a_small_model_needs_no_more_than_the_default() -> None:
    assert timeouts.recommended(Assumptions(1e8)) == timeouts.LEAST


@given(st.floats(1e6, 1e13), st.floats(0.01, 100), st.floats(1, 10))
def test_a_recommendation_covers_every_phase(parameters: float, storage: float, factor: float) -> None:
    chosen = Assumptions(parameters, storage=storage, factor=factor)
    seconds = timeouts.recommended(chosen)
    assert all(seconds >= phase.seconds * factor - 1e-6 for phase in timeouts.phases(chosen))
    assert seconds % 60 == 0


@pytest.mark.parametrize(
    ("text", "number"),
    [("70B", 70e9), ("1.5e9", 1.5e9), ("350M", 350e6), ("10k", 1e4), ("2T", 2e12), ("1_000", 1000.0), ("70", 70.0),
     ("70 B", None), ("-1", None), ("1e999", None), ("nan", None), ("", None), ("seventy", None)],
)  # fmt: skip
def test_counts(text: str, number: float | None) -> None:
    assert amounts.count(text) == number


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (12.5, "12.5"), (0.0233, "0.0233"), (931, "931"), (1864.4, "1864"), (2.0, "2")]
)
def test_numbers_with_three_digits(value: float, text: str) -> None:
    assert amounts.short(value) == text


@pytest.mark.parametrize(
    ("seconds", "english", "chinese"),
    [(0.001, "less than 0.01 s", "不到 0.01 秒"), (32.6, "32.6 s", "32.6 秒"), (600, "10 min", "10 分钟"), (43200, "12 h", "12 小时")],
)  # fmt: skip
def test_durations(seconds: float, english: str, chinese: str) -> None:
    assert amounts.duration(seconds) == {"en": english, "zh": chinese}


@pytest.mark.parametrize(("seconds", "rounded"), [(1, 300), (601, 900), (1801, 2700), (10801, 14400), (300, 300)])
def test_time_outs_that_people_would_write(seconds: float, rounded: int) -> None:
    assert amounts.rounded_up(seconds) == rounded


@pytest.mark.parametrize(("value", "text"), [(1862270976, "1.86 GB"), (4, "4 B"), (2.5e12, "2.5 TB"), (5000, "5 kB")])
def test_sizes(value: float, text: str) -> None:
    assert amounts.size(value) == text
