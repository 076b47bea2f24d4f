"""The keys of report documents: what the schema declares of each, and which of them readers of a report get to see."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

from nccl_triage import diagnose, resources
from nccl_triage.evaluation import cases
from nccl_triage.render import render
from tests.render.documents import ALL, Doc
from tests.render.mutations import Place, at, changed, places

ROOT = Path(__file__).parents[2]
#: Documents of logs, which hold whatever ``build`` emits, and handwritten ones, which hold what needs hardware.
LOGS = ("recorded/cri_shape_w4", "recorded/net_hostname_127_w4", "written/V12", "written/A077")
HANDMADE = ("full", "verified", "diagnosed")
#: What readers see, in the languages in which texts are looked for; HTML has both in one page.
SHOWN = (("text", ("en", "zh")), ("markdown", ("en", "zh")), ("html", ("en",)))
#: Places of a key that are tried in one document, and in all of them.
TRIED, MOST = 6, 18


@cache
def schema() -> dict[str, Any]:
    """Return the schema of reports."""
    text = (resources.reports_dir() / "schema" / "report.schema.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def _resolved(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a part of the schema and all parts that it stands for."""
    yield part
    if "$ref" in part:
        yield from _resolved(schema()["$defs"][part["$ref"].rpartition("/")[2]])
    for word in ("anyOf", "oneOf", "allOf"):
        for one in part.get(word, ()):
            yield from _resolved(one)


def declared(place: Place) -> list[dict[str, Any]]:
    """Return the parts of the schema that declare the value at a place; none if it is not declared."""
    return _way(place)[0]


def key_of(place: Place) -> str:
    """Return the key at a place: positions of lists are ``[]``, and names of open maps, such as variables, are ``*``."""
    return _way(place)[1]


def _way(place: Place) -> tuple[list[dict[str, Any]], str]:
    found, names = list(_resolved(schema())), []
    for key in place:
        if isinstance(key, int):
            inner, name = [part["items"] for part in found if isinstance(part.get("items"), dict)], "[]"
        else:
            inner, name = [part["properties"][key] for part in found if key in part.get("properties", {})], key
            if not inner:
                maps = [part for part in found if "object" in part.get("type", ()) and "properties" not in part]
                inner, name = [part.get("additionalProperties", _ANYTHING) for part in maps], "*" if maps else key
        names.append(name)
        found = [one for part in inner for one in _resolved(part)]
    return found, ".".join(names)


#: What an object without declared keys may hold, at any depth.
_ANYTHING = {"type": "object"}


def undeclared(document: Doc) -> list[str]:
    """Return the keys of a document that the schema does not declare."""
    return sorted({key_of(place) for place, _ in places(document) if not declared(place)})


def without_twin(document: Doc) -> list[str]:
    """Return the keys of texts that a document has in one language alone."""
    found = set()
    for place, key in [((), ""), *((place, key_of(place)) for place, _ in places(document))]:
        value = at(document, place)
        properties = {name for part in declared(place) for name in part.get("properties", {})}
        for name in value if isinstance(value, dict) else ():
            english = name.removesuffix("_zh")
            if f"{english}_zh" in properties and not {english, f"{english}_zh"} <= value.keys():
                found.add(f"{key}.{name}".lstrip("."))
    return sorted(found)


def undescribed(part: dict[str, Any], name: str = "") -> Iterator[str]:
    """Yield the keys of the schema without a description; one in Chinese has that of its English twin."""
    for key, inner in part.get("properties", {}).items():
        here = f"{name}.{key}" if name else key
        if "description" not in inner and not key.endswith("_zh"):
            yield here
        yield from undescribed(inner, here)
    for word in ("items", "additionalProperties"):
        if isinstance(part.get(word), dict):
            yield from undescribed(part[word], f"{name}.[]")
    for word in ("anyOf", "oneOf", "allOf"):
        for inner in part.get(word, ()):
            yield from undescribed(inner, name)


@cache
def documents() -> tuple[Doc, ...]:
    """Return the handwritten documents, and those of the logs."""
    logs = {
        f"{name}/{case.id}": case.log for name in ("recorded", "written") for case in cases.read(ROOT / "corpus" / name)
    }
    found = [diagnose(logs[name]).to_dict() for name in LOGS]
    return (*(ALL[name]() for name in HANDMADE), _of_network(found[0]["runs"][0]), *found)


def _of_network(run: Doc) -> Doc:
    """Return a document with the maps of a fault of the network, and two runs."""
    made = ALL["full"]()
    made["diagnoses"][0]["family"] = "network"
    made["runs"] = [{**run, "number": 1, "told": False, "opened_by": "torchrun train.py", "fault": "RuntimeError"}, run]
    return made


def values(document: Doc) -> Iterator[tuple[Place, str]]:
    """Yield the places of the single values of a document, each with its key."""
    for place, _ in places(document):
        value = at(document, place)
        if value is not None and not isinstance(value, (dict, list)):
            yield place, key_of(place)


def _other(value: Any, place: Place) -> Any:
    """Return another value that the schema allows."""
    words = [word for part in declared(place) for word in part.get("enum", ()) if word is not None]
    if words:
        return next((word for word in words if word != value), value)
    if isinstance(value, bool):
        return not value
    return value * 2 + 7 if isinstance(value, (int, float)) else f"{value}?"


def _told(document: Doc, form: str, lang: Any = "en") -> str:
    return render(document, form, lang=lang, verbose=2).decode()


def _texts_shown(document: Doc, form: str, lang: str) -> set[str]:
    """Return the keys of texts that a format shows: all texts are marked at once."""
    marked, keys = copy.deepcopy(document), []
    for place, key in values(document):
        value = at(document, place)
        if isinstance(value, str) and not any("enum" in part or "const" in part for part in declared(place)):
            at(marked, place[:-1])[place[-1]] = f"q{len(keys)}z{value}q{len(keys)}z"
            keys.append(key)
    text = _told(marked, form, lang)
    return {key for number, key in enumerate(keys) if f"q{number}z" in text}


def unseen(listed: Collection[str]) -> set[str]:
    """Return the keys besides the listed ones whose values are in neither text nor Markdown nor HTML."""
    tried: dict[str, list[tuple[Doc, Place]]] = {}
    seen: set[str] = set(listed)
    for document in documents():
        keys: Counter[str] = Counter()
        for place, key in values(document):
            keys[key] += 1
            if keys[key] <= TRIED:
                tried.setdefault(key, []).append((document, place))
        for form, langs in SHOWN:
            for lang in langs:
                seen |= _texts_shown(document, form, lang)
    for form, _ in SHOWN:
        usual = {id(document): _told(document, form) for document in documents()}
        for key in tried.keys() - seen:
            if any(
                _told(changed(document, place, _other(at(document, place), place)), form) != usual[id(document)]
                for document, place in tried[key][:MOST]
            ):
                seen.add(key)
    return tried.keys() - seen


def shown_after_all(listed: Collection[str]) -> set[str]:
    """Return the listed keys whose values a reader does see: all of them are changed at once, and one by one if that shows."""
    found: set[str] = set()
    for document in documents():
        every = [(place, key) for place, key in values(document) if key in listed]
        other = copy.deepcopy(document)
        for place, _ in every:
            at(other, place[:-1])[place[-1]] = _other(at(document, place), place)
        for form, langs in SHOWN:
            for lang in langs:
                usual = _told(document, form, lang)
                if _told(other, form, lang) != usual:
                    single = {
                        key
                        for place, key in every
                        if _told(changed(document, place, _other(at(document, place), place)), form, lang) != usual
                    }
                    found |= single or {f"several together: {form} of {document['headline']}"}
    return found


def check(document: Doc) -> None:
    """Check that a document has the shape that the schema publishes, and no key that it does not declare."""
    jsonschema.validate(json.loads(json.dumps(document)), schema())
    assert undeclared(document) == []
