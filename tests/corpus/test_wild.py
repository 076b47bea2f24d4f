"""The open benchmark: labels are checked, logs come from clones alone, and no result of a blind log is ever shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corpus.wild import __main__ as wild
from corpus.wild import (
    agreement,
    answers,
    importing,
    manifest,
    nvrx,
    opening,
    rebuild,
    report,
    run,
    schema,
    scoring,
    tables,
)
from corpus.wild.blobs import blob_id, lines_of
from corpus.wild.manifest import Entry, split_of
from nccl_triage.api import diagnose
from nccl_triage.errors import InputError, UsageError
from nccl_triage.evaluation import cases
from nccl_triage.evaluation.advice import JudgedAdvice
from nccl_triage.evaluation.run import outcome_of

OOM = (
    "epoch 1 step 10 loss 2.31\n"
    "Traceback (most recent call last):\n"
    '  File "/home/u/train.py", line 12, in <module>\n'
    "    loss = model(batch).loss\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of "
    "which 1.00 MiB is free.\n"
)
DONE = "".join(f"step {n}/20 loss {3 - n / 10:.2f}\n" for n in range(1, 21)) + "Training finished.\n"
#: Made-up repositories, one for each split.
REPOS = {
    split: next(name for n in range(100) if split_of(name := f"lab/{split}-{n}") == split) for split in manifest.SPLITS
}


def label(name: str, repo: str, files: dict[str, str], **more: Any) -> dict[str, Any]:
    """Return a label as a collector writes it."""
    base = {
        "id": name, "repo": repo, "files": [{"path": p, "blob": blob_id(t.encode())} for p, t in files.items()],
        "kind": "fine-tuning", "frameworks": ["torch"], "launcher": "torchrun", "scheduler": "slurm", "collector": "",
        "year": 2025, "lang": "en", "hang": False, "ranks": 2, "hosts": 1, "runs": 1, "outcome": "failed",
        "cause": "gpu-out-of-memory", "also_acceptable": [], "determinable": "yes", "culprit": None, "evidence_line": 5,
        "evidence_file": 0, "who_must_act": "user", "fix": "use a smaller batch", "fix_that_helped": None,
        "how_known": "judgement", "why": "the allocator ran out", "doubt": "",
        "lines": sum(lines_of(t.encode()) for t in files.values()), "bytes": sum(len(t.encode()) for t in files.values()),
        "reader": "reader-a", "date": "2026-11-28",
    }  # fmt: skip
    return {**base, **more}


def healthy(name: str, repo: str, files: dict[str, str], **more: Any) -> dict[str, Any]:
    ended = {"outcome": "finished", "cause": "healthy", "evidence_line": None, "evidence_file": None}
    return label(name, repo, files, **{**ended, **more})


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def git(folder: Path, *arguments: str) -> None:
    environment = {
        **os.environ, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
        "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
    }  # fmt: skip
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, env=environment)


def repository(folder: Path, files: dict[str, str]) -> Path:
    """Make a repository whose files a later commit removes: only their blobs are left."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "Run")
    git(folder, "rm", "-rq", ".")
    git(folder, "commit", "-qm", "Remove logs", "--allow-empty")
    return folder


def command(*arguments: str | Path) -> int:
    return wild.main([str(argument) for argument in arguments])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def unique(text: str, name: str) -> str:
    return f"run {name}\n{text}"


def benchmark(tmp_path: Path, data: Path, number: int = 9) -> Path:
    """Make clones with ``number`` failed logs and one healthy in each split, import their labels, and return the clones."""
    clones, labels = tmp_path / "clones", []
    for split, repo in REPOS.items():
        files = {f"logs/{n}.out": unique(OOM, f"{split}{n}") for n in range(number)} | {"ok.log": unique(DONE, split)}
        for n in range(number):
            path = f"logs/{n}.out"
            labels.append(label(f"{split}{n}", repo, {path: files[path]}, evidence_line=6))
        labels.append(healthy(f"{split}-ok", repo, {"ok.log": files["ok.log"]}))
        repository(clones / repo, files)
    assert command("--data", data, "import", write(tmp_path / "labels.jsonl", labels)) == 0
    return clones


# --- labels ------------------------------------------------------------------------------------------------------------


def test_a_good_label_has_no_problem() -> None:
    causes = manifest.known_causes()
    assert schema.problems(label("k1", "a/b", {"x.log": OOM}), causes) == []
    assert schema.problems(healthy("k1", "a/b", {"x.log": DONE}), causes) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"repo": "../../etc"}, "OWNER/NAME"),
        ({"repo": "a/.."}, "OWNER/NAME"),
        ({"repo": "a/b; rm -rf"}, "OWNER/NAME"),
        ({"repo": "--upload-pack=x/b"}, "OWNER/NAME"),
        ({"files": []}, "list of 1"),
        ({"files": [{"path": "../../../etc/passwd", "blob": "0" * 40}]}, "plain relative path"),
        ({"files": [{"path": "/etc/passwd", "blob": "0" * 40}]}, "plain relative path"),
        ({"files": [{"path": "a\\..\\b", "blob": "0" * 40}]}, "backslash"),
        ({"files": [{"path": "a\x00b", "blob": "0" * 40}]}, "control"),
        ({"files": [{"path": "a.log", "blob": "--help"}]}, "40 hexadecimal"),
        ({"files": [{"path": "a.log", "blob": "G" * 40}]}, "40 hexadecimal"),
        ({"files": [{"path": "a", "blob": "0" * 40}, {"path": "a", "blob": "1" * 40}]}, "twice"),
        ({"files": [{"path": "a", "blob": "0" * 40}, {"path": "a/b", "blob": "1" * 40}]}, "folder of another"),
        ({"files": [{"path": "a", "blob": "0" * 40, "size": 1}]}, "exactly a path and a blob"),
        ({"cause": "bad-luck"}, "no known cause"),
        ({"also_acceptable": ["bad-luck"]}, "no known cause"),
        ({"kind": "knitting"}, "is none of"),
        ({"kind": ["fine-tuning"]}, "is none of"),
        ({"outcome": "exploded"}, "is none of"),
        ({"outcome": "finished"}, "does not go with"),
        ({"outcome": "cut"}, "unknown only"),
        ({"evidence_line": 0}, "between"),
        ({"evidence_line": 10**30}, "between"),
        ({"evidence_line": 1e3}, "no whole number"),
        ({"evidence_line": True}, "no whole number"),
        ({"evidence_line": 6}, "behind the end"),
        ({"evidence_file": 1}, "number of no file"),
        ({"evidence_file": None}, "in no file"),
        ({"lines": 10**12}, "between"),
        ({"ranks": -1}, "between"),
        ({"hang": "no"}, "neither true nor false"),
        ({"frameworks": "torch"}, "no list"),
        ({"culprit": {"rank": None, "host": None, "why": ""}}, "neither a rank nor a host"),
        ({"culprit": {"rank": 10**18, "host": None, "why": ""}}, "between"),
        ({"culprit": {"rank": "0", "host": None, "why": ""}}, "no whole number"),
        ({"why": ""}, "empty"),
        ({"why": "\x1b[2J"}, "control"),
        ({"date": "yesterday"}, "no date"),
        ({"log": "text of a log"}, "unknown field 'log'"),
    ],
)
def test_wrong_labels_are_refused_with_the_reason(change: dict[str, Any], words: str) -> None:
    found = schema.problems({**label("k1", "a/b", {"x.log": OOM}), **change}, manifest.known_causes())
    assert found and words in "; ".join(found)


@pytest.mark.parametrize("record", [None, [], "x", 1, {}, {"id": "w0001"}])
def test_what_is_no_label_is_refused(record: Any) -> None:
    assert schema.problems(record, manifest.known_causes())


def test_missing_fields_are_named() -> None:
    record = label("k1", "a/b", {"x.log": OOM})
    del record["doubt"]
    assert schema.problems(record, manifest.known_causes()) == ["has no doubt"]


def test_git_agrees_with_our_blob_ids(tmp_path: Path) -> None:
    for text in (OOM, "", "no newline", "ä\r\n"):
        path = tmp_path / "x"
        path.write_bytes(text.encode())
        said = subprocess.run(["git", "hash-object", str(path)], capture_output=True, text=True, check=True)
        assert blob_id(text.encode()) == said.stdout.strip()
    assert [lines_of(text) for text in (b"", b"a", b"a\n", b"a\nb", b"a\r1\r2\nb\n")] == [0, 1, 1, 2, 2]


# --- splits and import -------------------------------------------------------------------------------------------------


def test_the_split_is_a_third_each_and_that_of_the_repository() -> None:
    found = [split_of(f"owner{n}/name{n}") for n in range(900)]
    assert all(250 < found.count(split) < 350 for split in manifest.SPLITS)
    assert split_of("Owner/Name") == split_of("owner/name")
    # Another hash would move logs that were looked at into the blind part.
    named = {"a/b": "open", "pytorch/pytorch": "sealed", "x/y": "blind", "NVIDIA/nccl": "open", "q/r": "sealed"}
    assert {name: split_of(name) for name in named} == named


def test_ids_never_change_and_labels_may_be_corrected(tmp_path: Path, data: Path) -> None:
    one, two = label("k1", "a/b", {"x.log": OOM}), healthy("k2", "a/c", {"y.log": DONE})
    report_ = importing.merge(data, [write(tmp_path / "k.jsonl", [one])])
    assert report_.added == ["w0001"]
    assert importing.merge(data, [write(tmp_path / "k.jsonl", [two, one])]).added == ["w0002"]
    corrected = {**one, "doubt": "the kernel may have been killed"}
    report_ = importing.merge(data, [write(tmp_path / "k.jsonl", [corrected, two])])
    assert (report_.added, report_.updated, report_.same) == ([], ["w0001"], 1)
    entries = manifest.read(data)
    assert [(e.id, e.record["source_id"], e.repo) for e in entries] == [("w0001", "k1", "a/b"), ("w0002", "k2", "a/c")]
    assert entries[0].record["doubt"] == "the kernel may have been killed"
    assert {e.split for e in entries} == {split_of("a/b"), split_of("a/c")}


def test_import_refuses_reserved_repositories_known_logs_and_shared_files(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reserved = tmp_path / "reserved.py"
    reserved.write_text("def is_reserved(name):\n    return name.lower() == 'secret/repo'\n")
    whole = tmp_path / "whole" / "logs"
    whole.mkdir(parents=True)
    (whole / "X1.log").write_text(DONE)
    records = [
        label("k1", "Secret/Repo", {"x.log": OOM}),
        healthy("k2", "a/c", {"y.log": DONE}),
        label("k3", "a/d", {"x.log": OOM + "3\n"}),
        label("k4", "a/e", {"z.log": OOM + "3\n", "z2.log": OOM + "4\n"}),
        {**label("k5", "a/f", {"x.log": OOM + "3\n"}), "reader": "reader-b"},
    ]
    arguments = (
        "--data",
        data,
        "import",
        write(tmp_path / "k.jsonl", records),
        "--reserved",
        reserved,
        "--whole",
        whole.parent,
    )
    assert command(*arguments) == 1
    said = capsys.readouterr().out
    assert not (data / "manifest.jsonl").exists() and "nothing was written" in said
    for words in (
        "Secret/Repo is reserved",
        "a log of another set",
        "shares a file with w0001",
        "the same log as w0001",
    ):
        assert words in said
    assert command(*arguments, "--skip-invalid") == 1
    assert [entry.record["source_id"] for entry in manifest.read(data)] == ["k3"]


def test_import_counts_lines_anew_where_the_log_is_at_hand(tmp_path: Path, data: Path) -> None:
    logs = tmp_path / "logs"
    for name, text in (("k1", OOM), ("k2", OOM + "2\n"), ("k3", OOM + "another text\n")):
        (logs / name).mkdir(parents=True)
        (logs / name / "x.log").write_text(text)
    records = [
        {**label("k1", "a/b", {"x.log": OOM}), "lines": 1, "bytes": 7},
        {**label("k2", "a/c", {"x.log": OOM + "2\n"}), "lines": 900, "evidence_line": 800},
        label("k3", "a/d", {"x.log": OOM + "3\n"}),
    ]
    done = importing.merge(data, [write(tmp_path / "k.jsonl", records)], skip=True)
    (entry,) = manifest.read(data)
    assert (entry.record["lines"], entry.record["bytes"]) == (5, len(OOM))
    assert len([note for note in done.notes if note.startswith("k1:")]) == 2
    assert "evidence_line 800 is behind the end of file 0" in done.refused[0]
    assert "does not have blob" in done.refused[1]


@pytest.mark.parametrize(
    "change",
    [
        {"id": "../../x"}, {"id": "w1"}, {"id": "w0001/../../y"}, {"split": "secret"}, {"source_id": ""}, {"repo": "x/../y"},
        {"files": [{"path": "a/../../b", "blob": "0" * 40}]},
    ],
)  # fmt: skip
def test_a_hostile_line_of_the_manifest_stops_every_command(
    tmp_path: Path, data: Path, change: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    importing.merge(data, [write(tmp_path / "k.jsonl", [label("k1", "a/b", {"x.log": OOM})])])
    (record,) = (json.loads(line) for line in (data / "manifest.jsonl").read_text().splitlines())
    write(data / "manifest.jsonl", [{**record, **change}])
    assert command("--data", data, "rebuild", tmp_path, tmp_path / "out") == 2
    assert "manifest.jsonl:1" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_split_that_is_not_the_hash_is_refused(tmp_path: Path, data: Path) -> None:
    importing.merge(data, [write(tmp_path / "k.jsonl", [label("k1", "a/b", {"x.log": OOM})])])
    (record,) = (json.loads(line) for line in (data / "manifest.jsonl").read_text().splitlines())
    other = next(split for split in manifest.SPLITS if split != record["split"])
    write(data / "manifest.jsonl", [{**record, "split": other}])
    with pytest.raises(InputError, match="which the repository's name gives"):
        manifest.read(data)


@pytest.mark.parametrize("text", ["{", '{"a": NaN}', "[" * 5000, '"\\ud800"', "\x00"])
def test_damaged_lines_are_one_sentence(data: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "manifest.jsonl").write_text(text + "\n")
    assert command("--data", data, "agreement") == 2
    assert capsys.readouterr().err.startswith("error: ")


# --- rebuild -----------------------------------------------------------------------------------------------------------


def test_logs_are_rebuilt_from_every_layout_of_clones(tmp_path: Path, data: Path) -> None:
    layouts = ("o/one", "o/two.git", "o+three", "o+four/repo", "o+five/repo.git")
    clones, labels = tmp_path / "clones", []
    for n, layout in enumerate(layouts):
        text = unique(OOM, str(n))
        repo = f"o/{['one', 'two', 'three', 'four', 'five'][n]}"
        labels.append(label(f"k{n}", repo, {"out/x.log": text}, evidence_line=6))
        if layout.endswith(".git"):
            made = repository(tmp_path / f"made{n}", {"out/x.log": text})
            (clones / layout).parent.mkdir(parents=True, exist_ok=True)
            git(tmp_path, "clone", "-q", "--mirror", str(made), str(clones / layout))
        else:
            repository(clones / layout, {"out/x.log": text})
    importing.merge(data, [write(tmp_path / "k.jsonl", labels)])
    out = tmp_path / "out"
    assert command("--data", data, "rebuild", clones, out) == 0
    for n, case in enumerate(cases.read(out)):
        assert case.log == out / "logs" / f"w{n + 1:04d}" / "x.log"
        assert case.log.read_text() == unique(OOM, str(n))
        assert (case.cause, case.evidence_line, case.outcome) == ("gpu-out-of-memory", 6, "failed")


def test_what_is_missing_is_told_with_the_command_that_gets_it(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clones = tmp_path / "clones"
    repository(clones / "o" / "there", {"x.log": OOM, "y.log": DONE})
    labels = [
        label("k1", "o/there", {"x.log": OOM}),
        label("k2", "o/there", {"gone.log": OOM + "rewritten\n"}),
        healthy("k3", "o/absent", {"z.log": DONE + "z\n"}),
    ]
    importing.merge(data, [write(tmp_path / "k.jsonl", labels)])
    assert command("--data", data, "rebuild", clones, tmp_path / "out") == 1
    said = capsys.readouterr().out
    assert "missing: repository o/absent, for w0003" in said
    assert f"git clone --mirror https://github.com/o/absent {clones}/o/absent.git" in said
    assert "missing: w0002: blob" in said and "gone.log) of o/there is not in the clone" in said
    assert [case.id for case in cases.read(tmp_path / "out")] == ["w0001"]
    command("--data", data, "rebuild", clones, tmp_path / "out", "--fetch-command", "none")
    assert "git clone" not in capsys.readouterr().out
    command("--data", data, "rebuild", clones, tmp_path / "out", "--fetch-command", "get {owner} {name} {x}")
    assert "get o absent {x}" in capsys.readouterr().out
    assert not (clones / "o" / "absent.git").exists()


def test_rebuilding_again_removes_what_is_gone_and_refuses_other_folders(tmp_path: Path, data: Path) -> None:
    clones = tmp_path / "clones"
    repository(clones / "o" / "there", {"x.log": OOM})
    importing.merge(data, [write(tmp_path / "k.jsonl", [label("k1", "o/there", {"x.log": OOM})])])
    entries, out = manifest.read(data), tmp_path / "out"
    rebuild.rebuild(entries, clones, out)
    (out / "logs" / "w0001" / "left.log").write_text("of an older manifest")
    rebuild.rebuild(entries, clones, out)
    assert [path.name for path in (out / "logs" / "w0001").iterdir()] == ["x.log"]
    elsewhere = tmp_path / "home"
    elsewhere.mkdir()
    (elsewhere / "thesis.txt").write_text("")
    with pytest.raises(UsageError, match="holds something else"):
        rebuild.rebuild(entries, clones, elsewhere)
    with pytest.raises(UsageError, match="is no folder"):
        rebuild.rebuild(entries, tmp_path / "none", out)


def test_an_object_that_is_no_file_and_a_partial_clone_are_told(tmp_path: Path, data: Path) -> None:
    clones = tmp_path / "clones"
    made = repository(clones / "o" / "there", {"x.log": OOM})
    tree = subprocess.run(["git", "-C", made, "rev-parse", "HEAD~1^{tree}"], capture_output=True, text=True, check=True)
    assert rebuild.read_blob([made / ".git"], tree.stdout.strip()) == (None, "is no file")
    # A partial clone asks its origin for what it lacks, which must not happen.
    git(made, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--bare", "--filter=blob:none", f"file://{made}", str(tmp_path / "partial.git"))
    assert rebuild.read_blob([tmp_path / "partial.git"], blob_id(OOM.encode())) == (None, "is not in the clone")


def test_several_files_become_a_folder_that_keeps_what_tells_ranks_apart(tmp_path: Path, data: Path) -> None:
    files = {
        "runs/a/attempt_0/0/stderr.log": unique(DONE, "rank 0"),
        "runs/a/attempt_0/1/stderr.log": unique(OOM, "rank 1"),
    }
    clones = tmp_path / "clones"
    repository(clones / "o" / "there", files)
    record = label("k1", "o/there", files, evidence_line=6, evidence_file=1)
    importing.merge(data, [write(tmp_path / "k.jsonl", [record])])
    (entry,) = manifest.read(data)
    assert entry.names == ("0/stderr.log", "1/stderr.log")
    rebuild.rebuild([entry], clones, tmp_path / "out")
    (case,) = cases.read(tmp_path / "out")
    assert (case.log, case.evidence_file) == (tmp_path / "out" / "logs" / "w0001", "1/stderr.log")
    assert (case.log / "1" / "stderr.log").read_text() == files["runs/a/attempt_0/1/stderr.log"]
    right = answers.from_common({"lines": [{"file": "1/stderr.log", "line": 6}]}, case, frozenset())
    other = answers.from_common({"lines": [{"file": "0/stderr.log", "line": 6}]}, case, frozenset())
    assert (right.line_right(), other.line_right()) == (True, False)


# --- answers -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def entry(tmp_path: Path, data: Path) -> Entry:
    repository(tmp_path / "clones" / "o" / "there", {"x.log": OOM})
    record = label("k1", "o/there", {"x.log": OOM}, culprit={"rank": 1, "host": None, "why": "it ran out"})
    importing.merge(data, [write(tmp_path / "k.jsonl", [record])])
    (found,) = manifest.read(data)
    rebuild.rebuild([found], tmp_path / "clones", tmp_path / "out")
    return found


def test_a_report_says_what_its_diagnosis_says(tmp_path: Path, entry: Entry) -> None:
    case = entry.case(tmp_path / "out")
    diagnosis = diagnose(case.log)
    said, meant = answers.from_report(diagnosis.to_dict(), case), outcome_of(case, diagnosis)
    assert said.confidence == pytest.approx(meant.confidence, abs=0.001)  # documents round it
    assert replace(said, confidence=0) == replace(meant, confidence=0)
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "w0001.json").write_text(json.dumps(diagnosis.to_dict()))
    (folder / "w0002.json").write_text(json.dumps(diagnosis.to_dict()))
    found = answers.read(folder, "nccl-triage", [entry], tmp_path / "out")
    assert found.outcomes.keys() == {"w0001"} and found.says == set(answers.SAYS)
    assert found.outcomes["w0001"].right() and found.outcomes["w0001"].outcome_right()


def test_the_repairs_of_a_report_are_those_of_its_diagnosis(tmp_path: Path, entry: Entry) -> None:
    case = replace(
        entry.case(tmp_path / "out"), advice=JudgedAdvice(("gpu-out-of-memory/lower-*",), (), ("fix_first",))
    )
    diagnosis = diagnose(case.log)
    said, meant = answers.from_report(diagnosis.to_dict(), case), outcome_of(case, diagnosis)
    assert said.helped() and said.restart_right()
    assert (said.repairs, said.restart) == (meant.repairs, meant.restart)


def test_an_answer_in_the_common_form_survives_the_round(tmp_path: Path, entry: Entry) -> None:
    case = entry.case(tmp_path / "out")
    outcome = outcome_of(case, diagnose(case.log))
    again = answers.from_common(answers.common(outcome), case, manifest.known_causes())
    for aspect in ("answer", "confidence", "lines", "files", "outcome"):
        assert getattr(again, aspect) == getattr(outcome, aspect), aspect
    assert again.culprits[:1] == outcome.culprits[:1]


def test_what_a_tool_does_not_say_is_not_scored(tmp_path: Path, entry: Entry) -> None:
    path = write(tmp_path / "a.jsonl", [{"id": "w0001", "lines": [4]}, {"id": "w0777", "lines": "on another log"}])
    found = answers.read(path, "grep", [entry], tmp_path / "out")
    assert found.says == {"line"}
    assert scoring.score(found, [entry], tmp_path / "out").measures == {"line": (1, 1)}
    found = answers.read(write(path, []), "mute", [entry], tmp_path / "out")
    assert found.says == set() and found.of(entry, tmp_path / "out").verdict == answers.NO_ANSWER


def test_a_log_without_an_answer_is_wrong_but_no_accusation(tmp_path: Path, data: Path) -> None:
    (data / "manifest.jsonl").unlink(missing_ok=True)
    importing.merge(
        data, [write(tmp_path / "k.jsonl", [healthy("k1", "a/b", {"x.log": DONE}), label("k2", "a/c", {"x": OOM})])]
    )
    entries = manifest.read(data)
    path = write(
        tmp_path / "a.jsonl", [{"id": "w0002", "verdict": "diagnosed", "cause": "gpu-out-of-memory", "confidence": 1}]
    )
    found = scoring.score(answers.read(path, "x", entries, tmp_path), entries, tmp_path).measures
    assert (found["healthy"], found["accused"], found["missed"]) == ((0, 1), (0, 1), (0, 1))
    assert found["failures"] == (1, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "guilty"}, {"verdict": "diagnosed"}, {"cause": "gpu-out-of-memory"}, {"verdict": "diagnosed", "cause": "luck"},
        {"verdict": "healthy", "cause": "os-limit"}, {"confidence": 2}, {"confidence": "0.5"}, {"confidence": True},
        {"outcome": "fine"}, {"lines": [0]}, {"lines": [10**12]}, {"lines": ["4"]}, {"lines": 4}, {"lines": [{"file": 1, "line": 1}]},
        {"culprit": 3}, {"culprit": {"rank": "3"}}, {"culprit": {"name": "x"}}, {"sure": 1},
    ],
)  # fmt: skip
def test_wrong_answers_are_one_sentence(tmp_path: Path, entry: Entry, change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"a\.jsonl:1: no answer"):
        answers.read(write(tmp_path / "a.jsonl", [{"id": "w0001", **change}]), "x", [entry], tmp_path / "out")


def response(failure: dict[str, Any] | None, lines: list[int]) -> dict[str, Any]:
    """Return what nvrx's restart agent prints, as far as it is read."""
    return {
        "schema_version": nvrx.SCHEMA, "decision": "RESTART", "decision_basis": "general_retry_available",
        "evidence": [{"line": n, "quote": "...", "supports": ["primary_failure"]} for n in lines],
        "primary_failure": failure, "secondary_failures": [], "cascades": [],
    }  # fmt: skip


def test_answers_of_nvrx_are_read_in_its_favour() -> None:
    oom = {
        "failure_class": "observed_exception", "signature": "torch.OutOfMemoryError:", "line": 5, "rank": "1", "node": None,
        "gpu": "1", "causal_role": "initiating",
    }  # fmt: skip
    files = [("a.log", 3), ("b.log", 9)]
    found = nvrx.answer(response(oom, [5, 1]), ("gpu-out-of-memory",), files)
    assert found == {
        "verdict": "diagnosed", "cause": "gpu-out-of-memory", "culprit": {"rank": 1, "host": None},
        "lines": [{"file": "b.log", "line": 2}, {"file": "a.log", "line": 1}],
    }  # fmt: skip
    assert nvrx.answer(response(oom, []), ("data-pipeline-failure",), files)["cause"] == "data-pipeline-failure"
    assert nvrx.answer(response(oom, []), ("os-limit",), files)["cause"] == "gpu-out-of-memory"
    assert nvrx.answer(response(None, []), ("os-limit",), files) == {"verdict": "healthy"}
    timeout = {**oom, "failure_class": "observed_distributed_operation_timeout", "signature": "timeout", "rank": "x"}
    assert nvrx.answer(response(timeout, [99]), ("straggler",), files) == {
        "verdict": "unknown", "cause": None, "culprit": None, "lines": [{"file": "b.log", "line": 2}]
    }  # fmt: skip
    assert {cause for causes in nvrx.COVERS.values() for cause in causes} <= manifest.known_causes()


def test_nvrx_is_asked_with_one_log_and_counts_no_confidence(tmp_path: Path, entry: Entry) -> None:
    agent = tmp_path / "python"
    failure = {"failure_class": "cuda_oom", "signature": "CUDA out of memory", "line": 5, "rank": None, "node": "n1"}
    agent.write_text(
        f"#!/bin/sh\nfor last; do :; done\ncat \"$last\" >{tmp_path}/seen\necho '{json.dumps(response(failure, []))}'\n"
    )
    agent.chmod(0o755)
    assert nvrx.is_installed(str(agent)) and not nvrx.is_installed(str(tmp_path / "none"))
    parts = [tmp_path / "a.log", tmp_path / "b.log"]
    parts[0].write_text("no newline at the end")
    parts[1].write_text("second\n")
    assert nvrx.ask(str(agent), parts) == response(failure, [])
    assert (tmp_path / "seen").read_text() == "no newline at the end\nsecond\n"
    folder = tmp_path / "nvrx"
    folder.mkdir()
    (folder / "w0001.json").write_text(json.dumps(response(failure, [])))
    found = scoring.score(answers.read(folder, "nvrx", [entry], tmp_path / "out"), [entry], tmp_path / "out")
    assert (
        found.measures["failures"] == (1, 1)
        and found.measures["line"] == (1, 1)
        and found.measures["culprit"] == (0, 1)
    )
    assert "misled" not in found.measures and "outcome" not in found.measures and found.calibration_error is None
    agent.write_text("#!/bin/sh\necho no json\n")
    assert nvrx.ask(str(agent), parts) is None


# --- scores and blindness ----------------------------------------------------------------------------------------------


def test_small_groups_are_merged_until_none_tells_of_single_logs() -> None:
    def ids(first: int, number: int) -> frozenset[str]:
        return frozenset(str(n) for n in range(first, first + number))

    groups = {"a": ids(0, 20), "b": ids(20, 9), "c": ids(29, 3), "other": ids(32, 1)}
    assert {name: len(found) for name, found in scoring.merged(groups).items()} == {"a": 20, "b, other": 13}
    assert {n: len(f) for n, f in scoring.merged({"a": ids(0, 9), "b": ids(9, 4), "c": ids(13, 4)}).items()} == {
        "a": 9,
        "other": 8,
    }
    assert scoring.merged({"a": ids(0, 3)}) == {}


def test_run_answers_with_every_tool_and_score_says_the_same(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clones, out = benchmark(tmp_path, data), tmp_path / "out"
    assert command("--data", data, "rebuild", clones, out) == 0
    capsys.readouterr()
    assert command("--data", data, "run", out, "--jobs", "2", "--write") == 0
    said = capsys.readouterr().out
    for tool in ("nccl-triage", "rules alone", "first error line", "last error line"):
        assert tool in said
    assert "nvrx" not in said
    assert "blind: 10 logs of 1 repositories, 10 answered" in said
    row = next(line for line in said.splitlines() if line.startswith("first cause of failures right"))
    assert "9/9 100 % (70-100)" in row
    stored = tables.stored(data)
    assert stored is not None and set(stored["splits"]) == {"open", "blind", "sealed", "blind and sealed"}
    ours = stored["splits"]["blind"]["tools"]["nccl-triage"]["measures"]
    assert (ours["failures"]["right"], ours["failures"]["of"], ours["outcome"]["of"]) == (9, 9, 10)
    baseline = stored["splits"]["blind"]["tools"]["first error line"]["measures"]
    assert list(baseline) == ["line"]
    assert command("--data", data, "run", out, "--nvrx", tmp_path / "none") == 2
    assert "does not have nvidia-resiliency-ext" in capsys.readouterr().err
    assert (
        command("--data", data, "score", out, out / "answers" / "nccl-triage", "--split", "blind", "--format", "json")
        == 0
    )
    scored = json.loads(capsys.readouterr().out)["splits"]["blind"]["tools"]["nccl-triage"]["measures"]
    assert scored == ours
    # What was scored as folders of reports agrees with ``nccl-triage evaluate`` of the same folder.
    assert cases.read(out)[0].group in REPOS.values()


def wrong_answers(out: Path, path: Path) -> Path:
    return write(
        path, [{"id": c.id, "verdict": "diagnosed", "cause": "os-limit", "confidence": 0.9} for c in cases.read(out)]
    )


def test_nothing_of_a_single_blind_log_is_ever_shown(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clones, out = benchmark(tmp_path, data), tmp_path / "out"
    command("--data", data, "rebuild", clones, out)
    said = wrong_answers(out, tmp_path / "a.jsonl")
    hidden = [entry for entry in manifest.read(data) if entry.split in ("blind", "sealed")]
    capsys.readouterr()
    for extra in ([], ["--misses"], ["--format", "json", "--misses"], ["--split", "blind", "--misses"]):
        assert command("--data", data, "score", out, said, *extra) == 0
        shown = capsys.readouterr().out
        for entry in hidden:
            assert entry.id not in shown and entry.repo not in shown
    assert command("--data", data, "score", out, said, "--split", "open", "--misses") == 0
    shown = capsys.readouterr().out
    assert "10 of 10 logs that may be shown" in shown
    assert "label gpu-out-of-memory: said os-limit (0.90)" in shown
    assert sum(line.startswith("w") and REPOS["open"] in line for line in shown.splitlines()) == 10


def test_evaluate_scores_the_rebuilt_folder_and_hides_blind_logs(tmp_path: Path, data: Path) -> None:
    from click.testing import CliRunner

    from nccl_triage.cli import cli

    clones, out = benchmark(tmp_path, data, number=2), tmp_path / "out"
    command("--data", data, "rebuild", clones, out)
    index = out / "cases.jsonl"
    # Every label is made wrong, so that every case is a miss.
    write(index, [{**json.loads(line), "cause": "os-limit"} for line in index.read_text().splitlines()])
    for form in ("text", "json"):
        result = CliRunner().invoke(cli, ["evaluate", str(out), "--format", form])
        assert result.exit_code == 0, result.output
        shown = {entry.id for entry in manifest.read(data) if entry.id in result.output}
        assert shown == {entry.id for entry in manifest.read(data) if entry.split == "open"}
    assert json.loads(result.output)["out"]["counts"]["outcome"]["of"] == 9


def test_too_few_blind_logs_are_not_scored(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clones, out = benchmark(tmp_path, data, number=3), tmp_path / "out"
    command("--data", data, "rebuild", clones, out)
    said = wrong_answers(out, tmp_path / "a.jsonl")
    assert command("--data", data, "score", out, said, "--split", "blind") == 2
    assert "too few" in capsys.readouterr().err
    assert command("--data", data, "score", out, said, "--split", "open") == 0


def test_sealed_logs_are_opened_once_and_count_as_open_from_then_on(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clones, out = benchmark(tmp_path, data), tmp_path / "out"
    command("--data", data, "rebuild", clones, out)
    said = wrong_answers(out, tmp_path / "a.jsonl")
    by_split = scoring.by_split(manifest.read(data))
    blind, sealed = by_split["blind"][0].id, by_split["sealed"][0].id
    assert command("--data", data, "score", out, said, "--open-sealed", blind) == 2
    assert "only sealed logs are opened" in capsys.readouterr().err
    assert not (data / "opened.jsonl").exists()
    assert command("--data", data, "score", out, said, "--open-sealed", sealed) == 0
    shown = capsys.readouterr().out
    assert sum(line.startswith("w") and REPOS["sealed"] in line for line in shown.splitlines()) == 10
    (record,) = (json.loads(line) for line in (data / "opened.jsonl").read_text().splitlines())
    assert record["repo"] == REPOS["sealed"] and len(record["ids"]) == 10 and record["opened"].startswith("20")
    after = scoring.by_split(manifest.read(data))
    assert "sealed" not in after and len(after["opened"]) == 10 and "blind and sealed" not in after
    assert {entry.split for entry in manifest.chosen(manifest.read(data), ["open"])} == {"open", "opened"}
    # Opened again, nothing is written twice.
    opening.open_sealed(data, manifest.read(data), ["all"])
    opening.open_sealed(data, manifest.read(data), [sealed])
    assert len((data / "opened.jsonl").read_text().splitlines()) == 1


def test_a_folder_that_is_not_rebuilt_is_told_with_the_command(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("--data", data, "run", tmp_path / "none") == 2
    said = capsys.readouterr().err
    assert "holds no rebuilt logs" in said and "python -m corpus.wild rebuild CLONES" in said


def test_an_error_on_one_log_stops_no_other(tmp_path: Path, data: Path) -> None:
    clones, out = benchmark(tmp_path, data, number=1), tmp_path / "out"
    command("--data", data, "rebuild", clones, out)
    entries = manifest.chosen(manifest.read(data), ["open"])
    (out / "logs" / entries[0].id / entries[0].names[0]).unlink()
    failed = run.run(entries, out, None, 2)
    assert [name.partition(":")[0] for name in failed] == [entries[0].id]
    assert [found.outcomes.keys() for found in run.compared(entries, out)] == [{entries[1].id}] * (len(run.TOOLS) - 1)


# --- two readers -------------------------------------------------------------------------------------------------------


def test_agreement_of_two_readers(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repo = REPOS["open"]
    first = [
        label("k1", repo, {"1.log": OOM + "1\n"}, culprit={"rank": 1, "host": None, "why": ""}),
        label("k2", repo, {"2.log": OOM + "2\n"}, also_acceptable=["application-exception"]),
        healthy("k3", REPOS["blind"], {"3.log": DONE + "3\n"}),
        healthy("k4", repo, {"4.log": DONE + "4\n"}),
    ]
    importing.merge(data, [write(tmp_path / "k.jsonl", first)])
    second = [
        {**first[0], "reader": "reader-b", "evidence_line": 3, "culprit": {"rank": 0, "host": None, "why": ""}},
        {
            "id": "w0002",
            "cause": "application-exception",
            "outcome": "failed",
            "reader": "reader-b",
            "date": "2026-11-28",
        },
        {"id": "k3", "cause": "unknown", "outcome": "cut", "reader": "reader-b", "date": "2026-11-28"},
        {**first[3], "reader": "reader-b"},
        first[3],
    ]
    assert command("--data", data, "import", "--second", write(tmp_path / "b.jsonl", second)) == 0
    found = agreement.measured(agreement.pairs(data))
    counted = {name: (value["right"], value["of"]) for name, value in found["agreement"].items()}
    assert counted == {"within": (3, 4), "first": (2, 4), "outcome": (3, 4), "line": (0, 1), "culprit": (0, 1)}
    # By hand: observed 3/4, expected 1/2 * 1/2 + 1/2 * 1/4 = 3/8.
    assert found["outcome_kappa"] == pytest.approx((3 / 4 - 3 / 8) / (1 - 3 / 8))
    capsys.readouterr()
    assert command("--data", data, "agreement", "--disagreements") == 0
    said = capsys.readouterr().out
    assert "w0001: reader-b differs in line, culprit" in said and "w0003" not in said
    wrong = [{"id": "w0099", "cause": "unknown", "outcome": "cut", "reader": "b", "date": "2026-11-28"}]
    assert command("--data", data, "import", "--second", write(tmp_path / "b.jsonl", wrong)) == 1
    assert "w0099 is no log of the manifest" in capsys.readouterr().out


def test_kappa_against_known_values() -> None:
    # J. Cohen's two raters as it is often printed: 20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no give 0.4.
    table = [("y", "y")] * 20 + [("y", "n")] * 5 + [("n", "y")] * 10 + [("n", "n")] * 15
    assert agreement.kappa(table) == pytest.approx(0.4)
    assert agreement.kappa([("a", "a"), ("b", "b")]) == 1
    assert agreement.kappa([("a", "b"), ("b", "a")]) == -1
    assert agreement.kappa([("a", "a")]) is None and agreement.kappa([]) is None


# --- tables ------------------------------------------------------------------------------------------------------------


def test_tables_are_made_from_stored_scores_and_without_them_show_the_independent_figures(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / tables.INDEPENDENT).write_bytes((manifest.FOLDER / tables.INDEPENDENT).read_bytes())
    assert command("--data", data, "table") == 0
    bare = capsys.readouterr().out
    assert "| first cause of failures right | 84 % of 191 |" in bare and "| wrong at 0.8 or more | 5 % |" in bare
    assert "blind" not in bare
    assert tables.short(data) == [("independent", 336, ["84 %", "85 %", "6.6 %", "4.1 %", "5 %", "79 %", "86 %"])]
    clones, out = benchmark(tmp_path, data), tmp_path / "out"
    command("--data", data, "rebuild", clones, out)
    command("--data", data, "score", out, wrong_answers(out, tmp_path / "a.jsonl"), "--write")
    capsys.readouterr()
    assert command("--data", data, "table") == 0
    full = capsys.readouterr().out
    assert "| blind third | nccl-triage | 10 | 0 % of 9 (0 to 30) |" in full
    assert "### Blind and sealed logs" in full and bare.strip() in full
    assert "a repair" not in full, "nothing of these logs was judged"
    assert "| fine-tuning | 20 |" not in full, "a single kind says what the total says"
    rows = {name: (number, cells) for name, number, cells in tables.short(data)}
    assert rows["blind"][:1] == (10,) and rows["blind"][1][:5] == ["0 %", "0 %", "100 %", "0 %", "100 %"]
    assert list(rows) == ["blind", "sealed", "independent"]
    # Scoring another split keeps what is stored of the first.
    command("--data", data, "score", out, tmp_path / "a.jsonl", "--write", "--split", "open")
    stored = tables.stored(data)
    assert stored is not None and {"open", "blind", "sealed"} <= set(stored["splits"])


def test_kinds_of_jobs_stand_in_the_table(tmp_path: Path, data: Path) -> None:
    (data / tables.INDEPENDENT).write_bytes((manifest.FOLDER / tables.INDEPENDENT).read_bytes())
    labels = [
        label(f"{split}{kind}{n}", REPOS[split], {f"{kind}{n}.log": f"{OOM}{split} {kind} {n}\n"}, kind=kind)
        for split in ("blind", "sealed") for kind, number in (("rl", 6), ("vision", 5), ("speech", 2)) for n in range(number)
    ]  # fmt: skip
    importing.merge(data, [write(tmp_path / "k.jsonl", labels)])
    entries = manifest.read(data)
    said = write(tmp_path / "a.jsonl", [{"id": e.id, "verdict": "unknown"} for e in entries])
    tables.write_scores(data, [answers.read(said, run.OURS, entries, tmp_path)], entries, tmp_path)
    lines = tables.table(data).splitlines()
    assert any(line.startswith("| rl | 12 | 0 % of 12 (0 to 24) |") for line in lines)
    assert any(line.startswith("| vision, other | 14 | 0 % of 14 (0 to 22) |") for line in lines)


def test_cells_of_nothing_are_dashes() -> None:
    assert report.cell(None) == "-" and tables.percent("failures", None) == "-"
    assert tables.percent("accused", 0.0667) == "6.7 %" and tables.percent("failures", 0.0667) == "7 %"


# --- the benchmark that is shipped -------------------------------------------------------------------------------------


def test_the_shipped_files_are_sound() -> None:
    """Whatever is in the repository is valid, holds no text of a log, and names repositories by one split each."""
    if (manifest.FOLDER / "manifest.jsonl").is_file():
        entries = manifest.read()
        assert entries and {entry.split for entry in entries} <= {*manifest.SPLITS, manifest.OPENED}
        if (manifest.FOLDER / "second.jsonl").is_file():
            assert agreement.measured(agreement.pairs(manifest.FOLDER))["logs"] > 0
    shipped = {path.suffix for path in manifest.FOLDER.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert shipped <= {".py", ".md", ".json", ".jsonl"}


def test_it_runs_as_a_program() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["analyzer", "."])}
    said = subprocess.run(
        [sys.executable, "-m", "corpus.wild", "--help"],
        cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in ("import", "agreement", "rebuild", "score", "run", "table"):
        assert name in said
