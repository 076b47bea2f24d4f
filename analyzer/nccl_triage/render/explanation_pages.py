"""The pages of ``explain`` and ``timeouts``: what is known of a thing, in the order in which people need it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nccl_triage.render.explanation import ExplanationBlock, say
from nccl_triage.render.known_issues import known_by
from nccl_triage.render.words import Lang, pick


def _collective(found: Data, lang: Lang) -> list[ExplanationBlock]:
    values = {
        "op": found["op"], "size": found["size"], "world": found["world_size"], "dtype": found["dtype"],
        "numel": found["numel"],
    }  # fmt: skip
    blocks = [ExplanationBlock("head", say("size", lang)), ExplanationBlock("para", say("moves", lang, **values))]
    for rate, shown in ((found["bandwidth"], "shown"), (found["slow_bandwidth"], "slow_shown")):
        text = f"{found['size']} x {found['factor']:g} / {rate:g} GB/s = {pick(found, shown, lang)}"
        blocks.append(ExplanationBlock("item", text))
    if found["explains"] is not None:
        blocks.append(ExplanationBlock("para", say("explains" if found["explains"] else "explains_not", lang)))
    return blocks


def _model(found: Data, lang: Lang) -> list[ExplanationBlock]:
    blocks = [ExplanationBlock("head", say("phases", lang))]
    for phase in found["phases"]:
        arithmetic = (
            f": {phase['sum']} = {pick(phase, 'shown', lang)}" if phase["sum"] else f": {pick(phase, 'shown', lang)}"
        )
        blocks.append(ExplanationBlock("item", pick(phase, "title", lang) + arithmetic))
    blocks += [ExplanationBlock("head", say("assumed", lang))]
    for row in found["assumptions"]:
        blocks.append(ExplanationBlock("item", f"{row['option']} {row['value']}: {pick(row, 'what', lang)}"))
    factor = next(row["value"] for row in found["assumptions"] if row["option"] == "--factor")
    longest = pick(found["phases"][0], "shown", lang)
    seconds = found["recommended_seconds"]
    text = say("result", lang, longest=longest, factor=factor, shown=pick(found, "recommended", lang), seconds=seconds)
    blocks += [ExplanationBlock("head", say("recommended", lang)), ExplanationBlock("para", text)]
    if found["warning"]:
        blocks.append(ExplanationBlock("para", pick(found, "warning", lang)))
    return blocks


def timeouts_page(data: Data, lang: Lang) -> list[ExplanationBlock]:
    """Return the blocks of a plan of timeouts."""
    blocks = [ExplanationBlock("title", say("timeouts", lang))]
    if data.get("collective"):
        blocks += _collective(data["collective"], lang)
    if data.get("model"):
        blocks += _model(data["model"], lang)
    blocks.append(ExplanationBlock("head", say("knobs", lang)))
    for knob in data["knobs"]:
        since = f" ({say('since', lang, version=knob['since'])})" if knob["since"] else ""
        default = f"{say('default', lang)}: {pick(knob, 'default', lang)}{since}"
        blocks += [
            ExplanationBlock("item", f"{knob['title']}. {default}"),
            ExplanationBlock("command", f"# {knob['set']}"),
        ]
        if knob["note"]:
            blocks.append(ExplanationBlock("sub", pick(knob, "note", lang)))
    blocks.append(ExplanationBlock("head", say("owners", lang)))
    rows = [(str(row["milliseconds"]), pick(row, "who", lang)) for row in data["owners"]]
    blocks.append(ExplanationBlock("table", heads=("Timeout(ms)", say("who", lang)), rows=tuple(rows)))
    blocks.append(ExplanationBlock("head", say("risks", lang)))
    return [*blocks, *(ExplanationBlock("item", pick(row, "says", lang)) for row in data["risks"])]


Data = Mapping[str, Any]


def _para(head: str, data: Data, key: str, lang: Lang) -> list[ExplanationBlock]:
    """Return a head with one paragraph, or nothing when there is no text."""
    text = pick(data, key, lang)
    return [ExplanationBlock("head", say(head, lang)), ExplanationBlock("para", text)] if text else []


def _list(head: str, blocks: Iterable[ExplanationBlock], lang: Lang) -> list[ExplanationBlock]:
    found = list(blocks)
    return [ExplanationBlock("head", say(head, lang)), *found] if found else []


def _causes(data: Data, lang: Lang, key: str = "causes", head: str = "causes") -> list[ExplanationBlock]:
    rows = [
        ExplanationBlock("item", f"{row['id']}: {pick(row, 'title', lang)}", _weight(row, lang)) for row in data[key]
    ]
    return _list(head, rows, lang)


def _weight(row: Data, lang: Lang) -> str:
    return say(row["weight"], lang) if "weight" in row else ""


def _sources(data: Data, lang: Lang) -> list[ExplanationBlock]:
    rows = [ExplanationBlock("item", url) for url in data.get("references") or ()]
    if data.get("source") and data["kind"] == "variable":
        rows.append(ExplanationBlock("item", str(data["source"])))
    found = _list("references", rows, lang)
    if data.get("where"):
        found = found or [ExplanationBlock("head", say("references", lang))]
        found.append(ExplanationBlock("item", f"{say('written_where', lang)} {data['where']}"))
    return found


def _advice_list(data: Data, lang: Lang) -> list[ExplanationBlock]:
    rows: list[ExplanationBlock] = []
    for item in data.get("advice") or ():
        rows.append(ExplanationBlock("item", f"{pick(item, 'claim', lang)} ({item['id']})", say(item["verdict"], lang)))
    return _list("advice", rows, lang)


def _stages(data: Data, lang: Lang) -> list[ExplanationBlock]:
    blocks: list[ExplanationBlock] = []
    when = None
    for row in data["stages"]:
        if row["when"] != when:
            when = row["when"]
            blocks.append(ExplanationBlock("group", say(f"stage_{when}", lang)))
        blocks.append(ExplanationBlock("item", pick(row, "what", lang), say(row["urgency"], lang)))
        if row["command"]:
            blocks.append(ExplanationBlock("command", row["command"]))
    return _list("stages", blocks, lang)


def _fixes(data: Data, lang: Lang) -> list[ExplanationBlock]:
    blocks: list[ExplanationBlock] = []
    for fix in data["fixes"]:
        blocks.append(ExplanationBlock("item", pick(fix, "title", lang)))
        blocks += [ExplanationBlock("command", command) for command in fix["commands"]]
        blocks += [ExplanationBlock("command", f"export {name}={value}") for name, value in fix["env"].items()]
        if fix["caution"]:
            blocks.append(ExplanationBlock("sub", pick(fix, "caution", lang), say("caution", lang)))
        if fix["applies_to"]:
            blocks.append(ExplanationBlock("sub", fix["applies_to"], say("applies_to", lang)))
    return _list("fix", blocks, lang)


def _check(data: Data, lang: Lang) -> list[ExplanationBlock]:
    check = data["next_check"]
    if check is None:
        return []
    blocks = [ExplanationBlock("item", pick(check, "what", lang))]
    if check["command"]:
        blocks.append(ExplanationBlock("command", check["command"]))
    blocks += [ExplanationBlock("sub", pick(check, key, lang), say(key, lang)) for key in ("if_yes", "if_no")]
    rivals = ", ".join(rival["id"] for rival in check["rivals"])
    if rivals:
        blocks.append(ExplanationBlock("sub", rivals, say("rivals", lang)))
    return _list("check", blocks, lang)


def _experiment(data: Data, lang: Lang) -> list[ExplanationBlock]:
    found = data["experiment"]
    keys = ("control", "confirmed_if", "refuted_if", "needs", "why_not")
    rows = [ExplanationBlock("field", pick(found, key, lang), say(key, lang)) for key in keys if found[key]]
    return _list("experiment", rows, lang)


def _cause(data: Data, lang: Lang) -> list[ExplanationBlock]:
    blocks = [
        ExplanationBlock("title", f"{data['id']}: {pick(data, 'title', lang)} ({say('cause', lang)}, {data['family']})")
    ]
    blocks += _para("meaning", data, "explanation", lang)
    for head in ("evidence", "against"):
        rows = [ExplanationBlock("item", pick(row, "says", lang), say(row["weight"], lang)) for row in data[head]]
        blocks += _list(head, rows, lang)
    blocks += [*_stages(data, lang), *_fixes(data, lang), *_check(data, lang), *_experiment(data, lang)]
    blocks += _advice_list(data, lang)
    return [*blocks, *_sources(data, lang)]


def _versions(data: Data, lang: Lang) -> str:
    parts = [say(key, lang, version=data[key]) for key in ("since", "until") if data.get(key)]
    return ", ".join(parts)


def _signature(data: Data, lang: Lang) -> list[ExplanationBlock]:
    level = say("level", lang, level=data["level"])
    blocks = [ExplanationBlock("title", f"{data['id']} ({say('signature', lang)}, {data['program']}, {level})")]
    blocks += [ExplanationBlock("head", say("meaning", lang)), ExplanationBlock("para", data["meaning"])]
    if lang == "zh":
        blocks.append(ExplanationBlock("para", say("english_only", lang)))
    blocks.append(
        ExplanationBlock("field", f"{data['event_kind']} ({data['event_kind_meaning']})", say("event_kind", lang))
    )
    blocks.append(ExplanationBlock("field", say(f"role_{data['role']}", lang), say("role", lang)))
    if data["source"]:
        versions = _versions(data, lang)
        printed = f"{data['source']} ({versions})" if versions else data["source"]
        blocks.append(ExplanationBlock("field", printed, say("printed_by", lang)))
    if data["premise"]:
        blocks.append(ExplanationBlock("field", data["premise"], say("premise", lang)))
    blocks += _list("samples", (ExplanationBlock("sample", line) for line in data["samples"]), lang)
    blocks += _list("not_samples", (ExplanationBlock("sample", line) for line in data["not_samples"]), lang)
    blocks += _causes(data, lang, "evidence_for", "evidence_for")
    blocks += _causes(data, lang, "evidence_against", "evidence_against")
    if data["brought_about_by"]:
        blocks += [
            ExplanationBlock("head", say("brought_about", lang)),
            ExplanationBlock("para", ", ".join(data["brought_about_by"])),
        ]
    blocks += _list("symptoms", (ExplanationBlock("item", name) for name in data["symptoms"]), lang)
    return [*blocks, *_sources(data, lang)]


def _default(data: Data, lang: Lang) -> str:
    parts = []
    for row in data["default"]:
        parts.append(f"{row['value']} ({say('since', lang, version=row['since'])})" if row["since"] else row["value"])
    return ", ".join(parts)


def _remarks(data: Data, lang: Lang) -> list[ExplanationBlock]:
    rows = [ExplanationBlock("item", pick(row, "says", lang), say(row["level"], lang)) for row in data["remarks"]]
    if data["value"] is None or not rows:
        return []
    return [ExplanationBlock("head", say("cli_value", lang, value=data["value"])), *rows]


def _variable(data: Data, lang: Lang) -> list[ExplanationBlock]:
    blocks = [ExplanationBlock("title", f"{data['id']} ({say(data['sort'], lang)}, {data['program']})")]
    blocks += _remarks(data, lang)
    blocks += _para("meaning", data, "meaning", lang)
    fields = [("status", say(data["status"], lang)), ("values", pick(data, "values", lang))]
    fields += [("default", _default(data, lang)), ("program", f"{data['program']} {_versions(data, lang)}".strip())]
    fields += [("instead", data["replaced_by"] or ""), ("aliases", ", ".join(data["aliases"]))]
    blocks += [ExplanationBlock("field", text, say(label, lang)) for label, text in fields if text]
    blocks += [*_para("touch", data, "touch", lang), *_para("caution", data, "caution", lang)]
    traps = (ExplanationBlock("item", pick(row, "says", lang), say(row["level"], lang)) for row in data["traps"])
    blocks += _list("traps", traps, lang)
    blocks += [*_advice_list(data, lang), *_causes(data, lang)]
    blocks += [*_para("verification", data, "verification", lang), *_para("undo", data, "undo", lang)]
    return [*blocks, *_sources(data, lang)]


def _name(data: Data, lang: Lang) -> list[ExplanationBlock]:
    key = "read" if data["read"] else "not_read" if data["complete"] else "not_known"
    blocks = [ExplanationBlock("title", f"{data['id']} ({say(key, lang, program=data['program'])})")]
    if data["near"]:
        blocks.append(ExplanationBlock("field", ", ".join(data["near"]), say("near", lang)))
    return [
        *blocks,
        *(ExplanationBlock("item", pick(row, "says", lang), say(row["level"], lang)) for row in data["remarks"]),
    ]


def _advice(data: Data, lang: Lang) -> list[ExplanationBlock]:
    blocks = [ExplanationBlock("title", f"{data['id']}: {pick(data, 'claim', lang)}")]
    blocks.append(ExplanationBlock("field", say(data["verdict"], lang), say("verdict", lang)))
    if data["applies_to"]:
        blocks.append(ExplanationBlock("field", data["applies_to"], say("applies_to", lang)))
    blocks += [*_para("why", data, "why", lang), *_para("instead", data, "instead", lang)]
    blocks += _list("variables", (ExplanationBlock("item", name) for name in data["variables"]), lang)
    return [*blocks, *_causes(data, lang), *_sources(data, lang)]


def _known_issue(data: Data, lang: Lang) -> list[ExplanationBlock]:
    blocks = [ExplanationBlock("title", f"{data['id']}: {pick(data, 'title', lang)}")]
    blocks += _para("known_issue", data, "says", lang)
    if data["affects"]:
        blocks.append(ExplanationBlock("field", ", ".join(data["affects"]), say("applies_to", lang)))
    blocks.append(ExplanationBlock("field", known_by(data, lang), say("known_from", lang)))
    blocks += _list("samples", (ExplanationBlock("item", line) for line in data["samples"]), lang)
    return [*blocks, *_causes(data, lang), *_sources(data, lang)]


def _code(data: Data, lang: Lang) -> list[ExplanationBlock]:
    shown = f": {data['text']}" if data["text"] else ""
    blocks = [ExplanationBlock("title", f"{data['id']} {data['name']}{shown}")]
    blocks += _para("meaning", data, "meaning", lang)
    blocks.append(ExplanationBlock("field", say(f"tells_{data['tells']}", lang), pick(data, "table", lang)))
    fields = [(key, say(f"{key}_{data[key]}", lang)) for key in ("severity", "role") if data[key]]
    fields += [("action", pick(data, "action", lang) or ""), ("as_of", data["as_of"] or "")]
    blocks += [ExplanationBlock("field", text, say(label, lang)) for label, text in fields if text]
    versions = _versions(data, lang)
    if versions:
        blocks.append(ExplanationBlock("field", versions, say("program", lang)))
    return [*blocks, *_para("about", data, "about", lang), *_causes(data, lang), *_sources(data, lang)]


def _table(data: Data, lang: Lang) -> list[ExplanationBlock]:
    blocks = [ExplanationBlock("title", pick(data, "title", lang)), ExplanationBlock("para", pick(data, "about", lang))]
    heads = tuple(say(key, lang) for key in ("number", "name", "tells", "meaning"))
    rows = tuple(
        (str(row["number"]), row["name"], say(f"tells_{row['tells']}", lang), pick(row, "meaning", lang))
        for row in data["codes"]
    )
    return [
        *blocks,
        ExplanationBlock("head", say("codes", lang)),
        ExplanationBlock("table", heads=heads, rows=rows),
        *_sources(data, lang),
    ]


def _symptom(data: Data, lang: Lang) -> list[ExplanationBlock]:
    urgency = say("urgency", lang, urgency=say(data["urgency"], lang))
    blocks = [ExplanationBlock("title", f"{data['id']} ({say('tells_' + data['tells'], lang)}; {urgency})")]
    blocks += _list("samples", [ExplanationBlock("sample", data["sees"])], lang)
    blocks += [*_para("meaning", data, "means", lang), *_para("look", data, "look", lang), *_causes(data, lang)]
    return [*blocks, *_list("signatures", (ExplanationBlock("item", name) for name in data["signatures"]), lang)]


def _problem(data: Data, lang: Lang) -> list[ExplanationBlock]:
    blocks = [ExplanationBlock("title", pick(data, "title", lang)), *_para("first", data, "first", lang)]
    blocks += [ExplanationBlock("command", command) for command in data["commands"]]
    leads = (ExplanationBlock("item", f"{row['id']}: {pick(row, 'text', lang)}") for row in data["leads"])
    return [*blocks, *_list("leads", leads, lang), ExplanationBlock("para", say("leads_more", lang))]


def _symptoms(data: Data, lang: Lang) -> list[ExplanationBlock]:
    blocks = [ExplanationBlock("title", f"{say('symptoms', lang)}: {say('topic_symptoms', lang)}")]
    for row in data["rows"]:
        urgency = say("urgency", lang, urgency=say(row["urgency"], lang))
        blocks += [
            ExplanationBlock("head", row["id"]),
            ExplanationBlock("item", f"{say('tells_' + row['tells'], lang)}; {urgency}"),
            ExplanationBlock("sample", row["message"], say("sees", lang)),
            ExplanationBlock("sub", pick(row, "means", lang), say("means", lang)),
            ExplanationBlock("sub", pick(row, "look", lang), say("look", lang)),
            ExplanationBlock("sub", ", ".join(cause["id"] for cause in row["causes"]) or "-", say("causes", lang)),
        ]
    return blocks


def _family(data: Data, lang: Lang) -> list[ExplanationBlock]:
    return [ExplanationBlock("title", f"{data['id']} ({say('family', lang)})"), *_causes(data, lang)]


def _tables(data: Data, lang: Lang) -> list[ExplanationBlock]:
    blocks = [ExplanationBlock("title", f"{say('codes', lang)}: {say('topic_codes', lang)}")]
    return [*blocks, *(ExplanationBlock("item", f"{row['id']}: {pick(row, 'title', lang)}") for row in data["rows"])]


def _owner(data: Data, lang: Lang) -> list[ExplanationBlock]:
    blocks = [
        ExplanationBlock("title", f"Timeout(ms)={data['id']} ({pick(data, 'shown', lang)})"),
        ExplanationBlock("head", say("owners", lang)),
    ]
    for row in data["rows"]:
        blocks.append(ExplanationBlock("item", pick(row, "who", lang)))
        if row["change"]:
            blocks.append(ExplanationBlock("command", f"# {row['change']}"))
    return blocks if data["rows"] else [*blocks, ExplanationBlock("para", say("no_owner", lang))]


def _listing(data: Data, lang: Lang) -> list[ExplanationBlock]:
    heads = tuple(say(key, lang) for key in ("name", "meaning"))
    rows = tuple((row["id"], pick(row, "text", lang)) for row in data["rows"])
    return [ExplanationBlock("title", say(data["of"], lang)), ExplanationBlock("table", heads=heads, rows=rows)]


PAGES: dict[str, Callable[[Data, Lang], list[ExplanationBlock]]] = {
    "advice": _advice,
    "cause": _cause,
    "code": _code,
    "family": _family,
    "known_issue": _known_issue,
    "listing": _listing,
    "name": _name,
    "owner": _owner,
    "problem": _problem,
    "signature": _signature,
    "symptom": _symptom,
    "symptoms": _symptoms,
    "table": _table,
    "tables": _tables,
    "variable": _variable,
}


def page(data: Data, lang: Lang) -> list[ExplanationBlock]:
    """Return the page of an entry."""
    if data["kind"] == "timeouts":
        return timeouts_page(data, lang)
    return PAGES[data["kind"]](data, lang)
