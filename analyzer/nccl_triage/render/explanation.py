"""An explanation as text, Markdown or JSON: the blocks that its pages are made of, and its words in both languages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import click

from nccl_triage.render.markdown_text import code, plain, table
from nccl_triage.render.terminal import fold
from nccl_triage.render.vocabulary import Pair
from nccl_triage.render.words import Lang, columns, cut, prompt, visible

BlockKind = Literal["title", "head", "para", "group", "field", "item", "sub", "command", "sample", "table"]


class ExplanationBlock(NamedTuple):
    """One piece of a page.

    A ``group`` stands above items; ``field`` and ``sub`` are ``label: text``, an ``item`` carries its label in brackets, a ``table`` has ``heads`` and
    ``rows`` whose last cell may be long.
    """

    kind: BlockKind
    text: str = ""
    label: str = ""
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


_LINES = """
about = About = 说明
advice = Common advice about it = 关于它的常见说法
against = Speaks against it = 反对的证据
action = Immediate action = 立即处理
aliases = Also known as = 别名
applies_to = Applies to = 适用于
as_of = Numbers as of = 编号截至
assumed = Assumptions, each of which can be changed = 假设（均可修改）
brought_about = Brought about by = 可由以下根因引起
cause = cause = 根因
causes = Causes = 相关根因
caution = Caution = 注意
check = Cheapest check = 最省力的检查
cli_value = The value {value} = 取值 {value}
codes = Numbers = 编号
confirmed_if = Confirmed if = 证实条件
control = Control = 对照
dangerous = dangerous = 危险
decisive = decisive = 决定性
default = Default = 默认值
diagnosis-only = for diagnosis only: a test, not a fix; do not leave it in scripts = 仅用于诊断：是测试而不是修复，不应留在脚本里
env = environment variable = 环境变量
english_only = (the meanings of signatures exist in English only) = （特征的含义只有英文）
event_kind = Kind = 类别
evidence = Speaks for it = 支持的证据
evidence_against = Evidence against = 反驳以下根因
evidence_for = Evidence for = 支持以下根因
experiment = How to confirm it on the hardware = 如何在硬件上验证
explains = At low bandwidth it takes as long as the timeout: measure the bandwidth. = 在低带宽下耗时已达到超时：请测量带宽。
explains_not = Even at low bandwidth it stays far below the timeout: the size does not explain it. = 即使在低带宽下也远未达到超时：数据量解释不了超时。
family = family = 类别
families = Families = 类别
first = First = 首先
fix = Fixes in full = 完整的修复办法
flag = option = 选项
high = high = 高
hits = Entries that fit these words = 符合这些词的条目
if_no = if no = 如果否
if_yes = if yes = 如果是
instead = Do instead = 应当这样做
known_from = How it is known = 依据
known_issue = Known issue = 已知问题
known_issues = Known issues = 已知问题
knobs = How it is set = 如何设置
leads = What it may be = 可能是
leads_more = Each of these names can be explained: nccl-triage explain NAME = 以上每个名称都可以解释：nccl-triage explain NAME
legacy = an old name = 旧名称
level = level {level} = 级别 {level}
look = look first at = 首先查看
low = low = 低
meaning = What it is = 含义
means = means = 实际含义
medium = medium = 中
moderate = moderate = 中等
moves = {op} of {numel} elements ({dtype}) in {world} ranks moves {size}. = {world} 个 rank 的 {op}（{numel} 个 {dtype} 元素）传输 {size}。
name = name = 名称
near = did you mean = 您是否想找
needs = Needs = 需要
no-op = changes nothing = 没有作用
not_known = not known here = 这里没有记录
not_read = not read by {program} = {program} 不读取
not_samples = Looks similar but is not = 相似但不是
no_owner = Not a known default: the job's own code or options set it. = 不是这里已知的默认值：由作业自身的代码或选项设定。
note = note = 提示
number = number = 编号
owners = Who sets the number in Timeout(ms)= = Timeout(ms)= 中的数值由谁设定
partly = right only in part = 部分正确
phases = Phases in which one rank works and the others wait = 单个 rank 工作、其他 rank 等待的阶段
premise = Only where = 仅当
printed_by = Printed by = 打印位置
problem = problem = 问题
problems = Problems = 问题
program = Program = 程序
read = read by {program}; no further description here = {program} 会读取，这里没有更多说明
recommended = Recommended timeout = 建议的超时
references = Sources = 参考资料
refuted_if = Refuted if = 否定条件
result = {longest} x {factor}, rounded up: {shown} ({seconds} seconds). Never below PyTorch's default of 10 minutes. = {longest} × {factor}，向上取整：{shown}（{seconds} 秒）。不低于 PyTorch 默认的 10 分钟。
right = right = 正确
risks = Before you raise a timeout = 调大超时之前
rivals = Tells it from = 用于区分
role = Role = 角色
role_cascade = cascade: a victim prints it, or it can be either = 连带：受害者打印，或两者皆可能
role_context = context: a fact, or a harmless warning = 背景：事实或无害的警告
role_progress = progress: the job advances = 进展：作业在推进
role_root = root: it names a first fault = 根源：指出最初的故障
samples = As it is printed = 打印样例
sees = log = 日志
set-by-launcher = set by the launcher = 由启动器设置
severity = Severity = 严重程度
severity_error = error: work is lost = 错误：工作丢失
severity_fatal = fatal: needs a reset or repair = 致命：需要复位或维修
severity_notice = notice: for information only = 提示：仅供参考
severity_warning = warning: may announce a fault = 警告：可能预示故障
signature = signature = 特征
signatures = Signatures = 特征
since = since {version} = 自 {version} 起
size = What the collective needs = 集合操作本身需要的时间
stage_15min = Within 15 minutes = 15 分钟内
stage_5min = Within 5 minutes = 5 分钟内
stage_lasting = Long term = 长期
stages = What to do, and when = 何时做什么
status = Status = 类型
strong = strong = 强
symptom = symptom = 现象
symptoms = Symptoms = 现象
tells = Tells = 指向
tells_cause = names the cause = 指出原因
tells_either = cause or victim = 可能是原因，也可能是受害者
tells_nothing = says nothing about the cause = 与原因无关
tells_victim = printed by a victim = 由受害者打印
timeouts = Timeouts of collectives = 集合操作的超时
topics = Topics = 专题
topic_codes = the tables of numbers: CUDA, NCCL, InfiniBand, exit codes, Xid, SXid = 编号表：CUDA、NCCL、InfiniBand、退出码、Xid、SXid
topic_symptoms = what you see, what it means, how urgent it is, what to look at first = 看到什么、意味着什么、紧急程度、先查什么
touch = When to touch it = 何时需要改动
traps = Traps = 易错之处
tuning = a setting = 设置
undo = How to undo it = 如何撤销
unknown-to-nccl = not read by the program itself = 程序本身不读取
unsupported = unsupported by any source = 没有依据
until = until {version} = 到 {version} 为止
urgency = urgency {urgency} = 紧急程度：{urgency}
values = Values = 取值
variable = variable = 变量
variables = Variables = 变量
verdict = Verdict = 判断
verification = How to see that it works = 如何确认生效
warn = warning = 警告
weak = weak = 弱
who = Set by = 设定者
why = Why = 原因
why_not = Why no experiment = 为何没有实验
written_where = Defined in = 定义于
wrong = wrong = 错误
"""

WORDS: dict[str, Pair] = {
    key: Pair(english, chinese)
    for key, english, chinese in (line.rsplit(" = ", 2) for line in _LINES.strip().splitlines() if line)
}


def say(key: str, lang: Lang, **values: object) -> str:
    """Return a word of ``explain``, with its values in place; raises KeyError for an unknown one."""
    pair = WORDS[key]
    text = pair.zh if lang == "zh" else pair.en
    return text.format(**values) if values else text


Data = dict[str, Any]


def _folded(text: str, width: int | None, indent: int, hang: int) -> list[str]:
    line = " " * indent + visible(text)
    if width is None:
        return [line]
    return fold(line, max(20, width), indent + hang) or [""]


class _Text:
    """Blocks as lines of a terminal or a pipe."""

    def __init__(self, width: int | None, color: bool) -> None:
        self.width, self.color = width, color
        self.lines: list[str] = []

    def style(self, text: str, **how: Any) -> str:
        return click.style(text, **how) if self.color and text else text

    def add(self, block: ExplanationBlock) -> None:
        getattr(self, f"_{block.kind}")(block)

    def _title(self, block: ExplanationBlock) -> None:
        self.lines += [self.style(line, bold=True) for line in _folded(block.text, self.width, 0, 2)]

    def _head(self, block: ExplanationBlock) -> None:
        self.lines += ["", self.style(visible(block.text), bold=True)]

    def _para(self, block: ExplanationBlock) -> None:
        self.lines += _folded(block.text, self.width, 2, 0)

    def _group(self, block: ExplanationBlock) -> None:
        self.lines.append(f"  {visible(block.text)}:")

    def _field(self, block: ExplanationBlock) -> None:
        self.lines += _folded(f"{block.label}: {block.text}", self.width, 2, 2)

    def _item(self, block: ExplanationBlock) -> None:
        label = f"[{block.label}] " if block.label else ""
        self.lines += _folded(f"- {label}{block.text}", self.width, 2, 2)

    def _sub(self, block: ExplanationBlock) -> None:
        self.lines += _folded(f"{block.label}: {block.text}" if block.label else block.text, self.width, 6, 2)

    def _command(self, block: ExplanationBlock) -> None:
        for line in block.text.splitlines():
            self.lines.append(f"      {prompt(line)}{self.style(visible(line), fg='green')}")

    def _sample(self, block: ExplanationBlock) -> None:
        label = f"{block.label}: " if block.label else ""
        line = f"      {label}{visible(block.text)}"
        self.lines.append(cut(line, self.width) if self.width else line)

    def _table(self, block: ExplanationBlock) -> None:
        rows = [[visible(cell) for cell in row] for row in block.rows]
        wide = [max((columns(row[at]) for row in rows), default=0) for at in range(len(block.heads) - 1)]
        for row in rows:
            cells = [f"{cell}{' ' * (width - columns(cell))}" for cell, width in zip(row, wide, strict=False)]
            line = "  " + "  ".join([*cells, row[-1]])
            hang = 4 + (wide[0] if wide else 0)
            self.lines += fold(line, self.width, hang) if self.width else [line.rstrip()]


class _Markdown:
    """Blocks as Markdown."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, block: ExplanationBlock) -> None:
        getattr(self, f"_{block.kind}")(block)

    def _title(self, block: ExplanationBlock) -> None:
        self.lines += [*([""] if self.lines else []), f"## {plain(block.text)}", ""]

    def _head(self, block: ExplanationBlock) -> None:
        self.lines += ["", f"### {plain(block.text)}", ""]

    def _para(self, block: ExplanationBlock) -> None:
        self.lines += [plain(block.text), ""]

    def _group(self, block: ExplanationBlock) -> None:
        self.lines += ["", f"**{plain(block.text)}**", ""]

    def _field(self, block: ExplanationBlock) -> None:
        self.lines.append(f"- {plain(block.label)}: {plain(block.text)}")

    def _item(self, block: ExplanationBlock) -> None:
        label = f"**{plain(block.label)}** " if block.label else ""
        self.lines.append(f"- {label}{plain(block.text)}")

    def _sub(self, block: ExplanationBlock) -> None:
        label = f"{plain(block.label)}: " if block.label else ""
        self.lines.append(f"  - {label}{plain(block.text)}")

    def _command(self, block: ExplanationBlock) -> None:
        self.lines += [f"  - {code(line)}" for line in block.text.splitlines()]

    def _sample(self, block: ExplanationBlock) -> None:
        label = f"{plain(block.label)}: " if block.label else ""
        self.lines.append(f"  - {label}{code(block.text)}")

    def _table(self, block: ExplanationBlock) -> None:
        rows = [[code(row[0]), *(plain(cell) for cell in row[1:])] for row in block.rows]
        self.lines += [*table([plain(head) for head in block.heads], rows), ""]


def text(blocks: Iterable[ExplanationBlock], width: int | None = None, color: bool = False) -> str:
    """Return the blocks as lines, folded to ``width`` columns where one is given."""
    page = _Text(width, color)
    for block in blocks:
        page.add(block)
    return "\n".join(page.lines).strip("\n") + "\n"


def markdown(blocks: Iterable[ExplanationBlock]) -> str:
    """Return the blocks as Markdown."""
    page = _Markdown()
    for block in blocks:
        page.add(block)
    lines = [line for at, line in enumerate(page.lines) if line or (at and page.lines[at - 1])]
    return "\n".join(lines).strip("\n") + "\n"


def json(data: list[Data]) -> bytes:
    """Return the data themselves: one object, with a list, for whatever was asked."""
    import orjson

    document = {"schema_version": 1, "entries": data}
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def render(
    data: list[Data],
    format: str,
    lang: Lang,
    pages: Callable[[Data, Lang], list[ExplanationBlock]],
    width: int | None,
    color: bool,
) -> bytes:
    """Return entries in a format: text, markdown or json."""
    if format == "json":
        return json(data)
    blocks: list[ExplanationBlock] = []
    for at, entry in enumerate(data):
        if at and format == "text":
            blocks.append(ExplanationBlock("head", ""))
        blocks += pages(entry, lang)
    found = markdown(blocks) if format == "markdown" else text(blocks, width, color)
    return found.encode("utf-8", "replace")
