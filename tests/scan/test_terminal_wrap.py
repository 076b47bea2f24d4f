"""Lines that a terminal broke are read joined, and lines that are whole cost little."""

from __future__ import annotations

from collections.abc import Sequence

from nccl_triage.engine.schema import RuleSet, Signature
from nccl_triage.scan.scanner import scanner_for
from nccl_triage.scan.terminal_wrap import MAX_VAIN, MAX_VAIN_ALIKE, read_joined
from tests.prefix_reading import peel

ERROR = (
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.10 GiB "
    "of which 1.10 GiB is free."
)


def joined(lines: Sequence[str], rules: RuleSet, tells: bool = False) -> list[str]:
    found: list[str] = []

    def read(first: int, text: str, signatures: Sequence[Signature]) -> bool:
        found.append(text)
        return tells

    read_joined(lines, scanner_for(rules)._prefilter, lambda line: bool(peel(line).wrappers), read)
    return found


def test_what_was_broken_is_joined(rules: RuleSet) -> None:
    lines = [ERROR[:80], ERROR[80:], *[f"{'x' * 76} {n:03d}" for n in range(2)]]
    assert any(ERROR in text for text in joined(lines, rules))


def test_lines_that_begin_alike_and_tell_nothing_are_joined_a_few_times(rules: RuleSet) -> None:
    lines = [
        f"{{'loss': {n / 7:.4f}, 'grad_norm': {n / 3:.4f}, 'learning_rate': 1e-05, 'epoch': {n / 99:.2f}}}"
        for n in range(900)
    ]
    assert (
        0 < len(joined(lines, rules)) <= 2 * MAX_VAIN_ALIKE * 4
    )  # in two ways; numbers of one or two digits begin otherwise
    assert len(joined(lines, rules, tells=True)) > 100


def test_whole_lines_that_begin_otherwise_each_end_the_search(rules: RuleSet) -> None:
    lines = [
        f"{'abcdefghijklmnopqrstuvwxyz'[n % 26] * (n % 9 + 2)}{'step loss error ' * 4} {n:04d}"[:70]
        for n in range(1200)
    ]
    assert len(joined(lines, rules)) <= 2 * MAX_VAIN
