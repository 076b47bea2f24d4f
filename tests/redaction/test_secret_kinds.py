"""The table of secrets: its samples, its shape, what its reader refuses."""

from __future__ import annotations

import re
import sys
import time
from typing import Any

import pytest

from nccl_triage import resources
from nccl_triage.engine import cache as store
from nccl_triage.errors import RuleError
from nccl_triage.redaction import secret_kinds
from nccl_triage.redaction.secret_kinds import SecretKind, expand, secrets, unpacked
from nccl_triage.redaction.secrets import mask_text

if sys.version_info >= (3, 11):
    from re import _constants as constants
    from re import _parser as parser
else:
    import sre_constants as constants
    import sre_parse as parser

MATCH = [pytest.param(row, text, id=f"{row.id}-{i}") for row in secrets() for i, text in enumerate(row.match_samples)]
NOT = [pytest.param(text, id=f"{row.id}-{i}") for row in secrets() for i, text in enumerate(row.not_samples)]
YAML = (resources.rules_dir() / "redaction" / "secrets.yaml").read_text("utf-8")


@pytest.mark.parametrize(("row", "sample"), MATCH)
def test_a_sample_is_masked_by_its_row(row: SecretKind, sample: str) -> None:
    found = next(row.finds(sample))
    secret = found[found.lastgroup or 0]
    masked = mask_text(sample)
    assert secret not in masked
    assert f"[secret:{row.id}]" in masked
    assert mask_text(masked) == masked


@pytest.mark.parametrize("sample", NOT)
def test_a_counterexample_stays(sample: str) -> None:
    assert mask_text(sample) == sample


def test_the_kinds_that_matter_are_there() -> None:
    ids = {row.id for row in secrets()}
    assert len(ids) >= 60
    assert ids >= {"huggingface-token", "aws-secret-key", "wandb-key", "private-key", "url-credentials", "alibaba-key"}


def test_samples_hold_nothing_that_a_scanner_takes_for_real() -> None:
    assert not re.search(r"hf_[A-Za-z0-9]{30}|gh[pousr]_\w{30}|AKIA[A-Z0-9]{16}|sk_live_\w{20}|xox[bp]-\d{10}", YAML)


@pytest.mark.parametrize(("kind", "alphabet"), [("hex", "[0-9a-f]"), ("upper", "[A-Z0-9]"), ("alnum", "[A-Za-z0-9]")])
def test_placeholders_become_that_many_characters(kind: str, alphabet: str) -> None:
    assert re.fullmatch(f"a{alphabet}{{17}}b", expand(f"a<{kind}:17>b"))
    assert expand("<extra_id_0> <hex:x>") == "<extra_id_0> <hex:x>"


def repeats(tree: Any, outer: int = 1) -> list[tuple[int, int]]:
    """Return (most, most of the repeat around it) of every repeat of a pattern."""
    found: list[tuple[int, int]] = []
    for op, argument in tree:
        if op in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            _, most, inside = argument
            found.append((int(most), outer))
            found += repeats(inside, int(most))
        elif op is constants.BRANCH:
            for branch in argument[1]:
                found += repeats(branch, outer)
        elif op is constants.SUBPATTERN:
            found += repeats(argument[-1], outer)
        elif op in (constants.ASSERT, constants.ASSERT_NOT):
            found += repeats(argument[1], outer)
    return found


@pytest.mark.parametrize("row", secrets(), ids=lambda row: row.id)
def test_no_text_makes_a_pattern_slow(row: SecretKind) -> None:
    for most, around in repeats(parser.parse(row.pattern.source)):
        assert most <= 16384, "a repeat without a bound"
        assert around <= 4 or most <= 1, "a repeat inside a long repeat"


@pytest.mark.parametrize("joint", [" ", "", ":", "@", "\n"])
def test_samples_without_end_are_masked_in_time_that_grows_with_them(joint: str) -> None:
    started = time.process_time()
    for row in secrets():
        for sample in (*row.match_samples, *row.not_samples):
            text = (sample + joint) * (4000 // len(sample) + 1)
            for _ in row.pattern.compiled.finditer(text):
                pass
    assert time.process_time() - started < 5


def test_rows_are_read_back_from_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("NCCL_TRIAGE_CACHE", str(tmp_path))
    first = secret_kinds.secrets.__wrapped__()
    monkeypatch.setattr(secret_kinds.nodes, "parse", lambda *_: pytest.fail("the table was parsed again"))
    assert [row.packed() for row in secret_kinds.secrets.__wrapped__()] == [row.packed() for row in first]


def test_a_damaged_cache_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("NCCL_TRIAGE_CACHE", str(tmp_path))
    first = secret_kinds.secrets.__wrapped__()
    (path,) = tmp_path.iterdir()
    for damage in (b'{"rows": [["x", 1]]}', b'{"rows": []}', b'{"rows": 7}', b"{}", b""):
        path.write_bytes(damage)
        assert [row.id for row in secret_kinds.secrets.__wrapped__()] == [row.id for row in first]
        store.write(path.name, damage)  # as if it had been stored so
        assert [row.id for row in secret_kinds.secrets.__wrapped__()] == [row.id for row in first]
    with pytest.raises(ValueError, match="damaged"):
        unpacked(["id", 7, False, 0, [], [], [], [], [], []])


GOOD = "{id: a, starts: [x_], pattern: 'x_[a-z]{4}', match: [x_abcd], not: [xy]}"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{id: a, pattern: x, match: [x], not: [y]}", "either 'starts' or 'guard' or 'run'"),
        ("{id: a, starts: [x], guard: [x], pattern: x, match: [x], not: [y]}", "either 'starts' or 'guard' or 'run'"),
        ("{id: A_b, guard: [x], pattern: x, match: [x], not: [y]}", "lower case words"),
        ("{id: a, guard: [X], pattern: X, match: [X], not: [y]}", "guards are in lower case"),
        ("{id: a, guard: [x], pattern: x, match: [], not: [y]}", "at least one sample"),
        ("{id: a, guard: [x], pattern: x, match: [x]}", "'not' is missing"),
        ("{id: a, guard: [x], pattern: '(x', match: [x], not: [y]}", "not a valid regular expression"),
        (f"{GOOD}\n  - {GOOD}", "listed twice"),
    ],
)
def test_a_wrong_row_is_refused_at_its_line(row: str, message: str) -> None:
    with pytest.raises(RuleError, match=message) as error:
        secret_kinds.read(f"parts: {{}}\nsecrets:\n  - {row}\n", "secrets.yaml")
    assert (error.value.where or "").startswith("secrets.yaml:")
