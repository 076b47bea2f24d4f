from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_triage.ingest.progress import ProgressFilter


def pieces(body: bytes) -> list[str]:
    progress = ProgressFilter(bytes.decode)
    found = [*progress.pieces(1, 0, body), *progress.flush()]
    for _, offset, text in found:
        start = body[offset:].split(b"\r")[0].decode()
        assert text.endswith(start[-3:]) or start.startswith(text), "the offset is that of the text"
    return [text for _, _, text in found]


def bar(percent: int, description: str = "step", end: str = "") -> bytes:
    return (
        f"{description}: {percent:3d}%|###   | {percent}/100 [00:01<00:09,  9.10it/s, loss=0.{percent}]{end}".encode()
    )


def test_first_and_last_state_of_a_run() -> None:
    found = pieces(b"\r".join(bar(n) for n in range(50)))
    assert found == [bar(0).decode(), bar(49).decode()]


def test_one_state_is_shown_once() -> None:
    assert pieces(b"\r" + bar(7)) == [bar(7).decode()]


@pytest.mark.parametrize(
    "message",
    [
        "Traceback (most recent call last):",
        "WARNING: 3 of 8 ranks are late",
        "50%",
        "50% of the ranks | 4 of 8",
        "loss 1.2 | lr 3e-4 | 100%",
    ],
)
def test_what_is_no_bar_is_kept(message: str) -> None:
    assert pieces(b"\r".join([bar(1), bar(2), bar(3), message.encode(), bar(4), bar(5), bar(6)])) == [
        bar(1).decode(),
        bar(3).decode(),
        message,
        bar(4).decode(),
        bar(6).decode(),
    ]


@pytest.mark.parametrize(
    "message",
    [
        "Traceback (most recent call last):",
        "11/27/2026 21:22:26 - WARNING - __main__ - [RANK 1] evaluation failed",
        "2026-11-27 21:47:51,454 - ERROR - [RANK 1] training aborted",
        "[rank5]:[E602 08:00:00.000000001 ProcessGroupNCCL.cpp:607] timeout",
    ],
)
def test_a_message_glued_behind_a_bar_is_a_line(message: str) -> None:
    assert pieces(b"\r".join([bar(1), bar(2), bar(3, end=message), bar(4)])) == [
        bar(1).decode(),
        bar(3).decode(),
        message,
        bar(4).decode(),
    ]


def test_other_words_behind_a_bar_stay_with_it() -> None:
    glued = bar(3, end=" loss 0.3 nccl slow")
    assert pieces(b"\r".join([bar(1), bar(2), glued, bar(4)])) == [
        bar(1).decode(),
        bar(2).decode(),
        glued.decode(),
        bar(4).decode(),
    ]


def test_a_message_glued_before_a_bar_is_kept() -> None:
    glued = b"NCCL WARN Call to recv failed " + bar(3)
    assert glued.decode() in pieces(b"\r".join([bar(1), bar(2), glued, bar(4), bar(5)]))


def test_two_bars_that_take_turns_keep_first_and_last_of_each() -> None:
    body = b"\r".join(bar(n, name) for n in range(30) for name in ("outer", "inner"))
    assert pieces(body) == [
        bar(0, "outer").decode(),
        bar(0, "inner").decode(),
        bar(29, "outer").decode(),
        bar(29, "inner").decode(),
    ]


def test_a_description_that_counts_is_one_bar() -> None:
    assert len(pieces(b"\r".join(bar(n, f"loss=0.{n:02d} epoch {n}") for n in range(40)))) == 2


def test_very_many_bars_stay_bounded_and_lose_no_first_state() -> None:
    names = [chr(97 + i // 26) + chr(97 + i % 26) for i in range(200)]
    found = pieces(b"\r".join(bar(1, name) for name in names))
    assert [text.split(":")[0] for text in found] == names


@pytest.mark.parametrize(
    "prefix",
    [
        "(WorkerDict pid=632, ip=10.0.0.118) ",
        "\x1b[36m(WorkerDict pid=632)\x1b[0m ",
        "(MyActor(index=1) pid=5) ",
        "[default3]:",
        "[rank11]: ",
        "[1,3]<stderr>:",
        " 12: ",
        "(Actor pid=1) [rank3]: ",
    ],
)
def test_the_prefix_is_put_back(prefix: str) -> None:
    body = prefix.encode() + b"\r" + bar(1) + b"\r" + bar(2) + b"\rplain text"
    assert pieces(body) == [prefix + bar(1).decode(), prefix + bar(2).decode(), prefix + "plain text"]


def test_the_prefix_of_a_first_state_serves_the_others() -> None:
    assert pieces(b"[default0]:" + bar(1) + b"\r" + bar(2)) == [
        "[default0]:" + bar(1).decode(),
        "[default0]:" + bar(2).decode(),
    ]


def test_a_level_in_brackets_is_no_prefix() -> None:
    assert pieces(b"[INFO] first\rsecond") == ["[INFO] first", "second"]


def test_states_without_text_are_dropped() -> None:
    assert pieces(b"\r\r  \rtext\r\x20") == ["text"]


def test_a_new_line_begins_a_new_run_and_forgets_the_prefix() -> None:
    progress = ProgressFilter(bytes.decode)
    found = list(progress.pieces(1, 0, b"[rank1]: " + bar(1) + b"\r" + bar(2)))
    found += progress.pieces(2, 500, bar(3) + b"\r" + bar(4))
    found += progress.flush()
    assert [(number, text) for number, _, text in found] == [
        (1, "[rank1]: " + bar(1).decode()),
        (1, "[rank1]: " + bar(2).decode()),
        (2, bar(3).decode()),
        (2, bar(4).decode()),
    ]


STATES = [b"", b"50%", b"NCCL WARN late", bar(3, "")[2:], bar(4, "", "!"), b"100%|done"]
STATES += [
    bar(n, name, end) for n in (1, 7, 42, 100) for name in ("step", "epoch 3", "loss|x", "eval 12") for end in ("", " ")
]


@given(st.lists(st.sampled_from(STATES), max_size=60), st.integers(0, 30))
def test_a_line_gives_what_its_states_give_one_by_one(states: list[bytes], bars: int) -> None:
    line = [*states, *[bar(n) for n in range(bars)], *states[:3]]
    whole, single = ProgressFilter(bytes.decode), ProgressFilter(bytes.decode)
    found = [*whole.pieces(1, 0, b"\r".join(line)), *whole.flush()]
    expected, offset = [], 0
    for state in line:
        expected += single.pieces(1, offset, state)
        offset += len(state) + 1
    assert found == [*expected, *single.flush()]


def test_a_long_line_of_bars_and_messages_takes_time_by_its_length() -> None:
    import time

    def seconds(number: int) -> float:
        body = b"\r".join(bar(n % 100) if n % 2 else b"message %d" % n for n in range(number))
        started = time.process_time()
        progress = ProgressFilter(bytes.decode)
        assert len([*progress.pieces(1, 0, body), *progress.flush()]) == number
        return time.process_time() - started

    seconds(500)
    assert seconds(32_000) < 100 * max(seconds(2_000), 0.01)  # 16 times as long, not 256 times as much
