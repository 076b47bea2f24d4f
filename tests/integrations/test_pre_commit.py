"""The hook for authors of rules, run by pre-commit itself in a repository like the example's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from .conftest import EXAMPLES, ROOT, Commands, program
from .pages import block

EXAMPLE = EXAMPLES / "pre-commit"
SIGNATURES = Path("rules/signatures/site/cache.yaml")


class Repository:
    """A repository of rules whose hook comes from another local repository."""

    def __init__(self, commands: Commands, folder: Path) -> None:
        self.commands, self.folder = commands, folder / "site-rules"
        commands.env.update(
            PRE_COMMIT_HOME=str(folder / "pre-commit"),
            GIT_CONFIG_GLOBAL="/dev/null",
            GIT_CONFIG_NOSYSTEM="1",
            **{f"GIT_{who}_{what}": "a@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        )
        hooks = folder / "nccl-triage"
        hooks.mkdir()
        shutil.copy(ROOT / ".pre-commit-hooks.yaml", hooks)
        revision = self.commit(hooks)
        shutil.copytree(EXAMPLE, self.folder)
        config = yaml.safe_load((EXAMPLE / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
        (repository,) = config["repos"]
        repository.update(repo=str(hooks), rev=revision)
        # "python" would install the package, from the network: the command on PATH does here.
        repository["hooks"][0]["language"] = "system"
        (self.folder / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        self.commit(self.folder)

    def commit(self, folder: Path) -> str:
        """Commit everything; returns the revision."""
        for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--no-verify", "-m", "all"]):
            result = self.commands.run("git", *words, cwd=folder)
            assert result.returncode == 0, result.stderr
        return self.commands.run("git", "rev-parse", "HEAD", cwd=folder).stdout.strip()

    def run(self, *words: str) -> tuple[int, str]:
        result = self.commands.run(program("pre-commit"), "run", "--color=never", *words, cwd=self.folder)
        return result.returncode, result.stdout + result.stderr


@pytest.fixture
def repository(commands: Commands, tmp_path: Path) -> Repository:
    program("git")
    return Repository(commands, tmp_path)


def test_pre_commit_accepts_the_manifest(commands: Commands) -> None:
    result = commands.run(program("pre-commit"), "validate-manifest", ROOT / ".pre-commit-hooks.yaml")
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_page_shows_the_configuration_of_the_example() -> None:
    shown = yaml.safe_load(block("pre-commit.md", "repos:", "yaml"))
    assert shown == yaml.safe_load((EXAMPLE / ".pre-commit-config.yaml").read_text(encoding="utf-8"))


def test_the_rules_of_the_example_pass(repository: Repository) -> None:
    code, said = repository.run("--all-files")
    assert (code, "Passed" in said) == (0, True), said


def test_a_rule_with_an_error_stops_the_commit(repository: Repository) -> None:
    rules = repository.folder / SIGNATURES
    rules.write_text(rules.read_text(encoding="utf-8").replace("meaning:", "meening:"), encoding="utf-8")
    repository.commands.run("git", "add", "--all", cwd=repository.folder)
    code, said = repository.run()
    assert code == 1
    assert f"{SIGNATURES}:9: unknown key 'meening'" in said


def test_other_files_do_not_start_the_hook(repository: Repository) -> None:
    (repository.folder / "notes.txt").write_text("x\n", encoding="utf-8")
    repository.commands.run("git", "add", "--all", cwd=repository.folder)
    code, said = repository.run()
    assert (code, "Skipped" in said) == (0, True), said


def test_the_example_is_used_as_the_page_says(commands: Commands, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("[rank3]: ERROR shard cache: lease 4711 lost on /cache/nvme1, reader gets EIO\n", encoding="utf-8")
    result = commands.run("nccl-triage", "--rules", EXAMPLE / "rules", log)
    assert "root cause: site-cache-lease-lost" in result.stdout, result.stderr
