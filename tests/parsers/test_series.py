"""Numbers in lines: every format by its samples, and what no format may read."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage.checks.samples import check_series
from nccl_triage.engine import load
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import RuleError
from nccl_triage.parsers.series import MAX_LINE, SeriesReader, SeriesReading, stated_rank
from nccl_triage.scan.scanner import Scanner
from tests.scan_helpers import scan_text


def read(reader: SeriesReader, text: str) -> SeriesReading | None:
    return reader.read(text, reader.formats_of(text))


FORMAT = """
formats:
  - id: own
    literals: ['{literal}']
    pattern: '{pattern}'
    values: {{{values}}}
    match:
      - line: '{line}'
        gives: {{{gives}}}
    not: ['own: nothing']
"""


@pytest.fixture(scope="module")
def reader(rules: RuleSet) -> SeriesReader:
    return SeriesReader(rules.series)


def own(folder: Path, **changes: str) -> RuleSet:
    text = {
        "literal": "own: ",
        "pattern": "own: ",
        "values": "loss: loss, at: step",
        "line": "own: at 3, loss 2.5",
        "gives": "step: 3, loss: 2.5",
        **changes,
    }
    (folder / "series").mkdir()
    (folder / "series" / "own.yaml").write_text(FORMAT.format(**text))
    return load.load((folder,))


def test_all_samples(rules: RuleSet) -> None:
    assert [finding.show() for finding in check_series(rules)] == []
    assert len(rules.series.formats) > 20


def test_a_wrong_sample_is_found(tmp_path: Path) -> None:
    found = [finding.show() for finding in check_series(own(tmp_path, gives="step: 3, loss: 2.75"))]
    assert len(found) == 1
    assert "own.yaml:3: error: own: its sample is read differently: loss: 2.5" in found[0]


def test_a_sample_of_not_that_is_read_is_found(tmp_path: Path) -> None:
    changed = own(tmp_path, literal="own:", pattern="own:", values="'own: nothing, loss': loss, loss: loss, at: step")
    assert not check_series(changed)
    (tmp_path / "series" / "own.yaml").write_text(
        (tmp_path / "series" / "own.yaml").read_text().replace("['own: nothing']", "['own: loss 3']")
    )
    assert "reads a sample of 'not'" in check_series(load.load((tmp_path,)))[0].show()


def test_every_shipped_line_reaches_the_reader(rules: RuleSet) -> None:
    scanner = Scanner(rules)
    for item in rules.series.formats.values():
        for sample in item.match_samples:
            assert scan_text(sample.line, rules, scanner=scanner).curves, sample.line


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at step 12",
        "  File \"/opt/train.py\", line 120, in training_step: loss",
        "step 12 loss function is cross_entropy",
        "loss=nn.functional.cross_entropy(logits.view(-1, 100), labels.view(-1))",
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1)",
        "pip install torch==2.3.0 loss==1.0",
        "epoch must be positive, loss 2",
        "step 3/4 of the installation took 12 s",
        "2025-06-03 step 12:30:01 loss",
        "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.1 GiB",
        "",
    ],
)  # fmt: skip
def test_what_is_no_measurement(reader: SeriesReader, text: str) -> None:
    assert read(reader, text) is None


def test_units_are_those_of_the_metric(reader: SeriesReader) -> None:
    def gives(text: str) -> dict[str, float]:
        found = read(reader, text)
        assert found is not None
        return found.gives()

    assert gives("step 1 loss 2 step_time 250ms gpu_mem 2048 MiB") == {
        "step": 1, "loss": 2, "step_time": 0.25, "gpu_memory": 2
    }  # fmt: skip
    assert gives("step 1 loss 2 gpu_mem 2 8 it/s")["step_time"] == 0.125
    assert "step_time" not in gives("step 1 loss 2, 0 it/s")  # nothing has an infinite time


def test_the_first_number_of_a_metric_counts(reader: SeriesReader) -> None:
    found = read(reader, "iter: 40  loss: 0.25 (0.75)  max mem: 2048  eta: 0:01:00 ")
    assert found is not None
    assert found.gives() == {"step": 40, "loss": 0.25, "gpu_memory_peak": 2}


def test_absurd_steps_are_no_place(reader: SeriesReader) -> None:
    found = read(reader, "step 99999999999999999999 loss 1.5")
    assert found is not None
    assert found.step == -1.0 and found.values == [("loss", 1.5)]


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("[rank 3/8] step 12 loss 2.1", 3),
        ("step 12 loss 2.1 rank=5", 5),
        ("[Rank 0] step=10", 0),
        ("local rank 3 step 12", None),
        ("num_rank 8 loss 2", None),
        ("rank 1.5 loss", None),
        ("frank 3", None),
    ],
)
def test_the_rank_that_a_line_states(text: str, rank: int | None) -> None:
    assert stated_rank(text) == rank


def test_numbers_that_overflow_are_left_out(reader: SeriesReader) -> None:
    found = read(reader, "step 1 loss 1e999 lr 0.5")
    assert found is not None and found.gives() == {"step": 1, "learning_rate": 0.5}


def test_only_the_first_part_of_a_long_line_is_read(reader: SeriesReader) -> None:
    assert read(reader, "step 1 " + "x" * MAX_LINE + " loss 2.5") is None


@pytest.mark.parametrize("unit", ["step 1 loss ", "'loss': ", "{", " | ", "epoch 1 ", "1%|", "iteration 1/", "[", "step:1 - ", "9", "train "])  # fmt: skip
def test_repetitive_lines_come_to_an_end(reader: SeriesReader, unit: str) -> None:
    """A pattern that takes exponential or cubic time would not: each line is 200,000 characters of one piece."""
    for literal in ("loss", "'loss': ", "s/it", "data_time: ", "num_updates", "step:", " | consumed samples:"):
        for text in (literal + unit * (200_000 // len(unit)), unit * (200_000 // len(unit)) + literal):
            found = read(reader, text)
            assert found is None or all(isinstance(value, float) for _, value in found.values)


def test_a_users_format_comes_first_and_may_be_wrong_only_in_words(tmp_path: Path) -> None:
    changed = own(tmp_path, literal="loss", pattern="loss", line="own: loss 2.5 at 7", gives="loss: 2.5, step: 7")
    found = read(SeriesReader(changed.series), "step 12 loss 2.5 at 7")
    assert found is not None and found.gives() == {"loss": 2.5, "step": 7}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": "loss: lost"}, "unknown metric 'lost'"),
        ({"values": "loss: loss ms"}, "'ms' is not a unit of 'loss'"),
        ({"pattern": "own("}, "not a valid regular expression"),
        ({"literal": "ow"}, "three characters"),
        ({"gives": "loss: much"}, "'much' is not a number"),
    ],
)
def test_errors_tell_where(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    with pytest.raises(RuleError) as caught:
        own(tmp_path, **changes)
    assert message in str(caught.value.message)
    assert "own.yaml:" in caught.value.message


def test_ids_stand_once(tmp_path: Path) -> None:
    (tmp_path / "series").mkdir()
    (tmp_path / "series" / "a.yaml").write_text("metrics:\n  - {id: loss, unit: s, title: {en: a, zh: b}}\n")
    with pytest.raises(RuleError, match=r"a\.yaml:2: the metric 'loss' already exists \(rules/series/metrics\.yaml"):
        load.load((tmp_path,))
