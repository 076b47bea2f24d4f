"""``nccl-triage history`` and what fills it, as a user meets them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from nccl_triage.cli import cli
from nccl_triage.errors import UsageError
from nccl_triage.history import store
from tests.cli.processes import environment, run
from tests.history.made import failed, healthy
from tests.history.test_record import XID

PASSWORD = "PASSWORD=correct-horse-battery\n"


def history(*words: str, path: Path) -> Result:
    result = CliRunner().invoke(cli, ["history", *words, "--history", str(path)])
    assert result.exit_code == 0, result.output
    return result


def triage(*words: str, path: Path | None) -> Result:
    result = CliRunner().invoke(cli, [*words, *(["--history", str(path)] if path else ["--no-history"])])
    assert isinstance(result.exception, (SystemExit, type(None))), result.exception
    return result


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """Return a history of hosts of which one fails again and again."""
    path = tmp_path / "history.sqlite"
    with store.writable(path) as kept:
        for days in (1, 3, 5):
            kept.keep(failed("gpu07", days=days, pci="3b:00"))
        kept.keep(failed("gpu08", "network-ib-link-fault", days=2))
        kept.keep(failed("gpu08", "network-ib-link-fault", days=4))
        kept.keep(failed("gpu09", "application-exception", days=1))
        kept.keep(failed("gpu09", "application-exception", days=2))
        kept.keep(failed("gpu11", days=40))
        kept.keep(failed("gpu11", days=41))
        kept.keep(failed("$(reboot)\n", days=1))
        kept.keep(failed("$(reboot)\n", days=2))
        kept.keep(healthy(0.5, ("gpu07", "gpu08")))
    return path


def test_a_diagnosis_is_kept_and_told_of_next_time(tmp_path: Path) -> None:
    path, logs = tmp_path / "history.sqlite", []
    for day in (12, 13, 14):
        log = tmp_path / f"{day}.log"
        log.write_text(PASSWORD + XID.replace("2026-11-12", f"2026-11-{day}").replace("1001", f"10{day}"))
        logs.append(log)
    first = triage(str(logs[0]), path=path)
    assert "history:" not in first.stdout
    assert first.stderr == ""
    triage(str(logs[1]), path=path)
    third = triage(str(logs[2]), path=path).stdout
    culprit = re.search(r"culprit: .*? on (\w+)", third)
    assert culprit is not None
    assert f"history: {culprit[1]} failed 2 times in the 14 days before: gpu-hardware-fault" in third
    assert json.loads(triage(str(logs[2]), "--format", "json", path=path).stdout)["recurrence"]
    with store.readable(path) or pytest.fail("it is there") as kept:
        assert len(kept.incidents()) == 3, "the last log was read twice"
    assert b"correct-horse" not in path.read_bytes()
    assert b"fallen off" not in path.read_bytes()


@pytest.mark.parametrize(
    ("words", "variable", "key", "kept"),
    [
        ((), None, None, "default"),
        (("--no-history",), None, None, None),
        (("--no-history",), "chosen", None, None),
        ((), "off", None, None),
        ((), "", None, None),
        ((), "chosen", "off", "chosen"),
        ((), None, "off", None),
        ((), None, "kept.sqlite", "config"),
        (("--history", "off"), "chosen", "kept.sqlite", None),
        (("--redact",), "chosen", None, None),
    ],
)
def test_flag_variable_and_key_agree(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    variable: str | None,
    key: str | None,
    kept: str | None,
) -> None:
    (tmp_path / "train.log").write_text(XID)
    (tmp_path / "config" / "nccl-triage").mkdir(parents=True)
    if key is not None:
        (tmp_path / "config" / "nccl-triage" / "config.yaml").write_text(f"history: {key}\n")
    places = {
        "default": tmp_path / "state" / "nccl-triage" / "history.sqlite",
        "chosen": tmp_path / "chosen.sqlite",
        "config": tmp_path / "config" / "nccl-triage" / "kept.sqlite",
    }
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("NCCL_TRIAGE_HISTORY")
    if variable is not None:
        monkeypatch.setenv("NCCL_TRIAGE_HISTORY", str(places.get(variable, variable)))
    result = CliRunner().invoke(cli, [str(tmp_path / "train.log"), *words])
    assert result.exit_code == 0, result.output
    assert [name for name, path in places.items() if path.exists()] == ([kept] if kept else [])
    if words != ("--redact",):
        told = CliRunner().invoke(cli, ["history", "path", *(word for word in words if word != "--no-history")])
        if "--no-history" not in words:
            assert told.stdout == (f"{places[kept]}\n" if kept else "")
            assert kept or "it is switched off" in str(told.exception)


@pytest.mark.parametrize("follow", [True, False])
def test_a_pipe_is_kept_at_its_end(tmp_path: Path, follow: bool) -> None:
    path = tmp_path / "history.sqlite"
    if follow:
        done = subprocess.run(
            [sys.executable, "-m", "nccl_triage", "--follow", "-", "-q"], input=XID.encode(), capture_output=True,
            env=environment(NCCL_TRIAGE_HISTORY=str(path)), timeout=120, check=True,
        )  # fmt: skip
        assert b"gpu-hardware-fault" in done.stdout
    else:
        CliRunner().invoke(cli, ["-", "--history", str(path)], input=XID.encode())
    with store.readable(path) or pytest.fail("it is there") as kept:
        (one,) = kept.incidents()
        whole = kept.incident(one.id)
    assert whole is not None
    assert whole.cause == "gpu-hardware-fault"
    assert whole.inputs[0].path == "<stdin>"


def test_a_wrapped_command_is_kept_when_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    assert run("run", "--", "true", NCCL_TRIAGE_HISTORY=str(path)).returncode == 0
    assert not path.exists()
    script = tmp_path / "job.sh"
    script.write_text(f"cat <<'END'\n{XID}END\nexit 3\n")
    assert run("run", "--", "sh", str(script), NCCL_TRIAGE_HISTORY=str(path)).returncode == 3
    assert [one["cause"] for one in json.loads(history("--format", "json", path=path).stdout)["incidents"]] == [
        "gpu-hardware-fault"
    ]


def test_a_history_that_cannot_be_used_is_said_and_changes_neither_verdict_nor_code(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(XID)
    (tmp_path / "notes.txt").write_text("not a database, only a note that is long enough to be looked at\n" * 40)
    words = (str(tmp_path / "train.log"), "--exit-code", "--format", "markdown")
    good = triage(*words, path=None)
    bad = triage(*words, path=tmp_path / "notes.txt")
    quiet = triage(*words, "-q", path=tmp_path / "notes.txt")
    nowhere = triage(*words, path=tmp_path / "notes.txt" / "below" / "h.sqlite")
    assert good.exit_code == 1
    for one in (bad, quiet, nowhere):
        assert (one.stdout, one.exit_code) == (good.stdout, good.exit_code)
    assert bad.stderr.splitlines() == [
        f"nccl-triage: this diagnosis is not kept: the history {tmp_path / 'notes.txt'} cannot be written: it is not a database"
    ]
    assert quiet.stderr == ""
    assert "is not kept" in nowhere.stderr


def test_the_verdict_does_not_wait_for_a_writer_that_does_not_finish(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    (tmp_path / "train.log").write_text(XID)
    with store.writable(path) as kept:
        kept.keep(failed())
        with kept._writing():
            done = triage(str(tmp_path / "train.log"), path=path)
    assert "root cause: gpu-hardware-fault" in done.stdout
    assert done.exit_code == 0
    found = json.loads(history("--format", "json", path=path).stdout)
    assert found["total"] == 2, "it waited beside the database, and whoever looks takes it in"


def test_lists_and_filters(filled: Path) -> None:
    text = history(path=filled).stdout
    assert text.splitlines()[0].split()[3] == "healthy"
    assert "$(reboot)\n" not in text
    assert len(text.splitlines()) == 12
    found = json.loads(history("list", "--host", "gpu09", "--format", "json", path=filled).stdout)
    assert found["schema_version"] == 1
    assert {one["cause"] for one in found["incidents"]} == {"application-exception"}
    assert found["total"] == 2
    found = json.loads(
        history("--since", "36h", "--cause", "gpu-hardware-fault", "--format", "json", path=filled).stdout
    )
    assert {one["culprits"][0]["host"] for one in found["incidents"]} == {"gpu07", "$(reboot)\n"}
    assert len(found["incidents"]) == 2
    shown = history("show", "1", path=filled).stdout
    assert "culprit: rank 3 on gpu07 (PCI 3b:00)" in shown
    hosts = history("hosts", path=filled).stdout.splitlines()
    assert hosts[0].split()[:2] == ["gpu07", "3"]
    assert "Healthy jobs since: 1" in hosts[0]
    said = history("recurrence", path=filled).stdout
    assert "gpu07 failed 3 times in 14 days: gpu-hardware-fault" in said
    assert "gpu07 GPU 3b:00 failed 3 times" in said
    assert "rank 3: failures: 9, hosts: 4" in said
    assert "gpu11" not in said
    assert "gpu07 在 14 天内失败 3 次" in history("recurrence", "--lang", "zh", path=filled).stdout


def test_exclude(filled: Path, tmp_path: Path) -> None:
    assert history("exclude", path=filled).stdout == "--exclude=gpu[07-08]\n"
    assert history("exclude", "--min-failures", "3", path=filled).stdout == "--exclude=gpu07\n"
    assert history("exclude", "--min-failures", "9", path=filled).stdout == ""
    assert history("exclude", "--since", "60d", "--format", "plain", path=filled).stdout == "gpu07\ngpu08\ngpu11\n"
    assert history("exclude", "--cause", "application-exception", path=filled).stdout == "--exclude=gpu09\n"
    assert "$(reboot)" in history("exclude", path=filled).stderr
    data = json.loads(history("exclude", "--format", "json", path=filled).stdout)
    assert data["hosts"][0]["name"] == "gpu07"
    hosts, good = tmp_path / "hosts.txt", tmp_path / "good.txt"
    hosts.write_text("# ours\ngpu07 slots=8\ngpu09 slots=8\n")
    history("exclude", "--hostfile", str(hosts), "-o", str(good), path=filled)
    assert good.read_text() == "# ours\ngpu09 slots=8\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "77"], "there is no incident 77"),
        (["forget"], "nothing to forget"),
        (["forget", "77"], "there is no incident 77"),
        (["list", "--since", "yesterday"], "a time is 14d, 36h or a date"),
        (["exclude", "--format", "hostfile"], "must be given together"),
        (["exclude", "--format", "plain", "--hostfile", "x"], "must be given together"),
        (["exclude", "--hostfile", "/nowhere/hosts"], "cannot read /nowhere/hosts"),
        (["lst"], "history list?"),
    ],
)
def test_wrong_arguments_are_answered(filled: Path, words: list[str], said: str) -> None:
    result = CliRunner().invoke(cli, ["history", *words, "--history", str(filled)])
    assert isinstance(result.exception, (UsageError, click.ClickException, SystemExit))
    shown = result.output
    if isinstance(result.exception, UsageError):
        shown = "\n".join(result.exception.lines())
    elif isinstance(result.exception, click.ClickException):
        shown = result.exception.message
    assert said in shown


def test_forget(filled: Path) -> None:
    before = json.loads(history("--format", "json", path=filled).stdout)
    assert "incidents forgotten: 2" in history("forget", "--before", "30d", path=filled).stdout
    number = before["incidents"][1]["id"]
    assert "incidents forgotten: 1" in history("forget", str(number), path=filled).stdout
    after = json.loads(history("--format", "json", path=filled).stdout)
    assert after["total"] == before["total"] - 3
    assert number not in [one["id"] for one in after["incidents"]]


class Tags(HTMLParser):
    """Collects what a browser would fetch, and which elements there are."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name == "src" or (name == "href" and tag != "a")]


def test_the_page_holds_everything_in_both_languages_and_nothing_that_runs(filled: Path, tmp_path: Path) -> None:
    with store.writable(filled) as kept:
        kept.keep(failed("<script>alert(1)</script>", "gpu-hardware-fault", days=1))
        kept.keep(failed("<script>alert(1)</script>", "gpu-hardware-fault", days=2))
    page = tmp_path / "history.html"
    assert "report written" in history("report", "-o", str(page), path=filled).stderr
    text = page.read_text("utf-8")
    tags = Tags()
    tags.feed(text)
    assert "script" not in tags.tags
    assert tags.fetched == []
    assert "default-src 'none'" in text
    assert "--exclude=gpu[07-08]" in text
    assert "gpu07 failed 3 times in 14 days" in text
    assert "gpu07 在 14 天内失败 3 次" in text
    assert {"svg", "table", "main", "h1"} <= set(tags.tags)
    assert text.count("<rect") >= 6
    again = CliRunner().invoke(cli, ["history", "report", "-o", str(page), "--history", str(filled)])
    assert again.exit_code != 0, "it exists"
    nothing = history("report", path=tmp_path / "none.sqlite").stdout
    assert "No records yet" in nothing


def test_ctrl_c_ends_the_waiting_for_a_history_that_hangs(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(XID)
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom nccl_triage import __main__\nfrom nccl_triage.history import memory, store\n"
        "memory.KEEP = memory.ASK = 600\n"
        "def hangs(path):\n    Path(sys.argv[2]).touch()\n    time.sleep(600)\n"
        "store._is_there = hangs\nsys.argv = [sys.argv[0], sys.argv[1], sys.argv[2]]\n"
        "from nccl_triage import interrupts\nfrom nccl_triage.cli import main\ninterrupts.take_over()\nmain([sys.argv[1]])\n"
    )
    sign = tmp_path / "hangs"
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "train.log"), str(sign)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=environment(NCCL_TRIAGE_HISTORY=str(tmp_path / "history.sqlite")),
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not sign.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert b"interrupted" in said


def test_metrics_count_the_hosts_that_can_be_to_blame(filled: Path, tmp_path: Path) -> None:
    found = history("prometheus", path=filled).output
    assert re.findall(r'^nccl_triage_host_failures\{host="(.*)"\} (\d+)$', found, re.MULTILINE) == [
        ("gpu07", "3"), ("gpu08", "2"),
    ]  # fmt: skip
    assert "reboot" not in found
    assert 'nccl_triage_history_diagnoses{verdict="healthy"} 1\n' in found
    assert "nccl_triage_history_window_seconds 1209600\n" in found
    assert 'host="gpu11"} 2' in history("prometheus", "--since", "90d", path=filled).output
    file = tmp_path / "nccl_triage.prom"
    assert history("prometheus", "-o", str(file), path=filled).output == ""
    assert file.read_text(encoding="utf-8") == found
    again = CliRunner().invoke(cli, ["history", "prometheus", "-o", str(file), "--history", str(filled)])
    assert isinstance(again.exception, UsageError)


def test_metrics_of_no_history_are_zeros(tmp_path: Path) -> None:
    assert 'verdict="diagnosed"} 0\n' in history("prometheus", path=tmp_path / "none.sqlite").output
