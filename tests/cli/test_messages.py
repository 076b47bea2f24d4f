"""Everything that is printed to a person exists in Chinese, and the tables hold nothing else."""

from __future__ import annotations

import ast
import gzip
import importlib
import json
import os
import re
import string
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from nccl_triage import diagnose, errors, messages, resources
from nccl_triage.cli import COMMANDS, cli, every_command, language
from nccl_triage.cli.usage import GROUPS, keys
from tests.cli.texts import SOURCE, all_texts, of_module

ROOT = Path(__file__).parents[2]
#: A text of which nothing is left without its values needs no translation.
_VALUES = re.compile(r"\{[^}]*\}|[\s:,.()\[\]]")


@pytest.fixture(autouse=True)
def english_again() -> object:
    yield
    language.use("en")


def help_texts() -> dict[str, str]:
    """Return every text of ``--help`` with the command that shows it."""
    found: dict[str, str] = {}
    modules = [importlib.import_module(f"nccl_triage.cli.{module}").command for module, _ in COMMANDS.values()]
    for command in (cli, *modules, *every_command().values()):
        shown = [command.help, command.epilog, *(getattr(param, "help", None) for param in command.params)]
        for text in shown:
            found.update((key, str(command.name)) for key in keys(text or ""))
    found.update((text, name) for name, (_, text) in COMMANDS.items())
    found.update((title, "groups of options") for title, _ in GROUPS)
    return found


def test_every_text_is_a_template_or_a_constant() -> None:
    assert [f"{text.where}: {text.source}" for text in all_texts() if text.literal is None] == []


def test_every_error_and_note_has_a_chinese_text() -> None:
    known = messages.chinese()
    literals = [(text.literal or "", text.where) for text in all_texts()]
    missing = [f"{where}: {text}" for text, where in literals if _VALUES.sub("", text) and text not in known]
    assert missing == [], "add them to analyzer/nccl_triage/messages"
    assert len(literals) > 150


def test_every_help_text_has_a_chinese_text() -> None:
    found = help_texts()
    assert [f"{command}: {text}" for text, command in found.items() if text not in messages.chinese()] == []
    assert len(found) > 80


def test_every_option_is_explained() -> None:
    for words, command in every_command().items():
        assert command.help, words
        for param in command.params:
            assert not isinstance(param, click.Option) or param.help, (words, param.opts)


@pytest.mark.parametrize("name", messages.TABLES)
def test_tables_are_sorted_without_doubles_and_keep_the_values(name: str) -> None:
    text = resources.messages_dir().joinpath(f"{name}.json").read_text("utf-8")
    pairs = json.loads(text, object_pairs_hook=list)
    names = [key for key, _ in pairs]
    assert names == sorted(set(names))
    for english, chinese in pairs:
        assert _fields(english) == _fields(chinese), english
        assert chinese.strip()


def _fields(template: str) -> set[tuple[str, str, str]]:
    parts = string.Formatter().parse(template)
    return {(name, spec or "", conversion or "") for _, name, spec, conversion in parts if name is not None}


def test_tables_hold_nothing_that_nobody_says() -> None:
    said = {text.literal for text in all_texts()} | set(help_texts()) | {"error", "cause", "try"}
    for name in ("errors", "help", "notes"):
        assert sorted(set(messages.table(name)) - said) == [], name


#: What click says to programmers, or where we have words of our own (cli/usage.py).
_NOT_OURS = (
    "(Deprecated", "(Did you", "(Possible", "Aborted", "Argument", "Boolean option", "Choice(", "Could not determine", "Deprecat", "Did you mean",
    "Error", "Invalid start", "Missing", "Name '", "No options", "No such", "Positional", "Try '",
)  # fmt: skip
_NOT_USED = ("UUID", "{formats}", "{format}", "{len_type}", "Confirm", "Do you want")


def test_what_click_says_has_a_chinese_text() -> None:
    said: set[str] = set()
    for module in ("core", "decorators", "exceptions", "formatting", "parser", "types"):
        tree = ast.parse(Path(importlib.import_module(f"click.{module}").__file__ or "").read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("_", "ngettext"):
                said |= {arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)}
    missing = sorted(said - set(messages.chinese()))
    assert [t for t in missing if not t.startswith(_NOT_OURS) and not any(n in t for n in _NOT_USED)] == []
    assert "Usage:" in said


def test_the_collector_sees_what_it_must(tmp_path: Path) -> None:
    source = (
        "A = 'constant'\n"
        "def f(x):\n"
        "    raise UsageError(f'no {x}', cause='c' if x else 'd', remedy=A)\n"
        "    raise InputError('with {x}', x=x, cause=str(x))\n"
        "    node.fail('one', f'two {x}')\n"
        "    language.say('three' + x)\n"
        "    language.text('four')\n"
        "    part.text('not ours')\n"
    )
    found = [(text.literal, text.source) for text in of_module(source, SOURCE / "x.py")]
    assert [literal for literal, _ in found if literal] == ["c", "d", "constant", "with {x}", "one", "four"]
    assert [source for literal, source in found if literal is None] == [
        "f'no {x}'",
        "str(x)",
        "f'two {x}'",
        "'three' + x",
    ]


def test_errors_speak_both_languages() -> None:
    error = errors.UsageError("{path} already exists", path="x{y}", remedy="add --force to overwrite it")
    assert error.lines("en") == ["error: x{y} already exists", "try: add --force to overwrite it"]
    assert error.lines("zh") == ["错误: x{y} 已经存在", "建议: 加上 --force 可以覆盖它"]
    assert errors.UsageError("brace {").lines("zh") == ["错误: brace {"]
    both = errors.InputError("no readable input", cause="{why}", why={"en": "e", "zh": "中"})
    assert both.in_language("en")[1] == "e"
    assert both.in_language("zh")[1] == "中"


@pytest.mark.parametrize(
    ("said", "chinese"),
    [
        ("cannot read a: b.log: Permission denied", "无法读取 a: b.log：没有权限"),
        ("skipped 3 files (not logs): a.png, b.pt", "跳过 3 个文件（不是日志）：a.png, b.pt"),
        ("no file matches *.log", "没有文件与 *.log 匹配"),
        ("the gzip data ends early: the file is truncated", "gzip 数据提前结束：文件被截断"),
        ("2 bytes were not valid UTF-8", "2 个字节不是有效的 UTF-8"),
        ("something that nobody has foreseen", "something that nobody has foreseen"),
        ("", ""),
    ],
)
def test_what_the_reader_says_is_retold(said: str, chinese: str) -> None:
    assert messages.translated_text(said) == chinese
    assert messages.translated_text(said, "en") == said


def test_everything_that_the_reader_says_is_known(tmp_path: Path) -> None:
    """Make files of every odd kind and look for English words in what is said of them in Chinese."""
    (tmp_path / "empty.log").touch()
    (tmp_path / "binary.log").write_bytes(bytes(range(256)) * 50)
    (tmp_path / "archive.zip").write_bytes(b"PK\x03\x04" + b"\0" * 100)
    (tmp_path / "cut.log.gz").write_bytes(gzip.compress(b"step 1/20 loss 5.1\n" * 5000)[:60])
    (tmp_path / "damaged.log.gz").write_bytes(gzip.compress(os.urandom(5000))[:-2000] + b"x" * 2000)
    (tmp_path / "two.log.gz").write_bytes(gzip.compress(b"step 1/20 loss 5.1\n" * 50) + b"tail that is none")
    (tmp_path / "bytes.log").write_bytes(b"ok\n" * 50 + b"\xff\xfe one\n\x80\n")
    (tmp_path / "nul.log").write_bytes(b"line\n" * 50 + b"\0" * 5 + b"\nend\n")
    (tmp_path / "wide.log").write_bytes("line one\nline two\n".encode("utf-16"))
    (tmp_path / "long.log").write_bytes(b"x" * 200_000 + b"\nend\n")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "nowhere.log").symlink_to("missing")
    (tmp_path / "config.json").write_text("{}")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "none").mkdir()
    found = diagnose([tmp_path, tmp_path / "none", tmp_path / "absent.log", tmp_path / "*.nothing"]).to_dict()
    said = [*found["notes"], *(problem for source in found["inputs"] for problem in source["problems"])]
    assert len(said) > 12
    unknown = [text for text in said if messages.translated_text(text) == text and "py-spy" not in text]
    assert unknown == []


def test_the_language_asked_for() -> None:
    assert language.asked(["x", "--lang", "zh"]) == "zh"
    assert language.asked(["--lang=en", "--", "--lang", "zh"]) == "en"
    assert language.asked(["--lang", "klingon"]) is None
    assert language.asked(["--lang"]) is None


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LC_MESSAGES": "zh_TW.UTF-8", "LANG": "en_US.UTF-8"}, "zh"),
        ({}, "en"),
    ],
)
def test_the_locale(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], wanted: str) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert language.resolve("auto") == wanted


def chinese(*words: str) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of a real run in a Chinese locale."""
    environment = {"LANG": "zh_CN.UTF-8", "PYTHONPATH": str(ROOT / "analyzer"), "PATH": "/usr/bin:/bin", "HOME": "/"}
    result = subprocess.run(
        [sys.executable, "-m", "nccl_triage", *words],
        capture_output=True, encoding="utf-8", env=environment, stdin=subprocess.DEVNULL, timeout=60, check=False,
    )  # fmt: skip
    return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-such.log"], "错误: 没有可读的输入"),
        (["x.log", "--fromat", "json"], "错误: 没有选项 --fromat\n建议: 您是否想输入 --format？"),
        (["x.log", "--jobs", "0"], "错误: --jobs 的值无效\n原因: 0 不是 1 到 64 之间的整数"),
        (["x.log", "--format", "pdf"], "原因: pdf 不在可用的值之中：auto"),
        (["x.log", "--format"], "错误: 选项 '--format' 需要一个值"),
        (["rules", "show"], "错误: 缺少 RULE"),
        (["rules", "show", "a", "b"], "错误: 多余的参数"),
        (["rules", "lst"], "错误: 没有命令 nccl-triage rules lst\n建议: 您是否想输入 nccl-triage rules list？"),
        (["explian", "x"], "错误: 没有名为 explian 的文件，也没有这个命令\n建议: 您是否想输入 nccl-triage explain？"),
        (["rules", "show", "nope"], "错误: 没有规则 'nope'"),
        (["run", "no-such-command-anywhere"], "错误: 没有命令 no-such-command-anywhere"),
    ],
)
def test_usage_errors_in_chinese(words: list[str], said: str) -> None:
    code, _, error = chinese(*words)
    assert code == (127 if words[0] == "run" else 2)
    assert said in error
    assert "try" not in error


def test_help_in_chinese_and_in_english_again() -> None:
    _, shown, _ = chinese("verify", "--help")
    for words in ("用法：", "示例：", "\n选项：\n", "在手头的硬件上重跑", "[默认：auto]", "显示本帮助并退出。"):
        assert words in shown
    assert "Show " not in shown
    runner = CliRunner()
    assert "显示本帮助并退出" in runner.invoke(cli, ["--help", "--lang", "zh"]).stdout
    assert "Show this message and exit." in runner.invoke(cli, ["--help", "--lang", "en"]).stdout


def test_an_english_run_reads_no_table() -> None:
    program = (
        "from nccl_triage.cli import main\nfrom nccl_triage import messages\n"
        "try:\n    main(['--lang', 'en', 'rules', 'show', 'nope'])\nexcept SystemExit:\n    pass\n"
        "assert messages.table.cache_info().currsize == 0"
    )
    environment = {"PYTHONPATH": str(ROOT / "analyzer"), "LANG": "zh_CN.UTF-8"}
    subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True, timeout=60)


def test_interrupted_and_bug_in_chinese(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    from nccl_triage.cli import main

    def breaks(*_: object, **__: object) -> None:
        raise ZeroDivisionError("odd\x1b[2J")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for replacement, code, said in ((breaks, 70, "的缺陷：ZeroDivisionError：odd"), (interrupted, 130, "已中断")):
        monkeypatch.setattr("nccl_triage.cli.diagnose.output.wanted", replacement)
        with pytest.raises(SystemExit) as end:
            main(["--lang", "zh", "x.log"])
        assert end.value.code == code
        error = capfd.readouterr().err
        assert said in error
        assert "\x1b" not in error
