"""The reasons why lines of a log do not count, in words."""

from __future__ import annotations

#: Reason -> its English and Chinese words.
_WHY = {
    "before": ("it was written before the job started", "早于作业开始"),
    "after": ("it was written after the job had ended", "晚于作业结束"),
    "elsewhere": ("it comes from a host that the job did not run on", "来自作业未使用的主机"),
    "other-gpu": ("it is about a GPU that no rank of the job uses", "涉及作业未使用的 GPU"),
    "other-process": ("it is about a process outside the job", "涉及不属于该作业的进程"),
    "finished": (
        "the job finished, and its own lines report no failure",
        "作业已正常结束，自身没有任何失败信息",
    ),
    "other-program": ("it comes from a program outside the job", "由与作业无关的程序写出"),
    "tool": (
        "it comes from a tool in a script, and the job itself says more",
        "由脚本中的工具写出，而作业自身有更多信息",
    ),
    "no-job": ("this input has no lines from a job", "输入中没有任何作业的日志行"),
    "went-on": ("the job continued after it", "作业在其后继续运行"),
    "again": (
        "the job survived the same error before, and no exit follows",
        "作业此前经受过同样的错误，且其后没有进程退出",
    ),
    "recovered": ("a later line says that it works again", "后面的日志表明已恢复"),
    "caught": ("the program caught and logged it, and continued", "程序捕获并记录了它，随后继续运行"),
    "ignored": ("Python ignored it", "Python 已忽略它"),
    "no-clock": (
        "it has no timestamp (dmesg without -T), and no line of the job reports a failure",
        "它没有时间（dmesg 未加 -T），且作业自身没有任何失败信息",
    ),
}


def reason_in_words(reason: str) -> dict[str, str]:
    """Return a reason in the words of every language."""
    en, zh = _WHY[reason]
    return {"en": en, "zh": zh}
