"""Reads the files of ``rules/series``: metrics, and the formats of lines that print them."""

from __future__ import annotations

from nccl_triage.engine.metric_formats import PLACES, UNITS, LineFormat, LineSample, Metric, PrintedName, SeriesRules
from nccl_triage.engine.nodes import Node
from nccl_triage.engine.pattern import pattern_of
from nccl_triage.engine.schema import LANGUAGES
from nccl_triage.errors import RuleError
from nccl_triage.lazy_regex import lazily

#: Metrics and formats at most: both bound the memory of a scan.
MAX_METRICS, MAX_FORMATS = 64, 200
_ID = lazily(r"^[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*$")
_RATE = lazily(r"^[A-Za-z]{1,8}/[A-Za-z]{1,6}$")
_NUMBER = lazily(r"^[+-]?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|nan|inf)$")


def read_metric_formats(root: Node, user: bool, into: SeriesRules) -> None:
    """Add the rules of one file; raises ``RuleError`` with file:line. Its ``names`` holds mappings that several formats share."""
    part = root.keys((), ("metrics", "program", "names", "formats"))
    for item in part["metrics"].items() if "metrics" in part else ():
        metric = _metric(item)
        if metric.id in into.metrics:
            raise item.fail(
                "the metric {id!r} already exists ({place})", id=metric.id, place=into.metrics[metric.id].where
            )
        into.metrics[metric.id] = metric
    for item in part["formats"].items() if "formats" in part else ():
        found = _format(item, part["program"].text() if "program" in part else "user", user)
        if found.id in into.formats:
            raise item.fail(
                "the format {id!r} already exists ({place})", id=found.id, place=into.formats[found.id].where
            )
        into.formats[found.id] = found
    if len(into.metrics) > MAX_METRICS or len(into.formats) > MAX_FORMATS:
        raise root.fail(
            "more than {max_metrics} metrics or {max_formats} formats", max_metrics=MAX_METRICS, max_formats=MAX_FORMATS
        )


def check_names(rules: SeriesRules) -> None:
    """Raise ``RuleError`` for a format that names a metric or a unit that does not exist."""
    for item in rules.formats.values():
        for name in (*item.values, *item.after):
            metric = rules.metrics.get(name.metric)
            if metric is None and name.metric not in PLACES:
                raise RuleError(
                    "{text!r} maps to the unknown metric {metric!r}",
                    where=item.where,
                    text=name.text,
                    metric=name.metric,
                )
            known = UNITS[metric.unit] if metric is not None else {}
            if name.unit is not None and name.unit not in known:
                raise RuleError(
                    "{text!r}: {unit!r} is not a unit of {metric!r}",
                    where=item.where,
                    text=name.text,
                    unit=name.unit,
                    metric=name.metric,
                )


def _metric(node: Node) -> Metric:
    part = node.keys(("id", "title", "unit"))
    title = part["title"].keys(LANGUAGES)
    identifier = part["id"].text()
    if not _ID.match(identifier) or identifier in PLACES:
        raise part["id"].fail(
            "{identifier!r} is not a valid metric id", "use lower case words joined by '_'", identifier=identifier
        )
    return Metric(
        id=identifier,
        title={language: title[language].text() for language in LANGUAGES},
        unit=part["unit"].choice(UNITS),
        where=node.where,
    )


def _names(node: Node) -> tuple[PrintedName, ...]:
    """Return the names of a mapping ``text: metric`` or ``text: metric UNIT``, or of a list of such mappings."""
    found = []
    for item in node.items():
        for text, target in item.mapping().items():
            metric, _, unit = target.text().partition(" ")
            found.append(PrintedName(text, metric, unit or None))
    return tuple(found)


def _rates(node: Node) -> tuple[PrintedName, ...]:
    """Return the names after a number, each ``WORD/WORD``: if any word were allowed, the next column would be a unit."""
    found = _names(node)
    for name in found:
        if not _RATE.match(name.text):
            raise node.fail("{text!r} is not a rate", text=name.text, remedy="names under 'after' are like tok/s")
    return found


def _format(node: Node, program: str, user: bool) -> LineFormat:
    part = node.keys(("id", "literals", "pattern", "match", "not"), ("values", "after"))
    identifier = part["id"].text()
    if not _ID.match(identifier):
        raise part["id"].fail(
            "{identifier!r} is not a valid format id", "use lower case words joined by '-'", identifier=identifier
        )
    for literal in part["literals"].items():
        if len(literal.text()) < 3:
            raise literal.fail("a literal has three characters or more")
    return LineFormat(
        id=identifier,
        program=program,
        literals=tuple(part["literals"].texts()),
        pattern=pattern_of(part["pattern"], user),
        where=node.where,
        values=_names(part["values"]) if "values" in part else (),
        after=_rates(part["after"]) if "after" in part else (),
        match_samples=tuple(_sample(item) for item in part["match"].items()),
        not_samples=tuple(part["not"].texts()),
    )


def _sample(node: Node) -> LineSample:
    part = node.keys(("line", "gives"))
    gives: dict[str, float] = {}
    for name, value in part["gives"].mapping().items():
        if not _NUMBER.match(value.text()):
            raise value.fail("{value!r} is not a number", value=value.text())
        gives[name] = float(value.text())
    return LineSample(part["line"].text(), gives)
