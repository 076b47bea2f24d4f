"""Culprit methods that only read a fact: name -> the facts whose ranks it blames (the first that has any), and why."""

from __future__ import annotations

#: Methods that take the ranks of the first of these facts that has any: name -> (facts, why in English, in Chinese).
BY_FACT: dict[str, tuple[tuple[str, ...], str, str]] = {
    "exit": (
        ("process.killed_ranks", "process.crashed_ranks", "process.first_exit_ranks", "process.aborted_ranks"),
        "its process died first",
        "它的进程最先退出",
    ),
    "aborted": (("process.aborted_ranks",), "aborted on its own", "自行中止"),
    "behind": (
        ("collective.behind_ranks",),
        "never entered the collective that the others wait in",
        "从未进入其他 rank 正在等待的集合操作",
    ),
    "silent": (
        ("progress.silent_ranks",),
        "reported no error while the others timed out",
        "其他 rank 超时，它没有任何报错",
    ),
    "missing": (("progress.init_missing_ranks", "progress.missing_ranks"), "never appeared", "从未出现"),
    "not-entered": (
        ("progress.not_entered_ranks",),
        "was ready and never entered the collective",
        "已就绪但从未进入集合操作",
    ),
    "odd-amount": (
        ("progress.odd_amount_ranks",),
        "announced another amount of work than the rest",
        "宣布的工作量与其他 rank 不同",
    ),
    "unserved": (
        ("progress.unserved_ranks",),
        "expects the data from another rank than the one that sends it",
        "等待的发送方与实际发送方不同",
    ),
    "slow-work": (
        ("progress.slow_work_ranks",),
        "its own work took as long as the others' time-out",
        "自身工作耗时达到其他 rank 的超时",
    ),
    "slow-steps": (
        ("pace.slow_ranks",),
        "its steps took longer than those of the others, again and again",
        "它的每步耗时一直比其他 rank 长",
    ),
    "late": (("collective.late_ranks",), "arrived long after the others", "比其他 rank 晚到很久"),
    "finished-early": (
        ("progress.finished_early_ranks", "process.clean_exit_ranks"),
        "left while the others went on",
        "其他 rank 仍在运行时它已离开",
    ),
    "busy": (("progress.long_task_ranks",), "was busy with long work", "当时正忙于耗时的工作"),
    "minority": (
        ("mismatch.culprit_ranks", "collective.shape_mismatch", "collective.odd_ranks"),
        "runs another collective than the majority",
        "执行的集合操作与多数 rank 不同",
    ),
    "absent": (("collective.absent_ranks",), "named as the rank that did not arrive", "被点名为未到达的 rank"),
    "odd-world": (("rendezvous.odd_world_ranks",), "was told another number of ranks", "被告知的 rank 总数与其他不同"),
    "skipped": (("progress.skipped_ranks",), "left out a step that the others made", "跳过了其他 rank 执行的一步"),
    "vanished": (("progress.vanished_ranks",), "stopped printing without an error", "没有报错就停止输出"),
    "awaited": (("collective.awaited_ranks",), "the others waited in the store for it", "其他 rank 在 store 中等待它"),
}
