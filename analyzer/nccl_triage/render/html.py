"""The report as one HTML file that works offline, on paper and in both languages, and needs no script.

Its one script adds buttons that copy commands, and keeps the title in the language of the page; the policy of the page names
the script by its hash, so that nothing else can run.

Every value that a template prints goes through ``visible`` and autoescape. What does not fit the size is cut
here, and the report says so.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from nccl_triage import messages, resources
from nccl_triage.render import RenderOptions, chart_symbols, job_table, overview, phrases, verification_html
from nccl_triage.render.page import Limits, ReportPage, both, command, label, phrase, prose, reference, say_both, whole
from nccl_triage.render.text_page import commands_of
from nccl_triage.render.to_do import is_remark
from nccl_triage.render.words import (
    Document,
    Lang,
    certainty,
    confidence,
    consequence_phrase,
    culprit_name,
    rank_ranges,
    run_name,
    run_text,
    visible,
    word,
)

#: A report should stay below the first number of bytes and never exceeds the second.
WANTED, HARD_CAP = 1_000_000, 5_000_000

#: Tried one after the other until the page is small enough; the last fits the hard cap whatever the document.
ATTEMPTS = (
    Limits(),
    Limits(text=600, rows=200, timeline=120, evidence=10, excerpt_lines=400, ranks=1024),
    Limits(text=160, rows=40, timeline=60, evidence=4, excerpt_lines=80, ranks=256),
)


class _Lenient(dict[str, Any]):
    """A mapping in which an absent key reads as None: older reports lack keys that were added since."""

    def __missing__(self, key: str) -> None:
        return None


def _lenient(value: Any, limit: int) -> Any:
    """Return the value with lenient mappings, and every text cut to the limit."""
    if isinstance(value, Mapping):
        return _Lenient({_lenient(key, limit): _lenient(item, limit) for key, item in value.items()})
    if isinstance(value, list):
        return [_lenient(item, limit) for item in value]
    if isinstance(value, str) and len(value) > limit:
        return f"{value[:limit]} ..[+{len(value) - limit}]"
    return value


def _source(name: str) -> str:
    return (resources.reports_dir() / "templates" / name).read_text("utf-8")


@lru_cache(maxsize=1)
def copy_hash() -> str:
    """Return what a Content-Security-Policy calls the script of the page."""
    script = environment().get_template("_script.js.jinja").render()
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _finalize(value: object) -> object:
    """Escape everything that a template prints, except our own markup."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, Markup) else visible("" if value is None else value)


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the Jinja environment with the functions that the templates call."""
    made = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(_source),
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.tests["is_remark"] = is_remark
    made.globals.update(
        both=both,
        job_headline=lambda one: phrase(job_table.headline, one),
        cause_of=lambda one: phrase(job_table.cause, one),
        certainty=lambda item: phrase(certainty, item),
        confidence=confidence,
        counts=lambda table: phrase(job_table.counts, table),
        collective=lambda document: phrase(overview.collective_text, document),
        copy_hash=copy_hash,
        lost=lambda document: phrase(overview.work_lost, document),
        outcome=lambda document: phrase(overview.outcome_text, document),
        transports=overview.transports,
        world=lambda document: phrase(overview.world_text, document),
        consequences=lambda document: phrase(consequence_phrase, document),
        culprit=lambda item: phrase(culprit_name, item),
        mark=verification_html.mark,
        path_mark=verification_html.path_mark,
        prose=prose,
        job_line=lambda document: [both(part) for part in overview.job_line(document)],
        foreign=lambda document: phrase(phrases.foreign_rules_note, document),
        pseudonyms=lambda document: phrase(phrases.pseudonyms_note, document),
        commands_of=commands_of,
        rank_ranges=rank_ranges,
        restart=lambda document: phrase(phrases.restart_text, document),
        retold=lambda text: both((text, messages.translated_text(str(text)))),
        reference=reference,
        role_mark=lambda role: chart_symbols.shape(chart_symbols.ROLE_SHAPES[role], 9, 9, 6),
        run_name=lambda run, runs: both((run_name(run, runs, "en"), run_name(run, runs, "zh"))),
        run_text=lambda run: both((run_text(run, "en"), run_text(run, "zh"))),
        say=say_both,
        secrets=lambda document: phrase(phrases.secrets_note, document),
        svg_text=label,
        healthy=lambda document: phrase(overview.healthy_text, document),
        colon=both((": ", "：")),
        semicolon=both(("; ", "；")),
        command=command,
        whole=lambda text: whole(visible(text)),
        who=lambda point: phrase(phrases.who, point),
        width=chart_symbols.WIDTH,
        word=word,
    )
    return made


def render(document: Document, lang: Lang) -> str:
    """Return the page; ``lang`` is the language shown first."""
    template = environment().get_template("report.html.jinja")
    page = ""
    for limits in ATTEMPTS:
        same = _lenient(document, limits.text)
        page = template.render(doc=same, view=ReportPage(same, limits), lang=lang)
        if len(page.encode("utf-8", "replace")) <= WANTED:
            break
    return page + "\n"


def produce(document: Document, view: RenderOptions) -> str:
    """Return the page with the reader's options."""
    return render(document, view.lang)
