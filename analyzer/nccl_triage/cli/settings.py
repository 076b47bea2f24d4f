"""What the configuration means for one command: every value checked, with the place that it comes from.

A file that lies in the current folder may belong to somebody else's project. It may choose how things look and how
hard we look, but not where is written, what is run, or whose GPUs are taken: ``PROJECT_KEYS`` lists what it may set.
Folders of rules and models are data (users' patterns run with a timeout, conditions are no Python), but they decide
what the verdict says; they count only from a file that belongs to the user or to root.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from nccl_triage.cli import configuration, language
from nccl_triage.cli.config_files import ConfigEntry, Layer
from nccl_triage.cli.configuration import Environment, Note
from nccl_triage.cli.usage import what_is_wrong
from nccl_triage.errors import TriageError, UsageError

Words = tuple[str, ...]
#: All commands by their words; a call, since it imports them all and most runs need one.
Commands = Callable[[], Mapping[Words, click.Command]]

#: What a file of the project may set.
PROJECT_KEYS = frozenset({
    "alone", "backend", "budget", "bytes", "color", "compile", "corpus", "dtype", "each", "exit-code", "factor", "format",
    "hang-after", "healthy", "jobs", "kind", "lang", "limit", "list", "logs", "measured", "min-failures", "misses", "model", "network", "node-timeout",
    "numel", "one-job", "op",
    "parameters", "patience", "progress", "pty", "quiet", "ranks-per-host", "redact", "rules", "since", "state-bytes", "storage",
    "suspects", "sweep", "timeout", "token-rate", "tokens", "trace", "unearned", "verbose", "verify", "wait", "weight-bytes", "world", "world-size",
})  # fmt: skip
#: What only the user sets: by a flag, a variable or the user's own file.
USER_KEYS = frozenset({
    "allow-busy", "baseline", "before", "collect", "debug", "dry-run", "engine", "examples", "follow", "follow-links", "force", "history", "host",
    "host-facts", "hostfile", "job", "job-hosts", "launcher", "log", "on-verdict", "open", "out", "output", "path", "pid", "previous", "python", "ray", "ray-address",
    "ray-session", "report", "signal", "slurm", "termination-log", "trust-env", "workdir",
})  # fmt: skip
#: What a file of the project may set only if nobody else can write it.
TRUSTED_KEYS = frozenset({"model", "rules"})
#: What a file of the project may turn on, and never off.
ONE_WAY = frozenset({"redact"})
#: Values that click reads as false.
_NO = ("0", "false", "f", "no", "n", "off", "")


class Setting(NamedTuple):
    """A value for click, and ``path:line`` or the variable that it comes from."""

    value: Any
    origin: str


def options_of(command: click.Command) -> dict[str, click.Option]:
    """Return the options that can be configured, by key: the long name without dashes."""
    found = {}
    for param in command.params:
        if isinstance(param, click.Option) and not param.is_eager:
            long = [name for name in param.opts if name.startswith("--")]
            found[max(long, key=len).removeprefix("--")] = param
    return found


def resolve(
    command: click.Command, words: Words, files: Sequence[Layer], commands: Commands
) -> tuple[dict[str, Setting], list[Note]]:
    """Return the settings of a command by the name of the parameter, and notes as templates with their values.

    Raises UsageError for a key that no command has, a value that it does not take, and a key that a file of the project may not set.
    """
    notes: list[Note] = []
    mine = options_of(command)
    for file in files:
        _check_keys(file, words, mine, commands)
    every: list[Layer | Environment] = [Environment(), *files]
    settings: dict[str, Setting] = {}
    for key, option in mine.items():
        for layer in every:
            for section in _sections(words):
                entry = layer.get(section, key)
                if entry is None:
                    continue
                if (note := _refused(key, entry, layer)) is not None:
                    notes.append(note)
                    continue
                value = _value(option, key, entry, layer, others=() if section else _others(key, words, commands))
                if value is not None and option.name not in settings:
                    settings[str(option.name)] = Setting(value, entry.origin)
    notes += _unknown_variables(words, mine, commands)
    return settings, notes


def _refused(key: str, entry: ConfigEntry, layer: Layer | Environment) -> Note | None:
    """Return why an entry of an allowed file is ignored, None when it is used."""
    if isinstance(layer, Environment):
        return None
    if key in TRUSTED_KEYS:
        from nccl_triage.cli import consent

        paths = consent.named(layer, [key]) if layer.project else []
        exposed = layer.path if not layer.trusted else next(filter(None, map(consent.exposed, paths)), None)
        if exposed is not None:
            template = "{where}: {key} is not used: others than you can write {path}"
            return template, {"where": entry.origin, "key": key, "path": exposed}
    if key in ONE_WAY and layer.project and str(entry.value).strip().lower() in _NO:
        template = "{where}: {key} is not used: a file of the project can turn it on, not off"
        return template, {"where": entry.origin, "key": key}
    return None


def _sections(words: Words) -> Iterator[Words]:
    """Yield the sections that apply to a command, its own first."""
    for length in range(len(words), -1, -1):
        yield words[:length]


def _others(key: str, words: Words, commands: Commands) -> Iterator[click.Option]:
    """Yield the options of other commands that have the same key."""
    for other, command in commands().items():
        option = options_of(command).get(key) if other != words else None
        if option is not None:
            yield option


def _value(
    option: click.Option, key: str, entry: ConfigEntry, layer: Layer | Environment, others: Iterable[click.Option]
) -> Any:
    """Return an entry's value for an option; None when only another command takes it."""
    try:
        return _converted(option, entry, layer.path)
    except click.BadParameter as error:
        for other in others:
            try:
                _converted(other, entry, layer.path)
            except click.BadParameter:
                continue
            return None
        raise UsageError(
            "{where}: invalid value for {key}",
            where=entry.origin,
            key=key,
            why=what_is_wrong(error, option),
            cause="{why}",
        ) from None


def _converted(option: click.Option, entry: ConfigEntry, path: Path | None) -> Any:
    """Return the value converted to click's type; raises BadParameter when it is invalid."""
    value: Any
    if option.multiple:
        items = entry.value if isinstance(entry.value, list) else _split(entry.value, option, path)
        value = [_placed(item, option, path) for item in items]
    elif isinstance(entry.value, list):
        raise click.BadParameter(language.text("one value is needed, not a list"))
    elif option.is_flag:
        value = click.BOOL(entry.value, option)
    elif option.count:
        value = click.INT(entry.value, option)
    else:
        value = _placed(entry.value, option, path)
    option.type_cast_value(click.Context(click.Command(None)), value)
    return value


def _split(text: str, option: click.Option, path: Path | None) -> list[str]:
    """Split one text into values: at line ends in a file, paths of a variable as in PATH, anything else at commas."""
    if path is not None and "\n" in text:
        parts = text.split("\n")
    elif path is None and isinstance(option.type, click.Path):
        parts = text.split(os.pathsep)
    else:
        parts = text.split(",")
    return [part.strip() for part in parts if part.strip()]


def _placed(text: str, option: click.Option, path: Path | None) -> str:
    """Resolve a relative path against the folder of the file that names it."""
    if path is None or not isinstance(option.type, click.Path) or text in getattr(option.type, "words", ()):
        return text
    try:
        return str(path.parent / Path(text).expanduser())
    except RuntimeError:  # no home for ~
        return str(path.parent / text)


def _check_keys(layer: Layer, words: Words, mine: Mapping[str, click.Option], commands: Commands) -> None:
    for section, entries in layer.sections.items():
        for key, entry in entries.items():
            if not (section == words[: len(section)] and key in mine):
                _check_elsewhere(section, key, entry, commands)
            if layer.project and key not in PROJECT_KEYS:
                raise UsageError(
                    "{where}: {key} may not be set by a file of the project",
                    where=entry.origin,
                    key=key,
                    user=configuration.user_file() or "",
                    cause="what lies in a folder must not choose where is written or what is run",
                    remedy="set it in {user}, or go without the files: --no-config",
                )


def _check_elsewhere(section: Words, key: str, entry: ConfigEntry, commands: Commands) -> None:
    """Raise UsageError where no command of the section has such an option."""
    known = {k for words, c in commands().items() if words[: len(section)] == section for k in options_of(c)}
    if key in known:
        return
    if not known:
        names = sorted({" ".join(words[: len(section)]) for words in commands()})
        raise _misspelt(
            "{where}: there is no command {name}", entry.origin, " ".join(section), names, "the commands are {names}"
        )
    raise _misspelt("{where}: unknown key {name}", entry.origin, key, sorted(known), "the keys are {names}")


def _misspelt(template: str, where: str, name: str, known: list[str], listing: str) -> TriageError:
    import difflib

    near = difflib.get_close_matches(name, known, 1)
    remedy = "did you mean {near}?" if near else listing
    return UsageError(template, where=where, name=name, near="".join(near), names=", ".join(known), remedy=remedy)


def _variables(words: Words, keys: Iterable[str]) -> set[str]:
    return {configuration.variable(section, key) for key in keys for section in _sections(words)}


def _unknown_variables(words: Words, mine: Iterable[str], commands: Commands) -> list[Note]:
    """Return a note for every variable with our prefix that no option reads, most likely a misspelt one."""
    given = {name for name in os.environ if name.startswith(configuration.PREFIX)}
    given -= {*configuration.OTHER_VARIABLES, *_variables(words, mine)}
    if not given:
        return []
    import difflib

    known = set[str]().union(*(_variables(other, options_of(command)) for other, command in commands().items()))
    notes: list[Note] = []
    for name in sorted(given - known):
        near = difflib.get_close_matches(name, sorted(known), 1)
        template = "unknown variable {name}; did you mean {near}?" if near else "unknown variable {name}"
        notes.append((template, {"name": name, "near": "".join(near)}))
    return notes
