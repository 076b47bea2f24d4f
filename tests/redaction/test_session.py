"""One session, one set of pseudonyms: what one document taught is known in the next, and no two originals share a name."""

from __future__ import annotations

from nccl_triage.redaction.document import SessionRedactor


def test_the_same_original_has_the_same_pseudonym_in_every_document() -> None:
    session = SessionRedactor()
    first = session.redact({"job": {"hosts": [{"name": "gn-alpha"}, {"name": "gn-beta"}]}, "text": "gn-beta died"})
    second = session.redact({"lines": ["on gn-beta", "and gn-gamma.example.corp too"], "host": "gn-gamma"})
    third = session.redact({"lines": ["gn-gamma and gn-alpha"], "host": "gn-delta"})
    assert first["text"] == "host-2 died"
    assert second["lines"][0] == "on host-2"
    assert second["host"] == third["lines"][0].split()[0] != third["host"]
    assert third["lines"][0].endswith("and host-1")
    made = [first["job"]["hosts"][0]["name"], first["job"]["hosts"][1]["name"], second["host"], third["host"]]
    assert len(set(made)) == 4
    assert "gn-" not in str([first, second, third])


def test_secrets_are_masked_and_a_document_of_others_keeps_its_pseudonyms() -> None:
    session = SessionRedactor()
    token = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
    assert token not in str(session.redact({"text": f"HF_TOKEN={token}"}))
    made = session.redact({"host": "host-1", "redaction": {"pseudonyms": {"hosts": 1}}})
    assert made["host"] == "host-1"
