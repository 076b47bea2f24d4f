#!/usr/bin/env python3
"""Post a verdict to Slack or to another webhook.

    nccl-triage --follow run_dir/ --on-verdict ./notify.py
    nccl-triage train.log --format json | ./notify.py

The report is read from standard input. Names of hosts, addresses, users and paths are replaced by pseudonyms.

    SLACK_WEBHOOK_URL    an incoming webhook of Slack
    WEBHOOK_URL          any other place; it gets the JSON object of ``summary`` below
    WEBHOOK_NAMES=keep   do not replace names; for a chat that does not leave your site
    TRIAGE               the command, if nccl-triage is not on PATH

The addresses are secrets: they are taken from the environment and never printed. Nothing is posted while nothing failed.
Exit code 1 if something could not be posted. Standard library only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

#: Seconds for each post; --on-verdict ends its command after 30.
TIMEOUT = 10.0
#: Characters of a text at most; Slack takes 3,000.
LONGEST = 2900


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Stay with the address that was given."""

    def redirect_request(self, *words: Any) -> None:
        """Return no further request."""


def brief(report: bytes) -> str:
    """Return the verdict in one to three lines, with pseudonyms unless names are kept."""
    words = [os.environ.get("TRIAGE", "nccl-triage"), "render", "-", "--format", "brief", "--quiet", "--no-config"]
    if os.environ.get("WEBHOOK_NAMES") != "keep":
        words.append("--redact")
    done = subprocess.run(words, input=report, stdout=subprocess.PIPE, check=True, timeout=20)
    return done.stdout.decode("utf-8", "replace").strip()[:LONGEST]


def slack(text: str) -> dict[str, Any]:
    """Return a message in which Slack finds no markup, no mention and no link.

    Source: docs.slack.dev, "Formatting message text": ``&``, ``<`` and ``>`` are the characters that control a text; a
    ``plain_text`` is shown as it is.
    """
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    block = {"type": "section", "text": {"type": "plain_text", "text": text, "emoji": False}}
    return {"text": escaped, "mrkdwn": False, "unfurl_links": False, "unfurl_media": False, "blocks": [block]}


def summary(document: dict[str, Any], text: str) -> dict[str, Any]:
    """Return what other webhooks get: words of closed lists, and the text."""
    best = (document.get("diagnoses") or [{}])[0]
    return {
        "reason": (document.get("follow") or {}).get("reason"),
        "verdict": document.get("verdict"),
        "outcome": (document.get("outcome") or {}).get("state"),
        "cause": best.get("cause"),
        "confidence": best.get("confidence"),
        "restart": (document.get("restart") or {}).get("decision"),
        "text": text,
    }


def post(name: str, address: str, message: dict[str, Any]) -> bool:
    """Post a message; tell whether it was taken. What is printed does not hold the address."""
    parts = urllib.parse.urlsplit(address)
    if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "::1", "localhost"):
        print(f"{name}: not an https address", file=sys.stderr)
        return False
    request = urllib.request.Request(
        address, json.dumps(message).encode(), {"Content-Type": "application/json", "User-Agent": "nccl-triage"}
    )
    try:
        with urllib.request.build_opener(NoRedirect).open(request, timeout=TIMEOUT):
            return True
    except urllib.error.HTTPError as error:
        print(f"{name}: HTTP {error.code}", file=sys.stderr)
    except (OSError, ValueError) as error:
        print(f"{name}: {type(error).__name__}", file=sys.stderr)
    return False


def main() -> int:
    """Post the report of standard input; return the exit code."""
    report = sys.stdin.buffer.read()
    document = json.loads(report)
    if document.get("verdict") == "healthy":
        return 0
    text, sent = brief(report), []
    if os.environ.get("SLACK_WEBHOOK_URL"):
        sent.append(post("SLACK_WEBHOOK_URL", os.environ["SLACK_WEBHOOK_URL"], slack(text)))
    if os.environ.get("WEBHOOK_URL"):
        sent.append(post("WEBHOOK_URL", os.environ["WEBHOOK_URL"], summary(document, text)))
    if not sent:
        print("set SLACK_WEBHOOK_URL or WEBHOOK_URL", file=sys.stderr)
    return 0 if sent and all(sent) else 1


if __name__ == "__main__":
    sys.exit(main())
