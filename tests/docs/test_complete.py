"""Nothing that a user can name lacks documentation: commands, options, causes, variables, formats, configuration keys."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from nccl_triage.cli import every_command

ROOT = Path(__file__).parents[2]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def commands() -> list[tuple[str, click.Command]]:
    return [(" ".join(words), command) for words, command in every_command().items()]


@pytest.mark.parametrize(("name", "command"), commands(), ids=lambda v: v if isinstance(v, str) else "")
def test_every_command_and_option_is_documented(name: str, command: click.Command) -> None:
    text = page("cli.md")
    start = text.index(f"## nccl-triage {name}\n")
    section = text[start : text.find("\n## ", start + 1) if "\n## " in text[start + 1 :] else len(text)]
    options = [option for p in command.params if isinstance(p, click.Option) and not p.hidden for option in p.opts]
    missing = [option for option in options if not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", section)]
    assert missing == []


def test_every_variable_and_piece_of_advice_is_documented() -> None:
    from nccl_triage.knowledge import catalogue, variables
    from nccl_triage.render.markdown_text import plain

    text = page("variables.md")
    assert [name for name in variables.shipped() if f"`{name}`" not in text] == []
    assert [a.id for a in catalogue.advice().values() if plain(a.claim["en"]) not in text] == []


def test_every_format_is_documented() -> None:
    from nccl_triage.render import FORMATS

    text = page("sharing.md")
    for name, entry in FORMATS.items():
        assert f"| `{name}` |" in text, name
        for suffix in entry.suffixes:
            assert f"`{suffix}`" in text or suffix in (".htm", ".markdown"), (name, suffix)


def test_every_key_and_variable_of_the_configuration_is_documented() -> None:
    from nccl_triage.cli import configuration, settings

    text = page("configuration.md")
    for words, command in every_command().items():
        for key in settings.options_of(command):
            assert f"| `{key}` | `{configuration.variable((), key)}` |" in text, (words, key)


def test_every_variable_that_the_code_reads_is_documented() -> None:
    from nccl_triage.cli import configuration, settings
    from nccl_triage.cli import every_command as found

    options = {
        configuration.variable(w, k)
        for words, c in found().items()
        for k in settings.options_of(c)
        for w in ((), words)
    }
    text = page("configuration.md")
    for path in (ROOT / "analyzer").rglob("*.py"):
        for name in re.findall(r"[\"'](NCCL_TRIAGE_[A-Z_]+)[\"']", path.read_text(encoding="utf-8")):
            assert name in options or name == "NCCL_TRIAGE_" or f"`{name}" in text, (path.name, name)


def test_every_signature_role_weight_and_status_is_explained() -> None:
    from nccl_triage.engine.schema import WEIGHTS

    text = page("reading-a-verdict.md")
    for word in (*WEIGHTS, "established", "supported", "possible", "unknown", "healthy", "confirmed", "refuted"):
        assert word in text, word


def test_the_numbers_of_the_weights_are_those_of_the_code() -> None:
    from nccl_triage.diagnosis.weigh import UNKNOWN_SCORE
    from nccl_triage.engine.schema import WEIGHTS

    written = " | ".join(f"{name} {number}" for name, number in WEIGHTS.items())
    text = (ROOT / "rules" / "README.md").read_text(encoding="utf-8")
    assert f'{written} (log-odds; "none of the causes" has {UNKNOWN_SCORE})' in text


def test_both_readmes_show_the_same_commands_and_figures() -> None:
    def blocks(name: str) -> list[str]:
        text = (ROOT / name).read_text(encoding="utf-8")
        found = re.findall(r"```(?:sh|python)?\n(.*?)```", text, re.DOTALL)
        return [re.sub(r"\s*#.*", "", line).strip() for block in found for line in block.splitlines() if line.strip()]

    def rows(name: str) -> list[str]:
        text = (ROOT / name).read_text(encoding="utf-8")
        return [re.sub(r"[^\d|%.]", "", line) for line in text.splitlines() if line.startswith("| ") and "%" in line]

    assert blocks("README.md") == blocks("README.zh.md")
    assert rows("README.md") == rows("README.zh.md") != []
