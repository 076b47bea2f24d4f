"""The pages of ``explain``: what is known of a thing, in one language, in the order in which people need it.

What it is, why, evidence, what to do, how to check, how to verify, sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nccl_triage.render.explanation_blocks import Block
from nccl_triage.render.explanation_words import say
from nccl_triage.render.words import Lang, pick

Data = Mapping[str, Any]


def _para(head: str, data: Data, key: str, lang: Lang) -> list[Block]:
    """Return a head with one paragraph, or nothing when there is no text."""
    text = pick(data, key, lang)
    return [Block("head", say(head, lang)), Block("para", text)] if text else []


def _list(head: str, blocks: Iterable[Block], lang: Lang) -> list[Block]:
    found = list(blocks)
    return [Block("head", say(head, lang)), *found] if found else []


def _causes(data: Data, lang: Lang, key: str = "causes", head: str = "causes") -> list[Block]:
    rows = [Block("item", f"{row['id']}: {pick(row, 'title', lang)}", _weight(row, lang)) for row in data[key]]
    return _list(head, rows, lang)


def _weight(row: Data, lang: Lang) -> str:
    return say(row["weight"], lang) if "weight" in row else ""


def _sources(data: Data, lang: Lang) -> list[Block]:
    rows = [Block("item", url) for url in data.get("references") or ()]
    if data.get("source") and data["kind"] == "variable":
        rows.append(Block("item", str(data["source"])))
    found = _list("references", rows, lang)
    if data.get("where"):
        found = found or [Block("head", say("references", lang))]
        found.append(Block("item", f"{say('written_where', lang)} {data['where']}"))
    return found


def _advice_list(data: Data, lang: Lang) -> list[Block]:
    rows: list[Block] = []
    for item in data.get("advice") or ():
        rows.append(Block("item", f"{pick(item, 'claim', lang)} ({item['id']})", say(item["verdict"], lang)))
    return _list("advice", rows, lang)


def _stages(data: Data, lang: Lang) -> list[Block]:
    blocks: list[Block] = []
    when = None
    for row in data["stages"]:
        if row["when"] != when:
            when = row["when"]
            blocks.append(Block("group", say(f"stage_{when}", lang)))
        blocks.append(Block("item", pick(row, "what", lang), say(row["urgency"], lang)))
        if row["command"]:
            blocks.append(Block("command", row["command"]))
    return _list("stages", blocks, lang)


def _fixes(data: Data, lang: Lang) -> list[Block]:
    blocks: list[Block] = []
    for fix in data["fixes"]:
        blocks.append(Block("item", pick(fix, "title", lang)))
        blocks += [Block("command", command) for command in fix["commands"]]
        blocks += [Block("command", f"export {name}={value}") for name, value in fix["env"].items()]
        if fix["caution"]:
            blocks.append(Block("sub", pick(fix, "caution", lang), say("caution", lang)))
        if fix["applies_to"]:
            blocks.append(Block("sub", fix["applies_to"], say("applies_to", lang)))
    return _list("fix", blocks, lang)


def _check(data: Data, lang: Lang) -> list[Block]:
    check = data["next_check"]
    if check is None:
        return []
    blocks = [Block("item", pick(check, "what", lang))]
    if check["command"]:
        blocks.append(Block("command", check["command"]))
    blocks += [Block("sub", pick(check, key, lang), say(key, lang)) for key in ("if_yes", "if_no")]
    rivals = ", ".join(rival["id"] for rival in check["rivals"])
    if rivals:
        blocks.append(Block("sub", rivals, say("rivals", lang)))
    return _list("check", blocks, lang)


def _experiment(data: Data, lang: Lang) -> list[Block]:
    found = data["experiment"]
    rows = [Block("field", found[key], say(key, lang)) for key in ("control", "confirmed_if", "refuted_if", "needs")
            if found[key]]  # fmt: skip
    if found["why_not"]:
        rows.append(Block("field", pick(found, "why_not", lang), say("why_not", lang)))
    return _list("experiment", rows, lang)


def _cause(data: Data, lang: Lang) -> list[Block]:
    blocks = [Block("title", f"{data['id']}: {pick(data, 'title', lang)} ({say('cause', lang)}, {data['family']})")]
    blocks += _para("meaning", data, "explanation", lang)
    for head in ("evidence", "against"):
        rows = [Block("item", pick(row, "says", lang), say(row["weight"], lang)) for row in data[head]]
        blocks += _list(head, rows, lang)
    blocks += [*_stages(data, lang), *_fixes(data, lang), *_check(data, lang), *_experiment(data, lang)]
    blocks += _advice_list(data, lang)
    return [*blocks, *_sources(data, lang)]


def _versions(data: Data, lang: Lang) -> str:
    parts = [say(key, lang, version=data[key]) for key in ("since", "until") if data.get(key)]
    return ", ".join(parts)


def _signature(data: Data, lang: Lang) -> list[Block]:
    level = say("level", lang, level=data["level"])
    blocks = [Block("title", f"{data['id']} ({say('signature', lang)}, {data['program']}, {level})")]
    blocks += [Block("head", say("meaning", lang)), Block("para", data["meaning"])]
    if lang == "zh":
        blocks.append(Block("para", say("english_only", lang)))
    blocks.append(Block("field", f"{data['event_kind']} ({data['event_kind_meaning']})", say("event_kind", lang)))
    blocks.append(Block("field", say(f"role_{data['role']}", lang), say("role", lang)))
    if data["source"]:
        versions = _versions(data, lang)
        printed = f"{data['source']} ({versions})" if versions else data["source"]
        blocks.append(Block("field", printed, say("printed_by", lang)))
    if data["premise"]:
        blocks.append(Block("field", data["premise"], say("premise", lang)))
    blocks += _list("samples", (Block("sample", line) for line in data["samples"]), lang)
    blocks += _list("not_samples", (Block("sample", line) for line in data["not_samples"]), lang)
    blocks += _causes(data, lang, "evidence_for", "evidence_for")
    blocks += _causes(data, lang, "evidence_against", "evidence_against")
    if data["brought_about_by"]:
        blocks += [Block("head", say("brought_about", lang)), Block("para", ", ".join(data["brought_about_by"]))]
    blocks += _list("symptoms", (Block("item", name) for name in data["symptoms"]), lang)
    return [*blocks, *_sources(data, lang)]


def _default(data: Data, lang: Lang) -> str:
    parts = []
    for row in data["default"]:
        parts.append(f"{row['value']} ({say('since', lang, version=row['since'])})" if row["since"] else row["value"])
    return ", ".join(parts)


def _remarks(data: Data, lang: Lang) -> list[Block]:
    rows = [Block("item", pick(row, "says", lang), say(row["level"], lang)) for row in data["remarks"]]
    if data["value"] is None or not rows:
        return []
    return [Block("head", say("cli_value", lang, value=data["value"])), *rows]


def _variable(data: Data, lang: Lang) -> list[Block]:
    blocks = [Block("title", f"{data['id']} ({say(data['sort'], lang)}, {data['program']})")]
    blocks += _remarks(data, lang)
    blocks += _para("meaning", data, "meaning", lang)
    fields = [("status", say(data["status"], lang)), ("values", pick(data, "values", lang))]
    fields += [("default", _default(data, lang)), ("program", f"{data['program']} {_versions(data, lang)}".strip())]
    fields += [("instead", data["replaced_by"] or ""), ("aliases", ", ".join(data["aliases"]))]
    blocks += [Block("field", text, say(label, lang)) for label, text in fields if text]
    blocks += [*_para("touch", data, "touch", lang), *_para("caution", data, "caution", lang)]
    traps = (Block("item", pick(row, "says", lang), say(row["level"], lang)) for row in data["traps"])
    blocks += _list("traps", traps, lang)
    blocks += [*_advice_list(data, lang), *_causes(data, lang)]
    blocks += [*_para("verification", data, "verification", lang), *_para("undo", data, "undo", lang)]
    return [*blocks, *_sources(data, lang)]


def _name(data: Data, lang: Lang) -> list[Block]:
    key = "read" if data["read"] else "not_read" if data["complete"] else "not_known"
    blocks = [Block("title", f"{data['id']} ({say(key, lang, program=data['program'])})")]
    if data["near"]:
        blocks.append(Block("field", ", ".join(data["near"]), say("near", lang)))
    return [*blocks, *(Block("item", pick(row, "says", lang), say(row["level"], lang)) for row in data["remarks"])]


def _advice(data: Data, lang: Lang) -> list[Block]:
    blocks = [Block("title", f"{data['id']}: {pick(data, 'claim', lang)}")]
    blocks.append(Block("field", say(data["verdict"], lang), say("verdict", lang)))
    if data["applies_to"]:
        blocks.append(Block("field", data["applies_to"], say("applies_to", lang)))
    blocks += [*_para("why", data, "why", lang), *_para("instead", data, "instead", lang)]
    blocks += _list("variables", (Block("item", name) for name in data["variables"]), lang)
    return [*blocks, *_causes(data, lang), *_sources(data, lang)]


def _code(data: Data, lang: Lang) -> list[Block]:
    shown = f": {data['text']}" if data["text"] else ""
    blocks = [Block("title", f"{data['id']} {data['name']}{shown}")]
    blocks += _para("meaning", data, "meaning", lang)
    blocks.append(Block("field", say(f"tells_{data['tells']}", lang), pick(data, "table", lang)))
    fields = [(key, say(f"{key}_{data[key]}", lang)) for key in ("severity", "role") if data[key]]
    fields += [("action", pick(data, "action", lang) or ""), ("as_of", data["as_of"] or "")]
    blocks += [Block("field", text, say(label, lang)) for label, text in fields if text]
    versions = _versions(data, lang)
    if versions:
        blocks.append(Block("field", versions, say("program", lang)))
    return [*blocks, *_para("about", data, "about", lang), *_causes(data, lang), *_sources(data, lang)]


def _table(data: Data, lang: Lang) -> list[Block]:
    blocks = [Block("title", pick(data, "title", lang)), Block("para", pick(data, "about", lang))]
    heads = tuple(say(key, lang) for key in ("number", "name", "tells", "meaning"))
    rows = tuple(
        (str(row["number"]), row["name"], say(f"tells_{row['tells']}", lang), pick(row, "meaning", lang))
        for row in data["codes"]
    )
    return [*blocks, Block("head", say("codes", lang)), Block("table", heads=heads, rows=rows), *_sources(data, lang)]


def _symptom(data: Data, lang: Lang) -> list[Block]:
    urgency = say("urgency", lang, urgency=say(data["urgency"], lang))
    blocks = [Block("title", f"{data['id']} ({say('tells_' + data['tells'], lang)}; {urgency})")]
    blocks += _list("samples", [Block("sample", data["sees"])], lang)
    blocks += [*_para("meaning", data, "means", lang), *_para("look", data, "look", lang), *_causes(data, lang)]
    return [*blocks, *_list("signatures", (Block("item", name) for name in data["signatures"]), lang)]


def _symptoms(data: Data, lang: Lang) -> list[Block]:
    blocks = [Block("title", f"{say('symptoms', lang)}: {say('topic_symptoms', lang)}")]
    for row in data["rows"]:
        urgency = say("urgency", lang, urgency=say(row["urgency"], lang))
        blocks += [
            Block("head", row["id"]),
            Block("item", f"{say('tells_' + row['tells'], lang)}; {urgency}"),
            Block("sample", row["message"], say("sees", lang)),
            Block("sub", pick(row, "means", lang), say("means", lang)),
            Block("sub", pick(row, "look", lang), say("look", lang)),
            Block("sub", ", ".join(cause["id"] for cause in row["causes"]) or "-", say("causes", lang)),
        ]
    return blocks


def _family(data: Data, lang: Lang) -> list[Block]:
    return [Block("title", f"{data['id']} ({say('family', lang)})"), *_causes(data, lang)]


def _tables(data: Data, lang: Lang) -> list[Block]:
    blocks = [Block("title", f"{say('codes', lang)}: {say('topic_codes', lang)}")]
    return [*blocks, *(Block("item", f"{row['id']}: {pick(row, 'title', lang)}") for row in data["rows"])]


def _owner(data: Data, lang: Lang) -> list[Block]:
    blocks = [
        Block("title", f"Timeout(ms)={data['id']} ({pick(data, 'shown', lang)})"),
        Block("head", say("owners", lang)),
    ]
    for row in data["rows"]:
        blocks.append(Block("item", pick(row, "who", lang)))
        if row["change"]:
            blocks.append(Block("command", f"# {row['change']}"))
    return blocks if data["rows"] else [*blocks, Block("para", say("no_owner", lang))]


def _listing(data: Data, lang: Lang) -> list[Block]:
    heads = tuple(say(key, lang) for key in ("name", "meaning"))
    rows = tuple((row["id"], pick(row, "text", lang)) for row in data["rows"])
    return [Block("title", say(data["of"], lang)), Block("table", heads=heads, rows=rows)]


PAGES: dict[str, Callable[[Data, Lang], list[Block]]] = {
    "advice": _advice,
    "cause": _cause,
    "code": _code,
    "family": _family,
    "listing": _listing,
    "name": _name,
    "owner": _owner,
    "signature": _signature,
    "symptom": _symptom,
    "symptoms": _symptoms,
    "table": _table,
    "tables": _tables,
    "variable": _variable,
}


def page(data: Data, lang: Lang) -> list[Block]:
    """Return the page of an entry."""
    if data["kind"] == "timeouts":
        from nccl_triage.render import timeout_page

        return timeout_page.page(data, lang)
    return PAGES[data["kind"]](data, lang)
