"""Report documents made by hand, of the shape that render/document.py produces."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

from nccl_triage import resources
from nccl_triage.render import validation

Doc = dict[str, Any]

#: Everything a log line might try on a terminal, in Markdown and in a page.
HOSTILE = (
    "<script>alert(1)</script> ]]> \"quote\" 'single' </pre></style><img src=x onerror=alert(2)> "
    "{{ 7*7 }} {% raw %} "
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x00 \x08 \u202egnp.exe\u2066 ```` ``` | [x](javascript:alert(3)) "
    "@someone #12"
)


def evidence(path: str, line: int, text: str, says: str, weight: str = "strong", **more: Any) -> Doc:
    return {
        "path": path,
        "line": line,
        "end_line": line,
        "time": "2024-08-23 21:10:26",
        "rank": None,
        "host": None,
        "signature": "test.line",
        "text": text,
        "says": says,
        "says_zh": f"中文：{says}",
        "weight": weight,
        **more,
    }


def diagnosis(cause: str, family: str, title: str, title_zh: str, **more: Any) -> Doc:
    return {
        "cause": cause,
        "family": family,
        "title": title,
        "title_zh": title_zh,
        "status": "possible",
        "confidence": 0.03,
        "explanation": f"{title}. It explains part of what the log shows.",
        "explanation_zh": f"{title_zh}。它解释了日志中的一部分现象。",
        "culprits": [],
        "evidence": [],
        "against": [],
        "fixes": [],
        "next_check": None,
        "experiment": {"kind": "none", "why_not": None, "why_not_zh": None},
        "verification": None,
        "score": 0.4,
        "contributions": [],
        **more,
    }


def rank_entry(rank: int, host: str | None, state: str, **more: Any) -> Doc:
    return {
        "rank": rank,
        "host": host,
        "local_rank": rank % 8,
        "pid": 4000 + rank,
        "gpu": rank % 8,
        "address": None,
        "state": state,
        "last_enqueued": 1204,
        "last_completed": 1203,
        "exit": None,
        "first_error": None,
        **more,
    }


def base(verdict: str, headline: str, headline_zh: str) -> Doc:
    return {
        "schema_version": 1,
        "tool": {"name": "nccl-triage", "version": "0.1.0", "rules": "0123456789ab"},
        "verdict": verdict,
        "headline": headline,
        "headline_zh": headline_zh,
        "diagnoses": [],
        "collective": None,
        "job": {
            "world_size": None,
            "ranks": [],
            "hosts": [],
            "launcher": None,
            "frameworks": [],
            "software": {},
            "env": {},
        },
        "symptoms": [],
        "timeline": [],
        "excerpts": [],
        "inputs": [{"path": "logs/trainer.log", "bytes": 1048576, "lines": 12345, "problems": []}],
        "notes": [],
        "notes_zh": [],
        "timing": {"seconds": 0.084},
    }


OOM_LINE = (
    "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 2 has a total "
    "capacity of 79.15 GiB of which 1.21 GiB is free."
)
TIMEOUT_LINE = (
    "[rank{r}]:[E823 21:20:31.412] [PG ID 0 PG GUID 0(default_pg) Rank {r}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=1204, OpType=ALLREDUCE, NumelIn=8388608, NumelOut=8388608, "
    "Timeout(ms)=600000) ran for 600024 milliseconds before timing out."
)


def diagnosed() -> Doc:
    """Rank 2 of 8 on two hosts ran out of memory; the others waited and timed out."""
    doc = base(
        "diagnosed",
        "Rank 2 ran out of GPU memory; 7 other ranks then waited for it and timed out.",
        "rank 2 显存耗尽；其余 7 个 rank 随后等待它并超时。",
    )
    path = "logs/trainer.log"
    oom = evidence(
        path,
        1182,
        OOM_LINE,
        "The first error of the job, ten minutes before any time-out.",
        "decisive",
        rank=2,
        host="node-a",
        says_zh="整个作业的第一个错误，比任何超时早十分钟。",
    )
    slow = evidence(
        path,
        1240,
        TIMEOUT_LINE.format(r=0),
        "Rank 0 waited for the whole time-out: a victim.",
        "moderate",
        rank=0,
        host="node-a",
        time="2024-08-23 21:20:31",
        says_zh="rank 0 等满了超时时间：受害者。",
    )
    against = evidence(
        path,
        900,
        "[rank2]: memory allocated 61.2 GiB, reserved 64.0 GiB",
        "Memory was far from full 200 steps earlier.",
        "weak",
        rank=2,
        says_zh="200 步之前显存还远未用满。",
    )
    best = diagnosis(
        "gpu-out-of-memory",
        "host",
        "A GPU ran out of memory",
        "GPU 显存耗尽",
        status="established",
        confidence=0.93,
        explanation="One rank could not allocate GPU memory and raised an exception. The others had "
        "entered the all-reduce and waited until the watchdog ended them.",
        explanation_zh="一个 rank 无法分配显存并抛出异常。其余 rank 已进入 all-reduce，直到看门狗终止。",
        culprits=[
            {
                "rank": 2,
                "host": "node-a",
                "address": None,
                "pid": 4002,
                "gpu": 2,
                "why": "it printed the first error",
                "why_zh": "它打印了第一个错误",
            }
        ],
        evidence=[oom, slow],
        against=[against],
        fixes=[
            {
                "title": "Lower the memory that one step needs",
                "title_zh": "降低每一步所需的显存",
                "commands": ["python train.py --micro-batch-size 1 --gradient-checkpointing"],
                "env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
                "caution": "A smaller micro-batch changes the throughput.",
                "caution_zh": "更小的 micro-batch 会影响吞吐。",
                "applies_to": None,
                "references": ["https://pytorch.org/docs/stable/notes/cuda.html"],
            },
            {
                "title": "Balance the sequence lengths between ranks",
                "title_zh": "在各 rank 之间均衡序列长度",
                "commands": [],
                "env": {},
                "caution": None,
                "caution_zh": None,
                "applies_to": "variable-length batches",
                "references": [],
            },
        ],
        next_check={
            "what": "Does rank 2 fail again with half the micro-batch?",
            "what_zh": "micro-batch 减半后 rank 2 还会失败吗？",
            "command": "nvidia-smi --query-gpu=index,memory.used,memory.total --format=csv",
            "if_yes": "Something else holds the memory: look for other processes on the GPU.",
            "if_yes_zh": "显存被别的东西占用：检查该 GPU 上的其他进程。",
            "if_no": "The batch was too large.",
            "if_no_zh": "批次过大。",
        },
        score=7.2,
        contributions=[
            {
                "id": "gpu-out-of-memory.first",
                "weight": "decisive",
                "log_odds": 3.2,
                "applied": 3.2,
                "says": "An out-of-memory error comes first",
                "says_zh": "显存不足错误最先出现",
                "explained_by": None,
                "events": [{"path": path, "line": 1182}],
            },
            {
                "id": "gpu-out-of-memory.timeouts",
                "weight": "moderate",
                "log_odds": 1.1,
                "applied": 0.4,
                "says": "Other ranks time out",
                "says_zh": "其他 rank 超时",
                "explained_by": "straggler",
                "events": [{"path": path, "line": 1240}],
            },
        ],
    )
    rival = diagnosis(
        "straggler",
        "collective",
        "One rank reached the collective late",
        "某个 rank 到达集合通信过晚",
        evidence=[slow],
        next_check=best["next_check"],
        fixes=[best["fixes"][1]],
    )
    doc["diagnoses"] = [best, rival]
    doc["collective"] = {
        "op": "ALLREDUCE",
        "seq": 1204,
        "numel_in": 8388608,
        "numel_out": 8388608,
        "dtype": None,
        "world_size": 8,
        "process_group": "default_pg",
        "timeout_ms": 600000,
        "elapsed_ms": 600024,
    }
    hosts = ["node-a"] * 4 + ["node-b"] * 4
    states = ["entered", "entered", "root", "entered", "entered", "error", "entered", "dead"]
    doc["job"] = {
        "world_size": 8,
        "ranks": [
            rank_entry(
                r,
                hosts[r],
                states[r],
                exit="-6" if r == 7 else None,
                first_error={
                    "path": path,
                    "line": 1182 if r == 2 else 1240 + r,
                    "signature": "torch.oom" if r == 2 else "torch.watchdog-timeout",
                    "text": OOM_LINE if r == 2 else TIMEOUT_LINE.format(r=r),
                },
            )
            for r in range(8)
        ],
        "hosts": [
            {"name": "node-a", "addresses": ["10.0.0.1"], "ranks": [0, 1, 2, 3]},
            {"name": "node-b", "addresses": ["10.0.0.2"], "ranks": [4, 5, 6, 7]},
        ],
        "launcher": "torchrun",
        "frameworks": ["deepspeed", "transformers"],
        "software": {"torch": "2.5.1", "nccl": "2.21.5", "cuda": "12.4", "driver": None},
        "env": {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": ["eth0", "bond0"]},
    }
    doc["symptoms"] = [
        {
            "signature": "torch.oom",
            "role": "root",
            "meaning": "A CUDA allocation failed",
            "count": 1,
            "ranks": [2],
            "first": {"path": path, "line": 1182},
            "last": {"path": path, "line": 1182},
        },
        {
            "signature": "torch.watchdog-timeout",
            "role": "cascade",
            "meaning": "The watchdog ended a collective that took too long",
            "count": 7,
            "ranks": [0, 1, 3, 4, 5, 6, 7],
            "first": {"path": path, "line": 1240},
            "last": {"path": path, "line": 1247},
        },
    ]

    def moment(time: str | None, rank: int | None, signature: str, role: str, line: int, text: str) -> Doc:
        return {
            "order": len(doc["timeline"]) + 1,
            "time": time,
            "rank": rank,
            "host": hosts[rank] if rank is not None else None,
            "signature": signature,
            "role": role,
            "path": path,
            "line": line,
            "text": text,
            "meaning": signature,
        }

    doc["timeline"] = []
    doc["timeline"].append(moment("2024-08-23 21:05:02", None, "launch.start", "context", 3, "torchrun --nnodes 2"))
    doc["timeline"].append(moment("2024-08-23 21:09:58", 0, "train.step", "progress", 1100, "step 240 loss 1.92"))
    doc["timeline"].append(moment("2024-08-23 21:10:26", 2, "torch.oom", "root", 1182, OOM_LINE))
    doc["timeline"].append(moment(None, 2, "python.traceback", "context", 1190, "Traceback (most recent call last):"))
    for r in (0, 1, 3, 4, 5, 6, 7):
        doc["timeline"].append(
            moment(
                f"2024-08-23 21:20:{31 + r % 3}",
                r,
                "torch.watchdog-timeout",
                "cascade",
                1240 + r,
                TIMEOUT_LINE.format(r=r),
            )
        )
    doc["excerpts"] = [
        {
            "path": path,
            "first_line": 1178,
            "lines": [f"step {i} ok" for i in range(4)] + [OOM_LINE, "Traceback follows", ""],
            "marks": [1182],
        },
        {
            "path": path,
            "first_line": 1238,
            "lines": ["waiting", "waiting"] + [TIMEOUT_LINE.format(r=r) for r in range(4)],
            "marks": [1240],
        },
    ]
    doc["notes"] = ["The input looks filtered by grep: tracebacks are missing."]
    doc["notes_zh"] = ["输入看起来经过 grep 过滤：缺少回溯信息。"]
    return doc


def point(
    line: int, time: str | None, rank: int | None, text: str, signature: str = "test.line", role: str = "root"
) -> Doc:
    return {
        "path": "logs/trainer.log",
        "line": line,
        "time": time,
        "rank": rank,
        "host": None if rank is None else "node-a",
        "signature": signature,
        "role": role,
        "text": text,
    }


def full() -> Doc:
    """The diagnosed document with everything that only some logs carry."""
    doc = diagnosed()
    doc["incident"] = {
        "first_fault": point(1182, "2024-08-23 21:10:26", 2, OOM_LINE, "torch.oom"),
        "waiting_since": point(1240, "2024-08-23 21:10:31", 0, TIMEOUT_LINE.format(r=0)),
        "last_progress": point(1100, "2024-08-23 21:09:58", 0, "step 240 loss 1.92"),
        "end": point(1300, "2024-08-23 21:21:40", 5, "SIGABRT"),
        "started": "2024-08-23 21:10:26",
        "seconds": 674.0,
        "about": False,
        "at_least": False,
        "ranks": 8,
        "rank_hours": 1.5,
        "one_clock": False,
    }
    doc["waits"] = [
        {
            "rank": r,
            "since": "2024-08-23 21:10:31",
            "until": "2024-08-23 21:20:31",
            "path": "logs/trainer.log",
            "line": 9,
        }
        for r in range(8)
        if r != 2
    ]
    doc["network"] = {
        "networks": [
            {"network": "10.0.0.0/24", "kind": "private", "total": 20, "members": [
                {"host": "node-a", "interface": "eth0", "address": "10.0.0.1", "path": "logs/trainer.log", "line": 3}]},
            {"network": "172.17.0.0/24", "kind": "container", "total": 1, "members": [
                {"host": "node-b", "interface": None, "address": "172.17.0.1", "path": "logs/trainer.log", "line": 4}]},
        ],
        "total": 2,
        "failed": [
            {"from": "node-a", "to": "node-b", "address": "172.17.0.1", "count": 12, "path": "logs/trainer.log", "line": 5},
            {"from": None, "to": None, "address": "10.9.9.9", "count": 1, "path": "logs/trainer.log", "line": 6},
        ],
    }  # fmt: skip
    series = {
        "metric": "loss", "unit": None, "title": "Loss", "title_zh": "损失", "rank": 0, "source": "logs/trainer.log",
        "x": "step", "points": [[0, 4.0], [10, 2.5], [20, 2.1]], "not_finite": [[30, "nan"]], "count": 31, "min": 2.1,
        "max": 4.0, "last": 2.1, "lines": [10, 1100],
    }  # fmt: skip
    doc["series"] = [
        series,
        {**series, "rank": 1, "points": [[0, 4.1], [20, 2.0]], "not_finite": []},
        {
            **series,
            "metric": "memory",
            "unit": "GB",
            "title": "GPU memory",
            "title_zh": "显存",
            "points": [[0, 1e-3], [9, 70]],
        },
    ]
    doc["peers"] = {
        "unit": "rank",
        "names": [0, 1, 2, 3],
        "links": [
            {"from": 0, "to": 1, "via": "P2P/CUMEM", "channels": 16},
            {"from": 1, "to": 2, "via": "NET/IB/0/GDRDMA", "channels": 4},
            {"from": 2, "to": 3, "via": "SHM/direct", "channels": 2},
            {"from": 3, "to": 0, "via": "carrier pigeon", "channels": 1},
        ],
        "failed": [{"from": 1, "to": 2, "path": "logs/trainer.log", "line": 7}],
        "total": 4,
    }
    doc["not_seen"] = [
        {
            "id": "nccl-report",
            "what": "NCCL's own report",
            "what_zh": "NCCL 自己的报告",
            "why": "It names the interface.",
            "why_zh": "它会说明网络接口。",
            "env": {"NCCL_DEBUG": "INFO"},
            "commands": ["dmesg -T"],
        }
    ]
    doc["diagnoses"][0]["stages"] = [
        {"when": when, "what": f"Do {when}.", "what_zh": f"做 {when}。", "command": command}
        for when, command in (
            ("5min", "py-spy dump --pid 1"),
            ("5min", None),
            ("15min", None),
            ("lasting", "make it so"),
        )
    ]
    doc["job"]["env_remarks"] = [
        {"name": "NCCL_DEBUG", "value": "INFO", "level": "note", "says": "Fine.", "says_zh": "没问题。"}
    ]
    doc["telling_lines"] = [
        {
            "path": "logs/rank3.log",
            "line": 77,
            "text": "ERROR: the feeder of shard 12 lost its pump",
            "rank": 3,
            "host": "gpu-b7",
            "score": 0.41,
        }
    ]
    return doc


def unknown() -> Doc:
    """A failure that three causes could explain."""
    doc = base("unknown", "The job timed out, but the log does not say why.", "作业超时，但日志没有说明原因。")
    check = diagnosed()["diagnoses"][0]["next_check"]
    line = evidence("logs/trainer.log", 77, TIMEOUT_LINE.format(r=1), "A time-out, with no cause before it.", "weak")
    doc["diagnoses"] = [
        diagnosis(
            "rank-divergence",
            "collective",
            "One rank never entered the collective",
            "某个 rank 未进入集合通信",
            confidence=0.34,
            evidence=[line],
            next_check=check,
        ),
        diagnosis("straggler", "collective", "One rank was late", "某个 rank 过晚", confidence=0.3, next_check=check),
        diagnosis("network-link-fault", "network", "The network broke", "网络中断", confidence=0.2),
    ]
    doc["inputs"][0]["problems"] = ["3 bytes were not UTF-8"]
    return doc


def healthy() -> Doc:
    """A run that ended well, with one recovered error."""
    doc = base("healthy", "No failure was found: the job went on to its end.", "未发现故障：作业一直运行到结束。")
    doc["symptoms"] = [
        {
            "signature": "net.retry",
            "role": "cascade",
            "meaning": "A connection was tried again",
            "count": 2,
            "ranks": [],
            "first": {"path": "logs/trainer.log", "line": 5},
            "last": {"path": "logs/trainer.log", "line": 9},
        }
    ]
    return doc


def large(ranks: int = 512) -> Doc:
    """Many ranks on hosts of eight, one of which never came."""
    doc = diagnosed()
    missing = ranks // 3
    doc["job"]["world_size"] = ranks
    doc["job"]["ranks"] = [
        rank_entry(
            r,
            f"gpu-node-{r // 8:03d}",
            "missing" if r == missing else "entered",
            first_error={
                "path": "logs/trainer.log",
                "line": 5000 + r,
                "signature": "torch.watchdog-timeout",
                "text": TIMEOUT_LINE.format(r=r),
            },
        )
        for r in range(ranks)
    ]
    doc["job"]["hosts"] = [
        {
            "name": f"gpu-node-{h:03d}",
            "addresses": [f"10.0.{h // 250}.{h % 250}"],
            "ranks": list(range(h * 8, h * 8 + 8)),
        }
        for h in range(ranks // 8)
    ]
    first = doc["timeline"][:4]
    doc["timeline"] = first + [
        {**doc["timeline"][-1], "order": 5 + i, "rank": i, "host": f"gpu-node-{i // 8:03d}", "line": 5000 + i}
        for i in range(196)
    ]
    return doc


def hostile() -> Doc:
    """The same text, meant to do harm, wherever a log's text can reach."""
    doc = copy.deepcopy(verified())
    rich = full()
    doc.update({key: rich[key] for key in ("incident", "waits", "network", "series", "peers", "not_seen")})
    doc["diagnoses"][0]["stages"] = rich["diagnoses"][0]["stages"]
    nasty: Any = HOSTILE

    def spoil(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {k: spoil(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [spoil(v, key) for v in value]
        kept = ("status", "weight", "verdict", "state", "role", "schema_version", "time")
        return nasty if isinstance(value, str) and key not in kept else value

    spoiled: Doc = spoil(doc)
    spoiled["diagnoses"][0]["evidence"][0]["text"] = HOSTILE + "x" * 1_000_000
    spoiled["excerpts"][0]["lines"][4] = HOSTILE + "y" * 1_000_000
    spoiled["diagnoses"][0]["fixes"][0]["references"] = [
        "javascript:alert(4)",
        'https://example.org/"><script>',
    ]
    spoiled["job"]["env"] = {HOSTILE: HOSTILE}
    spoiled["job"]["ranks"][0]["host"] = HOSTILE
    return spoiled


def with_words(document: Any) -> Any:
    """Return a document in which words of the schema are words: it would be refused otherwise."""
    schema = json.loads((resources.reports_dir() / "schema" / "report.schema.json").read_text("utf-8"))
    document = json.loads(json.dumps(document))
    while (where := validation.problem(document, schema)) is not None:
        *way, last = [int(number) if number else key for key, number in re.findall(r"\.([a-z_]+)|\[(\d+)\]", where)]
        holder = document
        for key in way:
            holder = holder[key]
        holder[last] = "unknown"
    return document


def chinese() -> Doc:
    """The log itself is Chinese."""
    doc = diagnosed()
    text = "错误：显存不足，无法分配 2.50 GiB，训练中断，请检查批次大小和序列长度，以及是否有其他进程占用显存"
    doc["diagnoses"][0]["evidence"][0]["text"] = text
    doc["excerpts"][0]["lines"][4] = text
    return doc


def verified() -> Doc:
    """A diagnosis that experiments have confirmed."""
    from .verified import verified as made  # it builds upon this module

    return made()


def not_run() -> Doc:
    """A diagnosis that could not be put to the test."""
    from .verified import not_run as made

    return made()


ALL = {
    "diagnosed": diagnosed,
    "full": full,
    "unknown": unknown,
    "healthy": healthy,
    "large": large,
    "hostile": hostile,
    "chinese": chinese,
    "verified": verified,
    "not-run": not_run,
}
