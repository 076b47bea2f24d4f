"""``nccl-triage completion``: the scripts that let a shell complete our words, and the answers to their questions.

A script asks by running ``nccl-triage WORD...`` with ``_NCCL_TRIAGE_COMPLETE`` in the environment; the last word is
the one that is being typed. Each line of the answer is ``kind TAB value TAB help`` with the kinds plain, file, dir
and command, of which the latter three leave the search to the shell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nccl_triage.cli import language

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
