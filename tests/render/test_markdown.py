from __future__ import annotations

import re

import pytest

from nccl_triage.render import markdown

from .documents import ALL, HOSTILE, OOM_LINE, diagnosed, full, healthy, hostile, unknown


def outside_code(text: str) -> str:
    """Return the Markdown without its code blocks and code spans."""
    kept, fence = [], ""
    for line in text.splitlines():
        marker = re.match(r" *(`{3,})(?:text|sh)?$", line)
        if fence:
            fence = "" if marker and marker[1] == fence else fence
        elif marker:
            fence = marker[1]
        else:
            kept.append(line)
    assert not fence
    return re.sub(r"(?<![\\`])(`+)(?!`).*?(?<!`)\1(?!`)", "", "\n".join(kept))


def test_the_report_reads_as_an_issue():
    text = markdown.render(diagnosed(), "en")
    assert text.startswith("## nccl-triage: Rank 2 ran out of GPU memory")
    assert "**Root cause:** `gpu-out-of-memory`: A GPU ran out of memory (confidence 0.93, established)" in text
    assert f"```text\n{OOM_LINE}\n```" in text
    assert "   export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" in text
    assert "| `torch.watchdog-timeout` | consequence | 7 | 0-1, 3-7 | `logs/trainer.log:1240` |" in text
    assert "not verified" in text
    assert text.endswith("\n")


def test_chinese():
    text = markdown.render(diagnosed(), "zh")
    assert "**根因:** `gpu-out-of-memory`: GPU 显存耗尽" in text
    assert "### 现在该做什么" in text


def test_unknown_and_healthy_have_their_own_texts():
    assert "### Possible causes" in markdown.render(unknown(), "en")
    assert "**Verdict:** healthy" in markdown.render(healthy(), "en")


def test_hostile_text_is_never_markup():
    text = markdown.render(hostile(), "en")
    bare = outside_code(text)
    assert "alert" in bare
    assert not re.search(r"(?<!\\)<(?!https://)", bare)
    assert not re.search(r"(?<!\\)\[", bare)
    assert not re.search(r"(?<!\w)[@#](?=\w)", bare)
    assert all(c in "\n\t" or c.isprintable() for c in text)
    assert len(text) < 200_000


@pytest.mark.parametrize("kind", sorted(ALL))
def test_rows_of_a_table_have_the_same_number_of_cells(kind):
    width = 0
    for line in markdown.render(ALL[kind](), "en").splitlines():
        if not line.startswith("| "):
            width = 0
            continue
        cells = len(re.findall(r"(?<!\\)\|", line))
        assert cells == (width or cells)
        width = cells


def test_code_and_fences_outgrow_backticks():
    assert markdown.code("a`b") == "``a`b``"
    assert markdown.code("`") == "`` ` ``"
    assert markdown.fence([HOSTILE])[0] == "`````text"
    assert markdown.plain("1. a_b <i> #12 @me v0.1.0") == r"1\. a\_b \<i\> `#`12 `@`me v0.1.0"


def test_start_cost_urgency_and_what_was_not_seen_are_told():
    text = markdown.render(full(), "en")
    assert "**Started:** 2024-08-23 21:10:26" in text
    assert "**Cost:** 11 min 14 s on 8 ranks: 1.5 rank-hours lost" in text
    assert text.index("In the next 5 minutes") < text.index("In the next 15 minutes") < text.index("Long term")
    assert "### Missing information" in text and "  export NCCL_DEBUG=INFO" in text


def test_what_no_line_tells_is_left_out():
    text = markdown.render(diagnosed(), "en")
    assert "Started" not in text and "Missing information" not in text


@pytest.mark.parametrize("given", [diagnosed, unknown])
def test_whether_to_restart_is_told_and_host_names_are_no_markup(given):
    restart = {"decision": "exclude_then_restart", "exclude": ["gn<b>07"], "why": "Its GPU is lost."}
    text = markdown.render({**given(), "restart": restart}, "en")
    assert r"**Restart:** Restart without gn\<b\>07: Its GPU is lost." in text
    assert "**Restart:**" not in markdown.render(given(), "en")
