from __future__ import annotations

import pytest

from nccl_triage.ingest.progress import ProgressFilter


def pieces(body: bytes) -> list[str]:
    progress = ProgressFilter(bytes.decode)
    found = [*progress.pieces(1, 0, body), *progress.flush()]
    for _, offset, text in found:
        start = body[offset:].split(b"\r")[0].decode()
        assert text.endswith(start[-3:]), "the offset is that of the text"
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


def test_a_message_glued_behind_a_bar_is_kept() -> None:
    glued = bar(3, end="Traceback (most recent call last):")
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
