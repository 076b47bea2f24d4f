"""Advice fits the incident: the platform that the log shows, the names in it, and what the program itself advises."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nccl_triage import diagnose
from nccl_triage.checks import placeholders
from nccl_triage.diagnosis.case import Case, fact_names
from nccl_triage.diagnosis.facts import software
from nccl_triage.document.advice import remedy
from nccl_triage.engine.schema import Fix, PlatformCommand, RuleSet
from nccl_triage.errors import RuleError
from nccl_triage.observations.event import Context, Event
from nccl_triage.producers import produced_signatures
from tests.scan_helpers import diagnose_text, scan_text

CAUSE = """id: site-power
family: hardware
title: The site lost its power
explanation: There was no power.
for:
  - {id: lost, signature: site.power, weight: decisive, says: The site lost its power.}
fixes:
  - title: Wait for the power
    commands:
      - {slurm: scontrol show node NODE, kubernetes: kubectl describe node NODE}
      - {pbs: pbsnodes NODE, otherwise: ping -c 3 HOST}
      - kill -USR1 PID
next_check:
  - {when: on('slurm'), what: Is the node up in Slurm?, command: sinfo, if_yes: Go on., if_no: Wait.}
  - {what: Is the light on?, command: {amd: rocm-smi, otherwise: nvidia-smi}, if_yes: Go on., if_no: Wait.}
experiment: {kind: none, why_not: No rerun brings the power back.}
culprit: [message]
stages:
  now:
    - {what: {en: Count the nodes., zh: 数节点。}, command: {slurm: sinfo -N}, when: not on('one-host')}
    - {what: {en: Look at the log., zh: 看日志。}, command: tail LOG}
  soon: [{what: {en: Call., zh: 打电话。}}]
  lasting: [{what: {en: Buy a battery., zh: 买电池。}}]
"""
SIGNATURE = """program: site
signatures:
  - id: site.power
    kind: node.lost
    role: root
    pattern: 'site power lost on (?P<host>\\S+)'
    meaning: The site lost its power.
    match: ['site power lost on node-a']
    not: ['site power is back']
    culprit: {host: host, why: its power is gone}
"""
LOST = "step 3 loss 2.1\nsite power lost on node-a\n"
SLURM = "slurmstepd: error: *** STEP 4711.0 ON node-a CANCELLED AT 2026-03-01T10:00:00 DUE TO NODE FAILURE ***\n"


def site(folder: Path, cause: str = CAUSE) -> Path:
    for name, text in (("signatures", SIGNATURE), ("causes", cause)):
        (folder / "site" / name).mkdir(parents=True, exist_ok=True)
        (folder / "site" / name / "site-power.yaml").write_text(text)
    return folder / "site"


def best(folder: Path, text: str, cause: str = CAUSE, name: str = "job.log") -> dict[str, Any]:
    log = folder / name
    log.write_text(text)
    found = diagnose(log, rules_dirs=[site(folder, cause)]).to_dict()["diagnoses"]
    (one,) = [diagnosis for diagnosis in found if diagnosis["cause"] == "site-power"]
    return dict(one)


def test_the_command_of_the_platform_is_taken(tmp_path: Path) -> None:
    under_slurm = best(tmp_path, LOST + SLURM)
    assert "scontrol show node node-a" in under_slurm["fixes"][0]["commands"]
    assert under_slurm["next_check"]["command"] == "sinfo"
    assert [row["command"] for row in under_slurm["stages"]][:2] == ["sinfo -N", f"tail {tmp_path}/job.log"]
    alone = best(tmp_path, LOST)
    assert alone["fixes"][0]["commands"] == ["ping -c 3 node-a", "pgrep -af python", "kill -USR1 PID"]
    assert alone["next_check"]["command"] == "nvidia-smi"
    assert [row["command"] for row in alone["stages"]][:2] == [None, f"tail {tmp_path}/job.log"]


def test_a_name_is_looked_up_before_it_is_needed(tmp_path: Path) -> None:
    commands = best(tmp_path, LOST.replace("node-a", "10.0.0.7") + SLURM)["fixes"][0]["commands"]
    assert commands[:2] == ["sinfo -N -l", "scontrol show node NODE"]  # Slurm knows no addresses
    assert commands[2] == "ping -c 3 10.0.0.7"


def test_a_fix_for_every_other_case_stands_back(tmp_path: Path) -> None:
    more = "  - {title: Call the site, otherwise: true}\n  - {title: Pray, otherwise: true}\nnext_check:"
    cause = CAUSE.replace(
        "  - title: Wait for the power", "  - title: Wait for the power\n    when: on('slurm')"
    ).replace("next_check:", more, 1)
    titles = [[fix["title"] for fix in best(tmp_path, text, cause)["fixes"]] for text in (LOST + SLURM, LOST)]
    assert titles == [["Wait for the power"], ["Call the site"]]


def test_advice_tells_what_the_proving_line_says(tmp_path: Path) -> None:
    cause = CAUSE.replace("title: Wait for the power", 'title: "Call the site of {f:host}"').replace(
        "kill -USR1 PID", "grep {f:host} hosts; echo {f:text}"
    )
    fix = best(tmp_path, LOST, cause)["fixes"][0]
    assert fix["title"] == "Call the site of node-a"
    assert fix["commands"][-1] == "grep node-a hosts; echo 'site power lost on node-a'"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{slurm: scontrol show node NODE,", "{otherwise: ls, slurm: x,", "'otherwise' comes last"),
        ("{pbs: pbsnodes NODE,", "{torque: pbsnodes NODE,", "unknown key 'torque'"),
        ("- {what: Is the light on?,", "- {when: on('amd'), what: Is the light on?,", "has no 'when'"),
    ],
)
def test_what_cannot_be_chosen_from_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in CAUSE
    with pytest.raises(RuleError, match=message):
        best(tmp_path, LOST, CAUSE.replace(old, new))


def test_the_inputs_are_named(tmp_path: Path) -> None:
    logs = tmp_path / "logs of today"
    logs.mkdir()
    cause = CAUSE.replace("command: tail LOG", "command: cp -a LOGS kept/")
    for rank in range(5):
        (logs / f"rank{rank}.log").write_text(LOST)
    found = diagnose(logs, rules_dirs=[site(tmp_path, cause)]).to_dict()["diagnoses"][0]
    assert found["stages"][1]["command"] == f"cp -a '{logs}' kept/"
    assert best(tmp_path, LOST, cause)["stages"][1]["command"] == f"cp -a {tmp_path}/job.log kept/"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SLURM, {"slurm"}),
        ("[1.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n", {"nvidia"}),
        ("HW Exception by GPU node-9 (Agent handle: 0x631351bb5a20) reason :GPU Hang\n", {"amd"}),
        ("torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.00 GiB.\n", {"intel"}),
        ("RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB\n", {"ascend"}),
        ("n0:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\nn1:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.2<0>\n", {"nvidia", "several-hosts"}),
        ("hello\n", set()),
    ],
)  # fmt: skip
def test_the_platform_is_what_the_log_shows(rules: RuleSet, text: str, words: set[str]) -> None:
    assert software.platform(Case(scan_text(text, rules), rules)) == words


def test_the_name_of_slurms_output_shows_slurm(rules: RuleSet) -> None:
    assert software.platform(Case(scan_text("hello\n", rules, "out/slurm-4711.out"), rules)) == {"slurm"}
    assert software.platform(Case(scan_text("hello\n", rules, "out/slurmy.out"), rules)) == set()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
            "Try increasing `gpu_memory_utilization` when initializing the engine",
        ),
        ("OSError: [Errno 24] Too many open files. Please raise the limit with ulimit -n!", "Please raise the limit with ulimit -n"),
        ("OSError: bad file: the index is stale;\nremove /data/index.bin to retry", "Remove /data/index.bin to retry"),
        ("RuntimeError: To use CUDA with multiprocessing, you must use the 'spawn' start method", "To use CUDA with multiprocessing, you must use the 'spawn' start method"),
        ("ImportError: DeepSpeed is missing => install it using `pip install deepspeed`", "Install it using `pip install deepspeed`"),
        ("nan on host: set-hl02-kubernetes-pc117.example", None),
        ("RuntimeError: oops. Please report a bug to PyTorch.", None),
        ("RuntimeError: oops. Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace", None),
        ("RuntimeError: oops, use `ray logs raylet.out -ip 10.0.0.1`", None),
        ("RuntimeError: the set is empty", None),
        ("RuntimeError: oops.\n    raise ValueError(message)", None),
        ("RuntimeError: oops. Set " + "x" * 300, None),
    ],
)  # fmt: skip
def test_what_a_message_advises(text: str, says: str | None) -> None:
    assert remedy(Event("s", "log", 1, text, Context())) == says


def test_a_secret_in_an_advice_is_masked() -> None:
    token = "hf_" + "aBcDeFgHiJ" * 3 + "KlMn"
    found = remedy(Event("s", "log", 1, f"OSError: gone. Set HF_TOKEN={token} again.", Context()))
    assert found is not None
    assert token not in found


def test_the_programs_own_advice_comes_first(rules: RuleSet) -> None:
    says = "Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine"
    text = f"RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests. {says}.\n"
    first, *_ = diagnose_text("INFO 03-01 10:00:00 engine up\n" + text, rules).to_dict()["diagnoses"][0]["fixes"]
    assert first["title"] == f"Do what the program itself advises: “{says}”"
    assert first["title_zh"] == f"按程序自身的提示操作：“{says}”"
    assert first["commands"] == []  # words of a log, which nobody should paste into a shell unread


MISSING = (
    "[rank1]: Traceback (most recent call last):\n"
    '[rank1]:   File "/opt/train.py", line 12, in load\n'
    "[rank1]: FileNotFoundError: [Errno 2] No such file or directory: '/data/my set/$(id)'\n"
)


def command(text: str) -> PlatformCommand:
    return PlatformCommand((("otherwise", text),))


def fixes(rules: RuleSet, tmp_path: Path, *given: Fix) -> list[dict[str, Any]]:
    causes = {**rules.causes}
    causes["application-exception"] = causes["application-exception"]._replace(fixes=given)
    log = tmp_path / "job.log"
    log.write_text(MISSING)
    (found, *_) = diagnose(log, rules=replace(rules, causes=causes), model=None).to_dict()["diagnoses"]
    assert found["cause"] == "application-exception"
    return list(found["fixes"])


def test_a_field_of_any_line_becomes_one_word_of_the_shell(rules: RuleSet, tmp_path: Path) -> None:
    title = {"en": "Look at {f:storage.enoent.path}", "zh": "查看 {f:storage.enoent.path}"}
    (fix,) = fixes(rules, tmp_path, Fix(title, {}, (command("ls -ld {f:storage.enoent.path}"),)))
    assert fix["title"] == "Look at /data/my set/$(id)"
    assert fix["commands"] == ["ls -ld '/data/my set/$(id)'"]


def test_what_names_something_unknown_is_left_out(rules: RuleSet, tmp_path: Path) -> None:
    known = {"en": "Look", "zh": "查看"}
    unknown = {"en": "Look at {f:python.import_no_module.name}", "zh": "查看 {f:python.import_no_module.name}"}
    commands = (command("python -c 'import {fact:recorder.slow_by}'"), command("ls"))
    (fix,) = fixes(rules, tmp_path, Fix(unknown, {}), Fix(known, {}, commands))
    assert (fix["title"], fix["commands"]) == ("Look", ["ls"])


def test_placeholders_of_advice_must_exist(rules: RuleSet) -> None:
    cause = rules.causes["application-exception"]
    wrong = cause._replace(
        fixes=(
            Fix({"en": "{fact:job.nothing}", "zh": ""}, {}, (command("ls {f:storage.enoen.path}"),)),
            Fix({"en": "{f:storage.enoent.pth}", "zh": ""}, {}),
        ),
    )
    problems = placeholders.check(replace(rules, causes={cause.id: wrong}), fact_names(), produced_signatures())
    said = " ".join(problem.message for problem in problems)
    for message in ("{fact:job.nothing} is no fact", "unknown signature 'storage.enoen'", "did you mean {f:path}?"):
        assert message in said, message


XPU = "RuntimeError: broadcast isn't implemented on backend [xpu]\n"
SO = "ImportError: /opt/env/{}: undefined symbol: _ZNK3c106SymInt6sym_neERKS0_\n"
BATCH = "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size {}\n"
XID = "[1.0] NVRM: Xid (PCI:0000:3b:00): {}, pid=77, name=python3, Ch 00000010\n"
SRUN = 'The application appears to have been direct launched using "srun",\nbut OMPI was not built with SLURM\'s PMI support\n'


@pytest.mark.parametrize(
    ("text", "says", "absent"),
    [
        (XPU, "whl/xpu", "whl/cu"),
        (SO.format("flash_attn_2_cuda.so"), "flash-attn", "transformers"),
        (SO.format("transformer_engine_torch.so"), "torch.version.cuda", "flash-attn"),
        (SRUN, "srun --mpi=list", "pip check"),
        (BATCH.format("64 != 4 * 2 * 2"), "64 (= 4 * 8 * 2), 16 (= 4 * 2 * 2)", "auto"),
        (XID.format(94), "Restart the application now", "state=drain"),
        (XID.format(79), "Reboot the host", "--gpu-reset"),
        (XID.format(119), "sudo nvidia-smi --gpu-reset -i 0000:3b:00.0", "GPU_INDEX"),
        ("HW Exception by GPU node-9 (Agent handle: 0x631351bb5a20) reason :GPU Hang\n", "rocm-smi", "nvidia-smi"),
        ("RuntimeError: Mesh should not be bigger than default world size 4, but found 8 ranks!\n", "Start 8 processes", "8 ranks,"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n", "--mem-fraction-static", "gpu-memory-utilization"),
        ("a:1:2 [0] net.cc:1 NCCL WARN Error: network Sockets not found.\n", "export NCCL_NET=Socket", "NCCL_ALGO"),
        ("ImportError: tokenizers>=0.21,<0.22 is required for a normal functioning of this module, but found tokenizers==0.20.1.\n", "pip install tokenizers'>=0.21,<0.22'", "0.20.1"),
    ],
)  # fmt: skip
def test_the_first_fix_is_for_this_incident(rules: RuleSet, text: str, says: str, absent: str) -> None:
    best = diagnose_text(text, rules).to_dict()["diagnoses"][0]
    told = [str(best["fixes"][0]), str(best["fixes"][:2])]
    assert says in told[0] or (told[0].startswith("{'title': 'Do what the program") and says in told[1])
    assert absent not in str(best["fixes"]) + str(best["next_check"])
