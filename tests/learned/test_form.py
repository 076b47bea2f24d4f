"""The file of the models of form and place."""

from __future__ import annotations

from nccl_triage import resources
from nccl_triage.learned import form
from nccl_triage.learned.ending import LABELS, WELL
from nccl_triage.learned.telling import OTHER, TELLING


def test_the_shipped_file_has_both_models() -> None:
    shipped = form.shipped()
    assert shipped.ending is not None and shipped.telling is not None
    assert shipped.ending.labels == LABELS and set(WELL) < set(LABELS)
    assert shipped.telling.labels == (OTHER, TELLING)
    assert shipped.training["held_out"]["ending"]["alone_right"] > 0.8


def test_it_stays_small() -> None:
    assert len(resources.form_file().read_bytes()) < 200_000


def test_writing_gives_the_same_bytes() -> None:
    data = resources.form_file().read_bytes()
    assert form.to_json(form.from_json(data)) == data


def test_a_part_may_be_missing() -> None:
    assert form.from_json(form.to_json(form.Form())) == form.Form()
