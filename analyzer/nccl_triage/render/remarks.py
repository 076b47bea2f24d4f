"""What a reader must know beside the verdict: the tool's notes, which secrets were masked, whether names are pseudonyms."""

from __future__ import annotations

from nccl_triage.render.words import Document, Lang, word


def secrets(document: Document, lang: Lang) -> str:
    """Return which kinds of secrets the input held, or nothing when it held none."""
    kinds = (document.get("redaction") or {}).get("secrets") or []
    return word("secrets_masked", lang).format(kinds=", ".join(map(str, kinds))) if kinds else ""


def pseudonyms(document: Document, lang: Lang) -> str:
    """Return what pseudonyms stand for and how many of them, or nothing when the names are the true ones."""
    counts = (document.get("redaction") or {}).get("pseudonyms")
    if counts is None:
        return ""
    found = ", ".join(f"{word(f'pseudonym_{kind}', lang)} {count}" for kind, count in counts.items())
    return word("pseudonyms", lang).format(counts=found or word("pseudonyms_none", lang))


def notes(document: Document, lang: Lang) -> list[str]:
    """Return all of them, one line each."""
    told = (document.get("notes_zh") if lang == "zh" else None) or document.get("notes") or []
    shown = [" ".join(str(note).split()) for note in told]
    return [*shown, *(text for text in (secrets(document, lang), pseudonyms(document, lang)) if text)]
