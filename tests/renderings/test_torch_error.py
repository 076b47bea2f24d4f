from __future__ import annotations

import json

import pytest

from nccl_triage import renderings
from nccl_triage.observations.store import SourceInfo
from nccl_triage.renderings import torch_error

STACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in main\nRuntimeError: boom\n'


def render(data: bytes) -> bytes | None:
    return torch_error.render(data, SourceInfo("error.json"))


def document(**message: object) -> bytes:
    return json.dumps({"message": message}).encode()


def test_the_call_stack_is_shown_and_nothing_else() -> None:
    data = document(message="RuntimeError: boom", extraInfo={"py_callstack": STACK, "timestamp": "1732357351"})
    assert render(data) == STACK.encode()


def test_a_stack_without_end_of_line_gets_one() -> None:
    data = document(message="x", extraInfo={"py_callstack": STACK.rstrip("\n"), "timestamp": "1"})
    assert render(data) == STACK.encode()


@pytest.mark.parametrize("extra", [None, {}, {"py_callstack": None}, {"py_callstack": ""}, "text"])
def test_without_a_stack_the_message_is_shown(extra: object) -> None:
    assert render(document(message="RuntimeError: boom", extraInfo=extra)) == b"RuntimeError: boom\n"


def test_a_plain_message() -> None:
    assert render(b'{"message": "Signal 9 (SIGKILL) received by PID 40233"}') == (
        b"Signal 9 (SIGKILL) received by PID 40233\n"
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b'{"message": {"message": "cut o',
        b"[1, 2]",
        b'{"error": "of another program"}',
        b'{"message": 5}',
        b'{"message": {"message": 5, "extraInfo": {"py_callstack": ["x"]}}}',
        b"\xff\xfe{",
        b"[" * 100_000,
    ],
)
def test_something_else_is_not_rendered(data: bytes) -> None:
    assert render(data) is None


def test_undecodable_characters_do_not_raise() -> None:
    assert render(b'{"message": "bad \\udc80 byte"}') == b"bad ? byte\n"


def test_only_the_name_counts() -> None:
    assert renderings.recognise("error.json", b"") is torch_error.RENDERING
    assert renderings.recognise("my_error.json", b"") is None
    assert renderings.recognise("error.json.log", b"") is None
