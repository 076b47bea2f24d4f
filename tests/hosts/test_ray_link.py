"""The driver's end of a line, over a Ray that does as it is told: lost calls, silence, death."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nccl_triage.hosts import ray_launcher
from nccl_triage.hosts.ray_launcher import RayLink, reason

Reply = tuple[list[bytes], int]


class RayError(Exception):
    pass


class ActorUnavailableError(RayError):
    pass


class ActorDiedError(RayError):
    pass


class FakeRay:
    """Ray with one actor: ``replies`` are what its next ``receive`` calls come to; without one they stay open."""

    def __init__(self) -> None:
        self.exceptions = SimpleNamespace(RayError=RayError)
        self.replies: list[Reply | Exception] = []
        self.asked: list[int] = []
        self.sent: list[tuple[int, dict[str, Any]]] = []
        self.relay = SimpleNamespace(
            receive=SimpleNamespace(remote=self._receive),
            send=SimpleNamespace(remote=lambda number, line: self.sent.append((number, json.loads(line)))),
        )

    def _receive(self, number: int, timeout: float) -> object:
        self.asked.append(number)
        return object()

    def wait(self, references: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        assert timeout == 0, "a look must not wait"
        return (references, []) if self.replies else ([], references)

    def get(self, reference: Any) -> Reply:
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


@pytest.fixture
def ray() -> FakeRay:
    return FakeRay()


@pytest.fixture
def link(ray: FakeRay) -> RayLink:
    return RayLink(ray, ray.relay, "node-b")


@pytest.fixture
def tick(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A clock that goes only when it is told."""
    now = [1000.0]
    monkeypatch.setattr(ray_launcher.time, "monotonic", lambda: now[0])

    def go(seconds: float) -> None:
        now[0] += seconds

    return go


def look_for(link: RayLink, tick: Callable[[float], None], seconds: float) -> list[dict[str, Any]]:
    """Look at a link 20 times a second, as Cluster does."""
    found = []
    for _ in range(round(seconds / 0.05)):
        tick(0.05)
        found.extend(link.receive())
    return found


def test_one_call_is_open_at_a_time_and_each_confirms_what_came(ray: FakeRay, link: RayLink) -> None:
    assert link.receive() == link.receive() == []
    ray.replies = [([b'{"answer": "hello"}\n', b"noise\n"], 0)]
    assert link.receive() == [{"answer": "hello"}]
    assert ray.asked == [0, 2]


def test_a_call_that_failed_for_a_moment_is_made_again(
    ray: FakeRay, link: RayLink, tick: Callable[[float], None]
) -> None:
    ray.replies = [ActorUnavailableError("The actor is temporarily unavailable"), ([b'{"answer": "port"}'], 0)]
    assert look_for(link, tick, 2.0) == [{"answer": "port"}]
    assert ray.asked == [0, 0, 1]


def test_a_command_that_was_lost_is_sent_again_until_it_is_confirmed(
    ray: FakeRay, link: RayLink, tick: Callable[[float], None]
) -> None:
    link.send({"do": "facts"})
    link.send({"do": "port"})
    ray.replies = [([], 1)]
    tick(2.0)
    link.receive()
    assert ray.sent == [(0, {"do": "facts"}), (1, {"do": "port"}), (1, {"do": "port"})]
    ray.replies = [([], 2)]
    tick(2.0)
    link.receive()
    assert len(ray.sent) == 3


def test_a_dead_actor_is_told_once(ray: FakeRay, link: RayLink) -> None:
    ray.replies = [ActorDiedError("The actor died.\n\tpid: 7\nThe actor died because its node has died. Node Id: 12")]
    gone = {"answer": "gone", "error": "The actor died because its node has died. Node Id: 12"}
    assert link.receive() == [gone]
    assert link.receive() == []
    link.send({"do": "stop"})


def test_a_dead_agent_is_told_after_its_last_answers(ray: FakeRay, link: RayLink) -> None:
    ray.replies = [([b'{"answer": "exit"}', b'{"answer": "gone", "error": "exit code 1"}'], 0)]
    assert link.receive() == [{"answer": "exit"}, {"answer": "gone", "error": "exit code 1"}]
    assert link.receive() == []


def test_a_silent_node_is_lost_before_the_grace_of_several_hosts_is_over(
    ray: FakeRay, link: RayLink, tick: Callable[[float], None]
) -> None:
    link.receive()
    assert look_for(link, tick, 5.5) == []
    assert look_for(link, tick, 2.0) == [{"answer": "gone", "error": "no answer for 6 s"}]


def test_a_node_that_only_refuses_is_lost_with_the_refusal(
    ray: FakeRay, link: RayLink, tick: Callable[[float], None]
) -> None:
    ray.replies = [ActorUnavailableError("Socket closed") for _ in range(100)]
    assert look_for(link, tick, 8.0) == [{"answer": "gone", "error": "no answer for 6 s: Socket closed"}]
    assert len(ray.asked) < 20, "a node in trouble is not flooded"


def test_time_in_which_nobody_looked_is_no_silence(ray: FakeRay, link: RayLink, tick: Callable[[float], None]) -> None:
    link.receive()
    tick(3600.0)
    assert link.receive() == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The actor died.\n\n\tpid: 7\nThe actor is dead because its worker died.", "The actor is dead because its worker died."),
        ("The actor died because of an error.\nTraceback (most recent call last):\n  x\nOSError: no memfd\n", "OSError: no memfd"),
        ("Could not find any running Ray instance.", "Could not find any running Ray instance."),
        ("", "ActorDiedError"),
    ],
)  # fmt: skip
def test_the_reason_is_one_sentence(text: str, expected: str) -> None:
    assert reason(ActorDiedError(text)) == expected
