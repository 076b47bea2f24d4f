"""Weighs the outcomes of experiments into the diagnosis like any evidence; the document shows before and after.

The document alone is enough: a report.json that was written elsewhere is verified in the same way as a fresh log. The
scores in it are the log-odds that the rules and the classifier gave; an outcome adds its weight to them, and status and
confidence follow by the functions that made them first.
"""

from __future__ import annotations

import copy
from typing import Any

from nccl_triage.diagnosis.verdict import status_of
from nccl_triage.diagnosis.weigh import VOTE_ID, confidences
from nccl_triage.document.headline import hedges
from nccl_triage.engine.schema import WEIGHTS
from nccl_triage.redaction.secrets import mask_secrets
from nccl_triage.verify.judge import ExperimentOutcome, Report
from nccl_triage.verify.record import outcome_record

#: Id of the contribution that is the verifier's.
EVIDENCE_ID = "verification"
_VERDICT_ZH = {"confirmed": "实验已证实：", "refuted": "实验不支持："}
_VERDICT_EN = {"confirmed": "Confirmed by experiment: ", "refuted": "Contradicted by experiment: "}


def log_odds(weight: str) -> float:
    """Return what a verdict's weight adds to the score of its cause."""
    if weight == "none":
        return 0.0
    word, _, side = weight.partition("-")
    return -WEIGHTS[word] if side == "against" else WEIGHTS[word]


def apply(document: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return the document with every outcome in it: verification, confidence, status, order and headline.

    What an earlier verification added to the same document is taken out first: an experiment that is repeated must not
    count twice. What the ranks of an experiment print may hold secrets: they are masked.
    """
    document = _forget(document)
    changed = copy.deepcopy(document)
    by_cause = {outcome.planned.suspect.cause: outcome for outcome in report.outcomes}
    before = {entry["cause"]: (entry["status"], entry["confidence"]) for entry in changed["diagnoses"]}
    for entry in changed["diagnoses"]:
        outcome = by_cause.get(entry["cause"])
        if outcome is not None:
            _weigh(entry, outcome)
    first = changed["diagnoses"][0]["cause"] if changed["diagnoses"] else None
    if any(log_odds(outcome.row.weight) for outcome in report.outcomes):
        _reweigh(changed["diagnoses"])
    for entry in changed["diagnoses"]:
        outcome = by_cause.get(entry["cause"])
        if outcome is not None:
            entry["verification"] = outcome_record(
                outcome, report, before[entry["cause"]], (entry["status"], entry["confidence"])
            )
    _headline(changed, document, first)
    return mask_secrets(changed)


def _forget(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document as it was before an earlier verification."""
    earlier = copy.deepcopy(document)
    marked = False
    for entry in earlier["diagnoses"]:
        added = [item for item in entry["contributions"] if item["id"] == EVIDENCE_ID]
        entry["contributions"] = [item for item in entry["contributions"] if item["id"] != EVIDENCE_ID]
        entry["score"] = round(entry["score"] - sum(item["applied"] for item in added), 3)
        entry["verification"] = None
        marked = marked or bool(added)
    if marked:
        _reweigh(earlier["diagnoses"])
    hedged = _hedges(earlier) if earlier["diagnoses"] else ("", "")
    for name, words, hedge in zip(("headline", "headline_zh"), (_VERDICT_EN, _VERDICT_ZH), hedged, strict=True):
        for word in words.values():
            if earlier[name].startswith(word):
                earlier[name] = hedge + earlier[name].removeprefix(word)
    return earlier


def _hedges(document: dict[str, Any]) -> tuple[str, str]:
    first = document["diagnoses"][0]
    return hedges(first["status"], first["confidence"])


def _reweigh(diagnoses: list[dict[str, Any]]) -> None:
    """Put the diagnoses in the order of their new scores, with the confidence and status that follow."""
    diagnoses.sort(key=lambda entry: -entry["score"])
    shares, _ = confidences([entry["score"] for entry in diagnoses])
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


def _headline(changed: dict[str, Any], document: dict[str, Any], first: str | None) -> None:
    """Say in the headline whether the experiments confirmed the cause named by the log, or which other one."""
    if first is None or changed["verdict"] == "healthy":
        return
    best = changed["diagnoses"][0]
    if _outcome(best) == "confirmed" and (best["cause"] != first or changed["verdict"] == "unknown"):
        changed["verdict"] = "diagnosed"
        changed["headline"] = f"{_VERDICT_EN['confirmed']}{best['title']}."
        changed["headline_zh"] = f"{_VERDICT_ZH['confirmed']}{best['title_zh']}。"
        return
    outcome = _outcome(next(item for item in changed["diagnoses"] if item["cause"] == first))
    if outcome not in _VERDICT_EN or changed["verdict"] != "diagnosed":
        return
    english, chinese = _hedges(document)
    changed["headline"] = _VERDICT_EN[outcome] + document["headline"].removeprefix(english)
    changed["headline_zh"] = _VERDICT_ZH[outcome] + document["headline_zh"].removeprefix(chinese)


def _outcome(entry: dict[str, Any]) -> str | None:
    return (entry.get("verification") or {}).get("outcome")


def contradicted(document: dict[str, Any], first: str | None) -> bool:
    """Tell whether the cause that the log named first was refuted."""
    return any(entry["cause"] == first and _outcome(entry) == "refuted" for entry in document["diagnoses"])
