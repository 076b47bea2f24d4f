"""Search the knowledge by words: what people call a problem weighs most, what an entry is called less, its text least."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from nccl_triage.engine.schema import RuleSet
from nccl_triage.knowledge import catalogue
from nccl_triage.knowledge.lookup import KnowledgeItem, exact
from nccl_triage.knowledge.variables import shipped
from nccl_triage.lazy_regex import lazily

#: Hits of a search by words, and signatures among them whose samples hold the query.
_HITS, _SAMPLES = 8, 4
#: What a word counts that people use for a problem, that is part of an entry's name, and that stands in its text.
_PROBLEM, _NAME, _TEXT = 6.0, 3.0, 1.0
#: The name of a variable or an option says little: it holds words of every problem that it has to do with.
_FLAG = 1.5
#: The least that a hit counts, and for each word of the query.
_LEAST, _SHARE = 2.0, 0.75
_WORD = lazily(r"[^\w.~+-]+")
_HAN = lazily(r"[\u4e00-\u9fff]+")
#: Words that say nothing of a problem.
_IDLE = frozenset(
    [
        "a",
        "about",
        "after",
        "again",
        "all",
        "an",
        "and",
        "any",
        "are",
        "at",
        "be",
        "because",
        "been",
        "before",
        "but",
        "by",
        "can",
        "do",
        "does",
        "doing",
        "every",
        "for",
        "from",
        "get",
        "gets",
        "getting",
        "got",
        "had",
        "has",
        "have",
        "help",
        "how",
        "i",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "job",
        "jobs",
        "just",
        "keeps",
        "me",
        "mean",
        "means",
        "my",
        "of",
        "on",
        "or",
        "our",
        "please",
        "problem",
        "so",
        "some",
        "that",
        "the",
        "their",
        "then",
        "there",
        "they",
        "this",
        "to",
        "training",
        "try",
        "up",
        "was",
        "we",
        "what",
        "when",
        "where",
        "which",
        "while",
        "who",
        "why",
        "will",
        "with",
        "you",
        "your",
    ]
)


class _Query(NamedTuple):
    """A query as its text in lower case, as stems of its words, and as pairs of Chinese characters."""

    text: str
    stems: tuple[str, ...]
    pairs: frozenset[str]

    @property
    def size(self) -> float:
        """How many words it has."""
        return len(set(self.stems)) + len(self.pairs) / 2


def _stem(word: str) -> str:
    """Return an English word without its ending; other words are returned unchanged."""
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.isascii() and word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word.removesuffix(ending)
    return word


def _stems(text: str) -> list[str]:
    # Chinese is not cut into words.
    words = _WORD.split(_HAN.sub(" ", text.lower()))
    return [_stem(word.strip(".~+-")) for word in words if len(word) > 1]


def _query(text: str) -> _Query:
    stems = _stems(text)
    telling = [stem for word, stem in zip(_plain_words(text), stems, strict=True) if word not in _IDLE]
    runs = _HAN.findall(text)
    pairs = frozenset(run[at : at + 2] for run in runs for at in range(len(run) - 1))
    return _Query(text.lower(), tuple(telling or stems), pairs)


def _plain_words(text: str) -> list[str]:
    return [word for word in _WORD.split(_HAN.sub(" ", text.lower())) if len(word) > 1]


def _holds(query: _Query, phrase: str) -> bool:
    """Tell whether the words of a phrase follow one another in the query; Chinese ones stand in it."""
    if not phrase.isascii():
        return phrase.lower() in query.text
    wanted = _stems(phrase)
    every = _stems(query.text)
    return any(every[at : at + len(wanted)] == wanted for at in range(len(every) - len(wanted) + 1))


def _words(phrase: str) -> float:
    """Return how many words a phrase has; of Chinese ones two characters count as one."""
    return float(len(_stems(phrase))) if phrase.isascii() else max(1.0, len(phrase) / 2)


def _score(query: _Query, words: Iterable[str], text: dict[str, str], weight: float = _NAME) -> float:
    """Return how well an entry fits: words of its name or that stand for it, and words of its text."""
    wanted = set(query.stems)
    own = {stem for word in words if word.isascii() for stem in _stems(word)}
    score = weight * len(wanted & own) + _TEXT * len(wanted & set(_stems(text["en"])))
    score += sum(_NAME for word in words if len(word) > 1 and not word.isascii() and word in query.text)
    return score + _TEXT * sum(pair in text["zh"] for pair in query.pairs)


def problems(query: str) -> list[KnowledgeItem]:
    """Return the problems that a query speaks of, the one with most words in it first."""
    asked = _query(query)
    scored = []
    for order, item in enumerate(catalogue.problems().values()):
        held = [phrase for phrase in item.words if _holds(asked, phrase)]
        if held:
            # Phrases that overlap say the same thing: the longest counts.
            scored.append((-max(map(_words, held)), order, KnowledgeItem("problem", item)))
    scored.sort(key=lambda entry: entry[:2])
    return [found for _, _, found in scored]


def named(query: str, rules: RuleSet) -> KnowledgeItem | None:
    """Return what a word of a query names, the longest first: a variable or an id in a question about it."""
    words = [word.strip("?!.,;:'\"()") for word in query.split()]
    telling = (word for word in words if re.search(r"[_.-]|\d|[A-Z]{2}", word))
    found = (exact(word, rules) for word in sorted(telling, key=len, reverse=True))
    return next((item for item in found if item is not None), None)


def _spelled_out(item: KnowledgeItem, query: _Query) -> bool:
    """Tell whether the query holds every word of an entry's name; names of variables are no words of people."""
    words = _stems(item.item.id.replace("-", " "))
    return item.kind in ("cause", "symptom", "advice") and len(words) > 1 and set(words) <= set(_stems(query.text))


def search(query: str, rules: RuleSet) -> list[KnowledgeItem]:
    """Return what fits the words of a query best: entries that it names, the problems that it speaks of, others."""
    asked = _query(query)
    scored: list[tuple[float, str, KnowledgeItem]] = []

    def add(kind: str, item: Any, words: Iterable[str], text: dict[str, str], weight: float = _NAME) -> None:
        score = _score(asked, list(words), text, weight)
        if score >= max(_LEAST, _SHARE * asked.size):
            scored.append((-score, item.id, KnowledgeItem(kind, item)))

    for advice in catalogue.advice().values():
        add("advice", advice, (*advice.words, *advice.id.split("-")), advice.claim)
    for symptom in catalogue.symptoms().values():
        text = {"en": f"{symptom.sees} {symptom.means['en']}", "zh": symptom.means["zh"]}
        add("symptom", symptom, symptom.id.split("-"), text)
    for cause in rules.causes.values():
        both = {lang: f"{cause.title[lang]} {cause.explanation[lang]}" for lang in ("en", "zh")}
        add("cause", cause, cause.id.split("-"), both)
    for variable in shipped().all():
        add("variable", variable, re.split(r"[_-]+", variable.id.lower()), variable.meaning, _FLAG)
    scored.sort(key=lambda entry: entry[:2])
    found = [item for _, _, item in scored]
    first = [item for item in found if _spelled_out(item, asked)]
    others = [item for item in found if item not in first]
    return [*first, *problems(query), *others[:_HITS], *_printed(query, rules)]


def _printed(query: str, rules: RuleSet) -> list[KnowledgeItem]:
    """Return signatures whose samples hold the query: part of a message."""
    text = query.lower()
    if len(text) < 8:
        return []
    found = [s for s in rules.signatures.values() if any(text in sample.lower() for sample in s.match_samples)]
    return [KnowledgeItem("signature", item) for item in found[:_SAMPLES]]
