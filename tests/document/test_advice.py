"""Fixes and checks name what the log tells, and are left out where it does not tell what they name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from nccl_triage import diagnose
from nccl_triage.checks.names import check_causes
from nccl_triage.diagnosis.case import fact_names
from nccl_triage.engine.schema import Fix, PlatformCommand, RuleSet

MISSING = (
    "[rank1]: Traceback (most recent call last):\n"
    '[rank1]:   File "/opt/train.py", line 12, in load\n'
    "[rank1]: FileNotFoundError: [Errno 2] No such file or directory: '/data/my set/$(id)'\n"
)


def command(text: str) -> PlatformCommand:
    return PlatformCommand((("otherwise", text),))


def fixes(rules: RuleSet, tmp_path: Path, *given: Fix) -> list[dict[str, Any]]:
    causes = {**rules.causes}
    causes["application-exception"] = replace(causes["application-exception"], fixes=given)
    log = tmp_path / "job.log"
    log.write_text(MISSING)
    (found, *_) = diagnose(log, rules=replace(rules, causes=causes), model=None).to_dict()["diagnoses"]
    assert found["cause"] == "application-exception"
    return list(found["fixes"])


def test_a_field_of_any_line_becomes_one_word_of_the_shell(rules: RuleSet, tmp_path: Path) -> None:
    title = {"en": "Look at {f:storage.enoent.path}", "zh": "查看 {f:storage.enoent.path}"}
    (fix,) = fixes(rules, tmp_path, Fix(title, (command("ls -ld {f:storage.enoent.path}"),)))
    assert fix["title"] == "Look at /data/my set/$(id)"
    assert fix["commands"] == ["ls -ld '/data/my set/$(id)'"]


def test_what_names_something_unknown_is_left_out(rules: RuleSet, tmp_path: Path) -> None:
    known = {"en": "Look", "zh": "查看"}
    unknown = {"en": "Look at {f:python.import_no_module.name}", "zh": "查看 {f:python.import_no_module.name}"}
    commands = (command("python -c 'import {fact:recorder.slow_by}'"), command("ls"))
    (fix,) = fixes(rules, tmp_path, Fix(unknown), Fix(known, commands))
    assert (fix["title"], fix["commands"]) == ("Look", ["ls"])


def test_placeholders_of_advice_must_exist(rules: RuleSet) -> None:
    cause = rules.causes["application-exception"]
    wrong = replace(
        cause,
        fixes=(
            Fix({"en": "{fact:job.nothing}", "zh": ""}, (command("ls {f:storage.enoen.path}"),)),
            Fix({"en": "{f:storage.enoent.pth}", "zh": ""}),
        ),
    )
    problems = check_causes(replace(rules, causes={cause.id: wrong}), fact_names(), [*cause.culprit], {})
    said = " ".join(str(problem) for problem in problems)
    for name in ("job.nothing", "storage.enoen'", "'pth'"):
        assert name in said, name
