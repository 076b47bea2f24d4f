"""Training of the models of form and place: what they learn from, and that no fold sees its own group."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from corpus.compositions import WELL
from corpus.form import examples, rebuild, train
from corpus.form.examples import SET_UP, Example
from corpus.wild.manifest import known_causes, split_of
from corpus.wild.schema import OUTCOMES
from nccl_triage.evaluation.cases import LabelledCase
from nccl_triage.learned.ending import CUT, FAILED, FINISHED, LABELS, NONE, RUNNING, STOPPED
from nccl_triage.learned.form import to_json

STEPS = "".join(f"step {n}/50 loss 2.{n}\n" for n in range(1, 4))
START = "".join(f"reading shard {letter}\n" for letter in "abcdefgh")


def case(folder: Path, text: str, **label: object) -> LabelledCase:
    folder.mkdir(exist_ok=True)
    (folder / "a.log").write_text(text)
    record = {"id": "a", "log": "a.log", "cause": "healthy", **label}
    (folder / "cases.jsonl").write_bytes(orjson.dumps(record))
    return examples.wanted([folder])[0].case


def test_classes_follow_the_label(tmp_path: Path) -> None:
    assert examples.outcome_of(case(tmp_path, "x", outcome="running")) == RUNNING
    assert examples.outcome_of(case(tmp_path, "x", outcome="finished")) == FINISHED
    assert examples.outcome_of(case(tmp_path, "x", cause="healthy")) == WELL
    assert examples.outcome_of(case(tmp_path, "x", outcome="hung", cause="straggler")) == FAILED
    assert examples.outcome_of(case(tmp_path, "x", cause="job-preempted")) == STOPPED
    assert examples.outcome_of(case(tmp_path, "x", cause="unknown")) == CUT
    assert examples.outcome_of(case(tmp_path, "x", cause="port-in-use")) == FAILED
    assert examples.outcome_of(case(tmp_path, "x", outcome="none", cause="unknown")) == NONE


def test_logs_that_nobody_may_have_seen_are_left_out(tmp_path: Path) -> None:
    case(tmp_path / "open", "x")
    (tmp_path / "open" / "cases.jsonl").write_bytes(
        orjson.dumps({"id": "a", "log": "a.log", "cause": "healthy", "blind": True})
    )
    assert examples.wanted([tmp_path / "open"]) == []


def test_a_log_is_learnt_alone_composed_and_cut_in_its_set_up(tmp_path: Path) -> None:
    text = START + STEPS + "RuntimeError: the wheel is bent\n"
    case(tmp_path / "open", text, cause="application-exception", outcome="failed", evidence_line=12)
    found = examples.read(examples.wanted([tmp_path / "open"]), 1)
    by_way = {example.composition: example for example in found}
    assert by_way[None].outcome == FAILED and by_way[SET_UP].outcome == CUT
    assert "k:exception" in by_way[None].ending and "k:exception" not in by_way[SET_UP].ending
    for way in (None, "time-limit", "retried-early"):
        chosen = [names for names, right in by_way[way].lines if right]
        assert any("k:exception" in names for names in chosen), way
    assert by_way["closing-words"].lines == ()


def test_texts_of_the_repository_are_no_logs() -> None:
    found = examples.texts()
    assert len(found) > 20
    assert all(examples.outcome_of(text.case) == NONE for text in found)


def made(group: int, outcome: str, *names: str) -> Example:
    lines = ((frozenset({"w:bent"}), True), (frozenset({"w:fine"}), False)) if outcome == FAILED else ()
    return Example(f"{group}", f"group {group}", False, None, outcome, frozenset(names), lines)


EXAMPLES = [
    made(n, outcome, name, f"only:{n}")
    for n, (outcome, name) in enumerate([(WELL, "w:saved"), (FAILED, "k:exception"), (CUT, "k:setup")] * 15)
]


def test_features_of_few_groups_are_not_learnt_and_labels_keep_their_order() -> None:
    model = train.ending_of(EXAMPLES)
    assert model.labels == tuple(label for label in LABELS if label in (FINISHED, RUNNING, FAILED, CUT))
    assert set(model.weights) == {"w:saved", "k:exception", "k:setup"}
    assert max(model.probabilities(["k:exception"]), key=model.probabilities(["k:exception"]).__getitem__) == FAILED


def test_runs_that_were_well_count_as_finished_and_as_running() -> None:
    model = train.ending_of(EXAMPLES)
    found = model.probabilities(["w:saved"])
    assert found[FINISHED] > found[RUNNING] > max(found[FAILED], found[CUT])
    rows, groups = train.ending_rows([made(1, WELL, "w:saved"), made(2, FAILED, "k:exception")])
    assert [label for _, label, _ in rows] == [FINISHED, RUNNING, FAILED] and len(groups) == 3
    assert sum(weight for _, label, weight in rows if label != FAILED) == pytest.approx(1.0)


def test_no_model_judges_a_group_that_it_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[str]] = []

    def learn(known: object) -> object:
        seen.append({example.group for example in known})  # type: ignore[attr-defined]
        return train.ending_of(EXAMPLES)

    found = train.cross_fitted(EXAMPLES, learn)  # type: ignore[arg-type]
    assert sorted(example.id for _, example in found) == sorted(example.id for example in EXAMPLES)
    parts = train.folds(EXAMPLES)
    assert all(not part & known for part, known in zip(parts, seen, strict=True))


def test_training_twice_gives_the_same_bytes_and_says_how_well_it_does() -> None:
    form = train.train(EXAMPLES)
    assert to_json(form) == to_json(train.train(list(reversed(EXAMPLES))))
    assert form.training["held_out"]["ending"]["alone_right"] == 1.0
    assert form.training["held_out"]["telling"]["first_1"] == 1.0


def test_labels_of_further_logs_are_sound() -> None:
    labels = rebuild.labels()
    assert len({label["id"] for label in labels}) == len(labels)
    assert len({label["blob"] for label in labels}) == len(labels)
    for label in labels:
        assert split_of(label["repo"]) == "open", label["id"]
        assert label["outcome"] in OUTCOMES
        assert {label["cause"], *label["also"]} <= {*known_causes(), "healthy", "unknown"}
        assert (label["line"] is None) == (label["outcome"] in ("finished", "running", "cut", "none"))


def test_what_a_clone_lacks_is_told(tmp_path: Path) -> None:
    (tmp_path / "clones").mkdir()
    found = rebuild.rebuild(tmp_path / "clones", tmp_path / "out")
    assert found.logs == 0 and len(found.missing) == len(rebuild.labels())
