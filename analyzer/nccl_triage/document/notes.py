"""The notes of a report: what a reader must know of the input, of lines that do not count, and of what the logs cannot show."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from nccl_triage import messages
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.facts import stacks as dumped
from nccl_triage.diagnosis.facts.hang import seen
from nccl_triage.diagnosis.facts.recorder import comparison
from nccl_triage.diagnosis.facts.stacks import Stack
from nccl_triage.diagnosis.findings import Verdict
from nccl_triage.document.other_runs import _COMPARED
from nccl_triage.knowledge.amounts import size
from nccl_triage.observations.store import Observations
from nccl_triage.recorder.lines import spans
from nccl_triage.story import line_origins
from nccl_triage.story.decisions import answer_in_words
from nccl_triage.story.kernel_log import Aside

_HOUR = 3600.0


def _collector(observations: Observations) -> list[dict[str, str]]:
    """Return a note when all lines were collected at one place, and one for each source with two clocks."""
    found = []
    if (place := line_origins.only_place(observations)) is not None:
        found.append(
            {
                "en": f"Every line was collected at {place}, so ranks and hosts cannot be told apart by it.",
                "zh": f"所有日志行都采集自 {place}：无法据此区分 rank 或主机。",
            }
        )
    for source, seconds in sorted(line_origins.two_clocks(observations).items())[:3]:
        hours = f"{abs(seconds) / _HOUR:.1f}".removesuffix(".0")
        en, zh = ("behind", "慢") if seconds > 0 else ("ahead of", "快")
        found.append(
            {
                "en": f"{source} has two clocks: the collector's is {hours} h {en} the program's. Times shown are the collector's.",
                "zh": f"{source} 有两个时钟：采集器的时钟比程序{zh} {hours} 小时。此处的时间为采集器的时间。",
            }
        )
    return found


_ZONES = {
    "en": " Different time zones would look the same: compare 'date' on the host and in the job.",
    "zh": "如果两边时区不同也会如此：请比较主机与作业中的 date 输出。",
}


def _excluded(excluded: Sequence[Aside]) -> list[dict[str, str]]:
    """Return one note for each reason for which failure lines were excluded."""
    excluded = [item for item in excluded if item[0].is_failure]
    return [
        _exclusion(reason, [item for item in excluded if item[1].answer == reason]) for reason in _reasons(excluded)
    ]


def _reasons(excluded: Iterable[Aside]) -> list[str]:
    return list(dict.fromkeys(why.answer for _, why in excluded))


def _exclusion(reason: str, items: Sequence[Aside]) -> dict[str, str]:
    event = items[0][0]
    place = f"{event.source}:{event.line}"
    text = event.text.strip()[:160]
    why = answer_in_words(items[0][1])
    more = len(items) - 1
    others = (f" and {more} more", f"等共 {more + 1} 行") if more else ("", "")
    zones = _ZONES if reason in ("before", "after") else {"en": "", "zh": ""}
    return {
        "en": f"Set aside: {place}{others[0]} ({text}): {why['en']}.{zones['en']}",
        "zh": f"未计入：{place}{others[1]}（{text}）：{why['zh']}。{zones['zh']}",
    }


_GOOD_RUN = {
    "failed": (
        "The log given as a good run is itself a failure ({cause}), so what both share is not shown.",
        "作为正常运行给出的日志本身就是故障日志（{cause}）：两者相同之处不会列出。",
    ),
    "empty": (
        "No line of the log given as a good run is recognised, so it cannot be compared.",
        "作为正常运行给出的日志中没有可识别的内容，无法比较。",
    ),
    "other": (
        "The log given as a good run shares no kind of line with this one. It seems to be from another program and "
        "cannot be compared.",
        "作为正常运行给出的日志与本日志没有任何同类的行，似乎来自另一个程序，无法比较。",
    ),
}


def _good_run(case: Case) -> list[dict[str, str]]:
    """Return a note when the good run cannot be compared, or is itself a failure."""
    found = case.of(_COMPARED)
    if not found or found[0].fields["state"] not in _GOOD_RUN:
        return []
    cause = found[0].fields.get("cause", "")
    english, chinese = _GOOD_RUN[found[0].fields["state"]]
    return [{"en": english.format(cause=cause), "zh": chinese.format(cause=cause)}]


#: Maximum number of places named, and of ranks or pids named at each.
MAX_PLACES, MAX_NAMES = 6, 8
#: The activity of a process that waits until another has compiled an extension.
_LOCK = "extension-lock"


def _stacks(case: Case) -> list[dict[str, str]]:
    """Return the note on where dumped processes stand, when several were dumped."""
    stacks = dumped.of_case(case)
    if len(stacks) < 2:
        return [] if stacks else _kernel_waits(case)
    places: dict[str, list[Stack]] = defaultdict(list)
    for one in stacks:
        places[one.shown].append(one)
    ordered = sorted(places.items(), key=lambda place: -len(place[1]))
    told = [f"{len(there)}{_names(case, there)}: {place}" for place, there in ordered[:MAX_PLACES]]
    more = len(ordered) - len(told)
    en = f"Where the {len(stacks)} dumped processes are: {'; '.join(told)}{f'; and {more} other places' if more else ''}."
    zh = f"被导出调用栈的 {len(stacks)} 个进程所在位置：{'；'.join(told)}{f'；另有 {more} 处' if more else ''}。"
    if case.value("stacks.together"):
        en += " All wait in the same place, so none of them took another path. Check ranks that were not dumped, the network and the GPUs."
        zh += "它们都在同一处等待：这些进程都没有走另一条路径，请检查未导出调用栈的 rank、网络和 GPU。"
    if all(one.activity is not None and one.activity.id == _LOCK for one in stacks):
        en += " All wait for a build lock, and none of them is building: a killed build leaves the lock behind. If no other process is building, remove the file `lock` (torch.utils.cpp_extension: below ~/.cache/torch_extensions or TORCH_EXTENSIONS_DIR) and restart."
        zh += "它们都在等待编译锁，却没有进程在编译：被杀掉的编译会留下锁文件。如果没有其他进程在编译，请删除 `lock` 文件（torch.utils.cpp_extension 位于 ~/.cache/torch_extensions 或 TORCH_EXTENSIONS_DIR 下）后重新启动。"
    return [{"en": en, "zh": zh}, *_moved(case, stacks)]


def _moved(case: Case, stacks: list[Stack]) -> list[dict[str, str]]:
    """Return the note on processes that were dumped repeatedly and were not found at the same place."""
    moved = [one for one in stacks if one.moved]
    if not moved:
        return []
    names = _names(case, moved)
    return [
        {
            "en": f"{len(moved)} of {len(stacks)} processes{names} moved between two dumps: they run, and are not blocked.",
            "zh": f"{len(stacks)} 个进程中有 {len(moved)} 个{names}在两次导出之间移动过：它们在运行，没有被阻塞。",
        }
    ]


def _kernel_waits(case: Case) -> list[dict[str, str]]:
    """Return the note on where the kernel has processes wait that hang, where nothing more is known of them."""
    places: dict[str, list[str]] = defaultdict(list)
    found = seen(case)
    for one in found:
        rank = one.event.fields.get("rank")
        places[one.stands].append(f"rank {rank}" if rank else f"pid {one.event.fields['pid']}")
    if len(found) < 2:
        return []
    ordered = sorted(places.items(), key=lambda place: -len(place[1]))[:MAX_PLACES]
    told = [(f"{len(who)} ({', '.join(who[:MAX_NAMES])})", place) for place, who in ordered]
    return [
        {
            "en": "There are no stacks. Where the kernel has the processes wait: "
            + "; ".join(f"{who} in {place}" for who, place in told)
            + ".",
            "zh": "没有调用栈。各进程在内核中等待的位置："
            + "；".join(f"{who} 在 {place}" for who, place in told)
            + "。",
        }
    ]


def _names(case: Case, stacks: list[Stack]) -> str:
    """Return `` (ranks 0, 1)`` or `` (pids 11, 12)``, where all are known and not too many."""
    ranks = [rank for one in stacks if (rank := case.rank(one.event)) is not None]
    pids = [one.event.context.pid for one in stacks if one.event.context.pid is not None]
    for word, numbers in (("rank", ranks), ("pid", pids)):
        if len(numbers) == len(stacks) <= MAX_NAMES:
            return f" ({word} {', '.join(str(number) for number in sorted(numbers))})"
    return ""


def _of_ranks(ranks: Iterable[int]) -> str:
    found = list(ranks)
    return f"{'rank' if len(found) == 1 else 'ranks'} {spans(found)}"


def _flight_recorder(case: Case) -> list[dict[str, str]]:
    """Return notes on the dumps: whether they agree with the log, and what they cannot show."""
    found = comparison(case)
    made: list[dict[str, str]] = []
    agrees, differs = case.value("recorder.agrees_with_log"), case.value("recorder.disagrees_with_log")
    if agrees:
        made.append(
            {
                "en": f"The flight recorder and the log agree: both point to {_of_ranks(agrees)}.",
                "zh": f"flight recorder 与日志一致：都指向 rank {spans(agrees)}。",
            }
        )
    elif differs:
        made.append(
            {
                "en": f"The flight recorder and the log disagree: the dumps point to {_of_ranks(differs)}, the log to others. "
                "The dumps show which calls were issued, the log shows the effects; check both.",
                "zh": f"flight recorder 与日志不一致：转储指向 rank {spans(differs)}，日志指向其他 rank。转储显示发起了什么，日志显示表现如何，两者都要看。",
            }
        )
    slow = case.value("recorder.slow_ranks")
    if slow:
        by = case.value("recorder.slow_by")
        made.append(
            {
                "en": f"According to the flight recorder dumps, {_of_ranks(slow)} repeatedly came later than the others: {by}.",
                "zh": f"flight recorder 转储中的时间显示 rank {spans(slow)} 反复晚于其余 rank：{by}。",
            }
        )
    if found.absent:
        made.append(
            {
                "en": f"There is no flight recorder dump of {_of_ranks(found.absent)}, so the dumps can neither blame nor clear them.",
                "zh": f"缺少 rank {spans(found.absent)} 的 flight recorder 转储：无法据此归咎或排除它们。",
            }
        )
    if len(found.versions) > 1:
        versions = ", ".join(found.versions)
        made.append(
            {
                "en": f"The flight recorder dumps have different versions ({versions}); only what they share was compared.",
                "zh": f"flight recorder 转储的版本不同（{versions}）：只比较了共有的内容。",
            }
        )
    if found.cut:
        made.append(
            {
                "en": "There were too many process groups to keep all calls; only the last calls of each were compared.",
                "zh": "进程组过多，无法保留全部调用：每个进程组只比较了最后的若干次。",
            }
        )
    return made


def interruption(case: Case) -> dict[str, Any] | None:
    """Return how much was read before a signal interrupted the reading; None when everything was read."""
    found = case.observations.interruption
    if found is None:
        return None
    files = case.observations.sources.values()
    return {
        "signal": signal.Signals(found.signal).name,
        "bytes_read": found.read,
        "bytes": found.size,
        "files_read": sum(not info.stopped for info in files),
        "files": len(files),
    }


def marked(case: Case, headline: dict[str, str]) -> dict[str, str]:
    """Return the headline, prefixed with a warning when the reading was interrupted."""
    found = case.observations.interruption
    if found is None:
        return headline
    if found.size:
        read = f"{size(found.read)} of {size(found.size)}", f"{size(found.size)} 中的 {size(found.read)}"
    else:
        read = size(found.read), size(found.read)
    return {
        "en": f"PARTIAL: reading was interrupted after {read[0]}. {headline['en']}",
        "zh": f"不完整：读取在 {read[1]} 处被中断。{headline['zh']}",
    }


def _interruption(case: Case) -> list[dict[str, str]]:
    """Return a note on an interrupted reading."""
    found = interruption(case)
    if found is None:
        return []
    name, complete, files = found["signal"], found["files_read"], found["files"]
    return [
        {
            "en": f"Reading was interrupted by {name}: {complete} of {files} inputs were read to the end. What is "
            "missing may only be unread, so ranks that seem silent are not counted as silent and no cause is called "
            "established. Run again to read everything.",
            "zh": f"读取被 {name} 中断：{files} 个输入中有 {complete} 个读完。缺少的内容可能只是尚未读取：看似沉默的 rank "
            "不计为沉默，任何原因都不视为已确立。请重新运行以读取全部内容。",
        }
    ]


def _stood_still(case: Case) -> list[dict[str, str]]:
    """Return a note on watchdogs that saw a timeout only long after it."""
    found = case.ledger.overran()
    longest = max(((one.elapsed_ms or 0, one.timeout_ms or 0) for one in found), default=None)
    if longest is None:
        return []
    number, elapsed, timeout = len(found), longest[0] // 1000, longest[1] // 1000
    return [
        {
            "en": f"The watchdogs of {number} of {len(case.ledger.standings)} ranks looked only after up to {elapsed} s, with a timeout of "
            f"{timeout} s: the processes themselves stood still, as on a host that was paused or short of memory.",
            "zh": f"{len(case.ledger.standings)} 个 rank 中有 {number} 个的 watchdog 最迟在 {elapsed} s 后才检查，而超时为 {timeout} s："
            "进程本身停滞不动，例如主机被暂停或内存不足。",
        }
    ]


def notes(case: Case, verdict: Verdict) -> list[dict[str, str]]:
    """Return the notes of a report, in the order in which they are shown."""
    found = _interruption(case)
    found += [{"en": note, "zh": messages.translated_text(note)} for note in case.observations.notes]
    found += _collector(case.observations)
    found += _excluded(case.aside)
    found += _flight_recorder(case)
    found += _good_run(case)
    found += _stacks(case)
    found += _stood_still(case)
    if verdict == "healthy" and case.story.outcome.state == "running":
        # A job that hangs before any timeout prints nothing: its log looks like that of a job that runs.
        found.append(
            {
                "en": "The log does not say that the job finished. If it hangs now, the log cannot show why: run "
                "py-spy dump --pid PID for every rank, and look for the one that is somewhere else.",
                "zh": "日志没有表明作业已结束。如果作业此刻卡住，仅凭日志看不出原因：请对每个 rank 执行 py-spy dump --pid PID，找出停在别处的那个。",
            }
        )
    if case.value("job.filtered"):
        found.append(
            {
                "en": "The input looks filtered by grep: Python tracebacks, exit codes and kernel messages are missing, "
                "so causes outside NCCL cannot be seen. Use the unfiltered log.",
                "zh": "输入看起来经过 grep 过滤：缺少 Python 异常、退出码和内核消息，无法看到 NCCL 之外的原因。请提供未过滤的日志。",
            }
        )
    return found
