"""Weighs the outcomes of experiments into the diagnosis like any evidence; the document shows before and after.

The document alone is enough: a report.json that was written elsewhere is verified in the same way as a fresh log. The
scores in it are the log-odds that the rules and the classifier gave; an outcome adds its weight to them, and status and
confidence follow by the functions that made them first.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from nccl_triage.diagnosis.verdict import least_confidence, status_of
from nccl_triage.diagnosis.weigh import TELLING, VOTE_ID, confidences
from nccl_triage.document.headline import hedges
from nccl_triage.engine.schema import WEIGHTS, RuleSet
from nccl_triage.redaction.secrets import mask_secrets
from nccl_triage.similar import of_document
from nccl_triage.verify.judge import ExperimentOutcome, Report
from nccl_triage.verify.question import EVIDENCE_ID
from nccl_triage.verify.record import outcome_record

_VERDICT_ZH = {"confirmed": "实验已证实：", "refuted": "实验不支持："}
_VERDICT_EN = {"confirmed": "Confirmed by experiment: ", "refuted": "Contradicted by experiment: "}
#: Least difference of two confidences in a document, which are rounded.
_ROUNDED = 0.002
#: What a document says as a whole, kept beside the outcome of an experiment.
_SAID = ("verdict", "headline", "headline_zh")
#: Headline and title of each language, with the words that a headline is made of.
_KEYS = (
    ("headline", "title", {**_VERDICT_EN, "not": " (an experiment contradicts: {})", "end": "."}),
    ("headline_zh", "title_zh", {**_VERDICT_ZH, "not": "（实验不支持：{}）", "end": "。"}),
)


def log_odds(weight: str) -> float:
    """Return what a verdict's weight adds to the score of its cause."""
    if weight == "none":
        return 0.0
    word, _, side = weight.partition("-")
    return -WEIGHTS[word] if side == "against" else WEIGHTS[word]


def apply(document: dict[str, Any], report: Report, rules: RuleSet | None = None) -> dict[str, Any]:
    """Return the document with every outcome in it: verification, confidence, status, order and headline.

    With ``rules`` also the threads that look alike are those of the cause that comes first now.

    What an earlier verification added to the same document is taken out first: an experiment that is repeated must not
    count twice. What the ranks of an experiment print may hold secrets: they are masked.
    """
    given = document
    document = _forget(document)
    changed = copy.deepcopy(document)
    by_cause = {outcome.planned.suspect.cause: outcome for outcome in report.outcomes}
    said = {name: document[name] for name in _SAID}
    before = {
        entry["cause"]: {"status": entry["status"], "confidence": entry["confidence"], **said}
        for entry in changed["diagnoses"]
    }
    for entry in changed["diagnoses"]:
        outcome = by_cause.get(entry["cause"])
        if outcome is not None:
            _weigh(entry, outcome)
    first = changed["diagnoses"][0]["cause"] if changed["diagnoses"] else None
    ceilings = _ceilings(document["diagnoses"])
    for cause, outcome in by_cause.items():
        added = log_odds(outcome.row.weight)
        if added >= TELLING:
            ceilings.pop(cause, None)
        elif added < 0 and cause in before:
            # The loss of a rival must not turn what speaks against a cause into something that speaks for it.
            ceilings[cause] = before[cause]["confidence"]
    moved = any(log_odds(outcome.row.weight) for outcome in report.outcomes)
    if moved:
        _reweigh(changed["diagnoses"], ceilings)
    for entry in changed["diagnoses"]:
        outcome = by_cause.get(entry["cause"])
        if outcome is not None:
            after = {"status": entry["status"], "confidence": entry["confidence"]}
            entry["verification"] = outcome_record(outcome, report, before[entry["cause"]], after)
    if moved and first is not None and changed["verdict"] != "healthy":
        _headline(changed, document, first)
    return mask_secrets(changed if rules is None else of_document.renewed(given, changed, rules))


def _forget(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document as it was before an earlier verification."""
    earlier = copy.deepcopy(document)
    marked, ceilings = False, _ceilings(earlier["diagnoses"])
    standing = {}
    for entry in earlier["diagnoses"]:
        before = (entry.get("verification") or {}).get("before") or {}
        standing[entry["cause"]] = {name: before[name] for name in ("status", "confidence") if name in before}
        earlier.update({name: before[name] for name in _SAID if name in before})
        added = [item for item in entry["contributions"] if item["id"] == EVIDENCE_ID]
        entry["contributions"] = [item for item in entry["contributions"] if item["id"] != EVIDENCE_ID]
        entry["score"] = round(entry["score"] - sum(item["applied"] for item in added), 3)
        entry["verification"] = None
        marked = marked or bool(added)
    if marked:
        _reweigh(earlier["diagnoses"], ceilings)
    for entry in earlier["diagnoses"]:
        entry.update(standing[entry["cause"]])
    return earlier


def _ceilings(diagnoses: list[dict[str, Any]]) -> dict[str, float]:
    """Return the confidences of the causes that have less of it than their scores would give: what they rest on limits it."""
    shares, _ = confidences([entry["score"] for entry in diagnoses])
    return {
        entry["cause"]: entry["confidence"]
        for entry, share in zip(diagnoses, shares, strict=True)
        if entry["confidence"] < share - _ROUNDED
    }


def _hedges(document: dict[str, Any]) -> tuple[str, str]:
    first = document["diagnoses"][0]
    return hedges(first["status"], first["confidence"])


def _reweigh(diagnoses: list[dict[str, Any]], ceilings: Mapping[str, float]) -> None:
    """Put the diagnoses in the order of their new scores, with the confidence and status that follow."""
    diagnoses.sort(key=lambda entry: -entry["score"])
    whole, _ = confidences([entry["score"] for entry in diagnoses])
    pairs = zip(diagnoses, whole, strict=True)
    shares = [min(share, ceilings.get(entry["cause"], 1.0)) for entry, share in pairs]
    for index, entry in enumerate(diagnoses):
        entry["confidence"] = round(shares[index], 3)
        rival = shares[index + 1] if index + 1 < len(shares) else 0.0
        status = status_of(shares[index], rival if index == 0 else 1.0, _decisive(entry))
        entry["status"] = "possible" if _resembles_only(entry) else status


def _weigh(entry: dict[str, Any], outcome: ExperimentOutcome) -> None:
    added = log_odds(outcome.row.weight)
    entry["score"] = round(entry["score"] + added, 3)
    if added:
        entry["contributions"].append(
            {
                "id": EVIDENCE_ID,
                "weight": outcome.row.weight.split("-")[0],
                "log_odds": round(added, 3),
                "applied": round(added, 3),
                "says": outcome.row.says["en"],
                "says_zh": outcome.row.says["zh"],
                "explained_by": None,
                "events": [],
            }
        )


def _decisive(entry: dict[str, Any]) -> bool:
    return any(
        item["weight"] == "decisive" and item["log_odds"] > 0 and item["explained_by"] is None
        for item in entry["contributions"]
    )


def _resembles_only(entry: dict[str, Any]) -> bool:
    """Tell whether a cause rests on the classifier's vote alone, which establishes nothing."""
    return all(item["id"] == VOTE_ID for item in entry["contributions"] if item["log_odds"] > 0)


def _headline(changed: dict[str, Any], document: dict[str, Any], first: str) -> None:
    """Say in the headline what the experiments made of the cause that the log named, and which cause comes first now."""
    best = changed["diagnoses"][0]
    outcome = _outcome(best)
    if outcome == "confirmed":
        changed["verdict"] = "diagnosed"
    elif changed["verdict"] == "diagnosed" and best["confidence"] < least_confidence():
        changed["verdict"] = "unknown"
    if changed["verdict"] == "unknown" and document["verdict"] == "unknown":
        return
    before = next(item for item in changed["diagnoses"] if item["cause"] == first)
    hedges_now, hedges_before = hedges(best["status"], best["confidence"]), _hedges(document)
    for index, (key, title, words) in enumerate(_KEYS):
        said = document[key].removeprefix(hedges_before[index])
        if changed["verdict"] == "unknown":
            changed[key] = words["refuted"] + said if _outcome(before) == "refuted" else document[key]
        elif best["cause"] == first and document["verdict"] == "diagnosed":
            changed[key] = words.get(outcome or "", hedges_now[index]) + said
        else:
            changed[key] = words.get(outcome or "", hedges_now[index]) + best[title] + words["end"]
            if _outcome(before) == "refuted":
                changed[key] = (
                    changed[key].removesuffix(words["end"]) + words["not"].format(before[title]) + words["end"]
                )


def _outcome(entry: dict[str, Any]) -> str | None:
    return (entry.get("verification") or {}).get("outcome")


def contradicted(document: dict[str, Any], first: str | None) -> bool:
    """Tell whether the cause that the log named first was refuted."""
    return any(entry["cause"] == first and _outcome(entry) == "refuted" for entry in document["diagnoses"])
