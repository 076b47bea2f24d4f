"""The table of several jobs as text, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from nccl_triage.document import job_table
from nccl_triage.lazy_regex import lazily
from nccl_triage.render import RenderOptions, explanation, json_output, phrases
from nccl_triage.render.explanation import ExplanationBlock
from nccl_triage.render.words import Document, Lang, culprit_name, pick, visible, word

#: The formats of a table; ndjson has the whole document of each job, one a line.
FORMATS = ("text", "json", "ndjson", "csv", "markdown", "html")
#: Jobs named beside a failure that they have in common, and culprits of one job.
_NAMED, _CULPRITS = 3, 2
_COLUMNS = (
    "job", "verdict", "outcome", "cause", "confidence", "status", "culprits", "restart", "exclude", "headline", "started",
    "world_size", "failure", "same_failure", "foreign_rules", "files",
)  # fmt: skip
#: What a spreadsheet takes for a formula.
_FORMULA = lazily(r"[=+\-@\t\r]")


def text(table: Document, view: RenderOptions) -> str:
    """Return the table as lines: one for each job, or for the jobs that failed alike."""
    return explanation.text(_blocks(table, view), view.width, view.color)


def markdown(table: Document, view: RenderOptions) -> str:
    """Return the table in Markdown."""
    return explanation.markdown(_blocks(table, view))


def counts(table: Document, lang: Lang) -> str:
    """Return how many jobs there are, and how they went."""
    found = table["counts"]
    parts = [word(f"jobs_{verdict}", lang).format(n=found[verdict]) for verdict in job_table.VERDICTS if found[verdict]]
    return word("jobs_n", lang).format(n=found["jobs"]) + word("colon", lang) + word("comma", lang).join(parts)


def _blocks(table: Document, view: RenderOptions) -> list[ExplanationBlock]:
    lang = view.lang
    heads = ("jobs_text", "cause", "culprit", "decided", "what_happened")
    rows = tuple(_row(one, lang, view.verbose > 0) for one in table["failures"])
    return [
        ExplanationBlock("title", f"nccl-triage: {counts(table, lang)}"),
        ExplanationBlock("table", heads=tuple(word(head, lang) for head in heads), rows=rows),
        *(ExplanationBlock("para", visible(note)) for note in pick_all(table, "notes", lang)),
    ]


def pick_all(table: Document, key: str, lang: Lang) -> list[str]:
    """Return the texts under a key in a language."""
    found: list[str] = table.get(f"{key}_zh" if lang == "zh" else key) or []
    return found


def _row(one: Mapping[str, Any], lang: Lang, verbose: bool) -> tuple[str, ...]:
    names, shown = one["jobs"], len(one["jobs"]) if verbose else _NAMED
    told = headline(one, lang)
    if len(names) > 1:
        told = f"{told} [{named(names, shown, lang)}]"
    name = names[0] if len(names) == 1 else word("jobs_n", lang).format(n=len(names))
    return name, cause(one, lang), culprits(one, lang) or "-", phrases.restart_text(one, lang) or "-", told


def headline(one: Mapping[str, Any], lang: Lang) -> str:
    """Return what happened, and the rules of others that had a part in saying so."""
    told, others = pick(one, "headline", lang), one.get("foreign_rules") or []
    if not others:
        return told
    return word("in_brackets", lang).format(
        what=told, more=word("foreign", lang) + word("colon", lang) + word("list_comma", lang).join(others)
    )


def named(names: list[str], most: int, lang: Lang) -> str:
    """Return the first of some names, and how many more there are."""
    more = word("jobs_more", lang).format(n=len(names) - most) if len(names) > most else ""
    return word("list_comma", lang).join(filter(None, (*names[:most], more)))


def cause(one: Mapping[str, Any], lang: Lang) -> str:
    """Return the cause of a job, or how it ended where none is known."""
    if one["cause"] is not None:
        return str(one["cause"])
    verdict = word(one["verdict"], lang)
    if one["verdict"] == "healthy" or not one["outcome"]:
        return verdict
    return word("in_brackets", lang).format(what=verdict, more=word(f"outcome_{one['outcome']}", lang))


def culprits(one: Mapping[str, Any], lang: Lang) -> str:
    """Return who is to blame, as far as known."""
    found = [culprit_name(who, lang) for who in one["culprits"][:_CULPRITS]]
    more = len(one["culprits"]) - _CULPRITS
    return word("list_comma", lang).join(found) + (f" +{more}" if more > 0 else "")


def json(table: Document, view: RenderOptions) -> str:
    """Return the table as JSON; the view changes nothing."""
    return json_output.render(table).decode()


def csv_text(table: Document, view: RenderOptions) -> str:
    """Return a line for each job; what a spreadsheet would take for a formula has a quotation mark in front."""
    same = {one["number"]: one["count"] for one in table["failures"]}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for one in table["jobs"]:
        cells = {
            **one,
            "culprits": culprits(one, "en"),
            "restart": one["restart"]["decision"],
            "exclude": " ".join(one["restart"]["exclude"]),
            "headline": pick(one, "headline", view.lang),
            "same_failure": same[one["failure"]],
            "foreign_rules": " ".join(one["foreign_rules"]),
            "files": " ".join(one["files"]),
        }
        writer.writerow([_cell(cells[name]) for name in _COLUMNS])
    return out.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    shown = visible(value)
    return f"'{shown}" if _FORMULA.match(shown) else shown


def produce_csv(document: Document, view: RenderOptions) -> str:
    """Return the row of a single job with the heads of the columns."""
    inputs = document.get("inputs") or []
    name = inputs[0]["path"] if len(inputs) == 1 else ""
    return csv_text(job_table.table([job_table.row(name, document)], []), view)
