"""The script for chats and pagers posts the verdict, and nothing of a log can mention anybody or lead anywhere."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import EXAMPLES, Commands
from .pages import block

NOTIFY = EXAMPLES / "webhook" / "notify.py"
HOSTILE = "<!channel> *bold* & <https://evil.example|here> <@U123>"
FAILED = f"""10.20.30.40: step 1 loss 2.0
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/ann/train.py", line 4, in <module>
[rank1]: ValueError: {HOSTILE} password=hunter2hunter2
"""
HEALTHY = "step 1 loss 2.5\nstep 2 loss 2.4\nTraining finished.\n"


class Hook(http.server.ThreadingHTTPServer):
    """A place on this machine that is posted to."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, Any]] = []
        super().__init__(("127.0.0.1", 0), Answer)

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{path}"


class Answer(http.server.BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.posts.append((self.path, json.loads(body or b"null")))
        self.send_response({"/refused": 403, "/moved": 302}.get(self.path, 200))
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *words: Any) -> None:
        """Print nothing."""


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> str:
    commands = Commands(tmp_path_factory.mktemp("report") / "bin", cache)
    return commands.run("nccl-triage", "-", "--format", "json", "--no-history", stdin=FAILED).stdout


def notify(commands: Commands, report: str, **env: str) -> tuple[int, str]:
    result = commands.run(NOTIFY, stdin=report, env=env)
    assert result.stdout == ""
    return result.returncode, result.stderr


def test_a_followed_job_is_told_of_on_slack(commands: Commands, hook: Hook, tmp_path: Path) -> None:
    (tmp_path / "run_dir").mkdir()
    (tmp_path / "run_dir" / "train.log").write_text(FAILED, encoding="utf-8")
    command = block("webhook.md", "SLACK_WEBHOOK_URL").splitlines()[1].replace("webhook/notify.py", str(NOTIFY))
    # Ends by itself: the folder is read as a pipe.
    command = f"cat run_dir/* | {command.replace('run_dir/', '-')} --no-history"
    commands.run("bash", "-c", command, cwd=tmp_path, env={"SLACK_WEBHOOK_URL": hook.address("T0/B0/secret")})
    [(path, message)] = hook.posts
    assert path == "/T0/B0/secret"
    assert "application-exception" in message["text"]
    (section,) = message["blocks"]
    assert section["text"]["type"] == "plain_text" and "application-exception" in section["text"]["text"]


def test_log_text_is_no_markup_and_holds_no_secret(commands: Commands, hook: Hook, report: str) -> None:
    assert notify(commands, report, SLACK_WEBHOOK_URL=hook.address("slack")) == (0, "")
    [(_, message)] = hook.posts
    assert "&lt;!channel&gt;" in message["text"] and "&amp;" in message["text"]
    assert not {"<", ">"} & set(message["text"])
    assert message["mrkdwn"] is False and message["unfurl_links"] is False
    assert "hunter2" not in json.dumps(message)


def test_another_place_gets_an_object(commands: Commands, hook: Hook, report: str) -> None:
    assert notify(commands, report, WEBHOOK_URL=hook.address("hook")) == (0, "")
    [(_, message)] = hook.posts
    shown = json.loads(block("webhook.md", "gpu-hardware-fault", "json"))
    assert set(message) == set(shown)
    assert (message["verdict"], message["cause"]) == ("diagnosed", "application-exception")


@pytest.mark.parametrize(("names", "kept"), [("", False), ("keep", True)])
def test_names_are_pseudonyms_unless_they_are_kept(commands: Commands, hook: Hook, names: str, kept: bool) -> None:
    log = "gpu07:1:1 [0] NCCL INFO comm 0x1 rank 3 nranks 8 cudaDev 0 busId 3b000 - Init COMPLETE\n" + (
        "Nov 20 11:59:00 gpu07 kernel: NVRM: Xid (PCI:0000:3b:00): 48, pid=1, An uncorrectable double bit error (DBE)\n"
    )
    report = commands.run("nccl-triage", "-", "--format", "json", "--no-history", stdin=log).stdout
    assert notify(commands, report, WEBHOOK_URL=hook.address("hook"), WEBHOOK_NAMES=names)[0] == 0
    assert ("gpu07" in hook.posts[0][1]["text"]) is kept


def test_nothing_is_posted_while_nothing_failed(commands: Commands, hook: Hook) -> None:
    report = commands.run("nccl-triage", "-", "--format", "json", "--no-history", stdin=HEALTHY).stdout
    assert json.loads(report)["verdict"] == "healthy"
    assert notify(commands, report, WEBHOOK_URL=hook.address("hook")) == (0, "")
    assert hook.posts == []


@pytest.mark.parametrize(("path", "said"), [("refused", "HTTP 403"), ("moved", "HTTP 302")])
def test_what_is_not_taken_is_told_without_the_address(
    commands: Commands, hook: Hook, report: str, path: str, said: str
) -> None:
    assert notify(commands, report, SLACK_WEBHOOK_URL=hook.address(path)) == (1, f"SLACK_WEBHOOK_URL: {said}\n")
    assert [where for where, _ in hook.posts] == [f"/{path}"]


@pytest.mark.parametrize(
    "address", ["http://192.0.2.1/secret", "file:///etc/passwd", "secret", "ftp://localhost/secret"]
)
def test_other_addresses_are_refused(commands: Commands, report: str, address: str) -> None:
    code, said = notify(commands, report, WEBHOOK_URL=address)
    assert code == 1 and said.startswith("WEBHOOK_URL: ") and "secret" not in said


def test_without_an_address_it_says_so(commands: Commands, report: str) -> None:
    assert notify(commands, report) == (1, "set SLACK_WEBHOOK_URL or WEBHOOK_URL\n")
