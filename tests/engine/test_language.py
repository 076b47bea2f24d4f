"""The texts of the rules are plain: no banned word, no long sentence, and Chinese punctuation in Chinese texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

RULES = Path(__file__).parents[2] / "rules"
#: Folders and files whose texts are not held to this yet.
NOT_YET = ("causes/", "steps/", "codes/xid.yaml")
#: No texts that people read: schemas, and tables of names.
NO_TEXTS = ("schema/", "redaction/")
#: Keys whose value is an English text without a translation.
ENGLISH = ("en", "meaning")
#: Words that a sentence may have.
LONGEST = 35

#: English words and phrases, as patterns, and what to write instead.
BANNED = {
    r"time-outs?": "timeout",
    r"end points?": "endpoint",
    r"name spaces?": "namespace",
    r"plug-ins?": "plugin",
    r"back ends?": "backend",
    r"set-ups?": "setup",
    r"clean-ups?": "cleanup",
    r"run-times?": "runtime",
    r"time stamps?": "timestamp",
    r"whoever": "anyone who, a process that",
    r"what stands": "what is written",
    r"stands": "is",
    r"good ?byes?": "without an error message",
    r"it were": "it was",
    r"for good": "permanently",
    r"for ever": "forever",
    r"for want of": "for lack of",
    r"are consequences|is a consequence": "failed as a result",
    r"fit each other|do(?:es)? not fit together": "compatible",
    r"the deciding": "the telling",
    r"calm": "stabilise",
    r"speaks? of|tells? of": "reports, is about",
    r"left out|leave out": "skip, exclude",
    r"as it is said": "(nothing)",
    r"in vain": "timed out waiting",
    r"anew": "again",
    r"again and again": "repeatedly",
    r"somebody": "someone, another process",
    r"mostly": "usually, mainly",
    r"as a rule": "usually",
    r"so many": "this many",
}
_BANNED = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)
_CHINESE = "[\u4e00-\u9fff]"
#: Words with a better one, and Western punctuation between Chinese characters.
_BAD_CHINESE = re.compile(
    rf"代价|若是|若否|{_CHINESE}[,;!?]|{_CHINESE}:(?!{_CHINESE})|[,;!?]{_CHINESE}|{_CHINESE}\(|（[^（）]*（"
)

FILES = sorted(
    path for path in RULES.rglob("*.yaml") if not str(path.relative_to(RULES)).startswith(NOT_YET + NO_TEXTS)
)


def _texts(tree: object, keys: tuple[str, ...]) -> Iterator[str]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key in keys and isinstance(value, str):
                yield value
            else:
                yield from _texts(value, keys)
    elif isinstance(tree, list):
        for value in tree:
            yield from _texts(value, keys)


def faults(text: str) -> list[str]:
    """Return what is wrong with an English text."""
    found = [f"banned: {match[0]!r}" for match in _BANNED.finditer(text)]
    for sentence in re.split(r"(?<=[.!?])\s+", text):
        words = sum(1 for word in sentence.split() if re.search(r"\w", word))
        if words > LONGEST:
            found.append(f"{words} words: {sentence[:60]!r}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(RULES)))
def test_texts_are_plain(path: Path) -> None:
    """English texts hold no banned word and no long sentence, Chinese texts no Western punctuation."""
    tree = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    wrong = [(text[:120], found) for text in _texts(tree, ENGLISH) if (found := faults(text))]
    wrong += [(text[:120], [match[0]]) for text in _texts(tree, ("zh",)) if (match := _BAD_CHINESE.search(text))]
    assert not wrong


@pytest.mark.parametrize(
    "text",
    [
        "The time-out of the group.",
        "Whoever can read it.",
        "Library and driver do not fit together.",
        "It was left out.",
        " ".join(["word"] * 36) + ".",
    ],
)
def test_faults_are_found(text: str) -> None:
    """The check itself finds banned words and long sentences."""
    assert faults(text)


def test_plain_text_passes() -> None:
    """A plain text passes, and a full stop ends a sentence."""
    assert not faults("The timeout of the group expired. " + " ".join(["word"] * 35) + ".")
