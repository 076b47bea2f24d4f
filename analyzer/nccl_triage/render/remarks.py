"""What a reader must know beside the verdict: the tool's notes, which secrets were masked, whether names are pseudonyms."""

from __future__ import annotations

from nccl_triage.render.words import Document, Lang, word

#: Files of foreign rules that a sentence names.
_FILES = 4


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


def foreign(document: Document, lang: Lang) -> str:
    """Return which rules that are not shipped took part, or nothing where none did: a verdict may be theirs alone."""
    files = document.get("foreign_rules") or []
    told = [f"{file.get('path')} ({', '.join(map(str, file.get('ids') or []))})" for file in files[:_FILES]]
    told += [f".. +{len(files) - _FILES}"] if len(files) > _FILES else []
    return word("foreign_rules", lang).format(rules=", ".join(told)) if told else ""


def notes(document: Document, lang: Lang) -> list[str]:
    """Return all of them, one line each."""
    told = (document.get("notes_zh") if lang == "zh" else None) or document.get("notes") or []
    shown = [" ".join(str(note).split()) for note in told]
    return [*shown, *(text for text in (secrets(document, lang), pseudonyms(document, lang)) if text)]
