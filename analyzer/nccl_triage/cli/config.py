"""``--show-config``: which configuration files are used, and what they set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from nccl_triage.cli import configuration, language
from nccl_triage.cli.config_files import Layer
from nccl_triage.cli.language import columns
from nccl_triage.cli.settings import Setting, Words, options_of


def option_rows(ctx: click.Context, settings: Mapping[str, Setting]) -> dict[str, dict[str, Any]]:
    """Return key -> value, source (flag, variable, file, default) and origin of every option of a command."""
    found = {}
    for key, option in options_of(ctx.command).items():
        name = str(option.name)
        value = ctx.params.get(name, ctx.meta.get(f"nccl_triage.{name}"))
        given = ctx.get_parameter_source(name)
        if given == ParameterSource.COMMANDLINE:
            source, origin = "flag", f"--{key}"
        elif name in settings:
            origin = settings[name].origin
            source = "variable" if origin.startswith(configuration.PREFIX) else "file"
        else:
            source = origin = "default"
        found[key] = {"value": _plain(value), "source": source, "origin": origin}
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def configuration_page(
    commands: Mapping[Words, Mapping[str, Mapping[str, Any]]], files: Sequence[Layer], form: str
) -> str:
    """Return the ``rows`` of commands as text or JSON, after the files that were read."""
    if form == "json":
        import json

        from nccl_triage.render import json_output

        shown = {" ".join(words): found for words, found in commands.items()}
        document = {"files": [str(f.path) for f in files], "commands": shown}
        text = json.dumps(document, indent=2, ensure_ascii=False)
        return json_output.inert(text.encode("utf-8", "replace")).decode()
    head = language.text("configuration files, first to last: {files}", files=", ".join(str(f.path) for f in files))
    lines = [head if files else language.text("no configuration file")]
    for words, found in commands.items():
        lines += ["", f"nccl-triage {' '.join(words)}"]
        cells = [
            (key, _shown(row["value"]), language.text("default") if row["source"] == "default" else row["origin"])
            for key, row in found.items()
        ]
        widths = [min(max(columns(cell[index]) for cell in cells), 40) for index in (0, 1)]
        lines += [
            f"  {key.ljust(widths[0])}  {value}{' ' * (widths[1] - columns(value))}  {origin}".rstrip()
            for key, value, origin in cells
        ]
    # Values and names of files come from elsewhere.
    return "\n".join(map(language.harmless, lines))


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return "-" if value is None else str(value)
