"""What terminal and Markdown make of a verification."""

from __future__ import annotations

import pytest

from nccl_triage.render import markdown, terminal, verification
from nccl_triage.render.verification import outcome_lines
from nccl_triage.render.words import columns

from .documents import diagnosed, not_run, unknown, verified
from .verified import failing, path, run
from .verified import verification as entry


def text(doc, **how):
    return terminal.render(doc, **{"color": False, "width": None, "lang": "en", "verbose": 0, **how})


def test_a_line_for_every_run_and_one_for_all_ports_of_a_path():
    lines = outcome_lines(entry(), "en")
    assert lines[0] == "confidence: 0.71 (likely) -> 0.99 (established)"
    assert lines[1].startswith(
        "run-01: error (connecting to each other), 32.1 s: control, ALLREDUCE 67,108,864 x bfloat16, "
        "ranks 0-5 on node-a, node-b, node-c, nccl: node-a and node-b both have 172.17.0.1"
    )
    assert lines[4].endswith("nccl, 2.40 GB/s")
    assert "node-a -> node-b 172.17.0.1:40153,52655,52805 (docker0): refused, ECONNREFUSED" in lines
    assert "node-a (eth0) -> node-c 10.0.0.3:40153 (eth0): no answer, TimeoutError" in lines
    assert ".. 5 more lines" in lines
    assert "differs from the failure: 3 hosts instead of 4" in lines
    assert any(line.startswith("slower than expected: run-03: 0.11 GB/s") for line in lines)
    assert not any("\n" in line for line in lines)


def test_chinese_lines_have_no_english_words_of_ours():
    lines = outcome_lines(entry(), "zh")
    assert lines[0] == "置信度: 0.71 (很可能) -> 0.99 (已确定)"
    assert lines[1].startswith("run-01: 报错 (彼此建立连接), 32.1 s: 对照, ALLREDUCE")
    assert "又运行 3 次后缩小到这一对：node-a, node-b。" in lines
    assert not any(word in " ".join(lines) for word in ("confidence", "control", "refused,", "differs"))


def test_every_verified_cause_has_its_line_on_the_terminal():
    shown = text(verified())
    assert "\n  verification: confirmed: The control fails" in shown
    assert "\n    run-01: error" in shown
    assert "\n  verification: straggler: refuted: The control passes" in shown
    assert "\n  verification: gpu-out-of-memory: not testable with a collective: A rerun" in shown
    assert "to confirm" not in shown
    assert "not verified" not in shown


def test_where_no_cause_is_named_the_line_says_which_one_was_tested():
    doc = unknown()
    doc["diagnoses"][0]["verification"] = {"outcome": "inconclusive", "reason": "One of two runs fails."}
    assert "verification: rank-divergence: inconclusive: One of two runs fails." in text(doc)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_terminal_is_not_overrun(lang):
    for line in text(verified(), width=80, lang=lang).splitlines():
        assert columns(line) <= 80 or line.lstrip().startswith("$ "), line


def test_the_command_stands_where_an_experiment_could_say_something():
    doc = diagnosed()
    doc["diagnoses"][0]["experiment"] = {"kind": "replay"}
    command = "    $ nccl-triage verify logs/trainer.log --host node-a --host node-b\n"
    assert f"\n  to confirm: add --python PATH where the job's Python is another than this one\n{command}" in text(
        doc, verbose=1
    )
    assert command in text(not_run(), verbose=1)
    assert "to confirm" not in text(diagnosed(), verbose=1)


@pytest.mark.parametrize("verbose", [0, 1])
def test_the_command_that_has_not_run_is_not_advised_again(verbose):
    doc = not_run()
    tried = {"launcher": "local", "commands": ["nccl-triage verify logs/trainer.log"], "note": None}
    other = {"launcher": "ray", "commands": ["nccl-triage verify logs/trainer.log --launcher ray"], "note": "on a node"}
    doc["diagnoses"][0]["verification"]["to_confirm"] = [other]
    assert tried["commands"][0] + "\n" not in text(doc, verbose=verbose)
    assert f"  to confirm: on a node\n    $ {other['commands'][0]}\n" in text(doc, verbose=verbose)
    assert text(doc, verbose=verbose).count("nccl-triage verify") == 1
    assert f"(on a node)\n\n```sh\n{other['commands'][0]}\n```" in markdown.render(doc, "en")


@pytest.mark.parametrize(
    "found", [None, "ls", [], ["ls"], [{"commands": []}], [{"commands": [3]}], [{"launcher": "ray"}]]
)
def test_commands_of_a_damaged_document_are_made_anew(found):
    doc = not_run()
    doc["diagnoses"][0]["verification"]["to_confirm"] = found
    assert verification.verify_command(doc) == "nccl-triage verify logs/trainer.log --host node-a --host node-b"


@pytest.mark.parametrize(
    ("paths", "command"),
    [
        (["a.log"], "nccl-triage verify a.log --job-hosts"),
        (["a b.log", "c.log"], "nccl-triage verify 'a b.log' c.log --job-hosts"),
        (["<stdin>"], "nccl-triage verify LOG... --job-hosts"),
        (["a", "b", "c", "d"], "nccl-triage verify LOG... --job-hosts"),
        ([], "nccl-triage verify LOG... --job-hosts"),
    ],
)
def test_the_command_names_the_logs_while_they_are_few(paths, command):
    assert verification.verify_command({"inputs": [{"path": name} for name in paths]}) == command


def test_markdown_has_the_runs_and_the_paths_as_tables():
    shown = markdown.render(verified(), "en")
    assert "- `network-wrong-interface`: confirmed: The control fails" in shown
    assert "- `straggler`: refuted" in shown
    assert "| `run-03` | passed | on an interface that all hosts can reach |" in shown
    assert "| node-a | node-b | `docker0` | `172.17.0.1:40153,52655,52805` | refused | ECONNREFUSED |" in shown
    assert "Possible causes: `network-link-fault`, `network-wrong-interface`" in shown
    assert "nccl-triage verify" not in shown
    assert "### 验证" in markdown.render(verified(), "zh")


def test_markdown_without_runs_has_the_command():
    shown = markdown.render(not_run(), "en")
    assert "No experiment has run on the hardware" in shown
    assert "```sh\nnccl-triage verify logs/trainer.log --host node-a --host node-b\n```" in shown


def test_paths_that_differ_in_more_than_the_port_stay_apart():
    paths = [
        path("a", "b", "eth0", "10.0.0.2", 1, "silent", error="TimeoutError"),
        path("a", "b", "eth0", "10.0.0.2", 2, "silent", error="TimeoutError"),
        path("a", "b", "eth0", "10.0.0.2", 3, "refused", error="ECONNREFUSED"),
        path("b", "a", "eth0", "10.0.0.1", 1, "lossy", sent_again=7),
        path("a", "b", "eth1", "10.1.0.2", 2, "silent", error="TimeoutError"),
        path("b", "a", "eth0", "10.0.0.1", 2, "reachable"),
    ]
    found = verification.folded(paths)
    assert [(entry["ports"], entry["state"]) for entry in found] == [
        ([1, 2], "silent"),
        ([3], "refused"),
        ([2], "silent"),
        ([1], "lossy"),
    ]
    assert verification.measured(found[-1], "en") == "7 segments retransmitted"
    assert verification.endpoint({**found[0], "ports": [1, 2, 3, 4, 5]}) == "10.0.0.2:1,2,3,4,..(5)"


def test_what_a_run_shows_is_the_most_certain_thing():
    failed = failing(1)
    assert verification.shows(failed, "en").startswith("node-a and node-b")
    failed["finding"] = None
    assert verification.shows(failed, "en").startswith("rank 2: DistBackendError: NCCL error: unhandled system error")
    assert verification.shows(run(1, outcome="hung", reason="deadline"), "en") == "deadline"
    assert verification.shows(run(1, reason="deadline"), "en") == ""


def test_a_second_dtype_is_named_with_the_message():
    part = {"op": "ALLREDUCE", "numel": 67108864, "dtype": "float32"}
    assert verification.message(run(1, parts=[part])) == "ALLREDUCE 67,108,864 x bfloat16, float32"
    assert verification.message(run(1, parts=[part, {**part, "numel": 5}])).endswith("float32 (+1)")
    assert verification.message({"op": "INIT"}) == "INIT"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(482.26, "482"), (1234.5, "1,234"), (25.04, "25.0"), (0.0567, "0.0567"), (0.00003821, "0.00004"), (0, "0"), (None, "")],
)  # fmt: skip
def test_figures_have_three_digits_and_no_powers(value, shown):
    assert verification.figure(value) == shown


@pytest.mark.parametrize(
    "narrowed", [{"ranks": [4], "kind": "one", "runs": 5}, {"hosts": ["a", "b", "c"], "kind": "group", "runs": 9}]
)
def test_what_bisection_came_to(narrowed):
    shown = verification.narrowed_text({"narrowed": narrowed}, "en")
    assert ("rank 4 in 5" if narrowed["kind"] == "one" else "a, b, c in 9") in shown
    assert verification.narrowed_text({"narrowed": None}, "en") == ""
