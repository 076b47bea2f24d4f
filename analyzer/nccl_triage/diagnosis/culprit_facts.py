"""Culprit methods that only read a fact: name -> the facts whose ranks it blames (the first that has any), and why."""

from __future__ import annotations

#: Methods that take the ranks of the first of these facts that has any: name -> (facts, why in English, in Chinese).
BY_FACT: dict[str, tuple[tuple[str, ...], str, str]] = {
    "exit": (
        ("process.killed_ranks", "process.crashed_ranks", "process.first_exit_ranks", "process.aborted_ranks"),
        "its process died first",
        "它的进程最先退出",
    ),
    "terminated": (
        ("process.terminated_ranks",),
        "it alone was ended by a signal that the launcher did not send",
        "只有它被并非启动器发送的信号终止",
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
    "slow-steps": (
        ("pace.slow_ranks", "pace.reported_ranks"),
        "its steps took longer than those of the others, again and again",
        "它的每步耗时一直比其他 rank 长",
    ),
    "missing": (("progress.init_missing_ranks", "progress.missing_ranks"), "never appeared", "从未出现"),
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
    "lost-host": (
        ("progress.lost_host_ranks",),
        "its whole host fell silent when the others lost their connections",
        "其他 rank 连接中断时，它所在的整台主机陷入沉默",
    ),
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
