"""Plans and outcomes of the verifier as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nccl_triage.render.words import Lang, visible

Lines = list[str]


def _size(count: float) -> str:
    """Return bytes for people."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"


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
    control = f"{run['call']}, {run['numel']:,} x {run['dtype']}, {run['backend']}, {ranks} ranks"
    lines.append(visible(f"    {'对照' if chinese else 'control'}: {control}, x{entry['repeats']}"))
    for name, value in run["env"].items():
        lines.append(visible(f"      {name}={value}"))
    for text in entry["treatments"]:
        lines.append(visible(f"    {'若失败，再试' if chinese else 'if it fails'}: {text}, x{entry['repeats']}"))
    lines.append(
        visible(
            f"    {'最多' if chinese else 'at most'}: {entry['seconds_at_most']:.0f} s, "
            f"{_size(entry['memory_per_rank'])} {'每 rank' if chinese else 'a rank'}"
        )
    )
    for text in entry["differs_zh" if chinese else "differs"]:
        lines.append(visible(f"    {'与故障现场不同' if chinese else 'differs from the failure'}: {text}"))
    return lines


def outcome_lines(verification: Mapping[str, Any], lang: Lang) -> Lines:
    """Return the details of an outcome, one line each: confidence before and after, runs, paths that fail."""
    chinese = lang == "zh"
    before, after = verification["before"], verification["after"]
    lines = []
    if before != after:
        word = "置信度" if chinese else "confidence"
        lines.append(
            f"{word} {before['confidence']:.2f} ({before['status']}) -> {after['confidence']:.2f} ({after['status']})"
        )
    lines += [_run(run) for run in verification["runs"]]
    lines += [_path(path) for path in verification["reachability"] if path["state"] != "reachable"][:6]
    for text in verification["differs_zh" if chinese else "differs"]:
        lines.append(f"{'与故障现场不同' if chinese else 'differs from the failure'}: {text}")
    return [visible(line) for line in lines]


def _run(run: Mapping[str, Any]) -> str:
    what = f"{run['op']} {run['numel']:,} x {run['dtype']} on {run['world_size']} ranks of {', '.join(run['hosts'])}"
    changed = f", {run['changed']}" if run["changed"] else ""
    rate = run.get("bandwidth")
    speed = f", {rate['busbw']:.3g} GB/s bus" if rate else ""
    failed = f" at {run['stage']}" if run["outcome"] != "passed" else ""
    found = f": {run['finding']['says']}" if run["finding"] else ""
    return f"{run['run']} {run['outcome']}{failed} in {run['seconds']:.1f} s: {what}, {run['backend']}{changed}{speed}{found}"


def _path(path: Mapping[str, Any]) -> str:
    by = f" by {path['by_interface']}" if path["by_interface"] else ""
    where = f"{path['address']}:{path['port']} ({path['to_interface']})"
    return f"{path['from']}{by} -> {path['to']} {where}: {path['state']} {path.get('error', '')}".rstrip()
