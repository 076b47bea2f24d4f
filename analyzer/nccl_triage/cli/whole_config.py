"""``nccl-triage --show-config``: the options of all commands, and where their values come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from nccl_triage.cli import base, configuration, language, show_config
from nccl_triage.cli.config_files import Layer
from nccl_triage.cli.settings import Words


def everything(
    commands: Mapping[Words, click.Command], without_files: bool, form: str, chosen: str | None = None
) -> str:
    """Return the configuration of all commands, as it is without any flag but ``--config``."""
    if not without_files:
        for template, values in configuration.read(base.chosen_file(["--config", chosen] if chosen else [])).notes:
            language.say(template, **values)
    found = {}
    files: Sequence[Layer] = []
    for words, command in commands.items():
        assert isinstance(command, base.Command)
        flags = ["--show-config=text", *(["--no-config"] if without_files else [])]
        flags += [f"--config={chosen}"] if chosen is not None else []
        with command.make_context(" ".join(words), flags) as ctx:
            found[words] = show_config.rows(ctx, command.settings)
            files = command.files if words[:1] != ("config",) else files
    return show_config.page(found, files, form)
