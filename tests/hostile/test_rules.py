"""Rules of users: files that would run code, never end or never fit, and expressions that never come to an end."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from nccl_triage import diagnose
from nccl_triage.engine import load, nodes
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


def test_an_endless_pattern_of_a_user_is_stopped_and_the_log_diagnosed(tmp_path: Path) -> None:
    folder = tmp_path / "signatures"
    folder.mkdir()
    (folder / "x.yaml").write_text(RULE)
    text = "".join(f"site power {'a' * 5000}b {n}\n" for n in range(3))
    started = time.process_time()
    document = diagnose("-", rules_dirs=[tmp_path], stdin=io.BytesIO(text.encode())).to_dict()
    assert document["inputs"][0]["lines"] == 3
    assert time.process_time() - started < 20
