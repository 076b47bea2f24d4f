"""The pages that are made of ``rules/``: variables, advice, symptoms, numbers and timeouts."""

from __future__ import annotations

from itertools import groupby

from nccl_triage.knowledge import catalogue, known_issues, timeouts, variables
from nccl_triage.knowledge.entries import CodeTable, Variable
from nccl_triage.render.markdown_text import code, plain, table

_MADE = "<!-- Made by `make docs` from {where}; do not edit. -->"
_TELLS = {
    "cause": "The rank that prints it started the failure.",
    "victim": "The rank that prints it failed as a result of something else.",
    "either": "The rank that prints it may have started the failure, or failed as a result.",
    "nothing": "It does not show which rank started the failure.",
}
_STATUS = {
    "tuning": "setting",
    "diagnosis-only": "test, not a fix",
    "legacy": "legacy",
    "set-by-launcher": "set by the launcher",
    "unknown-to-nccl": "not read by the program",
}


def _default(item: Variable) -> str:
    return ", ".join(f"{value} ({since}+)" if since else value for since, value in item.default) or "-"


def _since(item: Variable) -> str:
    span = f"{item.since or ''}" + (f" to {item.until}" if item.until else "")
    return span or "-"


def _whole(cells: list[list[str]], heads: list[str]) -> list[str]:
    """Return a table of any length: ``table`` cuts long ones for reports."""
    rows: list[str] = []
    for start in range(0, len(cells), 40):
        part = table(heads, cells[start : start + 40])
        rows += part if not start else part[2:]
    return rows


def variables_page() -> str:
    """Return docs/variables.md: every variable that is known, and the advice that people repeat."""
    lines = [_MADE.format(where="rules/variables and rules/advice"), "# Variables", ""]
    lines += [
        "`nccl-triage explain NAME` says more: values, traps, how to check that it works, how to undo it. A variable "
        "marked as a test shows which part is broken, at a cost in speed; do not leave it in scripts.",
        "",
    ]
    shipped = variables.shipped()
    known = sorted((v for name in shipped if (v := shipped.find(name))), key=lambda v: (v.program, v.id))
    for program, items in groupby(known, key=lambda v: v.program):
        lines += [f"## {program}", ""]
        rows = [
            [code(v.id), plain(v.meaning["en"]), plain(_default(v)), plain(_since(v)), plain(_STATUS.get(v.status, v.status)), plain(v.touch["en"])]
            for v in items
        ]  # fmt: skip
        lines += [*_whole(rows, ["name", "meaning", "default", "since", "kind", "when to touch it"]), ""]
    lines += [
        "## Advice that people repeat",
        "",
        "Judged by sources and versions, not by how often it is repeated.",
        "",
    ]
    rows = [
        [plain(a.claim["en"]), plain(a.verdict), plain(a.why["en"]), plain(a.instead["en"])]
        for a in catalogue.advice().values()
    ]
    return "\n".join([*lines, *_whole(rows, ["claim", "verdict", "why", "instead"])])


def symptoms_page() -> str:
    """Return docs/symptoms.md: the loud message, what it really says, and where to look."""
    order = {"high": 0, "medium": 1, "low": 2}
    lines = [_MADE.format(where="rules/symptoms"), "# Symptoms", ""]
    lines += [
        "The message you see is rarely the cause. *Urgency*: high, act before a restart or it fails again; medium, "
        "look before the restart; low, harmless alone. `nccl-triage explain symptoms` prints the same.",
        "",
    ]
    found = sorted(catalogue.symptoms().values(), key=lambda s: order.get(s.urgency, 3))
    for urgency, items in groupby(found, key=lambda s: s.urgency):
        lines += [f"## Urgency: {urgency}", ""]
        for item in items:
            causes = ", ".join(f"[{name}](causes/{name}.md)" for name in item.causes)
            lines += [
                f"{code(item.sees)}",
                "",
                f"- {_TELLS[item.tells]}",
                f"- {plain(item.means['en'])}",
            ]
            lines += [f"- Look at: {plain(item.look['en'])}", *([f"- May come from: {causes}."] if causes else []), ""]
    return "\n".join(lines)


def known_issues_page() -> str:
    """Return docs/known-issues.md: what goes wrong in which program, what mends it and what avoids it."""
    lines = [_MADE.format(where="rules/known_issues"), "# Known issues", ""]
    lines += [
        "A report names a known issue where a message of its evidence, or one of its telling lines, has the issue's shape "
        "and no version in the log says that it is already mended. *Mended in* is the first release without it, where one "
        "is known. `nccl-triage explain ID` prints the same.",
        "",
    ]
    for name, items in groupby(known_issues.shipped().values(), key=lambda issue: issue.name):
        rows = [
            [
                code(issue.id),
                plain(issue.title["en"]),
                issue.mended_in or "-",
                plain(issue.avoid["en"]) if issue.avoid else "-",
                f"[{issue.how_known}]({issue.url})",
            ]
            for issue in items
        ]
        lines += [f"## {name}", "", *_whole(rows, ["id", "what goes wrong", "mended in", "until then", "source"]), ""]
    return "\n".join(lines)


def timeouts_page() -> str:
    """Return docs/timeouts.md: who sets the number, and recommended ones by the size of the model."""
    lines = [_MADE.format(where="rules/timeouts"), "# Timeouts", ""]
    lines += [
        "A collective that makes progress finishes in seconds, whatever its size: 10 GB over a 10 Gbit/s network take "
        "about 16 seconds. A timeout must cover the phases in which one rank works alone while the others wait. So the "
        "recommendation is the longest such phase, times a reserve. `nccl-triage timeouts` computes it for your model, "
        "storage and network, and shows the arithmetic.",
        "",
        "Raise a timeout only for a rank that is known to make progress. A dead process, a lost packet or a mismatch "
        "waits 72 hours as well as 10 minutes, and all GPUs idle.",
        "",
        "## Recommended, by model size",
        "",
    ]
    rows = []
    for name, parameters in (("1 B", 1e9), ("7 B", 7e9), ("13 B", 13e9), ("30 B", 30e9), ("70 B", 70e9), ("235 B", 235e9), ("671 B", 671e9)):  # fmt: skip
        cells = [name]
        for storage, network in ((1.0, 10.0), (5.0, 100.0), (20.0, 400.0)):
            given = timeouts.Assumptions(parameters=parameters, storage=storage, network=network / 8)
            cells.append(f"{timeouts.recommended(given) // 60} min")
        rows.append(cells)
    lines += table(["parameters", "1 GB/s storage, 10 Gbit/s", "5 GB/s, 100 Gbit/s", "20 GB/s, 400 Gbit/s"], rows)
    lines += [
        "",
        "Computed for one rank that gathers and writes a whole checkpoint (14 bytes per parameter). With sharded checkpoints every rank writes its share, and the default is usually enough.",
        "",
    ]
    lines += ["## How to set it", ""]
    rows = [
        [plain(k.title), code(timeouts.written(k, 3600)), plain(k.default["en"]), plain(k.note["en"] if k.note else "")]
        for k in catalogue.knobs().values()
    ]
    lines += [*table(["program", "one hour", "default", "note"], rows), "", "## Who set this number?", ""]
    rows = [[str(o.milliseconds), plain(o.who["en"])] for o in catalogue.owners()]
    return "\n".join([*lines, *table(["Timeout(ms)=", "set by"], rows)])


def _registers(known: CodeTable) -> list[str]:
    rows = []
    for one in known.details:
        bits = ", ".join(str(bit) for bit in range(32) if one.bits >> bit & 1)
        what = (
            f"bits {bits}"
            if bits
            else f"reason {_listed(one.reasons)}"
            if one.reasons
            else _listed(one.values) or "any"
        )
        action = known.actions[one.action]["en"] if one.action else ""
        units = plain(", ".join(sorted(one.units)))
        rows.append(
            [str(one.code), units, str(one.register), what, plain(known.findings[one.finding]["en"]), plain(action)]
        )
    return _whole(rows, ["number", "unit", "register", "value", "meaning", "do at once"])


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def codes_page() -> str:
    """Return docs/codes.md: what the numbers of the NVIDIA driver mean."""
    lines = [_MADE.format(where="rules/codes"), "# Xid and SXid", ""]
    lines += [
        "*Role* is what a number counts for in a verdict: a root names a first fault, a cascade follows one, context "
        "blames nobody. `nccl-triage explain xid:79` says the same, in both languages.",
        "",
    ]
    for name in ("xid", "sxid"):
        known = catalogue.tables()[name]
        lines += [f"## {plain(known.title['en'])}", "", plain(known.about["en"]), ""]
        lines += [f"As of {known.as_of}: {', '.join(f'<{link}>' for link in known.references)}.", ""]
        rows = [
            [str(c.number), plain(c.name), c.severity or "", c.role or "", plain(c.meaning["en"]), plain(known.actions[c.action]["en"] if c.action else "")]
            for c in known.codes
        ]  # fmt: skip
        lines += [*_whole(rows, ["number", "name", "severity", "role", "meaning", "do at once"]), ""]
        if known.details:
            lines += ["### What the registers of a line mean", "", *_registers(known), ""]
    return "\n".join(lines)
