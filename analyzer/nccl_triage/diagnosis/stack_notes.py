"""The note that says where all dumped processes stand, whatever was concluded from it."""

from __future__ import annotations

from collections import defaultdict

from nccl_triage.diagnosis import dumped_stacks as dumped
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.dumped_stacks import Stack

#: Places named, those of the most processes first, and ranks or pids named of each.
MAX_PLACES, MAX_NAMES = 6, 8
#: The activity of a process that waits until another has compiled an extension.
_LOCK = "extension-lock"


def notes(case: Case) -> list[dict[str, str]]:
    """Return the note, where several processes were dumped."""
    stacks = dumped.of_case(case)
    if len(stacks) < 2:
        return []
    places: dict[str, list[Stack]] = defaultdict(list)
    for one in stacks:
        places[one.shown].append(one)
    ordered = sorted(places.items(), key=lambda place: -len(place[1]))
    told = [f"{len(there)}{_names(case, there)}: {place}" for place, there in ordered[:MAX_PLACES]]
    more = len(ordered) - len(told)
    en = f"Where the {len(stacks)} dumped processes stand: {'; '.join(told)}{f'; and {more} other places' if more else ''}."
    zh = f"被导出调用栈的 {len(stacks)} 个进程所在位置：{'；'.join(told)}{f'；另有 {more} 处' if more else ''}。"
    if case.value("stacks.together"):
        en += " All wait at the same place: none of these took another path, so look at ranks that were not dumped, at the network and at the GPUs."
        zh += "它们都在同一处等待：这些进程都没有走另一条路径，请检查未导出调用栈的 rank、网络和 GPU。"
    if all(one.activity is not None and one.activity.id == _LOCK for one in stacks):
        en += " All wait for the lock of a build, and none of them builds: a build that was killed leaves it behind. Where no other process builds, remove the file `lock` (torch.utils.cpp_extension: below ~/.cache/torch_extensions or TORCH_EXTENSIONS_DIR) and start again."
        zh += "它们都在等待编译锁，却没有进程在编译：被杀掉的编译会留下锁文件。若没有其他进程在编译，请删除 `lock` 文件（torch.utils.cpp_extension 位于 ~/.cache/torch_extensions 或 TORCH_EXTENSIONS_DIR 下）后重新启动。"
    return [{"en": en, "zh": zh}]


def _names(case: Case, stacks: list[Stack]) -> str:
    """Return `` (ranks 0, 1)`` or `` (pids 11, 12)``, where all are known and not too many."""
    ranks = [rank for one in stacks if (rank := case.rank(one.event)) is not None]
    pids = [one.event.context.pid for one in stacks if one.event.context.pid is not None]
    for word, numbers in (("rank", ranks), ("pid", pids)):
        if len(numbers) == len(stacks) <= MAX_NAMES:
            return f" ({word} {', '.join(str(number) for number in sorted(numbers))})"
    return ""
