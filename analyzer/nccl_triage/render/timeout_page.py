"""The page of ``timeouts``: what a collective and a model need, who sets a time-out, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nccl_triage.render.explanation_blocks import Block
from nccl_triage.render.explanation_words import say
from nccl_triage.render.words import Lang, pick

Data = Mapping[str, Any]


def _collective(found: Data, lang: Lang) -> list[Block]:
    values = {
        "op": found["op"], "size": found["size"], "world": found["world_size"], "dtype": found["dtype"],
        "numel": found["numel"],
    }  # fmt: skip
    blocks = [Block("head", say("size", lang)), Block("para", say("moves", lang, **values))]
    for rate, shown in ((found["bandwidth"], "shown"), (found["slow_bandwidth"], "slow_shown")):
        text = f"{found['size']} x {found['factor']:g} / {rate:g} GB/s = {pick(found, shown, lang)}"
        blocks.append(Block("item", text))
    if found["explains"] is not None:
        blocks.append(Block("para", say("explains" if found["explains"] else "explains_not", lang)))
    return blocks


def _model(found: Data, lang: Lang) -> list[Block]:
    blocks = [Block("head", say("phases", lang))]
    for phase in found["phases"]:
        arithmetic = (
            f": {phase['sum']} = {pick(phase, 'shown', lang)}" if phase["sum"] else f": {pick(phase, 'shown', lang)}"
        )
        blocks.append(Block("item", pick(phase, "title", lang) + arithmetic))
    blocks += [Block("head", say("assumed", lang))]
    for row in found["assumptions"]:
        blocks.append(Block("item", f"{row['option']} {row['value']}: {pick(row, 'what', lang)}"))
    factor = next(row["value"] for row in found["assumptions"] if row["option"] == "--factor")
    longest = pick(found["phases"][0], "shown", lang)
    seconds = found["recommended_seconds"]
    text = say("result", lang, longest=longest, factor=factor, shown=pick(found, "recommended", lang), seconds=seconds)
    blocks += [Block("head", say("recommended", lang)), Block("para", text)]
    if found["warning"]:
        blocks.append(Block("para", pick(found, "warning", lang)))
    return blocks


def page(data: Data, lang: Lang) -> list[Block]:
    """Return the blocks of a plan of time-outs."""
    blocks = [Block("title", say("timeouts", lang))]
    if data.get("collective"):
        blocks += _collective(data["collective"], lang)
    if data.get("model"):
        blocks += _model(data["model"], lang)
    blocks.append(Block("head", say("knobs", lang)))
    for knob in data["knobs"]:
        since = f" ({say('since', lang, version=knob['since'])})" if knob["since"] else ""
        default = f"{say('default', lang)}: {pick(knob, 'default', lang)}{since}"
        blocks += [Block("item", f"{knob['title']}. {default}"), Block("command", f"# {knob['set']}")]
        if knob["note"]:
            blocks.append(Block("sub", pick(knob, "note", lang)))
    blocks.append(Block("head", say("owners", lang)))
    rows = [(str(row["milliseconds"]), pick(row, "who", lang)) for row in data["owners"]]
    blocks.append(Block("table", heads=("Timeout(ms)", say("who", lang)), rows=tuple(rows)))
    blocks.append(Block("head", say("risks", lang)))
    return [*blocks, *(Block("item", pick(row, "says", lang)) for row in data["risks"])]
