"""Rules of users: files that would run code, never end or never fit, and expressions that never come to an end."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from nccl_triage import diagnose
from nccl_triage.cli import cli
from nccl_triage.engine import load, nodes, pattern
from nccl_triage.errors import RuleError

RULE = """program: site
signatures:
  - id: site.slow
    kind: node.lost
    role: root
    pattern: 'site power (?:a|aa)+$'
    meaning: A pattern that never comes to an end.
    match: ['site power aa']
    not: ['site power b']
"""


def laughs(levels: int) -> str:
    """Return YAML whose aliases stand for ten to the power of ``levels`` values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, levels)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        laughs(9),
        "a: &a [*a]\n",
        "a: &a {b: *a}\n",
        "[" * 10_000,
        "{a: " * 5_000,
        "- " * 20_000 + "x",
        "a: !!python/object/apply:os.system ['touch pwned']\n",
        "? [a, b]\n: c\n",
        "a: \x00\n",
        "\ufeff%YAML 9.9\n---\n" + "&" * 5000,
        "x" * (nodes.MAX_FILE + 1),
    ],
    ids=["laughs", "itself", "itself-in-a-mapping", "deep", "deeper", "deepest", "code", "key", "nul", "odd", "large"],
)
def test_a_hostile_rule_file_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "rules" / "signatures"
    folder.mkdir(parents=True)
    (folder / "x.yaml").write_text(text, encoding="utf-8")
    started = time.process_time()
    with pytest.raises(RuleError) as refused:
        load.load((tmp_path / "rules",), builtin=False)
    assert refused.value.where is not None
    assert time.process_time() - started < 20
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("source", ["x" * 20_000, "(?:" * 3_000 + "abc" + ")" * 3_000], ids=["long", "deep"])
def test_a_pattern_that_takes_long_to_compile_is_refused(source: str, tmp_path: Path) -> None:
    folder = tmp_path / "signatures"
    folder.mkdir()
    (folder / "x.yaml").write_text(RULE.replace("site power (?:a|aa)+$", source))
    with pytest.raises(RuleError, match=r"a pattern has|not a valid regular expression"):
        load.load((tmp_path,), builtin=False)


def test_what_is_no_regular_file_is_no_rule(tmp_path: Path) -> None:
    folder = tmp_path / "signatures"
    folder.mkdir()
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "x.yaml")
    with pytest.raises(RuleError, match=r"x\.yaml: cannot be read"):
        load.load((tmp_path,), builtin=False)
    (folder / "x.yaml").unlink()
    (folder / "x.yaml").symlink_to("/dev/zero")
    with pytest.raises(RuleError, match=r"x\.yaml: cannot be read"):
        load.load((tmp_path,), builtin=False)


def test_an_endless_pattern_on_every_line_is_given_up_and_told(tmp_path: Path) -> None:
    folder = tmp_path / "signatures"
    folder.mkdir()
    (folder / "x.yaml").write_text(RULE)
    text = "".join(f"site power {'a' * (3000 + n)}b {n}\n" for n in range(400))
    started = time.process_time()
    document = diagnose("-", rules_dirs=[tmp_path], stdin=io.BytesIO(text.encode())).to_dict()
    # 0.05 s on each of the lines, twice, would be forty.
    assert time.process_time() - started < 15
    assert document["inputs"][0]["problems"] == ["the pattern of rule site.slow took too long and was skipped"]


def test_many_slow_patterns_share_their_time() -> None:
    budget = pattern.SearchBudget()
    for number in range(1000):
        if budget.allows(str(number)):
            budget.spend(str(number), 0.05)
    assert sum(map(budget.allows, map(str, range(100)))) == 0
    assert not budget.allows("one that never was slow")
    fresh = pattern.SearchBudget()
    for _ in range(10_000):
        fresh.spend("x", pattern.SearchBudget.SLOW / 2)
    assert fresh.allows("x")


def test_no_command_passes_on_what_a_terminal_obeys(tmp_path: Path) -> None:
    folder = tmp_path / "signatures"
    folder.mkdir()
    text = RULE.replace("A pattern that never comes to an end.", '"\\e]0;gone\\a \\e[2Jrows \\u202e\\x9b"')
    (folder / "x.yaml").write_text(text + "# \u202e\n")
    for words in (["list"], ["list", "--format", "json"], ["show", "site.slow"]):
        result = CliRunner().invoke(
            cli, ["rules", *words, "--rules", str(tmp_path), "--lang", "en"], catch_exceptions=False
        )
        assert result.exit_code == 0, result.output
        assert "site.slow" in result.output
        assert not set(result.output) & set("\x1b\x07\x7f\x85\x9b\u202e"), words
    (folder / "y.yaml").write_text(RULE.replace("site.slow", '"site.\\e[2J"'))
    result = CliRunner().invoke(cli, ["rules", "test", str(tmp_path)], catch_exceptions=False)
    assert result.exit_code == 1
    assert "\x1b" not in result.output


def test_an_endless_pattern_of_a_user_is_stopped_and_the_log_diagnosed(tmp_path: Path) -> None:
    folder = tmp_path / "signatures"
    folder.mkdir()
    (folder / "x.yaml").write_text(RULE)
    text = "".join(f"site power {'a' * 5000}b {n}\n" for n in range(3))
    started = time.process_time()
    document = diagnose("-", rules_dirs=[tmp_path], stdin=io.BytesIO(text.encode())).to_dict()
    assert document["inputs"][0]["lines"] == 3
    assert time.process_time() - started < 20
