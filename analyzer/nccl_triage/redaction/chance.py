"""Tell what was drawn by chance, as keys are, from what somebody wrote: words, names of layers, versions, paths."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

from nccl_triage.lazy_regex import lazily

#: Fewer characters than this prove nothing; fewer than the second only if capitals, small letters and digits mix.
_SHORTEST, _SHORT = 8, 16
#: Of hexadecimal digits, which are too few to change often, so many.
_HEXADECIMAL = 24
_HEX = lazily(r"[0-9a-f-]+|[0-9A-F-]+")
_PIECE = lazily(r"[A-Za-z0-9]+")
_KINDS = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "A" * 26 + "a" * 26 + "0" * 10)


def looks_random(text: str) -> bool:
    """Tell whether a text has no order: many characters, spread evenly, of kinds that follow each other by chance.

    In words a capital stands first and digits stand last; by chance every third character or more is of another kind
    than the one before it.
    """
    pieces = _PIECE.findall(text)
    letters = "".join(pieces)
    longest = max(map(len, pieces), default=0)
    short = len(letters) < _SHORT
    if len(letters) < _SHORTEST or longest < _SHORTEST or sum(map(str.isdigit, letters)) < (1 if short else 2):
        return False
    if _HEX.fullmatch(text):
        return len(letters) >= _HEXADECIMAL and not letters.isdigit()
    kinds = [piece.translate(_KINDS) for piece in pieces]
    if short and len(set("".join(kinds))) < 3:
        return False
    changes = sum(a != b for piece in kinds for a, b in pairwise(piece))
    if changes < (0.4 if short else 0.28) * (len(letters) - len(pieces)):
        return False
    counts = Counter(letters)
    entropy = -sum(count / len(letters) * math.log2(count / len(letters)) for count in counts.values())
    return entropy >= (2.7 if short else 3.0)
