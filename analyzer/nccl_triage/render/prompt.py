"""A digest to hand to a language model: verdict, evidence and what is missing, in at most ``LIMIT`` characters.

A log may hold text that reads like an instruction. Everything that comes from it stands between two marks, one line a
line; the marks hold a digest of what stands between them, so that no line of a log can close them. Names are always
pseudonyms (``FORMATS`` says so), since the text leaves the machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from nccl_triage.render import overview, phrases, short_text
from nccl_triage.render.hard_errors import hard_errors
from nccl_triage.render.text_page import commands_of, quoted
from nccl_triage.render.words import (
    Document,
    Lang,
    RenderOptions,
    consequence_phrase,
    culprit_name,
    harmless_line,
    pick,
    place,
    unknown_text,
    verification_text,
    visible,
    word,
)

Item = Mapping[str, Any]

#: Characters of the whole text at most: some 2,000 to 3,000 tokens.
LIMIT = 8000
#: Characters of the digest in the marks.
_TAG = 16


class DigestSize(NamedTuple):
    """How much is told: pieces of evidence of the first cause, rivals, fixes, missing things, notes; characters of a line."""

    evidence: int
    rivals: int
    fixes: int
    missing: int
    notes: int
    width: int


#: From much to little; the first one that stays within the limit is used.
_SIZES = (
    DigestSize(8, 4, 3, 4, 4, 600),
    DigestSize(6, 3, 3, 3, 3, 400),
    DigestSize(5, 3, 2, 2, 2, 300),
    DigestSize(4, 2, 2, 1, 1, 200),
    DigestSize(3, 2, 1, 1, 0, 140),
    DigestSize(2, 1, 1, 0, 0, 80),
)


class _Digest:
    """Collects the lines, each cut at the width of this size, and counts what is left out."""

    def __init__(self, size: DigestSize, lang: Lang) -> None:
        self.size, self.lang = size, lang
        self.lines: list[str] = []
        self.left_out = 0

    def say(self, key: str, text: str, indent: str = "") -> None:
        """Add ``label: text`` where there is a text."""
        if text:
            colon = word("colon", self.lang)
            self.lines.append(f"{indent}{word(key, self.lang).lower()}{colon}{visible(text, self.size.width)}")

    def quote(self, item: Item, text: str) -> None:
        """Add a line of a log with its place."""
        self.lines.append(f"  > {visible(place(item), self.size.width)}: {visible(text, self.size.width)}")

    def first(self, items: Iterable[Item] | None, number: int) -> list[Item]:
        """Return the first items and count the others."""
        found = list(items or [])
        self.left_out += max(len(found) - number, 0)
        return found[:number]


def produce(document: Document, options: RenderOptions) -> str:
    """Return the digest."""
    for size in _SIZES:
        digest = _made(document, size, options.lang)
        text = _marked(digest.lines, digest.left_out, options.lang)
        if len(text) <= LIMIT:
            return text
    while len(text) > LIMIT:  # lines that no size shortens: the last ones matter least
        digest.lines.pop()
        digest.left_out += 1
        text = _marked(digest.lines, digest.left_out, options.lang)
    return text


def _marked(lines: list[str], left_out: int, lang: Lang) -> str:
    """Return the lines between their marks, after the sentences that say what they are."""
    body = "\n".join(map(harmless_line, lines))
    tag = hashlib.sha256(body.encode("utf-8", "replace")).hexdigest()[:_TAG]
    text = word("prompt_begin", lang).format(tag=tag) + f"\n{body}\n" + word("prompt_end", lang).format(tag=tag) + "\n"
    more = word("prompt_left_out", lang).format(n=left_out) + "\n" if left_out else ""
    return f"{word('prompt_what', lang)}\n{word('prompt_data', lang).format(tag=tag)}\n\n{text}{more}"


def _made(document: Document, size: DigestSize, lang: Lang) -> _Digest:
    digest = _Digest(size, lang)
    verdict = str(document.get("verdict"))
    diagnoses = document.get("diagnoses") or [] if verdict != "healthy" else []
    digest.say("verdict", word(verdict, lang))
    digest.say("what_happened", phrases.headline(document, lang))
    if verdict == "unknown":
        digest.say("root_cause", unknown_text(document, lang))
    elif diagnoses:
        _cause(digest, document, diagnoses[0])
    digest.say("outcome", overview.outcome_text(document, lang))
    digest.say("consequences", consequence_phrase(document, lang))
    digest.say("restart_word", phrases.restart_in_full(document, lang))
    for entry in (document.get("recurrence") or [])[:2]:
        digest.say("history", pick(entry, "says", lang))
    job = overview.job_line(document)
    digest.say("job_word", word("comma", lang).join(pair.zh if lang == "zh" else pair.en for pair in job))
    digest.say("collective", overview.collective_text(document, lang))
    if verdict == "diagnosed" and diagnoses:
        _evidence(digest, diagnoses[0], size.evidence)
        _telling(digest, document)
        _story(digest, document)
        _to_do(digest, diagnoses[0])
        _rivals(digest, "rivals", diagnoses[1:])
    else:
        _telling(digest, document)
        _story(digest, document)
        _rivals(digest, "possible_causes", diagnoses)
    for item in digest.first(document.get("not_seen"), size.missing):
        digest.say("not_seen", pick(item, "what", lang))
    known = phrases.pseudonyms_note(document, lang)  # the first sentence says so
    for note in [note for note in phrases.notes(document, lang) if note != known][: size.notes]:
        digest.say("note", note)
    return digest


def _cause(digest: _Digest, document: Document, best: Item) -> None:
    lang = digest.lang
    digest.say("root_cause", word("colon", lang).join((short_text.named(best, lang), pick(best, "title", lang))))
    for culprit in digest.first(best.get("culprits"), digest.size.evidence):
        why = pick(culprit, "why", lang)
        digest.say("culprit", culprit_name(culprit, lang) + (word("colon", lang) + why if why else ""))
    digest.say("started", phrases.incident_started(document, lang))
    digest.say("cost_word", phrases.incident_cost(document, lang))
    digest.say("meaning", pick(best, "explanation", lang))
    digest.say("verification", verification_text(best, lang))
    digest.say("foreign", phrases.foreign_rules_note(document, lang))


def _evidence(digest: _Digest, best: Item, number: int) -> None:
    """Add the lines that prove a cause, and those that speak against it; what is said of several is said once."""
    voted, said = short_text.votes(best), ""
    lines = [item for item in best.get("evidence") or [] if str(item.get("says")) not in voted]
    for key, items in (("evidence", digest.first(lines, number)), ("against", digest.first(best.get("against"), 3))):
        for item in items:
            says = pick(item, "says", digest.lang)
            if says != said:
                weight = word(str(item.get("weight") or "weak"), digest.lang)
                digest.say(key, word("in_brackets", digest.lang).format(what=says, more=weight))
            said = says
            if item.get("text"):
                found = quoted(item)
                digest.quote({"path": found.path, "line": found.line}, found.text)


def _telling(digest: _Digest, document: Document) -> None:
    """Add the lines that tell most of the run, where the verdict is not nearly certain."""
    for item in digest.first(hard_errors(document), digest.size.evidence):
        digest.say("telling_line", phrases.who(item, digest.lang) or "-")
        digest.quote(item, str(item.get("text") or ""))


def _story(digest: _Digest, document: Document) -> None:
    """Add the steps from the last progress to the end, each with its line."""
    for step in phrases.incident_story(document):
        who = phrases.who(step.point, digest.lang)
        digest.say(step.key, word("comma", digest.lang).join(filter(None, (step.point.get("time"), who))) or "-")
        digest.quote(step.point, str(step.point.get("text") or ""))


def _to_do(digest: _Digest, best: Item) -> None:
    """Add the fixes, and the check that would tell more."""
    for fix in digest.first(best.get("fixes"), digest.size.fixes):
        digest.say("fix", pick(fix, "title", digest.lang))
        for command in commands_of(fix)[:3]:
            digest.lines.append(f"  $ {visible(command, digest.size.width)}")
        digest.say("caution", pick(fix, "caution", digest.lang), "  ")
    _check(digest, best)


def _check(digest: _Digest, diagnosis: Item) -> None:
    check = diagnosis.get("next_check") or {}
    digest.say("next_check", pick(check, "what", digest.lang))
    for command in str(check.get("command") or "").splitlines()[:2]:
        digest.lines.append(f"  $ {visible(command, digest.size.width)}")
    for key in ("if_yes", "if_no"):
        digest.say(key, pick(check, key, digest.lang), "  ")


def _rivals(digest: _Digest, key: str, rivals: Iterable[Item]) -> None:
    """Add causes that are possible as well, each with its strongest line and its check."""
    lang = digest.lang
    for rival in digest.first(rivals, digest.size.rivals):
        digest.say(key, word("colon", lang).join((short_text.named(rival, lang), pick(rival, "title", lang))))
        for item in short_text.strongest(rival, 1):
            if item.get("text"):
                found = quoted(item)
                digest.quote({"path": found.path, "line": found.line}, found.text)
        _check(digest, rival)
