"""``make house`` on a small repository: what is counted, the change since a revision, and what stands out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from corpus.gate import house
from corpus.gate.measures import Measures, Package, measure

ALPHA = '''"""Alpha."""
from nccl_triage.beta import deep
from nccl_triage.beta.deep import LIMIT

_HIDDEN = 1
SHOWN, _OTHER = 2, 3


def one(x):
    """Branch twice."""
    if x:
        return 1
    return 2 if x is None else 3


def _two():
    """Name a signature and a text."""
    return "cuda.oom", "a.b c"
'''
DEEP = "LIMIT: int = 3\n\n\nclass Deep:\n    def method(self):\n        return LIMIT\n"
CAUSE = """id: bad-cable
for:
  - {id: first, weight: weak}
  - {id: second, weight: weak, status: experimental}
against:
  - {id: third, weight: weak}
"""
SIGNATURES = """program: cuda
signatures:
  - id: cuda.oom
    supports:
      - {cause: bad-cable}
      - {cause: bad-cable, weight: weak, says: {en: It broke.}}
  - id: cuda.other
    supports:
      - {cause: bad-cable, id: first}
      - {cause: bad-cable, weight: moderate}
"""
PRODUCER = "producers:\n  - rows:\n      - {causes: [bad-cable, worse], id: seen, status: experimental}\n"
README = """<!-- facts: begin -->
- `a`: one
- `b`: two
<!-- facts: end -->
- no fact
<!-- culprits: begin -->
- `c`: three
<!-- culprits: end -->
"""
TEST = "def test_one():\n    pass\n\n\nclass TestAll:\n    def test_two(self):\n        pass\n\n\ndef help_them():\n    pass\n"
TREE = {
    "analyzer/nccl_triage/__init__.py": "",
    "analyzer/nccl_triage/alpha.py": ALPHA,
    "analyzer/nccl_triage/beta/__init__.py": "",
    "analyzer/nccl_triage/beta/deep.py": DEEP,
    "rules/causes/network/bad-cable.yaml": CAUSE,
    "rules/signatures/cuda/memory.yaml": SIGNATURES,
    "rules/producers/doctor.yaml": PRODUCER,
    "rules/README.md": README,
    "tests/test_all.py": TEST,
}


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")


class Repository:
    """A repository whose commits have given dates."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str, date: str = "2026-01-01") -> str:
        dated = {f"GIT_{who}_DATE": f"{date}T12:00:00Z" for who in ("AUTHOR", "COMMITTER")}
        who = {f"GIT_{who}_{what}": "a@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        alone = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
        environment = {**os.environ, **who, **dated, **alone}
        command = ["git", "-C", str(self.root), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()

    def commit(self, files: dict[str, str], date: str = "2026-01-01") -> str:
        write(self.root, files)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "Change", date=date)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    if shutil.which("git") is None:
        pytest.skip("needs git")
    root = tmp_path / "tree"
    root.mkdir()
    return Repository(root)


def lines_of(count: int, name: str = "grown") -> str:
    return f"def {name}():\n" + "    print()\n" * (count - 1)


def test_what_is_counted_of_packages(tmp_path: Path) -> None:
    write(tmp_path, TREE)
    found = measure(tmp_path).packages
    assert set(found) == {"nccl_triage", "nccl_triage.beta"}
    alpha = found["nccl_triage"]
    assert alpha.modules == {"analyzer/nccl_triage/__init__.py": 0, "analyzer/nccl_triage/alpha.py": 18}
    assert [(one.name, one.line, one.lines, one.complexity) for one in alpha.functions] == [
        ("one", 9, 5, 2),
        ("_two", 16, 3, 1),
    ]
    assert alpha.public == 2  # SHOWN and one
    assert alpha.imports == {"nccl_triage.beta"}
    beta = found["nccl_triage.beta"].numbers()
    assert (beta["public"], beta["imports"], beta["longest_function"], beta["highest_complexity"]) == (2, 0, 2, 1)


def test_what_is_counted_of_rules_and_tests(tmp_path: Path) -> None:
    write(tmp_path, TREE)
    found = measure(tmp_path)
    # The cause's own three, `message`, `oom`, `message-moderate`, and what a producer says for two causes.
    assert found.rules == {
        "causes": 1,
        "rows of evidence": 8,
        "experimental rows": 3,
        "experimental rows, %": 37.5,
        "signatures": 2,
        "signatures in code": 1,
        "facts": 2,
        "culprit methods": 1,
        "lines of network causes": 6,
    }
    assert found.tests == {"test modules": 1, "test functions": 2, "lines of tests": 11}


def test_a_module_that_a_commit_left_broken_has_lines_alone(tmp_path: Path) -> None:
    write(tmp_path, {"corpus/gate/broken.py": "a = b c = d\n\n", "corpus/gate/deep/er.py": "x = 1\n"})
    found = measure(tmp_path).packages
    assert list(found) == ["corpus.gate"]  # what lies deeper counts to it
    assert (found["corpus.gate"].numbers()["lines"], found["corpus.gate"].public) == (3, 1)


def test_the_default_base_is_the_newest_tag_else_the_first_commit_of_the_month(repository: Repository) -> None:
    repository.commit({"a": "1"}, "2026-01-30")
    first = repository.commit({"a": "2"}, "2026-02-02")
    repository.commit({"a": "3"}, "2026-02-03")
    assert house.base_of(repository.root, None) == house.Base(first, first, "2026-02-02")
    repository.git("tag", "v1")
    tagged = repository.commit({"a": "4"}, "2026-03-01")
    assert house.base_of(repository.root, None).name == "v1"
    repository.git("tag", "v2")
    assert house.base_of(repository.root, None) == house.Base("v2", tagged, "2026-03-01")
    assert house.base_of(repository.root, "HEAD~1").date == "2026-02-03"
    with pytest.raises(SystemExit, match="error: v3 is no revision of this repository"):
        house.base_of(repository.root, "v3")


def test_the_tables_show_the_change_and_leave_no_trace(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.commit(TREE)
    repository.git("tag", "v1")
    grown = {"analyzer/nccl_triage/beta/more.py": lines_of(70), "tests/test_more.py": "def test_more():\n    pass\n"}
    repository.commit(grown)
    write(repository.root, {"tests/test_now.py": "def test_now():\n    pass\n"})  # not committed: the tree counts
    assert house.main([], repository.root) == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert lines[0].startswith("The tree, and what changed since v1, ") and lines[0].endswith(" of 2026-01-01")
    assert max(map(len, lines)) <= 100
    (beta,) = (line.split() for line in lines if line.startswith("beta "))
    assert beta == ["beta", "3", "+1", "76", "+70", "3", "+1", "70", "+64", "70", "+68", "1", "1", "0"]
    assert ["test", "functions", "4", "+2"] in [line.split() for line in lines]
    assert f"! functions above {house.FUNCTION} lines" in lines
    assert "      70 analyzer/nccl_triage/beta/more.py:1 grown (new)" in lines
    assert repository.git("status", "--porcelain") == "?? tests/test_now.py"
    assert repository.git("worktree", "list").count("\n") == 0


def test_the_same_for_programs(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    commit = repository.commit({name: text for name, text in TREE.items() if "beta" not in name})
    write(repository.root, TREE)
    house.main(["--since", commit, "--format", "json"], repository.root)
    shown = json.loads(capsys.readouterr().out)
    assert shown["since"] == {"name": commit, "commit": commit, "date": "2026-01-01"}
    assert shown["packages"]["beta"]["lines"] == [6, 0]
    assert shown["packages"]["all of nccl_triage"]["modules"] == [4, 2]
    assert shown["rules"]["facts"] == [2, 2]
    assert shown["tests"]["test functions"] == [2, 2]
    assert shown["stands_out"] == []


def _measures(lines: int, rows: int) -> Measures:
    package = Package({"analyzer/nccl_triage/a.py": lines})
    return Measures({"nccl_triage": package}, {"rows of evidence": rows}, {})


def test_growth_stands_out_from_a_tenth_on_and_not_among_few() -> None:
    def grown(now: Measures, before: Measures) -> list[str]:
        return [one.where for one in house.findings(now, before) if one.kind.startswith("grew")]

    assert grown(_measures(110, 22), _measures(100, 20)) == []
    assert grown(_measures(111, 22), _measures(100, 20)) == ["lines of all of nccl_triage", "lines of nccl_triage"]
    assert grown(_measures(100, 23), _measures(100, 20)) == ["rows of evidence"]
    assert grown(_measures(100, 19), _measures(100, 10)) == []
    assert grown(_measures(100, 20), _measures(111, 25)) == []


def test_long_modules_and_complex_functions_stand_out(tmp_path: Path) -> None:
    branches = "def many(x):\n" + "".join(f"    if x == {n}:\n        return {n}\n" for n in range(16))
    place = "analyzer/nccl_triage/long.py"
    write(tmp_path / "now", {place: branches + "\n" * 500})
    write(tmp_path / "before", {place: branches})
    found = house.findings(measure(tmp_path / "now"), measure(tmp_path / "before"))
    assert [(one.kind, one.where, one.now, one.before) for one in found if not one.kind.startswith("grew")] == [
        ("modules above 500 lines", place, 533, 33),
        ("functions of a complexity above 15", f"{place}:1 many", 17, 17),
    ]
