"""Every sequence of a terminal is removed or left: none hides a secret, none ends a run, none takes long."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_triage.redaction import mask_secrets, redact
from nccl_triage.redaction.secrets import mask_text
from nccl_triage.redaction.strings import plain

#: Sequences by what they are called in ECMA-48 or by terminals.
SEQUENCES = {
    "SGR": "\x1b[1;31m", "SGR with a colon": "\x1b[38:5:1m", "private CSI": "\x1b[?25l", "CSI with a space": "\x1b[2 q",
    "8-bit CSI": "\x9b1m", "title": "\x1b]0;title\x07", "title with ST": "\x1b]2;title\x1b\\", "8-bit OSC": "\x9d0;x\x9c",
    "link": "\x1b]8;;file:///x\x1b\\", "DCS": "\x1bP1$r0m\x1b\\", "SOS": "\x1bXx\x1b\\", "PM": "\x1b^x\x1b\\", "APC": "\x1b_x\x1b\\",
    "save": "\x1b7", "restore": "\x1b8", "keypad": "\x1b=", "no keypad": "\x1b>", "reverse index": "\x1bM", "reset": "\x1bc",
    "character set": "\x1b(B", "graphics": "\x1b)0", "sgr0": "\x1b(B\x1b[m", "alignment": "\x1b#8", "UTF-8": "\x1b%G",
    "7-bit controls": "\x1b F", "8-bit NEL": "\x85", "soft hyphen": "\xad", "zero width": "\u200b", "byte order": "\ufeff",
    "nothing": "\x1b", "two": "\x1b\x1b", "torn CSI": "\x1b[", "torn OSC": "\x1b]", "torn DCS": "\x1bP",
}  # fmt: skip


#: Beginnings of sequences that do not come: what follows them may be taken for their end.
TORN = {"nothing", "two", "torn CSI", "torn OSC", "torn DCS"}
WHOLE = [pytest.param(sequence, id=name) for name, sequence in SEQUENCES.items() if name not in TORN]


@pytest.mark.parametrize("sequence", WHOLE)
def test_a_sequence_hides_nothing(sequence: str) -> None:
    for text in (f"pass{sequence}word=hunter2", f"password{sequence}=hunter2", f"password={sequence}hunter2{sequence}"):
        assert plain(text) == "password=hunter2"
        assert "hunter2" not in mask_text(text)


@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=SEQUENCES)
def test_a_sequence_ends_nothing(sequence: str) -> None:
    text = f"{sequence}node-7{sequence}: {sequence}srun: error: gpu-017: task 3: Exited{sequence} password=hunter2"
    made = redact({"job": {"hosts": [{"name": "node-7"}]}, "notes": [text, sequence, f"x{sequence}", f"{sequence}["]})
    assert not [name for name in ("node-7", "gpu-017", "hunter2") if name in plain(made["notes"][0])]
    assert redact(made) == made


@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=SEQUENCES)
def test_what_holds_no_secret_keeps_its_sequences(sequence: str) -> None:
    document = {"job": {"hosts": []}, "notes": [f"{sequence}NCCL WARN{sequence} Connection closed{sequence}"]}
    assert mask_secrets(document) is document
    assert redact(document)["notes"] == document["notes"]


@pytest.mark.parametrize("form", ["\x1b]0;{}\x07", "\x1bP{}\x1b\\", "\x1b]8;;{}\x1b\\here", "\x9d0;{}\x9c", "\x1b]{}"])
def test_what_a_sequence_holds_is_masked_as_well(form: str) -> None:
    shown = mask_text(form.format("password=hunter2"))
    assert "hunter2" not in shown
    made = redact({"job": {"hosts": [{"name": "gpu-17"}]}, "notes": [form.format("ann@gpu-17: ~")]})
    assert "gpu-17" not in made["notes"][0]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from([*SEQUENCES.values(), "password", "=", "hunter2", " gpu-17 ", "@", ":", "[", "m", "\n"]),
        max_size=12,
    )
)
def test_any_mixture_comes_to_an_end(parts: list[str]) -> None:
    text = "".join(parts)
    assert plain(plain(text)) == plain(text)
    document = {"job": {"hosts": [{"name": "gpu-17"}]}, "notes": [text]}
    made = redact(document)
    assert redact(made) == made
    assert "gpu-17" not in plain(made["notes"][0])


@pytest.mark.parametrize(
    "part", ["\x1b", "\x1b[", "\x1b]", "\x1bP", "\x9d", "\x9b", "\x1b(", "\x1b[0m", "\x1b]x\x07", "\x1b[1"]
)
def test_no_text_takes_long(part: str) -> None:
    started = time.process_time()
    plain(part * 100_000)
    assert time.process_time() - started < 1
