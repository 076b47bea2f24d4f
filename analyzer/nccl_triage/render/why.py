"""The pages of ``nccl-triage why``: the chain of decisions from runs to verdict, and the way of one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nccl_triage.render import phrases
from nccl_triage.render.text_page import TextPage
from nccl_triage.render.vocabulary import Pair
from nccl_triage.render.words import Document, Lang, columns, culprit_name, harmless_line, pick, visible

Trace = Mapping[str, Any]
Item = Mapping[str, Any]
#: Most lines of the chain, and of its parts: rows of evidence of the first cause, rivals, rules of failures.
LINES, ROWS, RIVALS, RULES = 25, 5, 2, 3
#: Characters of a label and of a quoted text.
_LABEL, _TEXT = 12, 160
#: Characters of the fields of a signature.
_FIELDS = 200
#: Methods that were asked before the one that named the culprit.
_BEFORE = 4
#: Characters of a pattern.
_PATTERN = 80

_WORDS = {
    "run": Pair("run", "运行"),
    "runs": Pair("{number} of {runs}", "第 {number} 次，共 {runs} 次"),
    "counts": Pair("counts", "计入"),
    "aside": Pair("set aside", "不计入"),
    "outcome": Pair("outcome", "结局"),
    "otherwise": Pair("otherwise", "否则"),
    "cause": Pair("cause", "原因"),
    "row": Pair("evidence", "证据"),
    "rival": Pair("rival", "竞争原因"),
    "culprit": Pair("culprit", "故障源"),
    "before": Pair("any of these would have named the culprit first: {names} (and {more} more)",
                   "以下任一方法都会先给出故障源：{names}（另有 {more} 个）"),
    "verdict": Pair("verdict", "结论"),
    "restart": Pair("restart", "重启"),
    "lines": Pair("{number} lines, first {place}: {says}", "{number} 行，首行 {place}：{says}"),
    "line": Pair("{place}: {says}", "{place}：{says}"),
    "explained": Pair("explained by {cause}", "已由 {cause} 解释"),
    "against": Pair("against it", "反面"),
    "text": Pair("line", "日志行"),
    "prefix": Pair("prefix", "前缀"),
    "removed": Pair("{names} removed; the message is: {message}", "已去除 {names}；消息为：{message}"),
    "no_prefix": Pair("none", "无"),
    "speaker": Pair("speaker", "来源"),
    "unknown_speaker": Pair("not known", "未知"),
    "signature": Pair("signature", "签名"),
    "signature_of": Pair("{name} ({where}): kind {kind}, role {role}", "{name}（{where}）：类型 {kind}，角色 {role}"),
    "from_parser": Pair("made of several lines by a parser", "由解析器从多行组成"),
    "part": Pair("lines {first} to {last} together", "第 {first} 至 {last} 行合为一条"),
    "counted": Pair("counted; only the first and last of many such lines are kept", "已计数；众多此类行只保留首尾"),
    "no_signature": Pair("none: no rule knows this line", "无：没有规则认识这一行"),
    "sounds": Pair("none, but it looks like an error", "无，但看起来像错误"),
    "near": Pair("nearest", "最接近"),
    "refused": Pair("{name} ({where}) matches, but its premise refuses the values: {premise}",
                    "{name}（{where}）匹配，但其前提不接受这些值：{premise}"),
    "up_to": Pair("{name} ({where}) stops matching after {beginning}", "{name}（{where}）匹配到 {beginning}"),
    "no_run": Pair("none: no line that a rule knows stands near it", "无：附近没有规则认识的行"),
    "fate": Pair("fate", "处理"),
    "no_fate": Pair("nothing was decided about it: it reports no failure", "未作判断：它没有报告故障"),
    "decides": Pair("decides", "决定"),
    "for": Pair("evidence", "证据"),
    "no_evidence": Pair("for no candidate cause", "不支持任何候选原因"),
    "more": Pair("more", "详情"),
    "ask": Pair("nccl-triage why {place} tells the way of that line", "nccl-triage why {place} 说明该行的来龙去脉"),
}  # fmt: skip


def _word(key: str, lang: Lang) -> str:
    pair = _WORDS[key]
    return pair.zh if lang == "zh" else pair.en


def chain(document: Document, color: bool, width: int | None, lang: Lang) -> str:
    """Return the page of a whole log: at most ``LINES`` lines from its runs to its verdict."""
    page, trace = TextPage(color, width, lang), document["trace"]
    page.headline(phrases.headline(document, lang))
    rows = list(_chain(document, trace, lang))
    for label, text in rows[: LINES - 2]:
        page.lines.append(f"  {_label(label, lang)}{harmless_line(text)}")
    run = trace["runs"][int(trace["chosen"]["numbers"].get("number", 1)) - 1]
    lines = run["outcome"]["lines"] or [one["decisions"][0]["subject"] for one in run["counts"]]
    if lines:
        place = _place(lines[0])
        page.lines.append(f"  {_label('more', lang)}{_word('ask', lang).format(place=visible(place))}")
    return "\n".join(_cut(line, width) for line in page.lines) + "\n"


def _chain(document: Document, trace: Trace, lang: Lang) -> Iterator[tuple[str, str]]:
    """Yield label and text of each step."""
    runs = trace["runs"]
    number = int(trace["chosen"]["numbers"].get("number", 1))
    run = runs[number - 1]
    told = _word("runs", lang).format(number=number, runs=len(runs))
    yield "run", f"{told}: {_because(trace['chosen'], lang)}"
    if run["begins"] is not None:
        yield "", f"{_place(run['begins']['subject'])}: {_because(run['begins'], lang)}"
    for key in ("counts", "set_aside"):
        for found in run[key][:RULES]:
            first = found["decisions"][0]
            form = "lines" if found["number"] > 1 else "line"
            yield (
                "counts" if key == "counts" else "aside",
                _word(form, lang).format(
                    number=found["number"], place=_place(first["subject"]), says=_because(first, lang)
                ),
            )
    outcome = run["outcome"]
    place = f"{_place(outcome['lines'][0])}: " if outcome["lines"] else ""
    yield "outcome", f"{outcome['answer']}: {place}{_because(outcome, lang)}"
    yield "otherwise", pick(outcome, "otherwise", lang)
    for index, cause in enumerate(trace["causes"][: 1 + RIVALS]):
        yield from _cause(document, index, cause, lang)
    yield "verdict", f"{trace['verdict']['answer']}: {_because(trace['verdict'], lang)}"
    yield "otherwise", pick(trace["verdict"], "otherwise", lang)
    if trace["restart"] is not None:
        yield "restart", f"{trace['restart']['answer']}: {_because(trace['restart'], lang)}"


def _cause(document: Document, index: int, cause: Item, lang: Lang) -> Iterator[tuple[str, str]]:
    status = cause["status"]
    told = f"{cause['cause']} {cause['confidence']:.2f} ({cause['score']:+.2f})"
    if index:
        yield "rival", f"{told}: {'; '.join(_row(row, lang) for row in _heaviest(cause['rows'])[:1])}"
        return
    yield "cause", f"{told}, {status['answer']}: {_because(status, lang)}"
    for row in _heaviest(cause["rows"])[:ROWS]:
        yield "row", _row(row, lang)
    diagnoses = document.get("diagnoses") or []
    for culprit in (diagnoses[0].get("culprits") or [])[:2] if diagnoses else ():
        yield "culprit", f"{culprit_name(culprit, lang)}: {pick(culprit, 'why', lang)} [{cause['found_by']}]"
    before = cause["asked_before"]
    if before:
        yield (
            "otherwise",
            _word("before", lang).format(names=", ".join(before[:_BEFORE]), more=max(0, len(before) - _BEFORE)),
        )


def _heaviest(rows: Sequence[Item]) -> list[Item]:
    return sorted(rows, key=lambda row: -abs(row["adds"]))


def _row(row: Item, lang: Lang) -> str:
    """Return a row of evidence: what it adds, its lines, and which cause explains it."""
    places = ", ".join(_place(line) for line in row["lines"][:2])
    notes = [_word("explained", lang).format(cause=row["explained_by"])] if row["explained_by"] else []
    notes += [_word("against", lang)] if row["against"] else []
    tail = f" ({'; '.join(notes)})" if notes else ""
    says = pick(row, "says", lang)
    return f"{row['adds']:+.2f} {row['row']}{f' {places}' if places else ''}: {says[:_TEXT]}{tail}"


def line(found: Item, color: bool, width: int | None, lang: Lang) -> str:
    """Return the page of one line: prefix, signatures, speaker, run, fate, evidence."""
    page = TextPage(color, width, lang)
    page.line(f"{visible(found['path'])}:{found['line']}")
    for label, text in _line(found, lang):
        page.lines.append(f"  {_label(label, lang)}{harmless_line(text)}")
    return "\n".join(_cut(row, width) for row in page.lines) + "\n"


def _line(found: Item, lang: Lang) -> Iterator[tuple[str, str]]:
    yield "text", str(found["text"])
    names = ", ".join(found["prefixes"])
    yield (
        "prefix",
        (_word("removed", lang).format(names=names, message=found["message"]) if names else _word("no_prefix", lang)),
    )
    speaker = ", ".join(f"{name} {value}" for name, value in found["speaker"].items())
    yield "speaker", speaker or _word("unknown_speaker", lang)
    for one in found["signatures"]:
        where = one["where"] or _word("from_parser", lang)
        told = _word("signature_of", lang).format(
            name=one["signature"], where=where, kind=one["kind"], role=one["role"]
        )
        fields = ", ".join(f"{name}={value}" for name, value in one["fields"].items())
        kept = "" if one["kept"] else f"; {_word('counted', lang)}"
        first, last = one["lines"] or (found["line"], found["line"])
        part = f"; {_word('part', lang).format(first=first, last=last)}" if last > first else ""
        yield "signature", f"{told}{f' [{fields[:_FIELDS]}]' if fields else ''}{kept}{part}"
    if not found["signatures"]:
        yield "signature", _word("sounds" if found["looks_like_error"] else "no_signature", lang)
    for near in found["near"]:
        key = "refused" if near["matches_up_to"] is None else "up_to"
        yield (
            "near",
            _word(key, lang).format(
                name=near["signature"],
                where=near["where"],
                premise=near["refused_by"],
                beginning=_end(near["matches_up_to"] or ""),
            ),
        )
    yield (
        "run",
        (
            _word("no_run", lang)
            if found["run"] is None
            else _word("runs", lang).format(number=found["run"], runs=found["runs"])
        ),
    )
    for made in found["decisions"]:
        yield "fate", f"{made['answer']}: {_because(made, lang)}"
        yield "otherwise", pick(made, "otherwise", lang)
    if not found["decisions"]:
        yield "fate", _word("no_fate", lang)
    decided = list(dict.fromkeys(f"{one['answer']} [{one['rule']}]" for one in found["decided_by_it"]))
    if decided:
        yield "decides", ", ".join(decided[:4])
    for row in found["evidence"]:
        yield "for", f"{row['cause']}: {_row({**row, 'lines': []}, lang)} ({row['where']})"
    if not found["evidence"]:
        yield "for", _word("no_evidence", lang)


def _end(text: str) -> str:
    """Return the end of a long pattern: there it stops to match."""
    return text if len(text) <= _PATTERN else f"..{text[-_PATTERN:]}"


def _because(decision: Item, lang: Lang) -> str:
    """Return the sentence of a decision, the lines that decided, and its rule."""
    lines = [_place(one) for one in decision["lines"][:2]]
    told = f"{', '.join(lines)}; " if lines else ""
    return f"{pick(decision, 'says', lang)} [{told}{decision['rule']}]"


def _place(item: Item | None) -> str:
    return "" if item is None else f"{item['path']}:{item['line']}"


def _label(key: str, lang: Lang) -> str:
    text = _word(key, lang) if key else ""
    return text + " " * max(1, _LABEL - columns(text))


def _cut(text: str, width: int | None) -> str:
    """Return a line as wide as the terminal; in a pipe nothing is cut."""
    if width is None or columns(text) <= width:
        return text
    while columns(text) > width - 2:
        text = text[: len(text) - max(1, (columns(text) - width) // 2)]
    return text + ".."
