"""``nccl-triage completion``: the scripts that let a shell complete words, the answers to their questions, and candidates.

A script asks by running ``nccl-triage WORD...`` with ``_NCCL_TRIAGE_COMPLETE`` in the environment; the last word is
the one that is being typed. Each line of the answer is ``kind TAB value TAB help`` with the kinds plain, file, dir
and command, of which the latter three leave the search to the shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccl_triage.cli import language
from nccl_triage.lazy_regex import lazily

if TYPE_CHECKING:
    from importlib.abc import Traversable

    from click.shell_completion import CompletionItem

#: How an entry of a list begins; the ids of evidence inside of causes look the same, but causes are not read.
_ID = lazily(rb"""^ *- id: *["']?([^\s"'#]+)""", re.MULTILINE)
#: The name of a number, such as ``{code: 2, name: cudaErrorMemoryAllocation, ...}``.
_NAME = lazily(rb"\bname: *([\w-]+)")

#: The pages of ``explain`` that are no entry of a file (``knowledge.lookup.TOPICS``, which takes long to import).
TOPICS = ("codes", "symptoms", "timeouts")


def _yaml_files(folder: Traversable) -> Iterator[Traversable]:
    if not folder.is_dir():
        return
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir():
            yield from _yaml_files(entry)
        elif entry.name.endswith((".yaml", ".yml")):
            yield entry


def _listed(folder: Traversable, pattern: re.Pattern[bytes]) -> list[str]:
    """Return what the pattern finds in the files of a folder."""
    texts = (file.read_bytes() for file in _yaml_files(folder))
    return [name.decode("utf-8", "replace") for text in texts for name in pattern.findall(text)]


def _folders(ctx: click.Context) -> list[Traversable]:
    """Return the folders of rules: ours and those of ``--rules``."""
    from nccl_triage import resources

    further = ctx.params.get("rules_dirs") or ()
    return [resources.rules_dir(), *(Path(folder) for folder in further)]


def _ids(ctx: click.Context, kinds: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for folder in _folders(ctx):
        if "causes" in kinds:  # the file of a cause is named like the cause
            found += [file.name.rpartition(".")[0] for file in _yaml_files(folder / "causes")]
        for kind in set(kinds) - {"causes"}:
            found += _listed(folder / kind, _NAME if kind == "codes" else _ID)
    return sorted(set(found))


def _items(names: list[str], incomplete: str) -> list[CompletionItem[Any]]:
    """Return the names that begin as typed; capital letters need not be typed as such."""
    start = incomplete.casefold()
    return [_item(name) for name in names if name.casefold().startswith(start)]


def rules(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
    """Complete the id of a cause, a signature, a prefix or a layout."""
    return _items(_ids(ctx, ("causes", "signatures", "prefixes", "layouts")), incomplete)


def causes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
    """Complete the id of a cause."""
    return _items(_ids(ctx, ("causes",)), incomplete)


def explainable(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
    """Complete a topic, the id of a cause or a signature, or the name of a variable, an error number, an advice or a problem."""
    named = _ids(ctx, ("causes", "signatures", "variables", "codes", "advice", "symptoms", "known_issues"))
    return _items(sorted({*TOPICS, *named}), incomplete)


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
    """Complete a file or folder."""
    return [_item(incomplete, "file")]


def words(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[Any]]:
    """Complete a command and its arguments."""
    given = ctx.params.get(str(param.name)) or ()
    return [_item(incomplete, "file" if given else "command")]


def _item(value: str, kind: str = "plain") -> CompletionItem[Any]:
    from click.shell_completion import CompletionItem

    return CompletionItem(value, type=kind)


if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: Set by the scripts.
VARIABLE = "_NCCL_TRIAGE_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    epilog="""\b
Examples:
  nccl-triage completion bash > ~/.local/share/bash-completion/completions/nccl-triage
  nccl-triage completion zsh > "${fpath[1]}/_nccl-triage"
  nccl-triage completion fish > ~/.config/fish/completions/nccl-triage.fish
  eval "$(nccl-triage completion bash)\"""",
)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the script that lets a shell complete commands, files, options, values and ids."""
    from nccl_triage import resources

    click.echo(resources.completion_script(shell).read_text("utf-8"), nl=False)


def answer(root: click.Command, words: list[str]) -> str:
    """Return the lines that complete the last of the words."""
    from click.shell_completion import ShellComplete

    *before, last = _split_up(words) or [""]
    found = ShellComplete(root, {}, "nccl-triage", VARIABLE).get_completions(before, last)
    return "".join(f"{_line(item)}\n" for item in found)


def _split_up(words: list[str]) -> list[str]:
    """Return the words with the value of an option apart from it.

    Bash makes three words of ``--format=js``, other shells one.
    """
    found: list[str] = []
    for at, word in enumerate(words):
        if word == "=" and found and found[-1].startswith("--"):
            if at == len(words) - 1:
                found.append("")
        elif word.startswith("--") and "=" in word and at == len(words) - 1:
            found += word.split("=", 1)
        else:
            found.append(word)
    return found


def _line(item: CompletionItem[str]) -> str:
    meaning = language.text(" ".join((item.help or "").split()))
    return f"{item.type}\t{item.value}\t{meaning}"
