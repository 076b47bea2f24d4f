"""The finding in one sentence: templates of a cause, filled with what the log says, or the title and the strongest line."""

from __future__ import annotations

import pytest

from nccl_triage.document.line_values import VALUE, capital, cut, duration, listed, message, spaced
from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

STEP = "[rank{rank}]: step 3/90 loss 2.1\n"
TRACE = (
    "[rank{rank}]: Traceback (most recent call last):\n"
    '[rank{rank}]:   File "/app/train.py", line 90, in <module>\n'
    '[rank{rank}]:   File "/app/calls.py", line 73, in look_up\n'
    "{library}[rank{rank}]: {error}\n"
)
INSIDE = '[rank1]:   File "/v/lib/python3.11/site-packages/torch/nn/functional.py", line 9, in embedding\n'
WATCHDOG = (
    "[rank{rank}]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=1182, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600037 "
    "milliseconds before timing out.\n"
)
FINGERPRINT = (
    "Rank {rank} is running collective: CollectiveFingerPrint(SequenceNumber=12, OpType={op}, TensorShape=[{shape}], "
    "TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu))"
)


def headline(text: str, rules: RuleSet, language: str = "") -> str:
    steps = "".join(STEP.format(rank=rank) for rank in range(4))
    return str(diagnose_text(steps + text, rules).to_dict()[f"headline{language}"])


def mismatch(one: str, two: str, op: str = "ALLREDUCE", peer_op: str = "ALLREDUCE") -> str:
    first = FINGERPRINT.format(rank=2, op=op, shape=one)
    second = FINGERPRINT.format(rank=0, op=peer_op, shape=two)
    return f"[rank2]: RuntimeError: Detected mismatch between collectives on ranks. {first}, but {second}.\n"


@pytest.mark.parametrize("library", ["", INSIDE], ids=["raised in the user's code", "raised in a library"])
def test_an_exception_is_told_with_its_rank_its_message_and_the_users_frame(library: str, rules: RuleSet) -> None:
    text = TRACE.format(rank=1, error="KeyError: 'fr'", library=library)
    assert "Rank 1 raised KeyError: 'fr' at calls.py:73, look_up." in headline(text, rules)
    assert "rank 1 在 calls.py:73, look_up 抛出 KeyError: 'fr'。" in headline(text, rules, "_zh")


def test_a_long_message_is_cut(rules: RuleSet) -> None:
    found = headline(TRACE.format(rank=1, error="ValueError: " + "bad value " * 60, library=""), rules)
    assert "ValueError: bad value" in found
    assert len(found) < VALUE + 120


@pytest.mark.parametrize(
    ("text", "english", "chinese"),
    [
        (
            "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of "
            "79.10 GiB of which 1.10 GiB is free.\n",
            "Rank 3 ran out of GPU memory: it asked for 2.00 GiB, 1.10 GiB of 79.10 GiB was free.",
            "rank 3 显存不足：申请 2.00 GiB，79.10 GiB 中仅剩 1.10 GiB。",
        ),
        (
            "[  812.1] NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=python3, GPU has fallen off the bus.\n",
            "GPU 0000:3b:00 failed: Xid 79 (the host can no longer reach the GPU over PCIe).",
            "GPU 0000:3b:00 故障：Xid 79（主机无法再通过 PCIe 访问该 GPU）。",
        ),
        (
            "[rank1]: AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
            "gradient_acc_step * world_size 96 != 2 * 5 * 8\n",
            "train_batch_size 96 != 2 x 5 x 8 (micro batch x accumulation x ranks).",
            "train_batch_size 96 != 2 x 5 x 8（micro batch x 累积 x rank 数）。",
        ),
        (
            mismatch("10", "4096"),
            "Rank 2 calls ALLREDUCE of shape (10) where rank 0 calls it with shape (4096).",
            "rank 2 以形状 (10) 调用 ALLREDUCE，而 rank 0 以形状 (4096) 调用。",
        ),
        (
            mismatch("10", "10", peer_op="BROADCAST"),
            "Rank 2 calls ALLREDUCE of shape (10) where rank 0 calls BROADCAST of shape (10).",
            "rank 2 调用形状为 (10) 的 ALLREDUCE，而 rank 0 调用形状为 (10) 的 BROADCAST。",
        ),
        (
            "gpu-c:77:90 [1] init.cc:795 NCCL WARN Duplicate GPU detected : rank 3 and rank 1 both on CUDA device 4b000\n",
            "Ranks 3 and 1 on gpu-c use the same GPU (CUDA device 4b000).",
            "gpu-c 上的 rank 3 与 rank 1 使用同一块 GPU（CUDA device 4b000）。",
        ),
        (
            "gpu-c:77:90 [1] misc/shmutils.cc:113 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Qp3 "
            "(size 5767520)\n",
            "A process on gpu-c could not create /dev/shm/nccl-Qp3 in shared memory (5767520 bytes).",
            "gpu-c 上的进程无法在共享内存中创建 /dev/shm/nccl-Qp3（5767520 字节）。",
        ),
        (
            "slurmstepd: error: *** JOB 4711 ON gpu-c CANCELLED AT 2026-03-02T08:00:09 DUE TO TIME LIMIT ***\n",
            "Slurm ended job 4711 at 2026-03-02T08:00:09: it reached its time limit.",
            "Slurm 于 2026-03-02T08:00:09 结束了作业 4711：达到时间上限。",
        ),
        (
            "[rank0]: torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
            "port: 29511, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n",
            "Port 29511 is already in use.",
            "端口 29511 已被占用。",
        ),
        (
            "[rank2]: RuntimeError: DataLoader worker (pid 5150) is killed by signal: Segmentation fault.\n",
            "DataLoader worker (pid 5150) of rank 2 crashed with SIGSEGV (segmentation fault).",
            "rank 2 的 DataLoader worker（pid 5150）因 SIGSEGV（段错误）崩溃。",
        ),
        (
            "[rank1]: OSError: [Errno 24] Too many open files: '/data/part-7.bin'\n",
            "Rank 1 reached the open files limit (ulimit -n): [Errno 24] Too many open files: '/data/part-7.bin'.",
            "rank 1 达到打开文件数上限（ulimit -n）：[Errno 24] Too many open files: '/data/part-7.bin'。",
        ),
        (
            "[rank1]: ImportError: tokenizers>=0.14,<0.19 is required for a normal functioning of this module, but found "
            "tokenizers==0.21.0.\n",
            "tokenizers>=0.14,<0.19 is required, but tokenizers==0.21.0 is installed.",
            "需要 tokenizers>=0.14,<0.19，而安装的是 tokenizers==0.21.0。",
        ),
        (
            "[rank1]: Parameter indices which did not receive grad for rank 1: 12 13\n",
            "Rank 1 computed no gradient for DDP parameters 12 13.",
            "rank 1 没有为以下 DDP 参数计算梯度：12 13。",
        ),
    ],
    ids=lambda text: text[:30],
)
def test_the_finding_of_a_cause_has_the_values_of_the_log(
    text: str, english: str, chinese: str, rules: RuleSet
) -> None:
    for found, wanted, hedges in (
        (headline(text, rules), english, ("", "Very likely: ", "Likely: ", "Possibly: ")),
        (headline(text, rules, "_zh"), chinese, ("", "极可能：", "很可能：", "可能：")),
    ):
        assert found in [f"{hedge}{wanted}" for hedge in hedges]


def test_a_rank_that_does_not_come_is_told_with_the_operation_and_the_timeout(rules: RuleSet) -> None:
    text = "[rank1]: dataloader exhausted after 13 batches, leaving the epoch\n"
    found = headline(text + "".join(WATCHDOG.format(rank=rank) for rank in (0, 2, 3)), rules)
    assert 'rank 1 left the training loop ("dataloader exhausted after 13 batches' in found.lower()
    assert "then waited" not in found or "3 processes then waited in ALLREDUCE" in found


def test_a_line_of_another_rank_does_not_tell_how_the_culprit_ended(rules: RuleSet) -> None:
    report = "[rank2]: Fatal Python error: Segmentation fault\n[rank0]: exitcode: 1 (pid: 9)\n"
    assert "Rank 2 crashed with SIGSEGV (segmentation fault)." in headline(report, rules)


def test_a_text_is_cut_to_one_line() -> None:
    assert cut("a\n  b\tc", 20) == "a b c"
    assert cut("x" * 30, 10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("gpu-c:77:90 [1] net.cc:518 NCCL WARN Error: network Fabric not found.", "network Fabric not found"),
        ("  what():  CUDA error: unknown error", "CUDA error: unknown error"),
        ("[E1206 18:44:12.7 x.cpp:607] [Rank 3] Timed out after a while", "Timed out after a while"),
        ("torch.AcceleratorError: CUDA error: invalid device ordinal", "CUDA error: invalid device ordinal"),
        (
            "RuntimeError: The first sentence says what happened here. Then follows advice.",
            "The first sentence says what happened here",
        ),
        ("short", "short"),
    ],
)
def test_a_message_is_the_line_without_what_stands_in_front(line: str, told: str) -> None:
    assert message(line) == told


def test_chinese_has_spaces_between_the_scripts_only() -> None:
    assert spaced("rank 1（a） 的GPU  故障", "zh") == "rank 1（a）的 GPU 故障"
    assert spaced("a  b", "en") == "a b"


def test_names_of_the_log_keep_their_letters() -> None:
    assert [capital(text) for text in ("rank 1 x", "ranks 1, 2 x", "mlx5_0 x", "gpu-a x")] == [
        "Rank 1 x",
        "Ranks 1, 2 x",
        "mlx5_0 x",
        "gpu-a x",
    ]


def test_durations_and_lists_are_words() -> None:
    assert [duration(value, "en") for value in (8, 100, 600, 1800)] == ["8 s", "100 s", "10 min", "30 min"]
    assert listed(["a", "b", "c"], "en") == "a, b and c"
    assert listed(["a", "b"], "zh") == "a 与 b"


@pytest.mark.parametrize("before", range(60, 125, 5))
def test_no_secret_is_cut_in_two(before: int, rules: RuleSet) -> None:
    token = "hf_" + "abcdEFGHijklMNOPqrstUVWXyzabcdEFGH"
    error = f"ValueError: {'no access ' * 20}"[:before] + f" {token} again"
    assert "hf_ab" not in headline(TRACE.format(rank=1, error=error, library=""), rules)


HOST_RAISED = "(Trainer pid=77, ip=10.20.8.71) Traceback (most recent call last):\n(Trainer pid=77, ip=10.20.8.71)   File \"/srv/train.py\", line 3, in main\n(Trainer pid=77, ip=10.20.8.71) KeyError: 'x'\n"  # fmt: skip


def test_a_process_raises_and_a_host_is_not_reached(rules: RuleSet) -> None:
    """A host of which no rank is known stands for its process where a process acts."""
    raised = diagnose_text(HOST_RAISED, rules).to_dict()
    assert "A process on 10.20.8.71 raised KeyError: 'x' at train.py:3, main" in raised["headline"]
    assert "10.20.8.71 上的进程在 train.py:3, main 抛出 KeyError: 'x'" in raised["headline_zh"]
    fault = "gpu-n37 kernel: [1.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
    assert "process" not in diagnose_text(fault, rules).to_dict()["headline"]
