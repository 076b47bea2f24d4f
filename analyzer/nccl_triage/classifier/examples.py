"""What a model learns from: labelled incidents as features, and the samples that the rules' signatures carry.

Each incident is seen twice: as it is, and with the decisive signatures of its cause withheld, so that the model also
learns from the words of messages that no rule would know. The samples of signatures hold the words of messages that no
recorded incident has: a sample is a log of one line without signatures or facts, and only its words are learnt.
"""

from __future__ import annotations

import gzip
import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import orjson

from nccl_triage import resources
from nccl_triage.classifier.features import words_of
from nccl_triage.engine.match import expand
from nccl_triage.engine.schema import WEIGHTS, RuleSet
from nccl_triage.errors import InputError

FORMAT = 1
#: Sources of examples that only ever train: logs that a program made up, and samples of signatures.
GENERATED, SAMPLE, WRITTEN = "generated", "sample", "written"


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled incident. Examples of one ``group`` (a thread, a scenario family) are never split between folds.

    The group of a sample is the id of its signature.
    """

    id: str
    label: str
    also: tuple[str, ...]
    group: str
    source: str
    full: frozenset[str]
    withheld: frozenset[str]

    @property
    def real(self) -> bool:
        """Whether it is an incident, which may judge a model."""
        return self.source not in (GENERATED, SAMPLE)

    @property
    def acceptable(self) -> tuple[str, ...]:
        """Every answer that an expert would accept."""
        return (self.label, *self.also)


def to_bytes(examples: Iterable[Example]) -> bytes:
    """Return the examples as compressed JSON, byte for byte the same for the same examples."""
    ordered = sorted(examples, key=lambda e: (e.source, e.id))
    names = sorted({name for e in ordered for view in (e.full, e.withheld) for name in view})
    index = {name: number for number, name in enumerate(names)}
    raw = {
        "format": FORMAT,
        "features": names,
        "examples": [
            {
                "id": e.id,
                "label": e.label,
                "also": list(e.also),
                "group": e.group,
                "source": e.source,
                "full": sorted(index[name] for name in e.full),
                **({} if e.withheld == e.full else {"withheld": sorted(index[name] for name in e.withheld)}),
            }
            for e in ordered
        ],
    }
    return gzip.compress(orjson.dumps(raw), 9, mtime=0)


def from_bytes(data: bytes, name: str) -> list[Example]:
    """Return the examples of a file's content; raises InputError when it holds none."""
    try:
        raw = orjson.loads(gzip.decompress(data))
        names = raw["features"]
        found = []
        for entry in raw["examples"]:
            full = frozenset(names[number] for number in entry["full"])
            found.append(
                Example(
                    id=entry["id"],
                    label=entry["label"],
                    also=tuple(entry["also"]),
                    group=entry["group"],
                    source=entry["source"],
                    full=full,
                    withheld=frozenset(names[n] for n in entry["withheld"]) if "withheld" in entry else full,
                )
            )
        return found
    except (OSError, EOFError, orjson.JSONDecodeError, KeyError, TypeError, IndexError) as error:
        raise InputError("{name} holds no training examples", cause="{why}", name=name, why=error) from None


def shipped() -> list[Example]:
    """Return the examples that the shipped model learnt from; none in a checkout where they were not made yet."""
    path = resources.examples_file()
    return from_bytes(path.read_bytes(), "the shipped examples") if path.is_file() else []


def digest(data: bytes) -> str:
    """Return the hash by which a model names what it learnt from."""
    return hashlib.sha256(gzip.decompress(data)).hexdigest()


#: A signature teaches causes for which it is evidence of at least this weight, and none when there are more than two.
MIN_WEIGHT, MAX_CAUSES = "moderate", 2


def from_samples(rules: RuleSet) -> list[Example]:
    """Return an example for each sample of a signature and each cause that its strongest evidence supports."""
    found = []
    for name, causes in sorted(_spoken_for(rules).items()):
        for number, sample in enumerate(rules.signatures[name].match_samples):
            words = frozenset(words_of(sample))
            for cause in causes if words else ():
                others = tuple(other for other in causes if other != cause)
                found.append(Example(f"{name}/{number}/{cause}", cause, others, name, SAMPLE, words, words))
    return found


def _spoken_for(rules: RuleSet) -> dict[str, list[str]]:
    """Return signature -> the causes that its strongest evidence supports."""
    weights: dict[str, dict[str, float]] = defaultdict(dict)
    for cause in rules.causes.values():
        for item in cause.evidence:
            for pattern in item.signatures:
                for name in expand(pattern, rules.kinds):
                    weights[name][cause.id] = max(item.log_odds, weights[name].get(cause.id, 0.0))
    spoken = {}
    for name, by_cause in weights.items():
        most = max(by_cause.values())
        causes = sorted(cause for cause, weight in by_cause.items() if weight == most)
        if most >= WEIGHTS[MIN_WEIGHT] and len(causes) <= MAX_CAUSES:
            spoken[name] = causes
    return spoken
