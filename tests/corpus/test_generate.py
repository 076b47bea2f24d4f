"""The log generator: the same bytes from the same seed, labels that are true, views and sizes that keep what they say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from corpus.generate import PROFILES, VIEWS, NoSuchIncident, causes, frameworks, healthy, incident, stream
from corpus.generate.__main__ import main
from corpus.generate.launchers import NAMES
from corpus.generate.variants import all_variants
from nccl_triage.engine.schema import RuleSet
from nccl_triage.evaluation import cases

VARIANTS = [(variant.cause, variant.name) for found in all_variants().values() for variant in found]


def evidence(log: bytes, label: dict) -> str:
    return log.split(b"\n")[label["evidence_line"] - 1].decode()


@pytest.mark.parametrize(("cause", "variant"), VARIANTS)
def test_every_variant_has_its_evidence_where_the_label_says(cause: str, variant: str) -> None:
    generated = incident(cause, 5, variant=variant, length=20_000)
    log, label = generated.log, generated.label
    assert label["cause"] == cause
    assert re.search(label["evidence"], evidence(log, label))
    assert label["culprit"]["why"]
    assert "{{" not in log.decode().replace("{{'", ""), "a field was not filled in"
    assert label["generated"]["variant"] == variant


def test_causes_are_the_tool_s(rules: RuleSet) -> None:
    assert set(causes()) <= set(rules.causes)
    assert len(causes()) >= 30
    also = {name for found in all_variants().values() for v in found for name in v.spec.get("also", [])}
    assert also <= set(rules.causes)


@pytest.mark.parametrize("cause", ["gpu-out-of-memory", "rank-divergence", "ray-node-lost"])
def test_the_same_arguments_give_the_same_bytes(cause: str) -> None:
    first, second = incident(cause, 3), incident(cause, 3)
    assert first.log == first.log == second.log
    assert first.label == second.label
    assert incident(cause, 4).log != first.log


def test_bench_profiles_are_the_same_and_exact_in_size() -> None:
    for profile in PROFILES:
        once = b"".join(stream(profile, 300_001, 1))
        assert len(once) == 300_001
        assert once == b"".join(stream(profile, 300_001, 1))
        assert once != b"".join(stream(profile, 300_001, 2))


def share(log: bytes, pattern: bytes) -> float:
    lines = log.split(b"\n")
    return sum(re.search(pattern, line) is not None for line in lines) / len(lines)


def test_bench_profiles_have_their_mix() -> None:
    logs = {profile: b"".join(stream(profile, 3_000_000)) for profile in PROFILES}
    assert 0.65 < share(logs["verbose"], b"NCCL INFO") < 0.75
    assert share(logs["quiet"], b"NCCL (INFO|WARN)") < 0.02
    errors = rb"timeout:|failed or timed out|data inconsistency|terminat|frame #|NCCL error|ncclRemote|NCCL WARN|Exception|work: "
    assert 0.25 < share(logs["storm"], errors) < 0.45
    ranks = set(re.findall(rb"\[rank(\d+)\]", logs["storm"]))
    assert len(ranks) > 300
    assert share(logs["healthy"], errors) < 0.01


def test_views_keep_what_they_say() -> None:
    whole = incident("host-out-of-memory", 8, variant="kernel-log").log
    seen = {view: incident("host-out-of-memory", 8, variant="kernel-log", view=view).log for view in VIEWS}
    assert seen["full"] == whole
    assert all(b"NCCL" in line for line in seen["grep-nccl"].splitlines())
    assert all(b"error" in line.lower() for line in seen["grep-error"].split(b"\n") if line)
    assert seen["tail-200"] == b"".join(line + b"\n" for line in whole.split(b"\n")[-201:-1])
    assert whole.endswith(seen["head-cut"])
    assert whole.startswith(seen["tail-cut"])
    assert 0 < len(seen["tail-cut"]) < len(whole)
    assert 0 < len(seen["head-cut"]) < len(whole)


@pytest.mark.parametrize("view", list(VIEWS))
@pytest.mark.parametrize("cause", ["gpu-out-of-memory", "storage-fault", "straggler"])
def test_a_label_is_true_in_every_view(cause: str, view: str) -> None:
    generated = incident(cause, 11, view=view)
    log, label = generated.log, generated.label
    if label["evidence_line"] is None:
        assert label["cause"] == "unknown"
        assert label["determinable"] == "no"
        assert cause in label["also_acceptable"]
    else:
        assert re.search(label["evidence"], evidence(log, label))


@pytest.mark.parametrize("length", [30_000, 200_000, 1_500_000])
def test_length(length: int) -> None:
    for cause in ("gpu-out-of-memory", "network-ib-link-fault"):
        assert 0.7 * length < len(incident(cause, 2, length=length).log) < 1.3 * length
    assert 0.7 * length < len(healthy(2, length=length).log) < 1.3 * length


def test_a_short_log_keeps_its_evidence() -> None:
    generated = incident("gpu-out-of-memory", 2, length=1_000)
    assert len(generated.log) < 5_000
    assert re.search(generated.label["evidence"], evidence(generated.log, generated.label))


def test_a_long_log_takes_no_more_memory() -> None:
    log = incident("application-exception", 1, length=50_000_000, world_size=64, launcher="torchrun")
    tracemalloc.start()
    try:
        written = sum(map(len, log.chunks()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert written > 35_000_000
    assert peak < 25_000_000


@pytest.mark.parametrize("launcher", NAMES)
def test_launchers(launcher: str) -> None:
    generated = incident("gpu-out-of-memory", 1, launcher=launcher)
    assert generated.label["generated"]["launcher"] == launcher
    assert generated.log


@pytest.mark.parametrize("name", frameworks())
def test_frameworks(name: str) -> None:
    assert incident("gpu-out-of-memory", 1, framework=name).log
    assert healthy(1, framework=name).label["cause"] == "healthy"


def test_a_large_job() -> None:
    generated = incident("gpu-out-of-memory", 1, world_size=16_384, launcher="torchrun", length=60_000)
    assert generated.label["world_size"] == 16_384
    assert generated.label["generated"]["hosts"] == 2048


def test_times_run_forward_in_what_one_rank_prints() -> None:
    log = incident("rank-divergence", 6, torch="2.5.1", launcher="torchrun", framework="script").log.decode()
    stamps: dict[str, list[str]] = {}
    for match in re.finditer(r"\[(rank\d+)\]:\[E\d+ (\d\d:\d\d:\d\d)\.", log):
        stamps.setdefault(match[1], []).append(match[2])
    assert stamps
    for seen in stamps.values():
        assert seen == sorted(seen)


def test_a_time_out_is_never_shorter_than_its_limit() -> None:
    log = incident("rank-divergence", 6, torch="2.5.1", launcher="torchrun", framework="script").log.decode()
    pairs = re.findall(r"Timeout\(ms\)=(\d+)\) ran for (\d+) milliseconds", log)
    assert pairs
    assert all(int(ran) >= int(limit) for limit, ran in pairs)


def test_a_folder_has_one_file_a_rank(tmp_path: Path) -> None:
    generated = incident("gpu-out-of-memory", 1, world_size=8, launcher="torchrun", variant="backward", folder=True)
    label = generated.write_folder(tmp_path / "run")
    text = (tmp_path / "run" / label["evidence_file"]).read_bytes()
    assert re.search(label["evidence"], evidence(text, label))
    assert f"rank_{label['culprit']['rank']}.log" in label["evidence_file"]
    assert len(list((tmp_path / "run").glob("node_*/*.log"))) >= 2


def test_a_set_can_be_read_by_evaluate(tmp_path: Path) -> None:
    assert main(["set", str(tmp_path), "--count", "40", "--seed", "1"]) == 0
    found = cases.read(tmp_path)
    assert len(found) >= 38
    assert len({case.cause for case in found}) > 20
    for case in found:
        assert case.log.stat().st_size > 0


def test_what_does_not_fit_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NoSuchIncident):
        incident("ray-node-lost", 1, launcher="torchrun")
    assert main(["incident", "ray-node-lost", "--launcher", "mpirun"]) == 2
    assert "fits" in capsys.readouterr().err
    with pytest.raises(ValueError, match="profile"):
        list(stream("loud", 10))
    with pytest.raises(ValueError, match="view"):
        incident("ray-node-lost", 1, view="upside-down")


def test_the_command_writes_a_log_and_its_label(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.log"
    assert main(["incident", "straggler", "--seed", "2", "--length", "20K", "-o", str(out)]) == 0
    assert json.loads(capsys.readouterr().err)["cause"] == "straggler"
    assert out.read_bytes() == incident("straggler", 2, length=20_000).log
    assert main(["bench", "quiet", "64K", "-o", str(out)]) == 0
    assert out.stat().st_size == 64_000


def test_another_process_gives_the_same_bytes(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    written = []
    for hash_seed in ("1", "2"):
        out = tmp_path / hash_seed
        command = [sys.executable, "-m", "corpus.generate", "incident", "network-ib-link-fault", "-o", str(out)]
        environment = {"PYTHONHASHSEED": hash_seed, "PATH": "", "PYTHONPATH": str(root)}
        subprocess.run(command, check=True, cwd=root, env=environment, capture_output=True)
        written.append(out.read_bytes())
    assert written[0] == written[1]
