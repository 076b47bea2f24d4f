"""The plan of a verification as text: each experiment, who would be contacted, and the commands that carry it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nccl_triage.render.text_page import TextPage
from nccl_triage.render.verification import UNTESTABLE, size_text
from nccl_triage.render.words import Lang, confidence, listed, pick, word

Item = Mapping[str, Any]

#: Hosts that a line names.
_NAMED = 8
_BACKENDS = {"nccl": "NCCL", "gloo": "Gloo"}


def plan_text(plan: Item, lang: Lang, width: int | None = None, color: bool = False) -> str:
    """Return a plan (``verify.record.plan_record``) for a terminal of this width; None folds nothing."""
    page = TextPage(color, width, lang)
    if not plan["experiments"]:
        page.headline(word("plan_none" if plan.get("healthy") else "plan_none_unknown", lang))
        return _joined(page)
    page.headline(word("plan_text", lang))
    for entry in plan["experiments"]:
        page.blank()
        _experiment(page, plan, entry)
    if any(entry["control"] or entry["asked"] for entry in plan["experiments"]):
        page.blank()
        _contacts(page, plan)
        _writes(page, plan)
        _commands(page, plan["commands"])
    return _joined(page)


def _joined(page: TextPage) -> str:
    return "\n".join(page.lines) + "\n"


def _experiment(page: TextPage, plan: Item, entry: Item) -> None:
    lang, asked, run = page.lang, entry["asked"], entry["control"]
    sure = word("comma", lang).join([word(str(entry["status"]), lang), confidence(entry["confidence"])])
    page.line(f"  {word('in_brackets', lang).format(what=entry['cause'], more=sure)}", entry["cause"], bold=True)
    if asked:
        _asked(page, asked)
        for key in ("confirmed_if", "refuted_if"):
            page.say(4, word(f"plan_{key}", lang), pick(entry["decides"], key, lang))
    if run is None and asked is not None:
        page.say(4, word("plan_takes", lang), _cost(asked, plan, lang))
    if entry["kind"] in UNTESTABLE:
        page.say(4, word("not-testable", lang), pick(entry, "why_not", lang))
        return
    if run is None:
        page.say(4, word("plan_here", lang), word("plan_not_here", lang).format(why=pick(entry, "why_not", lang)))
        return
    if asked is None or not _same(run, asked, plan):
        page.say(4, word("plan_here", lang), _run(run, plan, lang))
        _differs(page, entry, listed(asked or {}, "differs", lang))
    for name, value in run["env"].items():
        page.say(4, word("plan_variables", lang), f"{name}={value}")
    page.say(4, word("plan_takes", lang), _cost(entry, plan, lang))


def _asked(page: TextPage, asked: Item) -> None:
    """Add the collective, where it runs, and what is changed."""
    lang = page.lang
    what = _collective(asked["collective"], asked["further"], lang)
    ranks = _spread(asked["hosts"], asked["ranks_per_host"], lang)
    backend = _BACKENDS.get(str(asked["backend"]), str(asked["backend"]))
    told = [what, ranks, backend, word("plan_time", lang).format(n=asked["repeats"])]
    page.say(4, word("plan_collective", lang), word("semicolon", lang).join(told))
    for item in asked["treatments"]:
        changed = word("plan_if_fails", lang).format(changed=pick(item, "changed", lang), n=asked["repeats"])
        page.say(4, word("plan_changed", lang), changed)
    _differs(page, asked)


def _collective(part: Item, further: Sequence[Item], lang: Lang) -> str:
    """Return ``broadcast from rank 0, 1,048,576 x float32 (4 MiB), bfloat16 (2 MiB)``."""
    name = str(part["call"])
    if part["op"] in ("BARRIER", "INIT"):
        return name
    if part["root"] is not None:
        name += f" {word('plan_from_root' if part['from_root'] else 'plan_to_root', lang).format(rank=part['root'])}"
    if part["pair"]:
        first, second = part["pair"]
        name += f" {word('plan_from_to', lang).format(first=first, second=second)}"
    sizes = [f"{item['dtype']} ({size_text(item['bytes'])})" for item in (part, *further)]
    return f"{name}{word('comma', lang)}{part['numel']:,} x {', '.join(sizes)}"


def _ranks(count: int, lang: Lang) -> str:
    return word("plan_rank" if count == 1 else "plan_ranks", lang).format(n=count)


def _spread(hosts: Sequence[str], counts: Sequence[int], lang: Lang) -> str:
    """Return how many ranks run where: ``2 ranks, 1 on each of gpu-a, gpu-b``."""
    ranks = _ranks(sum(counts), lang)
    if len(hosts) == 1:
        return word("plan_ranks_at", lang).format(ranks=ranks, host=hosts[0])
    if len(set(counts)) == 1:
        return word("plan_ranks_each", lang).format(ranks=ranks, n=counts[0], hosts=_some(hosts, lang))
    parts = [word("plan_ranks_on", lang).format(n=n, host=host) for host, n in zip(hosts, counts, strict=True)]
    return word("in_brackets", lang).format(what=ranks, more=_some(parts, lang))


def _some(texts: Sequence[str], lang: Lang) -> str:
    more = [f".. ({len(texts)})"] if len(texts) > _NAMED else []
    return word("list_comma", lang).join([*texts[:_NAMED], *more])


def _same(run: Item, asked: Item, plan: Item) -> bool:
    """Tell whether what runs is what is asked for, on the same hosts."""
    part = asked["collective"]
    told = (run["op"], run["numel"], run["dtype"], run["backend"], run["world_size"])
    return told == (part["op"], part["numel"], part["dtype"], asked["backend"], asked["world_size"]) and (
        plan["hosts"][: len(asked["hosts"])] == asked["hosts"]
    )


def _run(run: Item, plan: Item, lang: Lang) -> str:
    dtypes = "+".join([run["dtype"], *run["more_dtypes"]])
    hosts = plan["hosts"][: len(run["ranks_per_host"])]
    return word("plan_here_as", lang).format(
        call=run["call"].removeprefix("torch.distributed."),
        size=f"{run['numel']:,} x {dtypes}",
        backend=_BACKENDS.get(run["backend"], run["backend"]),
        ranks=_spread(hosts, run["ranks_per_host"], lang),
    )


def _cost(entry: Item, plan: Item, lang: Lang) -> str:
    seconds = min(entry["seconds_at_most"], plan["budget_s"])
    return word("plan_at_most", lang).format(seconds=f"{seconds:.0f}", memory=size_text(entry["memory_per_rank"]))


def _differs(page: TextPage, item: Item, told: Sequence[str] = ()) -> None:
    for text in listed(item, "differs", page.lang):
        if text not in told:
            page.say(4, word("plan_differs", page.lang), text)


def _contacts(page: TextPage, plan: Item) -> None:
    """Add who is contacted: the named hosts, how, and on which ports."""
    lang, found = page.lang, plan["contacts"]
    hosts = found["hosts"]
    if plan["runs"] and len(hosts) < 2 and all(not host["by"] for host in hosts):
        page.say(2, word("plan_contacts", lang), word("plan_local", lang))
        return
    named = [
        word("plan_address", lang).format(host=host["name"], addresses=", ".join(host["addresses"][:3]))
        if host["addresses"] and host["addresses"] != [host["name"]]
        else host["name"]
        for host in hosts
    ]
    ways = dict.fromkeys(str(host["by"]) for host in hosts if host["by"])
    told = [word("plan_only", lang).format(hosts=_some(named, lang))]
    told += [_way(way, lang) for way in list(ways)[:_NAMED]]
    page.say(2, word("plan_contacts", lang), word("semicolon", lang).join(told))
    if len(hosts) > 1:
        page.line(f"    {word('plan_ports', lang).format(ports=word('semicolon', lang).join(_ports(plan, lang)))}")
    if found["elsewhere"]:
        page.line(f"    {word('plan_elsewhere', lang).format(addresses=', '.join(found['elsewhere'][:_NAMED]))}")


def _way(way: str, lang: Lang) -> str:
    known = word(f"plan_by_{way}", lang)
    return way if known.startswith("plan_by_") or known == "?" else known


def _ports(plan: Item, lang: Lang) -> list[str]:
    found = plan["contacts"]
    told = []
    if found["store"]:
        ports = [
            word("plan_any_port", lang) if port is None else _of_log(port, lang) for port in found["store"]["ports"]
        ]
        text = word("or_between", lang).join(ports)
        told.append(word("plan_port_store", lang).format(port=text, host=found["store"]["host"]))
    if found["probe"]:
        told.append(word("plan_port_probe", lang).format(n=found["probe"]["ports_per_address"]))
        port = found["probe"]["port_of_log"]
        told += [_of_log(port, lang)] if port and port not in (found["store"] or {}).get("ports", ()) else []
    runs = [entry["control"] or entry["asked"] for entry in plan["experiments"]]
    backends = dict.fromkeys(_BACKENDS.get(run["backend"], run["backend"]) for run in runs if run)
    return [*told, *(word("plan_port_library", lang).format(backend=name) for name in backends)]


def _of_log(port: int, lang: Lang) -> str:
    return word("plan_port_log", lang).format(port=port)


def _writes(page: TextPage, plan: Item) -> None:
    found = plan.get("would_write")
    if found:
        page.blank()
        page.say(2, word("plan_writes", page.lang), found["folder"])
        for line in found["commands"]:
            page.command(4, line)


def _commands(page: TextPage, commands: Sequence[Item]) -> None:
    """Add the commands of the job's platform, and of each other launcher the first one."""
    for index, command in enumerate(commands):
        if index < 2:
            page.blank()
        note = pick(command, "note", page.lang) if not index else ""
        told = (
            word("in_brackets", page.lang).format(what=command["launcher"], more=note) if note else command["launcher"]
        )
        page.say(2, word("plan_or" if index else "plan_run", page.lang), told)
        for line in command["commands"][: 1 if index else None]:
            page.command(4, line)
    missing = dict.fromkeys(names for command in commands if (names := pick(command, "names", page.lang)))
    for names in missing:
        page.line(f"  {names}")
