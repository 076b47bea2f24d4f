"""Culprit methods that only read a fact: name -> the facts whose ranks it blames (the first that has any), and why."""

from __future__ import annotations

#: Methods that take the ranks of the first of these facts that has any: name -> (facts, why in English, in Chinese).
BY_FACT: dict[str, tuple[tuple[str, ...], str, str]] = {
    "exit": (
        ("process.killed_ranks", "process.crashed_ranks", "process.first_exit_ranks", "process.aborted_ranks"),
        "its process died first",
        "它的进程最先退出",
    ),
    "odd-exit": (
        ("process.odd_exit_ranks",),
        "ended with a code of its own, the others with 1",
        "以自己的退出码结束，其他 rank 均以 1 退出",
    ),
    "terminated": (
        ("process.terminated_ranks",),
        "it alone was ended by a signal that the launcher did not send",
        "只有它被并非启动器发送的信号终止",
    ),
    "aborted": (("process.aborted_ranks",), "aborted on its own", "自行中止"),
    "behind": (
        ("collective.behind_ranks",),
        "never entered the collective that the others wait in",
        "从未进入其他 rank 正在等待的集合操作",
    ),
    "ahead": (
        ("collective.ahead_ranks",),
        "went on to collectives that no other rank issued",
        "继续发起了其他 rank 未发起的集合操作",
    ),
    "silent": (
        ("progress.silent_ranks",),
        "reported no error while the others timed out",
        "其他 rank 超时，它没有任何报错",
    ),
    "left-out": (
        ("collective.left_out_ranks",),
        "the only one up to the highest rank that did not report the time-out",
        "在已出现的最大 rank 以内，只有它没有报告超时",
    ),
    "outlasted": (
        ("collective.outlasted_ranks",),
        "all others had timed out waiting when it found its connections closed",
        "它发现连接被关闭时，其他 rank 均已等待超时",
    ),
    "store-gone": (
        ("rendezvous.store_gone_ranks",),
        "the others lost the store while they waited for its communicator id, and it reports nothing",
        "其他 rank 等待它的通信域 id 时与 store 断开，而它没有任何报告",
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
        ("pace.slow_ranks", "pace.reported_ranks"),
        "its steps took longer than those of the others, again and again",
        "它的每步耗时一直比其他 rank 长",
    ),
    "late": (("collective.late_ranks",), "arrived long after the others", "比其他 rank 晚到很久"),
    "left-behind": (
        ("progress.left_behind_ranks",),
        "still works where the others are done",
        "其他 rank 已完成之处它仍在执行",
    ),
    "finished-early": (
        (
            "progress.finished_early_ranks",
            "process.clean_exit_ranks",
            "process.left_children",
            "process.left_neighbours",
        ),
        "left while the others went on",
        "其他 rank 仍在运行时它已离开",
    ),
    "cpu-time": (("process.over_cpu_time_ranks",), "used up its processor time", "用尽了 CPU 时间"),
    "lost-host": (
        ("progress.lost_host_ranks",),
        "its whole host fell silent when the others lost their connections",
        "其他 rank 连接中断时，它所在的整台主机陷入沉默",
    ),
    "other-tag": (("mismatch.tag_ranks",), "names its checkpoint otherwise", "检查点名称与其他 rank 不同"),
    "exhausted": (("progress.exhausted_ranks",), "ran out of batches first", "最先用完 batch"),
    "unmet-pair": (
        ("mismatch.unmet_pair",),
        "waits in a message that never met its counterpart",
        "停在一条从未与对端配对的消息上",
    ),
    "checkpoint-ranks": (
        ("exception.checkpoint_ranks",),
        "the checkpoint's exception names it",
        "检查点异常点名了它",
    ),
    "thread-died": (
        ("exception.thread_ranks",),
        "one of its threads died of the exception, and it came no further",
        "它的一个线程因该异常终止，之后再无进展",
    ),
    "busy": (("progress.long_task_ranks",), "was busy with long work", "当时正忙于耗时的工作"),
    "minority": (
        ("mismatch.culprit_ranks", "collective.shape_mismatch", "collective.odd_ranks"),
        "runs another collective than the majority",
        "执行的集合操作与多数 rank 不同",
    ),
    "absent": (
        ("collective.absent_ranks",),
        "named as the rank that did not arrive",
        "被点名为未到达的 rank",
    ),
    "odd-world": (("rendezvous.odd_world_ranks",), "was told another number of ranks", "被告知的 rank 总数与其他不同"),
    "skipped": (("progress.skipped_ranks",), "left out a step that the others made", "跳过了其他 rank 执行的一步"),
    "vanished": (("progress.vanished_ranks",), "stopped printing without an error", "没有报错就停止输出"),
    "awaited": (("collective.awaited_ranks",), "the others waited in the store for it", "其他 rank 在 store 中等待它"),
    "stranded": (
        ("rendezvous.stranded_ranks",),
        "did not reach the store that the others had found",
        "没有连上其他 rank 已找到的 store",
    ),
    "not-at-barrier": (
        ("rendezvous.barrier_missing_ranks",),
        "never reached the barrier in which the others were counted",
        "从未到达其他 rank 已被计数的屏障",
    ),
    "named-tasks": (
        ("rendezvous.named_tasks",),
        "the coordinator lists it as missing or silent",
        "协调器把它列为缺席或无响应",
    ),
    "store-unheard": (
        ("rendezvous.store_rank_unheard",),
        "hosts the store that nobody reaches, and printed nothing",
        "它负责 store，却无人能连上，且没有任何输出",
    ),
    "recorded-odd": (
        ("recorder.mismatch_ranks",),
        "its flight recorder differs from those of the majority",
        "它的 flight recorder 与多数 rank 不同",
    ),
    "recorded-circle": (
        ("recorder.circle_ranks",),
        "waits in a circle, by the flight recorders",
        "flight recorder 显示它处于互相等待的环中",
    ),
    "recorded-missing": (
        ("recorder.missing_ranks", "recorder.ahead_ranks", "recorder.unmet_ranks"),
        "by its flight recorder it went another way than the ranks that wait",
        "其 flight recorder 显示它与等待中的 rank 走了不同的路径",
    ),
    "recorded-late": (
        ("recorder.late_ranks",),
        "by its flight recorder it came long after the others",
        "其 flight recorder 显示它比其他 rank 晚很久",
    ),
    "recorded-slow": (
        ("recorder.slow_surely", "recorder.slow_ranks"),
        "by the flight recorders the others waited for it in call after call",
        "flight recorder 显示其他 rank 一次又一次地等待它",
    ),
    "recorded-broken-gpu": (
        ("recorder.broken_gpu_ranks",),
        "its GPU failed a health check when its flight recorder was dumped",
        "导出 flight recorder 时其 GPU 未通过健康检查",
    ),
    "recorded-broken-nic": (
        ("recorder.broken_nic_ranks",),
        "its network card failed a health check when its flight recorder was dumped",
        "导出 flight recorder 时其网卡未通过健康检查",
    ),
    "recorded-lagging": (
        ("recorder.lagging_ranks",),
        "by its flight recorder it completed less than the others",
        "其 flight recorder 显示它完成的操作比其他 rank 少",
    ),
    "ras-silent": (
        ("ras.silent_ranks",),
        "gave NCCL's RAS no data",
        "没有向 NCCL 的 RAS 提供数据",
    ),
}
