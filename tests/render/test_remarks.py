"""A report says what was taken out of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nccl_triage import diagnose
from nccl_triage.redaction import mask_secrets, redact
from nccl_triage.render import remarks, render

from .documents import Doc, diagnosed

LOG = "[rank1]: password=hunter22\n[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


@pytest.fixture
def leaking(tmp_path: Path) -> Doc:
    path = tmp_path / "job.log"
    path.write_text(LOG * 2)
    document: Doc = diagnose([str(path)]).to_dict()
    document["notes"] = ["read with password=hunter22"]
    return document


@pytest.mark.parametrize("name", ["text", "markdown", "html"])
def test_a_report_names_the_secrets_that_it_masks(leaking: Doc, name: str) -> None:
    shown = " ".join(render(leaking, name).decode().split())
    assert "hunter22" not in shown
    assert "The input holds secrets (password), masked here" in shown.replace("\\", "")


@pytest.mark.parametrize("name", ["text", "markdown", "html"])
def test_a_redacted_report_says_so(leaking: Doc, name: str) -> None:
    shown = " ".join(render(redact(leaking), name, lang="zh").decode().split())
    assert "已脱敏" in shown
    assert "路径 1" in shown or "文件 1" in shown


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_nothing_taken_out_nothing_said(lang: remarks.Lang) -> None:
    document = mask_secrets(diagnosed())
    assert remarks.secrets(document, lang) == remarks.pseudonyms(document, lang) == ""
    assert "[secret:" not in render(document, "html", lang=lang).decode()


def test_every_kind_of_pseudonym_has_a_word_in_both_languages() -> None:
    from nccl_triage.redaction.pseudonyms import _COUNTED

    for lang in ("en", "zh"):
        said = remarks.pseudonyms({"redaction": {"pseudonyms": dict.fromkeys(_COUNTED, 2)}}, lang)
        assert "pseudonym_" not in said
    assert remarks.pseudonyms({"redaction": {"pseudonyms": {}}}, "en").endswith("(none).")
