"""A suspected hang (``follow.hang`` of the document) in words: since when, who is silent, what to do while it lasts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nccl_triage.render.incident import duration
from nccl_triage.render.words import Lang, place, rank_ranges, visible

#: Last lines shown.
_SHOWN = 4
_ADVICE = {
    "en": "While it lasts: py-spy dump --pid PID on every rank tells where each is stuck; save the flight recorder's files "
    "(TORCH_NCCL_DEBUG_INFO_TEMP_FILE) of every node before anything is restarted.",
    "zh": "趁进程仍在：对每个 rank 运行 py-spy dump --pid PID 可看出各自卡在哪里；重启之前先保存各节点的 flight recorder 文件"
    "（TORCH_NCCL_DEBUG_INFO_TEMP_FILE）。",
}


def sentence(hang: Mapping[str, Any], lang: Lang) -> str:
    """Return what is suspected in a line or two, without what to do."""
    since, step = str(hang.get("since") or "")[11:19], hang.get("last_step")
    spans = [_span(float(hang.get(key) or 0), lang) for key in ("seconds", "usual_step_seconds")]
    silent, printing, behind = (rank_ranges(hang.get(f"{key}_ranks") or []) for key in ("silent", "printing", "behind"))
    if lang == "zh":
        parts = [f"疑似挂起：自 {since} 起已 {spans[0]} 没有进展" + ("" if step is None else f"，最后一步为 {step}")]
        parts[0] += f"；通常一步需要 {spans[1]}"
        parts += [f"落后的 rank：{behind}"] * bool(behind) + [f"沉默的 rank：{silent}"] * bool(silent)
        parts += [f"仍在输出的 rank：{printing}"] * bool(printing)
        parts += ["最后的输出表明可能正在进行耗时较长的工作"] * bool(hang.get("announced"))
        return "；".join(parts) + "。"
    parts = [f"hang suspected: no progress since {since}" + ("" if step is None else f", step {step}")]
    parts[0] += f", for {spans[0]}; a step usually takes {spans[1]}"
    parts += [f"behind: rank {behind}"] * bool(behind) + [f"silent: rank {silent}"] * bool(silent)
    parts += [f"still printing: rank {printing}"] * bool(printing)
    parts += ["the last lines announce work that may take long"] * bool(hang.get("announced"))
    return "; ".join(parts)


def lines(hang: Mapping[str, Any], lang: Lang) -> list[str]:
    """Return what the processes printed last, those first that say most, and what to do."""
    said = [f"{place(item)}: {visible(item.get('text') or '')}" for item in hang.get("last_lines") or []]
    return [*said[:_SHOWN], _ADVICE[lang]]


def note(hang: Mapping[str, Any]) -> dict[str, str]:
    """Return the note of a report in both languages."""
    english = sentence(hang, "en")
    return {
        "en": f"{english[0].upper()}{english[1:]}. {_ADVICE['en']}",
        "zh": f"{sentence(hang, 'zh')}{_ADVICE['zh']}",
    }


def _span(seconds: float, lang: Lang) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else duration(seconds, lang)
