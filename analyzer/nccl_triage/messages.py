"""What the program says to a person outside of a report, in both languages.

The English text, a template with ``{names}``, is the key, as in gettext: code reads as what it says, and a text
without a translation appears in English instead of failing.
"""

from __future__ import annotations

from collections.abc import Mapping

#: English template -> Chinese template.
CHINESE: dict[str, str] = {
    "cause": "原因",
    "error": "错误",
    "try": "建议",
}


def fill(template: str, values: Mapping[str, object], lang: str) -> str:
    """Return the template in the language asked for, with its values in place."""
    text = CHINESE.get(template, template) if lang == "zh" else template
    return text.format(**values) if values else text
