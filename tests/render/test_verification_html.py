"""The page's section about the experiments."""

from __future__ import annotations

import copy
import html as entities
import re
from typing import Any

import pytest

from nccl_triage.render import html, verification_html
from nccl_triage.render.chart_symbols import WIDTH

from .documents import diagnosed, healthy, not_run, unknown, verified
from .test_html import Page
from .verified import HOSTS, measured, path, run, verification, without_runs


def section(doc: dict[str, Any], lang: Any = "en") -> str:
    text = html.render(doc, lang)
    Page(text)
    start = text.index('<section id="verification"')
    return text[start : text.index("</section>", start)]


def confirm(doc: dict[str, Any]) -> str:
    """Return how the page says to confirm the diagnosis."""
    text = html.render(doc, "en")
    start = text.index('<h3 id="confirm">')
    return words(text[start : text.index("</section>", start)])


def words(markup: str) -> str:
    """Return the English text of a piece of the page, on one line."""
    markup = re.sub(r'<(span|text) class="zh".*?</\1>', "", markup)
    markup = re.sub(r"</?bdi>", "", markup)
    return " ".join(entities.unescape(re.sub(r"<[^>]+>", " ", markup)).split())


def rows(markup: str, caption: str) -> list[list[str]]:
    """Return the cells of the table whose region has this name."""
    start = markup.index(f'aria-label="{caption}"')
    table = markup[start : markup.index("</table>", start)]
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in re.findall(r"<tr>(.*?)</tr>", table, re.S)]
    return [[words(cell) for cell in row] for row in cells]


def test_the_outcome_its_reason_and_what_it_did_to_the_confidence():
    text = words(section(verified()))
    assert text.startswith("Verification confirmed NCCL took the wrong network interface network-wrong-interface :")
    assert "The control fails as diagnosed in every run" in text
    assert "confidence 0.71 likely → 0.99 established" in text
    assert "Narrowed down to the pair node-a, node-b in 3 further runs." in text
    assert "3 hosts instead of 4" in text
    assert "torch cannot be imported on node-d" in text
    assert "a bridge on each host, not a network between them network-wrong-interface" in text


def test_every_run_has_a_row():
    found = rows(section(verified()), "The runs")
    assert found[0] == ["Run", "Outcome", "Changed", "Collective", "Seconds", "GB/s", "What it shows"]
    assert [row[0] for row in found[1:]] == [f"run-{n:02d}" for n in range(1, 7)]
    assert found[1][1:5] == [
        "error (connecting to each other)",
        "control",
        "ALLREDUCE 67,108,864 x bfloat16 nccl, ranks 0-5 on node-a, node-b, node-c",
        "32.1",
    ]
    assert "a bridge on each host" in found[1][6]
    assert found[3][1:3] == ["passed", "on an interface that all hosts can reach"]
    assert found[3][5] == "0.110"
    assert "slower than the expected" in found[3][6]
    assert found[6][1] == "hung (first collective)"
    assert found[6][6] == "deadline before 'warm': 30 s"


def test_treatments_say_whether_they_pass():
    text = words(section(verified()))
    assert "passes on an interface that all hosts can reach (run-03, run-04)" in text
    assert "fails with all ranks on one host (run-05, run-06)" in text


def test_the_matrix_names_states_and_interfaces():
    found = rows(section(verified()), "Reachability between the hosts")
    assert found[0] == ["From \\ To", *HOSTS]
    assert found[1] == [
        "node-a",
        "",
        "refused docker0 reachable eth0",
        "refused docker0 no answer eth0 1/3 reachable eth0 2/3",
    ]
    assert found[2][1] == "refused docker0 delayed eth0"


def test_failing_paths_are_one_row_for_all_their_ports_and_the_poor_come_last():
    found = rows(section(verified()), "Failing or poor paths")
    assert found[1] == ["node-a", "node-b", "docker0", "172.17.0.1:40153,52655,52805", "refused", "ECONNREFUSED"]
    assert found[-1] == [
        "node-b (eth0)",
        "node-a",
        "eth0",
        "10.0.0.1:40153,52655,52805",
        "delayed",
        "61.2 ms",
    ]
    assert len(found) == 12


def test_what_hosts_and_ranks_told_is_folded():
    text = section(verified())
    hosts = rows(text, "Hosts")
    assert hosts[1][1].split(" eth0")[0] == "lo 127.0.0.1/8, MTU 65536"
    assert "eth0 10.0.0.1/24, MTU 9000, up to 25 Gbit/s, default route" in hosts[1][1]
    assert "docker0 172.17.0.1/16, MTU 1500, down" in hosts[1][1]
    assert hosts[1][2] == "torch 2.9.1+cu128, nccl 2.27.5, driver 570.86.15, kernel 5.15.0-1065"
    assert "/dev/shm 64 MiB (63 MiB free), memlock unlimited, nofile 1,048,576" in hosts[1][3]
    reported = rows(text, "What the ranks reported")
    assert reported[1][:3] == ["run-01", "2", "3"]
    assert "unhandled system error socketStartConnect" in reported[1][3]
    assert "( last call : all_reduce )" in reported[1][3]
    assert rows(text, "Variables")[1][1] == "NCCL_SOCKET_IFNAME=docker0"
    assert text.count("<details") == 4


def test_the_bandwidth_has_a_chart_a_table_and_a_notice():
    text = section(verified())
    found = rows(text, "Bus bandwidth, GB/s")
    assert "Slower than expected . Worth a look" in words(text)
    assert "run-03 : 0.11 GB/s of bus bandwidth" in words(text)
    assert text.count('<rect class="band"') == 2
    twin = text[text.index("Same data as a table") :]
    found = rows(twin, "Bus bandwidth, GB/s")
    assert found[1][:1] + found[1][2:] == [
        "run-03",
        "128 MiB",
        "0.01789",
        "0.0660",
        "0.110",
        "0.630 - 6.20 tcp-25 , measured",
        "slower than expected",
    ]
    assert found[3][-1] == "message too small to tell"


def test_a_bandwidth_without_expectation_says_why():
    doc = verified()
    run = doc["diagnoses"][0]["verification"]["runs"][3]
    run["expected"].update(state="no-expectation", low=None, high=None, says="2.4 GB/s; no expectation: loopback")
    text = section(doc)
    assert "no expectation 2.4 GB/s; no expectation: loopback" in words(text)
    assert text.count('<rect class="band"') == 1


def test_the_rivals_have_a_line_each():
    text = words(section(verified()))
    rest = text[text.index("The other suspects") :]
    assert "refuted One rank reached the collective late straggler : The control passes" in rest
    assert "not testable with a collective A GPU ran out of memory gpu-out-of-memory : A rerun cannot show it" in rest
    assert "os-limit" not in rest


def test_the_summary_names_the_outcome_and_leads_to_the_section():
    text = html.render(verified(), "en")
    top = text[: text.index("</section>")]
    assert "confirmed" in words(top)
    assert '<a href="#verification">' in top
    assert "not verified" not in words(top).lower()


def test_the_details_are_those_of_the_first_cause_that_ran():
    doc = verified()
    best, rival = doc["diagnoses"][:2]
    rival["verification"], best["verification"] = best["verification"], without_runs("not-run", "no GPU", "没有 GPU")
    text = section(doc)
    start = words(text)
    assert start.startswith("Verification not run NCCL took the wrong network interface")
    assert "confirmed One rank reached the collective late" in start
    assert len(rows(text, "The runs")) == 7
    assert "not verified" not in start


def test_unknown_with_experiments_shows_them():
    doc = unknown()
    doc["diagnoses"][1]["verification"] = verified()["diagnoses"][0]["verification"]
    assert "confirmed One rank was late straggler" in words(section(doc))


@pytest.mark.parametrize("kind", ["replay", None])
def test_without_experiments_the_command_stands_there(kind):
    doc = diagnosed()
    doc["inputs"][0]["path"] = "my logs/trainer.log"
    for entry in doc["diagnoses"]:
        entry["experiment"] = {"kind": kind} if kind else None
    assert "No experiment has run on the hardware" in confirm(doc)
    assert "nccl-triage verify 'my logs/trainer.log'" in confirm(doc)
    assert 'id="verification"' not in html.render(doc, "en")


def test_without_a_cause_the_command_stands_with_the_possible_ones():
    doc = unknown()
    doc["diagnoses"][0]["experiment"] = {"kind": "replay"}
    assert "nccl-triage verify logs/trainer.log" in confirm(doc)


def test_a_cause_that_no_collective_can_show_has_no_command_but_the_reason():
    doc = diagnosed()
    doc["diagnoses"][0]["experiment"] = {
        "kind": "none",
        "why_not": "Memory depends on the model.",
        "why_not_zh": "取决",
    }
    assert "Memory depends on the model." in confirm(doc)
    assert "nccl-triage verify" not in confirm(doc)


def test_nothing_to_run_on_is_not_verified_with_the_reason():
    text = words(section(not_run()))
    assert "not run A GPU ran out of memory gpu-out-of-memory : it needs GPUs and NCCL" in text
    assert "nccl-triage verify logs/trainer.log" in confirm(not_run())
    assert "No experiment has run" not in confirm(not_run())


def test_a_healthy_log_has_no_section():
    assert 'id="verification"' not in html.render(healthy(), "en")


def test_chinese():
    text = section(verified(), "zh")
    for part in ("已证实", "改用所有主机都能访问的网络接口", "被拒绝", "低于预期", "又运行 3 次后缩小到这一对"):
        assert part in text


def test_keys_that_other_tools_leave_out_are_no_error():
    doc = verified()
    full = doc["diagnoses"][0]["verification"]
    for name in [*full, "-"]:
        less = copy.deepcopy(doc)
        less["diagnoses"][0]["verification"].pop(name, None)
        html.render(less, "en")
    for least in (
        {"outcome": "confirmed"},
        {"outcome": "strange", "runs": [{}], "reachability": [{}], "hosts": [{}], "treatments": [{}], "notices": [{}]},
        {"runs": [{"bandwidth": {"busbw": 1.0}, "parts": [{"bandwidth": {"busbw": 2}}], "errors": [{}]}]},
        {"narrowed": {"ranks": [1, 2]}, "before": {}, "after": {"status": "possible"}, "findings": [{}]},
    ):
        doc["diagnoses"][0]["verification"] = least
        assert "Verification" in section(doc)


def test_states_are_told_by_shape_as_well_as_by_word():
    shapes = {state: verification_html.mark(state).path for state in ("passed", "error", "hung", "crashed", "not-run")}
    assert len(set(shapes.values())) == 5
    assert verification_html.path_mark("reachable") != verification_html.path_mark("refused")
    assert verification_html.path_mark("lossy") != verification_html.path_mark("refused")
    assert verification_html.path_mark("of-a-newer-version") == verification_html.path_mark("refused")


def test_many_hosts_are_cut_to_those_with_failing_paths():
    names = [f"node-{n:02d}" for n in range(40)]
    paths = [path(one, two, "eth0", "10.0.0.9", 1, "reachable") for one in names for two in names if one != two]
    paths.append(path("node-37", "node-38", "eth0", "10.0.0.9", 2, "silent", error="TimeoutError"))
    made = verification_html.matrix(paths)
    assert made is not None
    assert len(made.hosts) == verification_html.MATRIX_HOSTS
    assert made.hosts[:2] == ["node-37", "node-38"]
    assert made.left_out == 24
    [(mark, says, names_of)] = made.rows[0][1][1] or []
    assert (mark, says.en, names_of) == (verification_html.path_mark("silent"), "no answer", "")
    assert verification_html.matrix([]) is None


def test_a_monstrous_verification_stays_below_the_cap():
    doc = verified()
    found = doc["diagnoses"][0]["verification"]
    wide = "<&\"'" * 2000
    found["runs"] = [{**found["runs"][0], "changed": wide, "env": {wide: wide}} for _ in range(3000)]
    found["reachability"] = [{**p, "error": wide, "port": n} for n in range(200) for p in found["reachability"]]
    found["hosts"] = [{**found["hosts"][0], "kernel": wide} for _ in range(500)]
    text = html.render(doc, "en")
    assert len(text.encode()) < html.HARD_CAP
    assert re.search(r"The runs: \d+ of 3000 shown; all in the JSON", text)


def test_one_row_a_measurement_with_its_band():
    rows = verification_html.measurements(verification()["runs"])
    chart = verification_html.bandwidth_chart(rows)
    assert chart is not None
    assert [bar.value for bar in chart.bars] == ["0.110", "2.40", "0.00004"]
    assert [bar.tone for bar in chart.bars] == ["bad", "good", "quiet"]
    slow, good, tiny = chart.bars
    assert slow.band == good.band
    assert tiny.band is None
    assert slow.band is not None
    left, width = slow.band
    assert slow.x < left < good.x < left + width < WIDTH
    assert slow.y < good.y < tiny.y < chart.height
    assert chart.states == ["in-band", "below", "message-too-small"]
    assert chart.ticks[0][1] == "0"
    assert chart.ticks[-1][0] <= WIDTH
    assert slow.label.en.startswith("run-03: on an interface")
    assert slow.label.zh.startswith("run-03: 改用")


def test_further_collectives_of_a_run_have_rows_of_their_own():
    part = {"op": "BROADCAST", "numel": 7, "dtype": "bfloat16", **measured(3.0, "above", "fast", "快", 1.0, 2.0)}
    rows = verification_html.measurements([run(1, **measured(1.0, "no-expectation", "", "", None, None), parts=[part])])
    chart = verification_html.bandwidth_chart(rows)
    assert chart is not None
    assert [bar.label.en for bar in chart.bars] == ["run-01: control", "run-01: BROADCAST 7 x bfloat16"]
    assert [bar.state for bar in chart.bars] == ["no-expectation", "above"]


@pytest.mark.parametrize("most", [0.0, 3e-5, 0.07, 0.99, 1.0, 9.5, 100.0, 482.3, 3600.0])
def test_the_axis_has_round_steps_and_covers_the_largest(most):
    ticks = verification_html._ticks(most)
    assert ticks[0] == 0
    assert ticks[-1] >= most
    assert ticks[-1] > 0
    assert 2 <= len(ticks) <= 7


def test_nothing_measured_nothing_drawn():
    assert verification_html.measurements([run(1), {}]) == []
    assert verification_html.bandwidth_chart([]) is None


def test_states_have_different_shapes():
    assert len({shape for shape, _ in verification_html.STATES.values()}) == len(verification_html.STATES)
