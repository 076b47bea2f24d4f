"""Features of form and place in words, for those who ask why."""

from __future__ import annotations

from collections.abc import Sequence

#: First parts of a feature -> the words for it; {name} is its last part. The longest that fits is taken.
_WORDS: dict[str, tuple[str, str]] = {
    "k:": ("it has lines of kind {name}", "含有类型为 {name} 的行"),
    "t:": ("its last lines are of kind {name}", "末尾的行属于类型 {name}"),
    "z:": ("its very last lines are of kind {name}", "最末几行属于类型 {name}"),
    "a:": ("lines of kind {name} come after its last progress", "最后一次进展之后有类型为 {name} 的行"),
    "r:": ("lines of role {name} come after its last progress", "最后一次进展之后有角色为 {name} 的行"),
    "w:": ('its last lines have the word "{name}"', "末尾的行含有“{name}”"),
    "v:": ('its last two lines have the word "{name}"', "最后两行含有“{name}”"),
    "n:progress:": ("lines of progress: {name}", "表示进展的行数：{name}"),
    "n:failures:": ("failures: at most {name}", "故障行数：至多 {name}"),
    "n:failures:0": ("no failure", "没有故障行"),
    "n:failures:more": ("very many failures", "故障行极多"),
    "n:behind:": ("at most {name} lines come after its last progress", "最后一次进展之后至多 {name} 行"),
    "n:behind:more": ("very many lines come after its last progress", "最后一次进展之后的行极多"),
    "f:progress:": ("its last progress is of kind {name}", "最后一次进展属于类型 {name}"),
    "f:total:reached": ("the last step of its total was made", "已完成总步数中的最后一步"),
    "f:total:open": ("its total of steps was not reached", "尚未达到总步数"),
    "f:last:": ("its last known line has the role {name}", "最后一个已知行的角色是 {name}"),
    "f:alike:0": ("its last line is like none above it", "最后一行与其上各行都不相似"),
    "f:alike:": (
        "lines like its last one among the last lines: {name} or more",
        "末尾与最后一行相似的行：至少 {name} 行",
    ),
    "f:again:": ("a line like its last one came at most {name} lines before", "至多 {name} 行之前有与最后一行相似的行"),
    "f:whole:": ("a counter or percentage reached its total in its last lines", "末尾的计数或百分比已到达总数"),
    "f:part:": ("a counter or percentage in its last lines has not reached its total", "末尾的计数或百分比未到达总数"),
    "f:values:0": ("none of its last lines names a value", "末尾没有给出数值的行"),
    "f:values:": ("at most {name} of its last lines name a value", "末尾至多 {name} 行给出数值"),
    "f:begins:": ("its last line begins with: {name}", "最后一行以此开头：{name}"),
    "f:ends:": ("its last line ends with: {name}", "最后一行以此结尾：{name}"),
    "f:short": ("it has few lines", "行数很少"),
    "f:indented": ("its last line is indented", "最后一行有缩进"),
}


def features(names: Sequence[str]) -> dict[str, str]:
    """Return features in the words of every language."""
    found = [_one(name) for name in names]
    return {"en": "; ".join(en for en, _ in found), "zh": "；".join(zh for _, zh in found)}


def _one(feature: str) -> tuple[str, str]:
    first = max((key for key in _WORDS if feature.startswith(key)), key=len, default="")
    english, chinese = _WORDS.get(first, ("{name}", "{name}"))
    name = feature[len(first) :]
    return english.format(name=name), chinese.format(name=name)
