"""Plans and outcomes of the verifier as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nccl_triage.render import experiments
from nccl_triage.render.words import Lang, listed, pick, visible, word

Lines = list[str]
#: Lines about paths at most; the JSON has them all.
_PATHS = 6


def plan_text(plan: Mapping[str, Any], lang: Lang) -> str:
    """Return a plan for a terminal: where, how long at most, and each experiment with its control and treatments."""
    chinese = lang == "zh"
    where = ", ".join(plan["hosts"])
    gpus = f"{plan['gpus_per_host']} x {plan['gpu']}" if plan["gpus_per_host"] else ("无 GPU" if chinese else "no GPU")
    head = (
        f"计划：主机 {where}（{gpus}），最多 {plan['seconds_at_most']:.0f} 秒"
        if chinese
        else f"plan: on {where} ({gpus}), {plan['seconds_at_most']:.0f} s at most"
    )
    lines = [visible(head)]
    if plan["probe"]:
        lines.append("  探测各主机之间的可达性" if chinese else "  probe the reachability between all hosts")
    for entry in plan["experiments"]:
        lines += _planned(entry, chinese)
    if not plan["experiments"]:
        lines.append("  没有可验证的原因" if chinese else "  no cause to put to the test")
    return "\n".join(lines) + "\n"


def _planned(entry: Mapping[str, Any], chinese: bool) -> Lines:
    lines = [visible(f"  {entry['cause']} ({entry['kind']})")]
    run = entry["control"]
    if run is None:
        why = entry["why_not_zh"] if chinese else entry["why_not"]
        return [*lines, visible(f"    {'不运行' if chinese else 'not run'}: {why}")]
    ranks = "+".join(str(count) for count in run["ranks_per_host"])
    control = f"{run['call']}, {run['numel']:,} x {'+'.join([run['dtype'], *run['more_dtypes']])}, {run['backend']}, {ranks} ranks"
    lines.append(visible(f"    {'对照' if chinese else 'control'}: {control}, x{entry['repeats']}"))
    for name, value in run["env"].items():
        lines.append(visible(f"      {name}={value}"))
    for text in entry["treatments"]:
        lines.append(visible(f"    {'若失败，再试' if chinese else 'if it fails'}: {text}, x{entry['repeats']}"))
    lines.append(
        visible(
            f"    {'最多' if chinese else 'at most'}: {entry['seconds_at_most']:.0f} s, "
            f"{experiments.size_text(entry['memory_per_rank'])} {'每 rank' if chinese else 'a rank'}"
        )
    )
    for text in entry["differs_zh" if chinese else "differs"]:
        lines.append(visible(f"    {'与故障现场不同' if chinese else 'differs from the failure'}: {text}"))
    return lines


def outcome_lines(verification: Mapping[str, Any], lang: Lang) -> Lines:
    """Return the details of an outcome, one line each: confidence before and after, runs, paths that fail."""
    lines = [_labelled("confidence", experiments.moved(verification, lang), lang)]
    lines += [_run(run, lang) for run in verification.get("runs") or []]
    lines.append(experiments.narrowed_text(verification, lang))
    bad = experiments.folded(verification.get("reachability") or [])
    lines += [_path(path, lang) for path in bad[:_PATHS]]
    if len(bad) > _PATHS:
        lines.append(f".. {len(bad) - _PATHS} {word('more_lines', lang)}")
    for notice in verification.get("notices") or []:
        lines.append(_labelled("notices", f"{notice.get('run')}: {pick(notice, 'says', lang)}", lang))
    for key, label in (("differs", "differs"), ("problems", "problems")):
        lines += [_labelled(label, str(text), lang) for text in listed(verification, key, lang)]
    return [visible(line) for line in lines if line]


def _labelled(key: str, text: str, lang: Lang) -> str:
    return f"{word(key, lang).lower()}: {text}" if text else ""


def _run(run: Mapping[str, Any], lang: Lang) -> str:
    what = ", ".join(
        [
            experiments.changed(run, lang),
            experiments.message(run),
            experiments.where(run, lang),
            str(run.get("backend")),
            *([f"{experiments.figure(run['bandwidth'].get('busbw'))} GB/s"] if run.get("bandwidth") else []),
        ]
    )
    found = experiments.shows({**run, "expected": None}, lang)  # a slow run has a line of its own
    took = f"{float(run.get('seconds') or 0):.1f} s"
    return f"{run.get('run')}: {experiments.ended(run, lang)}, {took}: {what}{f': {found}' if found else ''}"


def _path(path: Mapping[str, Any], lang: Lang) -> str:
    by = f" ({path['by_interface']})" if path.get("by_interface") else ""
    end = f"{path.get('to')} {experiments.endpoint(path)} ({path.get('to_interface')})"
    details = experiments.measured(path, lang)
    state = experiments.state_word(path, lang) + (f", {details}" if details else "")
    return f"{path.get('from')}{by} -> {end}: {state}"
