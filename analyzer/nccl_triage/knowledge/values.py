"""Which values a variable understands, and how to say so."""

from __future__ import annotations

import re

from nccl_triage.knowledge.model import Grammar, Text
from nccl_triage.lazy_regex import lazily

#: What PyTorch reads as true and as false; anything else raises there.
_TRUE, _FALSE = ("1", "y", "yes", "t", "true", "on"), ("0", "n", "no", "f", "false", "off")
#: A longer text is no number that any program reads.
_LONGEST = 40
_INTERFACES = lazily(r"^[\^=]{0,2}[\w.@-]+(?::\w+)?(?:,[\w.@-]+(?::\w+)?)*$")
_UNITS = {
    "seconds": {"en": "seconds", "zh": "秒"},
    "minutes": {"en": "minutes", "zh": "分钟"},
    "milliseconds": {"en": "milliseconds", "zh": "毫秒"},
    "bytes": {"en": "bytes", "zh": "字节"},
}


def number(value: str) -> float | None:
    """Return a value as a number, as C's strtoll and strtod would (hexadecimal too), or None."""
    if len(value) > _LONGEST:
        return None
    try:
        return float(int(value, 0))
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        return None


def _in_range(grammar: Grammar, value: float) -> bool:
    return (grammar.least is None or value >= grammar.least) and (grammar.most is None or value <= grammar.most)


def _words(value: str) -> list[str]:
    return [part for part in re.split(r"[,;:^\s]+", value.lower()) if part]


def fits(grammar: Grammar, value: str) -> bool:
    """Tell whether the program understands the value."""
    if value.lower() in (word.lower() for word in grammar.also):
        return True
    if grammar.kind == "switch":
        return number(value) in (0, 1)
    if grammar.kind == "truth":
        return value.lower() in (*_TRUE, *_FALSE)
    if grammar.kind in ("integer", "number"):
        found = number(value)
        whole = grammar.kind == "number" or (found is not None and found == found // 1)
        return found is not None and whole and _in_range(grammar, found)
    allowed = {word.lower() for word in grammar.of}
    if grammar.kind == "one-of":
        return value.lower() in allowed
    if grammar.kind == "list-of":
        return bool(_words(value)) and all(word in allowed for word in _words(value))
    if grammar.kind in ("interfaces", "devices"):
        return _INTERFACES.match(value) is not None
    return bool(value)


def same(grammar: Grammar, one: str, other: str) -> bool:
    """Tell whether two values mean the same to the program (``1`` and ``true``, ``4194304`` and ``0x400000``)."""
    if grammar.kind == "truth":
        return (one.lower() in _TRUE) == (other.lower() in _TRUE) and fits(grammar, one) and fits(grammar, other)
    left, right = number(one), number(other)
    if left is not None and right is not None:
        return left == right
    return one.lower() == other.lower()


def _shown(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _range(grammar: Grammar) -> Text:
    least, most = grammar.least, grammar.most
    if least is not None and most is not None:
        return {"en": f" from {_shown(least)} to {_shown(most)}", "zh": f"，{_shown(least)} 到 {_shown(most)}"}
    if least is not None:
        return {"en": f", {_shown(least)} or more", "zh": f"，不小于 {_shown(least)}"}
    if most is not None:
        return {"en": f", at most {_shown(most)}", "zh": f"，不大于 {_shown(most)}"}
    return {"en": "", "zh": ""}


def _numbers(grammar: Grammar) -> Text:
    unit, limits = _UNITS.get(grammar.unit or "", {"en": "", "zh": ""}), _range(grammar)
    kinds = {"integer": ("a whole number", "整数"), "number": ("a number", "数字")}
    english, chinese = kinds[grammar.kind]
    return {
        "en": english + (f" of {unit['en']}" if unit["en"] else "") + limits["en"],
        "zh": chinese + (f"（{unit['zh']}）" if unit["zh"] else "") + limits["zh"],
    }


def describe(grammar: Grammar) -> Text:
    """Return in words which values are understood."""
    if grammar.kind in ("integer", "number"):
        found = _numbers(grammar)
    elif grammar.kind == "one-of":
        found = {"en": f"one of {', '.join(grammar.of)}", "zh": f"以下之一：{'、'.join(grammar.of)}"}
    elif grammar.kind == "list-of":
        found = {"en": f"a list of {', '.join(grammar.of)}", "zh": f"由以下各项组成的列表：{'、'.join(grammar.of)}"}
    else:
        found = _FIXED[grammar.kind]
    if grammar.also:
        found = {
            "en": f"{found['en']}, or {', '.join(grammar.also)}",
            "zh": f"{found['zh']}，或 {'、'.join(grammar.also)}",
        }
    return found


_FIXED: dict[str, Text] = {
    "switch": {"en": "0 or 1 (words such as 'true' are not understood)", "zh": "0 或 1（不识别 true 之类的单词）"},
    "truth": {"en": "0 or 1 (also true, false, yes, no)", "zh": "0 或 1（也可写 true、false、yes、no）"},
    "interfaces": {
        "en": "names of network interfaces, separated by commas",
        "zh": "网络接口名，用逗号分隔",
    },
    "devices": {
        "en": "names of RDMA devices, separated by commas, each with an optional :port",
        "zh": "RDMA 设备名，用逗号分隔，可加 :端口",
    },
    "path": {"en": "a path", "zh": "路径"},
    "text": {"en": "text", "zh": "文本"},
}
