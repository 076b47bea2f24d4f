"""What a document says of the threads that look alike: what it was there, how that was confirmed, what both logs share.

Nothing of the log in question is in it: what is shared stands in the shipped index as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nccl_triage import messages
from nccl_triage.diagnosis.findings import Findings
from nccl_triage.engine.schema import RuleSet, Text
from nccl_triage.similar import search
from nccl_triage.similar.search import UNKNOWN, AlikeThread

#: Names of one kind that are listed.
_MOST = 3
#: Signatures that say no more than the exception's name does.
_BLAND = ("python.traceback", "python.frame")
#: Words that are shown have at least so many letters.
_WORD = 4
_OPEN: Text = {"en": "The log alone does not show the cause", "zh": "仅凭日志看不出原因"}
_FROM_LOG: Text = {"en": "judged by its log alone", "zh": "仅依据其日志判断"}
#: Value of ``confirmed_by`` -> how a cause was confirmed.
_CONFIRMED: dict[str, Text] = {
    "maintainer": {"en": "confirmed by a maintainer", "zh": "经维护者确认"},
    "vendor": {"en": "confirmed by the vendor", "zh": "经厂商确认"},
    "PR": {"en": "confirmed by a pull request", "zh": "经合并请求确认"},
    "reporter fix": {"en": "confirmed by the reporter's fix", "zh": "报告者修复后确认"},
    "reporter": {"en": "confirmed by the reporter", "zh": "经报告者确认"},
    "consensus": {"en": "agreed on in the thread", "zh": "讨论中达成一致"},
    "author": {"en": "told by the author", "zh": "由作者说明"},
    "article": {"en": "told by the author", "zh": "由作者说明"},
    "commenter": {"en": "explained by a commenter", "zh": "由评论者解释"},
    "never-found": {"en": "the thread found no cause", "zh": "该讨论没有找到原因"},
}
#: Kinds of features -> key of ``shared``.
_KINDS = {"r": "signatures", "q": "signatures", "s": "signatures", "e": "exceptions", "l": "exceptions", "w": "words"}
_KINDS |= {"v": "versions", "h": "hardware"}
_LABELS: dict[str, tuple[Text, Text]] = {
    "signatures": ({"en": "same message", "zh": "相同消息"}, {"en": "same messages", "zh": "相同消息"}),
    "exceptions": ({"en": "same exception", "zh": "相同异常"}, {"en": "same exceptions", "zh": "相同异常"}),
    "words": ({"en": "same word", "zh": "相同词语"}, {"en": "same words", "zh": "相同词语"}),
    "versions": ({"en": "same version", "zh": "相同版本"}, {"en": "same versions", "zh": "相同版本"}),
    "hardware": ({"en": "same hardware", "zh": "相同硬件"}, {"en": "same hardware", "zh": "相同硬件"}),
}
_LANGUAGES = (("en", ""), ("zh", "_zh"))


def similar(findings: Findings) -> list[dict[str, Any]]:
    """Return the threads that look like a failed job as entries of a document, the best first."""
    rules = findings.case.rules
    return [entry(one, rules) for one in search.find(findings)]


def entry(found: AlikeThread, rules: RuleSet) -> dict[str, Any]:
    """Return one thread with its sentences in both languages."""
    thread, common = found.thread, shared(found.shared)
    cause = rules.causes.get(thread.cause)
    title = cause.title if cause is not None else _OPEN
    confirmed = _CONFIRMED.get(thread.confirmed_by, _FROM_LOG)
    # The label's reason is written in English: where it has no translation, a Chinese sentence does without it.
    reason = {"en": thread.why, "zh": messages.table("threads").get(thread.why, "")}
    says = dict(title)
    if thread.cause != UNKNOWN:
        colons = (("en", ": "), ("zh", "："))
        says = {language: colon.join(filter(None, (title[language], reason[language]))) for language, colon in colons}
    told: Iterable[tuple[str, Text]] = (
        ("title", title),
        ("says", {"en": f"{says['en']} ({confirmed['en']})", "zh": f"{says['zh']}（{confirmed['zh']}）"}),
        ("why", why(common)),
    )
    return {
        "url": thread.url,
        "cause": thread.cause,
        **{f"{key}{end}": text[language] for key, text in told for language, end in _LANGUAGES},
        "helped": thread.helped or None,
        "helped_zh": messages.table("threads").get(thread.helped, thread.helped) or None,
        "confirmed_by": thread.confirmed_by or None,
        "shared": common,
        "score": found.score,
    }


def shared(features: Iterable[str]) -> dict[str, list[str]]:
    """Return the names that two logs share by their kind, the most telling of each; words only where little else is shared."""
    found: dict[str, list[str]] = {}
    for feature in features:
        kind, name = _KINDS.get(feature[:1]), feature[2:]
        if kind == "signatures" and name.startswith(_BLAND):
            continue
        if kind is None or (kind == "words" and not (len(name) >= _WORD and name.isascii() and name.isalpha())):
            continue
        names = found.setdefault(kind, [])
        if name not in names and name != "None" and len(names) < _MOST:
            names.append(name)
    if len(found.get("signatures", ())) >= _MOST:
        found.pop("words", None)
    return {kind: found[kind] for kind in _LABELS if found.get(kind)}


def why(common: dict[str, list[str]]) -> Text:
    """Return why a thread is similar, in both languages."""
    parts = {
        language: [
            f"{label[language]}{colon}{', '.join(names)}"
            for kind, names in common.items()
            if (label := _LABELS[kind][len(names) > 1])
        ]
        for language, colon in (("en", " "), ("zh", " "))
    }
    return {"en": "; ".join(parts["en"]), "zh": "；".join(parts["zh"])}
