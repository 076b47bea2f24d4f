"""What a reader sees of a text: without the sequences of a terminal and without characters that have no width.

They may stand inside a name or between a name and its value, and would hide both from a pattern.
"""

from __future__ import annotations

from nccl_triage.lazy_regex import lazily

#: Sequences of ECMA-48, with an escape or as one 8-bit character: CSI; strings (OSC, DCS, SOS, PM, APC) with their end;
#: character sets and single functions (ESC 7, ESC =, ESC M); and an escape that begins nothing, which hides nothing
#: either. No string holds the beginning of another, so that each character is looked at once.
_HIDDEN = lazily(
    "(?:\x1b\\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f]{0,4096}(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b(?:[()*+./-][0-9A-Za-z<=>]|#[0-9]|%[@G8]| [F-N]|[\\[\\]PX^_\\\\0-9<=>|}~cDEHMNOZlmno])?"
    "|[\x80-\x9f\xad\u200b-\u200f\u2060-\u2064\ufeff]"
)


def plain(text: str) -> str:
    """Return the text as a reader sees it; the text itself when nothing in it is hidden."""
    if text.isascii() and "\x1b" not in text:
        return text
    return _HIDDEN.sub("", text)
