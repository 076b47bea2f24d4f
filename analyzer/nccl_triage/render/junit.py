"""The diagnosis as JUnit XML, for the dashboards of CI systems: the job is one test case, a failure of it a failed one.

One test case per document keeps a dashboard's counts right: rival causes are not failures of their own. The case is named
after its logs, so that the same job is the same row from run to run.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from nccl_triage.lazy_regex import lazily
from nccl_triage.render import phrases, terminal
from nccl_triage.render.words import Document, Lang, RenderOptions, confidence, culprit_name, visible, word

SUITE = "nccl-triage"
UNKNOWN = "unknown"
#: Everything that section 2.2 of XML 1.0 does not allow in a document, however it is escaped.
_ILLEGAL = lazily("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)


def _line(text: object) -> str:
    """Return a text as an attribute's value: one line of legal characters."""
    return _legal(" ".join(visible(text).split()))


def case_name(document: Document, lang: Lang) -> str:
    """Return the log's path; of several logs the folder that holds them all and how many they are."""
    paths = [str(source.get("path")) for source in document.get("inputs") or []]
    if len(paths) < 2:
        return _line(paths[0] if paths else SUITE)
    same_kind = len({path.startswith("/") for path in paths}) == 1
    folder = posixpath.commonpath(paths) if same_kind else ""
    return _line(f"{folder or '.'} ({len(paths)} {word('logs', lang)})")


def _properties(document: Document, lang: Lang) -> list[tuple[str, str]]:
    tool = document.get("tool") or {}
    diagnoses: Sequence[Mapping[str, Any]] = document.get("diagnoses") or []
    found: list[tuple[str, object]] = [(name, tool.get(name)) for name in ("version", "rules")]
    found.append(("verdict", document.get("verdict")))
    if document.get("verdict") == "diagnosed" and diagnoses:
        best = diagnoses[0]
        found += [(name, best.get(name)) for name in ("cause", "status")]
        found.append(("confidence", confidence(best.get("confidence"))))
        found += [("culprit", culprit_name(culprit, lang)) for culprit in best.get("culprits") or []]
    return [(name, _line(value)) for name, value in found if value is not None]


def _suite(document: Document, view: RenderOptions) -> ElementTree.Element:
    failed = document.get("verdict") != "healthy"
    counts = {"tests": "1", "failures": str(int(failed)), "errors": "0", "skipped": "0"}
    suite = ElementTree.Element("testsuite", {"name": SUITE, **counts})
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(document, view.lang):
        ElementTree.SubElement(properties, "property", {"name": name, "value": value})
    case = ElementTree.SubElement(suite, "testcase", {"classname": SUITE, "name": case_name(document, view.lang)})
    text = terminal.render(document, color=False, width=None, lang=view.lang, verbose=view.verbose)
    if not failed:
        ElementTree.SubElement(case, "system-out").text = _legal(text)
        return suite
    diagnoses = document.get("diagnoses") or []
    named = document.get("verdict") == "diagnosed" and diagnoses
    kind = str(diagnoses[0].get("cause")) if named else UNKNOWN
    message = _line(phrases.headline(document, view.lang))
    failure = ElementTree.SubElement(case, "failure", {"message": message, "type": _line(kind)})
    failure.text = _legal(text)
    return suite


def produce(document: Document, view: RenderOptions) -> str:
    """Return the XML document: one suite with one case."""
    suite = _suite(document, view)
    counts = {key: suite.attrib[key] for key in ("tests", "failures", "errors", "skipped")}
    root = ElementTree.Element("testsuites", {"name": SUITE, **counts})
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"
