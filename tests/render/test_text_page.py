"""Lines quoted from a log keep their telling span at any width."""

from __future__ import annotations

from nccl_triage.render.text_page import TextPage, quoted


def test_on_a_narrow_terminal_a_quoted_line_comes_below_its_place() -> None:
    text = "gpu-a:77:90 [0] transport/net_ib.cc:1038 NCCL WARN NET/IB : collective mismatch error, local size 4 remote size 8"
    found = quoted({"text": text, "path": "logs/of/a/long/name/trainer.log", "line": 7}, "collective mismatch error")
    narrow, wide = TextPage(False, 60, "en"), TextPage(False, 100, "en")
    for page in (narrow, wide):
        page.quote(4, "", found)
        assert "collective mismatch error" in page.lines[-1]
        assert max(len(line) for line in page.lines) <= (page.width or 0)
    assert [len(narrow.lines), len(wide.lines)] == [2, 1]
