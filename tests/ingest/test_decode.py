"""Bytes become numbered lines, and our own verdicts are blanked."""

from __future__ import annotations

import codecs
import io

import pytest

from nccl_triage.ingest.blocks import LineBlock
from nccl_triage.ingest.decode import LineReader, LogLine, OwnVerdicts
from nccl_triage.observations.store import SourceInfo

from .helpers import Pieces, read_lines, texts


def test_lines_have_numbers_offsets_and_texts() -> None:
    lines, info = read_lines(b"one\n\ntwo three\n")
    assert lines == [LogLine(1, 0, "one"), LogLine(2, 4, ""), LogLine(3, 5, "two three")]
    assert (info.bytes, info.lines, info.tail_cut, info.problems) == (15, 3, False, [])


def test_the_last_line_without_end_is_marked() -> None:
    lines, info = read_lines(b"one\ntw")
    assert lines[-1] == LogLine(2, 4, "tw")
    assert (info.lines, info.tail_cut) == (2, True)


def test_an_empty_source_is_not_cut() -> None:
    assert read_lines(b"") == ([], SourceInfo(path="x.log"))


def test_a_byte_order_mark_is_left_out() -> None:
    lines, info = read_lines(codecs.BOM_UTF8 + "训练\nend\n".encode())
    assert lines == [LogLine(1, 3, "训练"), LogLine(2, 10, "end")]
    assert not info.problems


def test_utf8_is_read_with_byte_offsets() -> None:
    data = "损失 1.5\nplain\n错误\n".encode()
    lines, info = read_lines(data)
    assert [line.text for line in lines] == ["损失 1.5", "plain", "错误"]
    assert [line.offset for line in lines] == [0, data.index(b"plain"), data.index("错误".encode())]
    assert not info.problems


def test_bad_bytes_are_replaced_and_counted() -> None:
    lines, info = read_lines("好的训练\n".encode() + b"a\xff\xfeb\nc\xe8\n")
    assert [line.text for line in lines] == ["好的训练", "a\ufffd\ufffdb", "c\ufffd"]
    assert info.problems == ["3 bytes were not valid UTF-8"]
    assert lines[2].offset == 13 + 5


def test_one_bad_byte_is_told_in_the_singular() -> None:
    assert read_lines(b"caf\xe9 ok\n")[1].problems == ["1 byte was not valid UTF-8"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("mark", [True, False])
def test_utf16_is_recognised(encoding: str, mark: bool) -> None:
    text = "RuntimeError: NCCL error\r\n训练失败 rank 3\r\nlast line of the log\r\n"
    bom = "\ufeff" if mark else ""
    data = (bom + text).encode(encoding)
    lines, info = read_lines(data)
    assert [line.text for line in lines] == text.split("\r\n")[:-1]
    assert [line.number for line in lines] == [1, 2, 3]
    assert (info.bytes, info.lines, info.tail_cut) == (len(data), 3, False)
    assert info.problems == [f"read as {encoding.upper()}"]


def test_utf16_from_a_slow_pipe() -> None:
    data = "\ufeffhello\nworld\n".encode("utf-16-le")
    assert texts(Pieces(data[i : i + 1] for i in range(len(data)))) == ["hello", "world"]


def test_a_large_utf16_file_keeps_every_character() -> None:
    text = "".join(f"行 {number} 训练 𝄞 ok\n" for number in range(40_000))
    lines, info = read_lines(("\ufeff" + text).encode("utf-16-le"))
    assert "\n".join(line.text for line in lines) + "\n" == text
    assert info.problems == ["read as UTF-16-LE"]


def test_half_a_character_at_the_end_of_utf16_is_counted() -> None:
    lines, info = read_lines("\ufeffabc\n".encode("utf-16-le") + b"x")
    assert lines[0].text == "abc"
    assert "1 character could not be decoded" in info.problems


@pytest.mark.parametrize("encoding", ["gbk", "gb18030"])
def test_chinese_gbk_is_recognised(encoding: str) -> None:
    text = "[错误] 第3号进程显存不足,训练中止\nRuntimeError: CUDA out of memory\n请检查网络配置\n"
    lines, info = read_lines(text.encode(encoding))
    assert [line.text for line in lines] == text.split("\n")[:-1]
    assert info.problems == ["read as GB18030"]


def test_gbk_that_begins_late_is_recognised() -> None:
    data = b"plain ascii line\n" * 40_000 + "训练失败,请检查日志\n".encode("gbk")
    lines, _ = read_lines(data)
    assert lines[-1].text == "训练失败,请检查日志"
    assert lines[-1].number == 40_001


def test_a_little_utf8_before_gbk_does_not_decide() -> None:
    data = "进度 █\n".encode() + b"plain ascii line\n" * 40_000 + "训练失败,请检查日志\n".encode("gbk")
    lines, _ = read_lines(data)
    assert (lines[0].text, lines[-1].text) == ("进度 █", "训练失败,请检查日志")


def test_gbk_cut_in_the_middle_of_a_character() -> None:
    lines, info = read_lines("显存不足,训练中止\n训练失".encode("gbk")[:-1])
    assert lines[0].text == "显存不足,训练中止"
    assert lines[1].text.startswith("训练")
    assert info.tail_cut


def test_utf8_chinese_with_a_few_bad_bytes_stays_utf8() -> None:
    """A log in which one process wrote rubbish."""
    lines, info = read_lines(("训练开始,显存不足\n" * 20).encode() + b"\xff\xfe\xff\xfe\n")
    assert lines[0].text == "训练开始,显存不足"
    assert info.problems == ["4 bytes were not valid UTF-8"]


def test_latin1_is_not_taken_for_chinese() -> None:
    data = "Fehler beim Öffnen der Datei für Größe\nDépassement de mémoire détecté\n".encode("latin-1")
    lines, info = read_lines(data)
    assert lines[0].text.startswith("Fehler beim \ufffdffnen")
    assert info.problems == ["8 bytes were not valid UTF-8"]


def test_random_bytes_do_not_raise() -> None:
    import random

    for seed in range(40):
        data = random.Random(seed).randbytes(3000)
        lines, info = read_lines(data, max_line=64, block=256)
        assert info.bytes == 3000
        assert all(isinstance(line.text, str) and "\n" not in line.text for line in lines)


def test_nul_bytes_are_removed() -> None:
    lines, info = read_lines(b"\0\0\0NCCL \0WARN x\n")
    assert lines == [LogLine(1, 0, "NCCL WARN x")]
    assert info.problems == ["4 NUL bytes removed"]


def test_windows_line_ends() -> None:
    lines, info = read_lines(b"one\r\ntwo\r\n\r\nthree\r\r\n")
    assert lines == [LogLine(1, 0, "one"), LogLine(2, 5, "two"), LogLine(3, 10, ""), LogLine(4, 12, "three")]
    assert info.lines == 4


def test_a_progress_bar_gives_its_first_and_last_state() -> None:
    bars = b"".join(b"\rEpoch 1: %3d%%|####      | %d/100 [00:01<00:09, 9.1it/s]" % (n, n) for n in range(101))
    data = b"start\n" + bars + b"\nend\n"
    lines, info = read_lines(data)
    assert [line.number for line in lines] == [1, 2, 2, 3]
    assert lines[1].text.startswith("Epoch 1:   0%|")
    assert lines[2].text.startswith("Epoch 1: 100%|")
    assert data[lines[2].offset :].startswith(b"Epoch 1: 100%|")
    assert info.lines == 3


def test_a_message_among_bars_is_kept_in_its_place() -> None:
    bar = b"\r %d%%|##  | %d/9 [00:01<00:09, 9.1it/s]"
    data = bar % (1, 1) + bar % (2, 2) + b"\rRuntimeError: boom\r" + bar % (3, 3) + bar % (4, 4) + b"\n"
    found = [line.text.strip()[:12] for line in read_lines(data)[0]]
    assert found == ["1%|##  | 1/9", "2%|##  | 2/9", "RuntimeError", "3%|##  | 3/9", "4%|##  | 4/9"]


def test_a_redrawn_line_larger_than_any_block_is_one_run() -> None:
    states = b"".join(b"\rload: %3d%%|##| %d/9 [00:01<00:09]" % (n % 100, n) for n in range(30_000))
    lines, info = read_lines(states + b"\rTraceback (most recent call last):\nnext\n")
    assert [line.number for line in lines] == [1, 1, 1, 2]
    assert [line.text[:14] for line in lines[1:]] == ["load:  99%|##|", "Traceback (mos", "next"]
    assert info.lines == 2 and not info.problems


def test_the_prefix_of_a_forwarded_bar_is_put_back_across_blocks() -> None:
    states = b"".join(b"\rtxt %05d" % number for number in range(60))
    lines, _ = read_lines(b"(Actor pid=7) " + states + b"\n(Actor pid=8) x\n", max_line=64, block=256)
    assert len(lines) == 61
    assert all(line.text.startswith("(Actor pid=7) txt ") for line in lines[:-1])
    assert lines[-1] == LogLine(2, 14 + 600 + 1, "(Actor pid=8) x")


def test_bars_on_physical_lines_of_their_own_are_kept() -> None:
    data = b"".join(b"%d%%|##| %d/9 [00:01<00:09]\n" % (n, n) for n in range(9))
    assert len(read_lines(data)[0]) == 9


def test_blocks_and_decode_give_what_lines_give() -> None:
    data = "α\nplain\n训练 rank\n".encode() * 5000
    info = SourceInfo(path="x")
    reader = LineReader(io.BytesIO(data), info)
    found: list[str] = []
    for block in reader.iter_blocks():
        assert block.first_line == len(found) + 1
        found.extend(reader.decode(line) for line in block.data.split(b"\n")[:-1])
    assert found == texts(data)
    assert info.lines == 15_000


VERDICT = """nccl-triage: the command failed with exit code 1
nccl-triage: A GPU ran out of memory (rank 3).
  root cause: gpu-out-of-memory (established, 0.99); culprit: rank 3

  why: out.log:5: torch.OutOfMemoryError: CUDA out of memory.

  do now: See first whether another process holds the memory
    $ nvidia-smi

  more: nccl-triage explain gpu-out-of-memory; -v: all evidence
nccl-triage: the output is kept in /tmp/output.log
"""
BEFORE, AFTER = "step 1 loss 2.0", "step 2 loss 1.9"


def lines(text: str, prefix: str = "") -> list[str]:
    return [f"{prefix}{line}" for line in text.splitlines()]


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[pod/a-0/pytorch] 2026-11-20T10:00:05.123456789Z ",
        "(Trainer pid=7, ip=10.0.0.1) ",
        "[default0]:",
        "node-b: ",
    ],
)
def test_the_verdict_is_blank_and_the_rest_as_it_was(prefix: str) -> None:
    log = [prefix + BEFORE, *lines(VERDICT, prefix), prefix + AFTER]
    read = texts("\n".join(log).encode() + b"\n")
    assert (read[0], read[-1]) == (log[0], log[-1])
    assert [line.rstrip() for line in read[1:-1]] == [prefix.rstrip()] * len(VERDICT.splitlines())
    assert [len(line) for line in read] == [len(line) for line in log]


def test_times_may_differ_from_line_to_line() -> None:
    verdict = "".join(f"2026-11-20T10:00:0{n % 10}Z {line}\n" for n, line in enumerate(VERDICT.splitlines()))
    assert not any("memory" in line for line in texts(verdict.encode()))


def test_a_launcher_may_cut_the_space_behind_its_prefix() -> None:
    verdict = [line.rstrip() for line in lines(VERDICT, "(Trainer pid=7) ")]
    log = [*verdict, "", "(Trainer pid=7)   torch.OutOfMemoryError", "(Other pid=8) a memory"]
    assert [line for line in texts("\n".join(log).encode() + b"\n") if "emory" in line] == log[-1:]


def test_colours_are_part_of_it() -> None:
    text = "\x1b[1mnccl-triage:\x1b[0m A GPU ran out of memory.\n  \x1b[1mroot cause:\x1b[0m gpu-out-of-memory\n"
    assert [line.strip() for line in texts(text.encode())] == ["", ""]


def test_a_verdict_in_chinese_is_blank_by_bytes() -> None:
    text = "nccl-triage: GPU 显存不足。\n  根因: gpu-out-of-memory\n"
    assert [line.strip() for line in texts(text.encode())] == ["", ""]


@pytest.mark.parametrize("size", range(1, 60))
def test_it_does_not_matter_how_the_bytes_arrive(size: int) -> None:
    data = f"{BEFORE}\n{VERDICT}{AFTER}\n".encode()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert texts(Pieces(pieces)) == texts(data)


def test_a_verdict_goes_on_in_the_next_block() -> None:
    blocks = [
        LineBlock(b"nccl-triage: x\n", 1, 0),
        LineBlock(b"  root cause: y\nz\n", 2, 15),
        LineBlock(b"  File z\n", 4, 32),
    ]
    assert [block.data.split(b"\n")[0].strip() for block in map(OwnVerdicts().blank, blocks)] == [b"", b"", b"File z"]


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):\n  File 'train.py', line 3\nValueError: bad\n",
        "pip install nccl-triage\n  Downloading torch\n",
        "\n  indented\n",
    ],
)
def test_other_lines_stay(text: str) -> None:
    assert texts(text.encode()) == text.splitlines()


def test_what_follows_a_verdict_is_read_again() -> None:
    text = "nccl-triage: No failure found in this log.\nTraceback (most recent call last):\n  File 'x.py', line 3\n"
    assert texts(text.encode())[1:] == text.splitlines()[1:]


def test_the_lines_of_another_writer_end_it() -> None:
    text = "[default0]:nccl-triage: A GPU\n[default1]:step 2\n[default0]:  File 'x.py'\n"
    assert texts(text.encode())[1:] == text.splitlines()[1:]


def test_a_log_of_which_every_line_stands_twice_is_read_once() -> None:
    lines = [f"line {n}" for n in range(20)]
    doubled = "".join(f"{line}\n{line}\n" for line in lines).encode()

    def read(data: bytes) -> list[tuple[int, str]]:
        return [(line.number, line.text) for line in LineReader(io.BytesIO(data), SourceInfo("x"))]

    assert read(doubled) == [(2 * n + 1, line) for n, line in enumerate(lines)]
    assert len(read(b"begin\n" + doubled)) == 21
    assert len(read(b"same\n" * 40)) == 40
    assert len(read(doubled + b"one more\nand another\n")) == 42
