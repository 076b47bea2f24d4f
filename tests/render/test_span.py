from __future__ import annotations

import pytest

from nccl_triage.render.text_page import GAP, TellingSpan, short_path, telling, window
from nccl_triage.render.words import columns

PREFIX = "[E823 21:20:31.412] [PG ID 0 PG GUID 0(default_pg) Rank 3] "


@pytest.mark.parametrize(
    ("text", "says", "found"),
    [
        ("[rank2]: KeyError: 'fr'", "", "KeyError: 'fr'"),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp:117] can't allocate memory", "", "can't allocate memory"),
        ("gpu-a:1:2 [0] misc/socket.cc:484 NCCL WARN Connect to 10.0.0.1 failed", "", "Connect to 10.0.0.1 failed"),
        ("NVRM: Xid (PCI:0000:3b:00): 48, pid=1, an Xid", "", "Xid (PCI:0000:3b:00): 48"),
        (
            "slurmstepd: error: *** JOB 7 CANCELLED DUE TO TIME LIMIT ***",
            "",
            "*** JOB 7 CANCELLED DUE TO TIME LIMIT ***",
        ),
        ("step 812 loss 2.25 grad_norm 4711.5", "The gradient was 4711.5.", "4711.5"),
        ("Fatal Python error: Bus error", "", "Fatal Python error: Bus error"),
        ("everything is as it was", "", ""),
    ],
)
def test_what_tells_in_a_line(text: str, says: str, found: str) -> None:
    span = telling(text, says)
    assert text[span.start : span.end] == found


@pytest.mark.parametrize("room", [32, 40, 60, 80, 400])
@pytest.mark.parametrize("tail", ["", " and then much more of it" * 9, "，随后还有很多内容" * 20])
@pytest.mark.parametrize("head", ["", PREFIX, PREFIX * 3, "显存" * 40])
def test_the_span_is_always_visible_and_the_line_never_too_long(head: str, tail: str, room: int) -> None:
    text = f"{head}KeyError: 'french'"
    shown = window(text + tail, TellingSpan(len(head), len(text), 8), room)
    assert columns(shown.text) <= room
    assert shown.text[shown.start : shown.end] == "KeyError: 'french'"
    assert shown.text.startswith(GAP) or text.startswith(shown.text[:8])


def test_a_span_that_is_too_wide_is_shown_from_its_start() -> None:
    shown = window(PREFIX + "KeyError: " + "x" * 200, TellingSpan(len(PREFIX), len(PREFIX) + 210, 8), 40)
    assert "KeyError: xxxx" in shown.text
    assert columns(shown.text) <= 40


@pytest.mark.parametrize(
    ("path", "width", "shown"),
    [
        ("a.log", 100, "a.log"),
        ("/var/log/jobs/4711/rank3/stderr.log", 100, ".../4711/rank3/stderr.log"),
        ("/var/log/jobs/4711/rank3/stderr.log", 80, ".../rank3/stderr.log"),
        ("/var/log/" + "long-" * 20 + "name.log", 60, "..g-long-long-name.log"),
    ],
)
def test_a_path_loses_its_first_folders(path: str, width: int, shown: str) -> None:
    assert short_path(path, width) == shown
