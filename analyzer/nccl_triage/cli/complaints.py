"""What click has to complain about a command line, as error / cause / try."""

from __future__ import annotations

import click

from nccl_triage.errors import UsageError
from nccl_triage.lazy_regex import lazily

_QUOTED = lazily(r"'([^']+)'")


def as_ours(error: click.ClickException) -> UsageError:
    """Return click's error as one of ours, with the nearest option or value where there is one."""
    ctx = getattr(error, "ctx", None)
    command = ctx.command_path if ctx is not None else "nccl-triage"
    if isinstance(error, click.NoSuchOption):
        return _no_such_option(error, ctx, command)
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return UsageError("{name} is missing", name=_name(error.param), command=command, remedy="{command} --help")
    if isinstance(error, click.BadParameter) and error.param is not None:
        return _bad_value(error, error.param, command)
    text = error.format_message().rstrip(".。")
    return UsageError("{text}", text=text[:1].lower() + text[1:], command=command, remedy="{command} --help")


def _name(param: click.Parameter) -> str:
    if isinstance(param, click.Argument):
        return param.human_readable_name.upper()
    return max(param.opts, key=len)


def _no_such_option(error: click.NoSuchOption, ctx: click.Context | None, command: str) -> UsageError:
    import difflib

    known = [name for param in ctx.command.get_params(ctx) for name in param.opts] if ctx is not None else []
    near = difflib.get_close_matches(error.option_name, [name for name in known if name.startswith("--")], 1)
    return UsageError(
        "there is no option {name}",
        name=error.option_name,
        near="".join(near),
        command=command,
        remedy="did you mean {near}?" if near else "{command} --help lists the options",
    )


def _bad_value(error: click.BadParameter, param: click.Parameter, command: str) -> UsageError:
    import difflib

    near: list[str] = []
    given = _QUOTED.match(error.message)
    if isinstance(param.type, click.Choice) and given:
        near = difflib.get_close_matches(given[1], list(map(str, param.type.choices)), 1)
    return UsageError(
        "no value for {name}",
        name=_name(param),
        why=error.message,
        cause="{why}",
        near="".join(near),
        command=command,
        remedy="did you mean {near}?" if near else "{command} --help",
    )
