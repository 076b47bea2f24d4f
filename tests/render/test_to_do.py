"""What to do: the same commands as in the short text first, and nothing told twice."""

from __future__ import annotations

import itertools

from nccl_triage.render import short_text, text_page, to_do

from .documents import diagnosed, full, unknown


def commands(tasks):
    return [command for task in tasks for command in task.commands]


def test_the_first_place_has_the_commands_of_the_short_text():
    best = full()["diagnoses"][0]
    found = to_do.tasks(full(), best)
    steps = [one for one in text_page.steps(best, "en") if one.key == "do_now"]
    assert commands(found.now) == commands(text_page.chosen(steps, 3)) != []
    assert short_text.PLANS[0].commands == to_do.COMMANDS
    assert all(task.what.en and task.what.zh and task.what.en != task.what.zh for task in found.now)


def test_a_command_stands_in_one_place():
    best = full()["diagnoses"][0]
    best["stages"].append(
        {"when": "lasting", "what": "Again.", "what_zh": "再来。", "command": best["fixes"][0]["commands"][0]}
    )
    found = to_do.tasks(full(), best)
    told = [
        *commands(found.now),
        *commands(itertools.chain(*(items for _, items in found.stages))),
        *commands(found.fixes),
    ]
    assert len(told) == len(set(told))
    assert "Again." not in [task.what.en for _, items in found.stages for task in items]


def test_a_repair_that_was_told_leaves_its_references():
    best = diagnosed()["diagnoses"][0]
    found = to_do.tasks(diagnosed(), best)
    titles = [task.what.en for task in found.now]
    assert best["fixes"][0]["title"] in titles
    assert best["fixes"][0]["title"] not in [task.what.en for task in found.fixes]
    assert found.references == best["fixes"][0]["references"]


def test_without_a_cause_checks_and_missing_evidence_come_first():
    doc = unknown() | {"not_seen": full()["not_seen"]}
    found = to_do.tasks(doc, None)
    assert [task.what.en for task in found.now] == [
        "Does rank 2 fail again with half the micro-batch?",
        "Collect: NCCL's own report",
    ]
    assert found.tells(doc["not_seen"][0])
    assert found.stages == found.fixes == []


def test_remarks_are_no_commands():
    assert to_do.is_remark("# look at it")
    assert not to_do.is_remark("#SBATCH --mem=0")
