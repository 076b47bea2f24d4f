from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import random
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nccl_triage import tool_reports
from nccl_triage.errors import EXIT_USAGE, InputError
from nccl_triage.ingest import sources as module
from nccl_triage.ingest import walk
from nccl_triage.ingest.decode import LineReader
from nccl_triage.ingest.sources import STDIN, Source, display_name
from nccl_triage.tool_reports import ToolReport, json_reports
from tests.prefix_reading import find_sources

TEXT = "step 1 loss 2.0\n"


def make(folder: Path, *names: str, text: str = TEXT) -> None:
    """Write files, each with its own content."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n{text}")


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, so that paths are short."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(*arguments: str, stdin: Any = None, links: bool = False) -> tuple[list[str], list[str]]:
    sources, notes = find_sources(arguments, stdin, links=links)
    return [source.path for source in sources], notes


def content(source: Source) -> bytes:
    with source.open() as stream:
        return stream.read()


# What arguments mean.


def test_a_file(inside: Path) -> None:
    make(inside, "train.log")
    sources, notes = find_sources(["train.log"], None)
    assert [(source.path, source.info.path) for source in sources] == [("train.log", "train.log")]
    assert content(sources[0]).endswith(TEXT.encode())
    assert sources[0].size == (inside / "train.log").stat().st_size
    assert sources[0].rereadable
    assert notes == []


def test_arguments_keep_their_order_and_folders_are_sorted(inside: Path) -> None:
    make(inside, "z.log", "logs/rank10.log", "logs/rank9.log", "logs/deep/er/x.log", "a.log")
    assert found("z.log", "logs", "a.log")[0] == [
        "z.log",
        "logs/deep/er/x.log",
        "logs/rank9.log",
        "logs/rank10.log",
        "a.log",
    ]


def test_patterns_are_expanded_when_the_shell_has_not(inside: Path) -> None:
    make(inside, "rank0.log", "rank1.log", "sub/rank2.log", "notes.txt")
    assert found("rank*.log")[0] == ["rank0.log", "rank1.log"]
    assert found("**/rank?.log")[0] == ["rank0.log", "rank1.log", "sub/rank2.log"]
    assert found("s[tu]b")[0] == ["sub/rank2.log"]


def test_a_name_with_brackets_is_no_pattern(inside: Path) -> None:
    make(inside, "job[1].log", "job1.log")
    assert found("job[1].log")[0] == ["job[1].log"]


def test_a_pattern_without_match_is_told(inside: Path) -> None:
    make(inside, "a.log")
    assert found("a.log", "*.err")[1] == ["no file matches *.err"]


def test_standard_input(inside: Path) -> None:
    make(inside, "a.log")
    sources, _ = find_sources(["-", "a.log", "-"], io.BytesIO(b"piped\n"))
    assert [source.path for source in sources] == [STDIN, "a.log"]
    assert sources[0].info.layout is None and not sources[0].rereadable
    assert content(sources[0]) == b"piped\n"


@pytest.mark.parametrize("name", ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
def test_other_names_of_standard_input(name: str) -> None:
    sources, _ = find_sources([name], io.BytesIO(b"piped\n"))
    assert [source.path for source in sources] == [STDIN]


def test_compressed_standard_input_is_unpacked_and_stays_open() -> None:
    stdin = io.BytesIO(gzip.compress(b"piped\n"))
    sources, _ = find_sources(["-"], stdin)
    assert content(sources[0]) == b"piped\n"
    assert not stdin.closed


def test_no_argument_reads_what_is_piped_in() -> None:
    assert found(stdin=io.BytesIO(b"x\n"))[0] == [STDIN]


def test_no_argument_on_a_terminal_is_an_error() -> None:
    class Terminal(io.BytesIO):
        def isatty(self) -> bool:
            return True

    with pytest.raises(InputError):
        find_sources([], Terminal(b"x\n"))
    with pytest.raises(InputError):
        find_sources([], None)
    assert found("-", stdin=Terminal(b"x\n"))[0] == [STDIN]


def test_a_missing_standard_input_is_told(inside: Path) -> None:
    make(inside, "a.log")
    assert found("a.log", "-") == (["a.log"], ["cannot read standard input: there is none"])


def test_a_real_pipe_as_standard_input(inside: Path) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, gzip.compress(b"from a pipe\n" * 1000))
    os.close(write_end)
    with os.fdopen(read_end, "rb") as stdin:
        sources, _ = find_sources(["-"], stdin)
        assert content(sources[0]) == b"from a pipe\n" * 1000


# Each file once.


def test_a_file_reached_twice_is_read_once(inside: Path) -> None:
    make(inside, "logs/a.log", "logs/b.log")
    (inside / "logs/link.log").symlink_to("a.log")
    os.link(inside / "logs/b.log", inside / "hard.log")
    (inside / "again").symlink_to("logs")
    paths, notes = found("logs/b.log", "logs", "logs/*.log", "./logs/a.log", "hard.log", "again", str(inside))
    assert paths == ["logs/b.log", "logs/a.log"]
    assert notes == []


LEFT_OUT = "links that lead out of the folder; --follow-links reads them"


def test_a_link_out_of_the_folder_is_followed_only_when_asked(inside: Path) -> None:
    make(inside, "elsewhere/x.log", "secret.log", "logs/a.log", "logs-of-somebody/b.log")
    (inside / "logs/run").symlink_to(inside / "elsewhere")
    (inside / "logs/rank0.log").symlink_to("../secret.log")
    (inside / "logs/beside").symlink_to("../logs-of-somebody")
    (inside / "logs/twice").symlink_to("run")
    (inside / "logs/within.log").symlink_to("a.log")
    assert found("logs") == (
        ["logs/a.log"],
        [f"skipped 4 files ({LEFT_OUT}): logs/beside, logs/rank0.log, logs/run, logs/twice"],
    )
    assert found("logs/**/*.log") == found("logs")
    paths, notes = found("logs", links=True)
    assert paths == ["logs/a.log", "logs/beside/b.log", "logs/rank0.log", "logs/run/x.log"]
    assert notes == []
    # What is named is read, a link, too.
    assert found("logs/rank0.log", "logs/run")[0] == ["logs/rank0.log", "logs/run/x.log"]


def test_a_folder_that_is_a_link_itself_holds_what_it_leads_to(inside: Path) -> None:
    make(inside, "session_1/logs/raylet.out")
    (inside / "session_latest").symlink_to("session_1")
    (inside / "session_1/now.out").symlink_to("logs/raylet.out")
    assert found("session_latest")[0] == ["session_latest/logs/raylet.out"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc")
def test_what_the_kernel_shows_as_files_is_never_read(inside: Path) -> None:
    make(inside, "logs/a.log")
    (inside / "logs/kmsg.log").symlink_to("/proc/kmsg")
    (inside / "logs/proc").symlink_to("/proc")
    (inside / "logs/sys").symlink_to("/sys")
    started = time.monotonic()
    paths, notes = found("logs", links=True)
    assert paths == ["logs/a.log"]
    assert [note for note in notes if "kernel files, not logs" in note] != []
    for name in ("/proc", "/proc/kmsg", "/proc/self", "/"):
        with pytest.raises(InputError) as refused:
            found(name)
        assert "kernel" in str(refused.value.cause) or "the whole file system" in str(refused.value.cause)
    assert time.monotonic() - started < 5


def test_a_walk_has_bounds(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "MAX_ENTRIES", 20)
    make(inside, *(f"logs/{number}.log" for number in range(50)))
    paths, notes = found("logs")
    assert len(paths) == 20
    assert notes == ["cannot read logs: more than 20 files and folders; the rest was not read"]


def test_loops_of_links_end_and_are_told(inside: Path) -> None:
    make(inside, "logs/a.log")
    (inside / "logs/up").symlink_to("..")
    (inside / "logs/round").symlink_to("round")
    paths, notes = found("logs")
    assert paths == ["logs/a.log"]
    assert notes == [
        "cannot read logs/round: Too many levels of symbolic links",
        f"skipped 1 file ({LEFT_OUT}): logs/up",
    ]
    (inside / "logs/self").symlink_to(".")
    assert "cannot read logs/self: a link back to a folder above it, not followed" in found("logs")[1]
    assert "cannot read logs/up/logs: a link back to a folder above it, not followed" in found("logs", links=True)[1]


# What is left out.


def test_what_is_no_log_is_left_out_of_folders(inside: Path) -> None:
    make(inside, "logs/train.log", "logs/config.yaml", "logs/train.py", "logs/model.pt", "logs/.git/config")
    (inside / "logs/core").write_bytes(b"\x7fELF" + bytes(500))
    (inside / "logs/events.0").write_bytes(random.Random(1).randbytes(4000))
    paths, notes = found("logs")
    assert paths == ["logs/train.log"]
    assert notes == [
        "skipped 3 files (not logs): logs/config.yaml, logs/model.pt, logs/train.py",
        "skipped 2 files (binary, not a log): logs/core, logs/events.0",
    ]


def test_a_file_that_is_named_is_read_whatever_its_ending(inside: Path) -> None:
    make(inside, "out.py", "log.csv", "conf/x.yaml")
    assert found("out.py", "log.csv")[0] == ["out.py", "log.csv"]
    assert found("*.py")[0] == ["out.py"]
    with pytest.raises(InputError):
        find_sources(["conf/*"], None)


def test_a_named_binary_file_is_refused(inside: Path) -> None:
    make(inside, "a.log")
    (inside / "model.log").write_bytes(random.Random(1).randbytes(4000))
    assert found("model.log", "a.log") == (["a.log"], ["skipped 1 file (binary, not a log): model.log"])


def test_an_archive_of_logs_is_told(inside: Path) -> None:
    make(inside, "logs/a.log")
    shutil.make_archive("bundle", "gztar", "logs")
    paths, notes = found("bundle.tar.gz", "logs")
    assert paths == ["logs/a.log"]
    assert notes == ["skipped 1 file (an archive: unpack it first): bundle.tar.gz"]


def test_json_files_are_read_when_they_are_logs(inside: Path) -> None:
    make(inside, "x/train.log")
    (inside / "x/config.json").write_text('{"train_batch_size": 8}\n')
    (inside / "x/data.jsonl").write_text('{"prompt": "p", "text": "t"}\n')
    (inside / "x/app.jsonl").write_text('{"ts": "2025-06-03T14:14:31Z", "level": "error", "msg": "boom"}\n')
    (inside / "x/c-json.log").write_text('{"log":"a\\n","stream":"stderr","time":"t"}\n')
    assert found("x")[0] == ["x/app.jsonl", "x/c-json.log", "x/train.log"]
    assert found("x/config.json")[0] == ["x/config.json"]


def test_empty_files_are_counted(inside: Path) -> None:
    make(inside, "logs/rank0.log")
    for rank in range(1, 12):
        (inside / f"logs/rank{rank}.log").touch()
    paths, notes = found("logs")
    assert paths == ["logs/rank0.log"]
    assert len(notes) == 1 and notes[0].startswith("skipped 11 files (empty): logs/rank1.log, ")
    assert notes[0].endswith("logs/rank8.log, ...")


def test_dumps_of_the_flight_recorder_are_read_whatever_their_names(inside: Path) -> None:
    document = {"version": "2.10", "pg_config": {}, "entries": []}
    make(inside, "fr/a.log")
    for name in ("nccl_trace_rank_0", "fr-node-7_rank_1.pkl", "_dump_2"):
        (inside / "fr" / name).write_bytes(pickle.dumps(document, 2))
    (inside / "fr/nccl_trace_rank_3.json").write_text('{"entries": [], "pg_config": {}}')
    (inside / "fr/weights.pkl").write_bytes(pickle.dumps({"weights": []}))
    paths, notes = found("fr")
    assert paths == [
        f"fr/{name}"
        for name in ("_dump_2", "a.log", "fr-node-7_rank_1.pkl", "nccl_trace_rank_0", "nccl_trace_rank_3.json")
    ]
    assert notes == ["skipped 1 file (not logs): fr/weights.pkl"]


def test_pipes_and_sockets_in_a_folder_are_left_out(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(inside, "s/a.log")
    os.mkfifo(inside / "s/pipe.log")
    monkeypatch.chdir(inside / "s")  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock")
        monkeypatch.chdir(inside)
        paths, notes = found("s")
    assert paths == ["s/a.log"]
    assert notes == ["skipped 2 files (a pipe, socket or device): s/pipe.log, s/sock"]


def test_a_named_pipe_that_is_named_is_read(inside: Path) -> None:
    os.mkfifo(inside / "pipe")
    data = gzip.compress(b"through a pipe\n" * 5000)
    writer = threading.Thread(target=lambda: (inside / "pipe").write_bytes(data))
    writer.start()
    sources, notes = find_sources(["pipe"], None)
    assert content(sources[0]) == b"through a pipe\n" * 5000
    writer.join()
    assert not sources[0].rereadable and sources[0].size is None and notes == []


def test_process_substitution_is_read(inside: Path) -> None:
    """``nccl-triage <(zcat x.gz)`` names a pipe in /dev/fd."""
    read_end, write_end = os.pipe()
    os.write(write_end, b"from the shell\n")
    os.close(write_end)
    sources, _ = find_sources([f"/dev/fd/{read_end}"], None)
    assert content(sources[0]) == b"from the shell\n"
    os.close(read_end)


def test_devices_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        find_sources(["/dev/zero"], None)
    assert caught.value.cause == "skipped 1 file (a pipe, socket or device): /dev/zero"


# What cannot be read.


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder to use as an ordinary user; root may read everything."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    if os.geteuid() != 0:
        yield folder
    else:
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, 65534, 65534)
        os.seteuid(65534)
        try:
            yield folder
        finally:
            os.seteuid(0)
    for path in folder.rglob("*"):
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


def test_one_unreadable_file_does_not_stop_the_others(unprivileged: Path) -> None:
    make(unprivileged, "a.log", "b.log", "closed/c.log")
    (unprivileged / "b.log").chmod(0)
    (unprivileged / "closed").chmod(0)
    paths, notes = found(str(unprivileged))
    assert paths == [f"{unprivileged}/a.log"]
    assert notes == [
        f"cannot read {unprivileged}/b.log: Permission denied",
        f"cannot read {unprivileged}/closed: Permission denied",
    ]


def test_a_named_file_in_a_closed_folder(unprivileged: Path) -> None:
    make(unprivileged, "a.log", "closed/c.log")
    (unprivileged / "closed").chmod(0)
    paths, notes = found(f"{unprivileged}/closed/c.log", f"{unprivileged}/a.log")
    assert paths == [f"{unprivileged}/a.log"]
    assert notes == [f"cannot read {unprivileged}/closed/c.log: Permission denied"]


def test_a_file_that_is_not_there(inside: Path) -> None:
    make(inside, "a.log")
    assert found("none.log", "a.log", "a.log/x", "") == (
        ["a.log"],
        [
            "cannot read none.log: No such file or directory",
            "cannot read a.log/x: No such file or directory",
            "cannot read : No such file or directory",
        ],
    )


def test_a_name_too_long_for_the_system(inside: Path) -> None:
    make(inside, "a.log")
    paths, notes = found("x" * 300, "a.log")
    assert paths == ["a.log"] and "File name too long" in notes[0]


def test_many_unreadable_files_are_counted(inside: Path) -> None:
    make(inside, "a.log")
    _, notes = found("a.log", *(f"none{n}.log" for n in range(20)))
    assert len(notes) == 9 and notes[-1] == "12 more could not be read"


def test_nothing_readable_is_an_error_with_cause_and_remedy(inside: Path) -> None:
    (inside / "empty").mkdir()
    (inside / "zero.log").touch()
    with pytest.raises(InputError) as caught:
        find_sources(["empty", "zero.log", "none.log"], None)
    error = caught.value
    assert error.exit_code == EXIT_USAGE
    assert error.cause == ("empty holds no files; cannot read none.log: No such file or directory; zero.log is empty")
    assert error.remedy is not None and "logs/**/*.log" in error.remedy


def test_a_file_that_has_gone_meanwhile(inside: Path) -> None:
    make(inside, "a.log")
    sources, _ = find_sources(["a.log"], None)
    (inside / "a.log").unlink()
    with pytest.raises(FileNotFoundError):
        sources[0].open()


# What sources give.


def test_a_truncated_archive_is_read_as_far_as_it_goes(inside: Path) -> None:
    text = "".join(f"step {n} {random.Random(n).random()}\n" for n in range(5000)).encode()
    (inside / "train.log.gz").write_bytes(gzip.compress(text)[:-3000])
    sources, notes = find_sources(["train.log.gz"], None)
    for _ in range(2):
        assert text.startswith(content(sources[0])) and len(content(sources[0])) > 100_000
    assert sources[0].info.problems == ["the gzip data ends early: the file is truncated"]
    assert notes == []


def test_an_archive_of_which_nothing_is_left_is_a_note(inside: Path) -> None:
    make(inside, "a.log")
    (inside / "b.gz").write_bytes(gzip.compress(b"x" * 500)[:11])
    assert found("a.log", "b.gz")[1] == ["cannot read b.gz: the gzip data ends early: the file is truncated"]


def test_error_files_of_torchelastic_are_shown_as_their_traceback(inside: Path) -> None:
    folder = inside / "none_ab/attempt_0/1"
    folder.mkdir(parents=True)
    stack = "Traceback (most recent call last):\nValueError: boom\n"
    extra = {"py_callstack": stack, "timestamp": "1732357351"}
    (folder / "error.json").write_text(json.dumps({"message": {"message": "x", "extraInfo": extra}}))
    sources, _ = find_sources(["none_ab"], None)
    info = sources[0].info
    assert content(sources[0]) == stack.encode()
    assert (info.layout, info.local_rank, info.attempt) == ("torchrun", 1, 0)
    lines = list(LineReader(sources[0].open(), info))
    assert [line.text for line in lines] == stack.splitlines()
    assert not info.tail_cut


def test_other_error_files_are_read_as_text(inside: Path) -> None:
    (inside / "error.json").write_text('{"message": cut off')
    assert content(find_sources(["error.json"], None)[0][0]) == b'{"message": cut off'


def test_a_huge_error_file_is_not_taken_into_memory(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = json_reports.REPORTS[2]._replace(max_size=100)
    monkeypatch.setattr(tool_reports, "recognise", lambda name, sample: small)
    data = json.dumps({"message": "x" * 200}).encode()
    (inside / "error.json").write_bytes(data)
    assert content(find_sources(["error.json"], None)[0][0]) == data


#: A made-up form of dumps, that begin with a byte no text has.
DUMP = ToolReport(
    "dump",
    1 << 20,
    lambda name, sample: sample.startswith(b"\x80\x02dump"),
    lambda data, info: b"dump of 3 entries\n" if data.endswith(b"3") else None,
    is_text=False,
    wants=lambda name: name.startswith("dump"),
)


def dump(data: bytes, stdin: bool = False) -> tuple[bytes, list[str]]:
    """Return what is read of a file with these bytes, and the problems."""
    Path("dump.bin").write_bytes(data)
    sources, _ = find_sources(["-" if stdin else "."], io.BytesIO(data))
    return content(sources[0]), sources[0].info.problems


@pytest.mark.parametrize("stdin", [False, True])
def test_what_is_no_log_is_read_as_the_lines_that_are_made_of_it(
    inside: Path, monkeypatch: pytest.MonkeyPatch, stdin: bool
) -> None:
    monkeypatch.setattr(tool_reports, "every", lambda: (DUMP,))
    assert dump(b"\x80\x02dump 3", stdin) == (b"dump of 3 entries\n", [])
    assert dump(gzip.compress(b"\x80\x02dump 3"), stdin) == (b"dump of 3 entries\n", [])


def test_a_dump_that_is_none_or_too_large_is_left_out(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_reports, "every", lambda: (DUMP,))
    assert dump(b"\x80\x02dump of something else") == (b"", [])
    data, problems = dump(b"\x80\x02dump" + b"." * (1 << 20))
    assert data == b"" and len(problems) == 1 and "larger than the limit of 1 MiB" in problems[0]


def test_other_files_of_such_names_are_no_logs(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_reports, "every", lambda: (DUMP,))
    (inside / "dump.bin").write_bytes(b"text of something else\n")
    (inside / "a.log").write_bytes(b"a log\n")
    sources, notes = find_sources(["."], None)
    assert [source.path for source in sources] == ["a.log"] and len(notes) == 1


def test_the_path_tells_rank_and_stream(inside: Path) -> None:
    make(
        inside,
        "runs/x/rank0.out.log",
        "runs/x/rank0.err.log",
        "runs/x/rank1.out.log",
        "runs/y/0.log",
        "runs/y/1.log",
    )
    sources, _ = find_sources(["runs"], None)
    told = {source.path: (source.info.rank, source.info.stream) for source in sources}
    assert told == {
        "runs/x/rank0.err.log": (0, "stderr"),
        "runs/x/rank0.out.log": (0, "stdout"),
        "runs/x/rank1.out.log": (1, "stdout"),
        "runs/y/0.log": (0, None),
        "runs/y/1.log": (1, None),
    }


def test_neighbours_count_although_they_were_not_named(inside: Path) -> None:
    make(inside, "0.log", "1.log", "2.log")
    assert find_sources(["2.log"], None)[0][0].info.rank == 2


def test_the_folder_counts_although_it_was_not_named(inside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(inside, "none_ab/attempt_1/3/stderr.log")
    monkeypatch.chdir(inside / "none_ab/attempt_1/3")
    info = find_sources(["stderr.log"], None)[0][0].info
    assert (info.path, info.local_rank, info.attempt) == ("stderr.log", 3, 1)


def test_sources_are_settled_together(inside: Path) -> None:
    make(inside, "node0/rank0.log", "node1/rank0.log")
    assert [source.info.local_rank for source in find_sources(["."], None)[0]] == [0, 0]


def test_names_are_printable_and_unique(inside: Path) -> None:
    names = [b"a\xff.log", b"a\xfe.log", b"b\n\x1b[31m.log", "训练.log".encode()]
    for name in names:
        (inside / os.fsdecode(name)).write_text(TEXT)
    paths, _ = found(".")
    assert sorted(paths) == sorted(["a\\xff.log", "a\\xfe.log", "b\\n\\x1b[31m.log", "训练.log"])
    assert all(path.isprintable() for path in paths)
    assert [content(source).decode() for source in find_sources(["."], None)[0]] == [TEXT] * 4


def test_display_names_keep_ordinary_paths() -> None:
    assert display_name("logs/训练 (1).log") == "logs/训练 (1).log"


def test_sources_travel_between_processes(inside: Path) -> None:
    make(inside, "rank3.log")
    source = find_sources(["rank3.log"], None)[0][0]
    copy = pickle.loads(pickle.dumps(source))
    assert copy == source and content(copy) == content(source)


def test_listing_opens_no_heavy_module() -> None:
    import subprocess

    code = (
        "import sys; import nccl_triage.ingest.sources, nccl_triage.ingest.decode;"
        "print([m for m in ('numpy', 'torch', 'zstandard', 'isal', 'ray') if m in sys.modules])"
    )
    root = Path(module.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["job.o4711", "job.e4711", "run.o", "run.out", "run.err", "train.log.1", "train"])
def test_what_a_file_is_its_content_tells_and_not_its_ending(inside: Path, name: str) -> None:
    make(inside, name)
    (inside / "kernel.o").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(200))
    assert found(".")[0] == [name]
