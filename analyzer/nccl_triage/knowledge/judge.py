"""What is unusual about the name or the value of one variable of a job's environment, and which values it understands."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from nccl_triage.knowledge import reading
from nccl_triage.knowledge.entries import Bound, Grammar, Level, Remark, Text, Trap, Variable
from nccl_triage.knowledge.variables import Variables, shipped
from nccl_triage.lazy_regex import lazily

#: Values that PyTorch reads as true and as false; it raises for anything else.
_TRUE, _FALSE = ("1", "y", "yes", "t", "true", "on"), ("0", "n", "no", "f", "false", "off")
#: Maximum length of a number.
_LONGEST = 40
_INTERFACES = lazily(r"^[\^=]{0,2}[\w.@-]+(?::\w+)?(?:,[\w.@-]+(?::\w+)?)*$")
_UNITS = {
    "seconds": {"en": "seconds", "zh": "秒"},
    "minutes": {"en": "minutes", "zh": "分钟"},
    "milliseconds": {"en": "milliseconds", "zh": "毫秒"},
    "bytes": {"en": "bytes", "zh": "字节"},
}


def parse_number(value: str) -> float | None:
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
        return parse_number(value) in (0, 1)
    if grammar.kind == "truth":
        return value.lower() in (*_TRUE, *_FALSE)
    if grammar.kind in ("integer", "number"):
        found = parse_number(value)
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
    left, right = parse_number(one), parse_number(other)
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


def describe_values(grammar: Grammar) -> Text:
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


#: Maximum length of a value in a remark: values come from a log.
_SHOWN = 80
#: How like a known name (without its prefix) an unknown one must be to be named beside it; the second number holds
#: where not all names are known, so that only a slip of the pen may be called one.
_NEAR, _SLIP = 0.75, 0.92
#: A value that is no value: a place holder of documentation or of a shell.
_PLACEHOLDER = lazily(r"^(?:\$.*|<.*>|\.\.\.|…)$|\$[{(]")
#: The program whose version decides about entries that name another program.
_HOST_PROGRAM = {"gloo": "torch", "torchelastic": "torch", "pytorch": "torch"}

OUTSIDE = {
    "en": "{value} is not a valid value of {name}: {grammar}.",
    "zh": "{name} 不识别 {value}：可用的值是{grammar}。",
}
TOO_NEW = {
    "en": "{name} exists since {program} {since}; with {program} {version} it has no effect.",
    "zh": "{name} 从 {program} {since} 起才存在；{program} {version} 下不起作用。",
}
TOO_OLD = {
    "en": "{program} {version} no longer reads {name} (last: {until}); it has no effect.",
    "zh": "{program} {version} 已不再读取 {name}（最后一个版本：{until}），设置不起作用。",
}
DEFAULT = {
    "en": "{value} is the default{since}: this setting changes nothing.",
    "zh": "{value} 就是默认值{since}，这项设置不改变任何行为。",
}
SINCE = {"en": " since {program} {since}", "zh": "（自 {program} {since} 起）"}
DEBUGGING = {
    "en": "{name} is for diagnosis: a test, not a fix. Do not leave it in scripts.",
    "zh": "{name} 用于诊断：是测试手段，不是修复办法，不应留在脚本中。",
}
LEGACY = {"en": "{name} is an old name.", "zh": "{name} 是旧名称。"}
REPLACED = {"en": " Use {new}.", "zh": "请改用 {new}。"}
UNKNOWN = {
    "en": "{title} does not read {name} ({checked}), so it has no effect.",
    "zh": "{title} 不读取 {name}（{checked}），因此不起作用。",
}
SLIP = {"en": "{name} is not known here.", "zh": "这里不认识 {name}。"}
NEAREST = {"en": " The nearest known name is {near}.", "zh": "最接近的已知名称是 {near}。"}
NOT_NCCL = {"en": "{name} is not read by NCCL itself.", "zh": "NCCL 本身不读取 {name}。"}


def _say(template: Text, **given: object) -> Text:
    return {
        language: text.format(**{k: v[language] if isinstance(v, dict) else v for k, v in given.items()})
        for language, text in template.items()
    }


def _join(*parts: Text | None) -> Text:
    found = [part for part in parts if part is not None]
    return {
        "en": " ".join(part["en"].strip() for part in found),
        "zh": "".join(part["zh"].strip() for part in found),
    }


def cut(value: str) -> str:
    """Return a value as it is shown in a remark."""
    return value if len(value) <= _SHOWN else value[:_SHOWN] + ".."


def cleaned(value: str) -> str:
    """Return a value without the punctuation that a log puts around it."""
    return value.strip().strip("'\"").rstrip(",;)].")


def program_of(variable: Variable) -> str:
    """Return the program whose version decides about a variable."""
    return _HOST_PROGRAM.get(variable.program, variable.program)


def default_of(variable: Variable, known: Mapping[str, str]) -> tuple[str, str] | None:
    """Return (since, value) of the default in the version that the log shows, or None when it cannot be told.

    With an unknown version the default is told only where it never changed.
    """
    if not variable.default:
        return None
    version = known.get(program_of(variable))
    if version is None:
        return variable.default[0] if len(variable.default) == 1 else None
    reached = [
        item for item in variable.default if not item[0] or reading.version_key(version) >= reading.version_key(item[0])
    ]
    return reached[-1] if reached else None


def _before(program: str, variable: Variable) -> Bound:
    """Return the condition under which a version is known not to have the variable yet."""
    return Bound(program, "<=", variable.absent) if variable.absent else Bound(program, "<", variable.since or "0")


def _after(program: str, variable: Variable) -> Bound:
    """Return the condition under which a version is known not to have the variable any more."""
    return Bound(program, ">=", variable.gone) if variable.gone else Bound(program, ">", variable.until or "0")


class _Judge:
    """Collects the remarks on one value."""

    def __init__(self, name: str, value: str) -> None:
        self.name, self.value = name, value
        self.remarks: list[Remark] = []

    def add(self, level: Level, kind: str, says: Text) -> None:
        self.remarks.append(Remark(self.name, self.value, level, kind, says))

    def version(self, variable: Variable, known: Mapping[str, str]) -> bool:
        """Remark that the version in use does not read the variable; return whether it did."""
        program = program_of(variable)
        if program not in known:
            return False
        given = {"name": self.name, "program": program, "version": known[program]}
        if variable.since and reading.holds((_before(program, variable),), known):
            self.add("warn", "version", _say(TOO_NEW, since=variable.since, **given))
        elif variable.until and reading.holds((_after(program, variable),), known):
            self.add("warn", "version", _say(TOO_OLD, until=variable.until, **given))
        else:
            return False
        return True

    def status(self, variable: Variable) -> None:
        if variable.status == "legacy":
            new = _say(REPLACED, new=variable.replaced_by) if variable.replaced_by else None
            self.add("note", "legacy", _join(_say(LEGACY, name=self.name), new))
        elif variable.status == "unknown-to-nccl":
            self.add("warn", "unknown", _join(_say(NOT_NCCL, name=self.name), variable.caution))

    def traps(self, variable: Variable, known: Mapping[str, str], environment: Mapping[str, str]) -> bool:
        found = [trap for trap in variable.traps if _caught(trap, self.value, known, environment)]
        for trap in found:
            self.add(trap.level, "trap", trap.says)
        return bool(found)

    def usual(self, variable: Variable, known: Mapping[str, str]) -> None:
        """Remark on a default that is set explicitly, or a diagnostic variable that was left set."""
        default = default_of(variable, known)
        if default is not None and same(variable.grammar, default[1], self.value):
            since = _say(SINCE, program=program_of(variable), since=default[0]) if default[0] else {"en": "", "zh": ""}
            self.add("note", "default", _say(DEFAULT, value=cut(self.value), since=since))
        elif variable.status == "diagnosis-only" and not any(
            same(variable.grammar, word, self.value) for word in variable.harmless
        ):
            self.add("note", "debugging", _join(_say(DEBUGGING, name=self.name), variable.caution))


def _caught(trap: Trap, value: str, known: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    number = parse_number(value)
    return (
        reading.holds(trap.bounds, known)
        and (trap.matches is None or trap.matches.search(value) is not None)
        and (trap.below is None or (number is not None and number < trap.below))
        and (trap.above is None or (number is not None and number > trap.above))
        and (trap.missing is None or trap.missing not in environment)
    )


def nearest(name: str, names: Iterable[str], prefix: str, cutoff: float = _NEAR) -> str | None:
    """Return the known name with the prefix that is most like this one behind it, or None when none is."""
    ends = sorted(other[len(prefix) :] for other in names if other.startswith(prefix))
    found = difflib.get_close_matches(name[len(prefix) :], ends, 1, cutoff)
    return prefix + found[0] if found else None


def _nameless(name: str, value: str, known: Variables) -> list[Remark]:
    """Return the remarks on a name without an entry."""
    space = known.namespace(name)
    if space is None or name in space.names:
        return []
    for prefix, says in space.others.items():
        if name.startswith(prefix):
            return [Remark(name, value, "note", "unknown", says)]
    names = {*space.names, *known.read_by_program(space.prefix)}
    near = nearest(name, names, space.prefix, _NEAR if space.complete else _SLIP)
    if not space.complete and near is None:
        return []
    first = _say(UNKNOWN if space.complete else SLIP, name=name, title=space.title, checked=space.checked)
    level: Level = "warn" if space.complete else "note"
    return [Remark(name, value, level, "unknown", _join(first, _say(NEAREST, near=near) if near else None))]


def judge_variable(
    name: str, value: str, known: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> list[Remark]:
    """Return what is unusual about a variable, given the versions of programs (``{"nccl": "2.21.5"}``).

    ``environment`` holds the other variables of the same job: some settings are odd only beside others.
    """
    catalogue = shipped()
    value = cleaned(value)
    variable = catalogue.find(name)
    if variable is None:
        return _nameless(name, value, catalogue)
    found = _Judge(name, value)
    if found.version(variable, known):
        return found.remarks
    found.status(variable)
    if variable.status in ("unknown-to-nccl", "set-by-launcher") and not variable.traps:
        return found.remarks
    if not value or _PLACEHOLDER.search(value):
        return found.remarks
    trapped = found.traps(variable, known, environment or {})
    if not fits(variable.grammar, value):
        if not trapped:
            grammar = describe_values(variable.grammar)
            found.add("warn", "outside", _say(OUTSIDE, value=cut(value), name=name, grammar=grammar))
    elif not trapped and variable.status != "legacy":
        found.usual(variable, known)
    return found.remarks
