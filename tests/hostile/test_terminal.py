"""What a log or a name says to a terminal or a page stays text."""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree

from nccl_triage import diagnose
from nccl_triage.render import FORMATS, render

#: Clears the screen, sets the title, answers a query, moves the cursor, hides text, reverses it, fakes our prompt.
ESCAPES = "\x1b[2J\x1b]0;owned\x07\x1b[6n\x1b[1A\x9b8m\x1bP1$r\x1b\\\u202eslanoisses\u202c\u2066\x08\x7f\r\x85"
MARKUP = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>]]>--><!--|`${7*7}`{{7*7}}{% for %}[x](javascript:alert(1))"
)
LOG = (
    "[rank0]: Traceback (most recent call last):\n"
    f'[rank0]:   File "/x/{MARKUP[:25]}.py", line 1, in main\n'
    f"[rank0]: RuntimeError: boom {ESCAPES} {MARKUP}\n"
    f"[rank0]: {MARKUP} {ESCAPES}\n"
)
#: Controls besides newline and tab, and what turns or hides text.
_ACTING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def test_no_format_passes_on_what_a_terminal_would_obey() -> None:
    document = diagnose("-", stdin=io.BytesIO(LOG.encode())).to_dict()
    assert any("boom" in item["text"] for found in document["diagnoses"] for item in found["evidence"])
    for form in FORMATS:
        text = render(document, form, verbose=2).decode()
        assert not _ACTING.search(text), form
        if form in ("html", "junit"):
            assert "<script>alert" not in text, form
        if form == "junit":
            ElementTree.fromstring(text)


def test_templates_in_a_log_are_text() -> None:
    """Nothing of a log is ever a template: Jinja's braces come out as they went in."""
    document = diagnose("-", stdin=io.BytesIO(LOG.encode())).to_dict()
    assert "{{7*7}}" in render(document, "html").decode()
