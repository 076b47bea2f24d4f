"""What a log gives away reaches no output: secrets never, names and addresses not when the reader asks for it."""

from __future__ import annotations

import io
from typing import Any

import pytest

from nccl_triage import diagnose
from nccl_triage.redaction import redact
from nccl_triage.redaction.secret_kinds import SecretKind, secrets
from nccl_triage.render import FORMATS, render

#: Samples in one log: as many lines of a message are kept.
GROUP = 10
ROWS = [row for row in secrets() if row.match_samples]
GROUPS = [ROWS[start : start + GROUP] for start in range(0, len(ROWS), GROUP)]


def log(lines: list[str]) -> bytes:
    """Return a log whose evidence quotes the lines, as the message of an exception."""
    body = 'Traceback (most recent call last):\n  File "/srv/lab/train.py", line 3, in main\nRuntimeError: \n'
    # A word behind each: lines of nothing but a token are taken for one token that was wrapped.
    body += "".join(f"  {line} there\n" for line in lines)
    return "".join(f"[rank0]: {line}\n" for line in body.splitlines()).encode()


def document(lines: list[str]) -> dict[str, Any]:
    return diagnose("-", stdin=io.BytesIO(log(lines))).to_dict()


def secret_of(row: SecretKind, sample: str) -> str:
    found = next(row.finds(sample))
    return str(found[found.lastgroup or 0])


def test_there_are_many_kinds_of_secrets() -> None:
    assert len({row.id for row in ROWS}) >= 30


@pytest.mark.parametrize("rows", GROUPS, ids=lambda rows: f"{rows[0].id}-to-{rows[-1].id}")
def test_no_format_shows_a_secret_of_the_log(rows: list[SecretKind]) -> None:
    samples = [(row, row.match_samples[0]) for row in rows if "\n" not in row.match_samples[0]]
    made = document([sample for _, sample in samples])
    assert len(made["redaction"]["secrets"]) >= len(samples) * 3 // 4  # they were there to be found
    for shown in (made, redact(made)):
        for form in FORMATS:
            text = render(shown, form, verbose=2).decode()
            for row, sample in samples:
                assert secret_of(row, sample) not in text, (form, row.id)


NAMES = {
    "host": "gpuzq-0417", "address": "10.83.44.17", "user": "qzwvimmer", "bucket": "zqbucketx", "mail": "zq.mailer@zqcorp.com",
    "path": "zqprojectpath", "ipv6": "fd12:9a4b:77c1::4f2a",
}  # fmt: skip


def test_no_format_shows_a_name_of_the_log_when_redacted() -> None:
    """The same pseudonym stands for a name wherever it comes from."""
    text = (
        f"{NAMES['host']}:123:456 [0] NCCL INFO Bootstrap : Using eth0:{NAMES['address']}<0>\n"
        f"{NAMES['host']}:123:456 [0] NCCL WARN Call to connect from {NAMES['address']} to {NAMES['address']}<29500> "
        "failed : Connection refused\n"
    ) + log(
        [
            f"cannot write /home/{NAMES['user']}/{NAMES['path']}/x.pt on {NAMES['host']}",
            f"s3://{NAMES['bucket']}/ckpt/step_1.pt: denied for {NAMES['mail']}",
            f"connect to [{NAMES['ipv6']}]:29500 and {NAMES['address']}:29500 failed",
            f"USER={NAMES['user']} gs://{NAMES['bucket']}/a",
        ]
    ).decode()
    plain = diagnose("-", stdin=io.BytesIO(text.encode())).to_dict()
    assert NAMES["host"] in render(plain, "json").decode()
    made = redact(plain)
    for form in FORMATS:
        shown = render(made, form, verbose=2).decode()
        for kind, name in NAMES.items():
            assert name not in shown, (form, kind)
    assert "host-1" in render(made, "html").decode()
