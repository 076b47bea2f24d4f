"""The promises of docs/verifier.md that concern other people's work: GPUs in use, secrets, the time that was given."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import Any

import pytest

from corpus.verifier.documents import document
from nccl_triage.engine import load
from nccl_triage.errors import UsageError
from nccl_triage.hosts.probes import inventory
from nccl_triage.hosts.ssh import places_of
from nccl_triage.verify import api
from nccl_triage.verify.plan import PlanOptions
from nccl_triage.verify.record import plan_record
from tests.verify.fake_nvml import GIB, Card, fake_nvml
from tests.verify.listeners import listening, watched


def asked_here(cause: str, **about: Any) -> dict[str, Any]:
    """Return the document of a log that names this host, where alone an experiment can decide anything."""
    return document(cause, **{"hosts": [os.uname().nodename], **about})


@pytest.fixture
def driver(monkeypatch):
    """Install a driver with made-up GPUs at the library's boundary."""

    def install(*cards):
        monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(list(cards)))
        monkeypatch.setenv("PATH", "")
        monkeypatch.setattr(inventory, "likely_present", lambda: True)
        monkeypatch.setattr(inventory, "SAMPLED", 0.0)

    return install


def planned(cause="gpu-p2p-broken", **options):
    settings = api.Settings(python="/job/python", options=PlanOptions(**options))
    made = api.plan_of(asked_here(cause, world=2, backend="nccl"), load.load(()), settings)
    return made, made.experiments[0]


def test_idle_gpus_are_used(driver):
    driver(Card(0), Card(1))
    made, experiment = planned()
    assert (made.means.gpus, experiment.control.backend, experiment.control.device) == (2, "nccl", "cuda")
    assert experiment.control.world == 2


def test_gpus_in_use_are_refused_with_the_reason_and_the_way_out(driver):
    driver(Card(0, processes=[(4321, 3 * GIB)], used=4 * GIB))
    made, experiment = planned()
    assert made.means.gpus == 0
    assert experiment.control is None
    assert "--allow-busy" in experiment.why_not["en"]
    assert "GPU 0" in experiment.why_not["en"]
    assert "GPU 0" in experiment.why_not["zh"]


def test_one_gpu_in_use_leaves_the_others(driver):
    driver(Card(0, busy=[90]), Card(1))
    made, experiment = planned()
    assert made.means.gpus == 1
    envs = [experiment.control.env_of(rank) for rank in range(experiment.control.world)]
    assert {env["CUDA_VISIBLE_DEVICES"] for env in envs} == {"GPU-11111111-2222"}
    assert {(slot.gpu.device, slot.gpu.index, slot.gpu.bus) for slot in experiment.control.slots} == {
        (0, 1, "0000:01:00")
    }


def test_who_asks_for_busy_gpus_gets_them(driver):
    driver(Card(0, processes=[(4321, 3 * GIB)], used=4 * GIB))
    _, experiment = planned(allow_busy=True)
    assert experiment.control is not None


def test_a_cause_of_the_network_falls_back_to_gloo_where_gpus_are_in_use(driver):
    driver(Card(0, processes=[(4321, 3 * GIB)]))
    _, experiment = planned("rank-divergence")
    assert experiment.control.backend == "gloo"
    assert experiment.control.device == "cpu"


def test_faults_that_the_driver_reports_are_kept(driver):
    driver(Card(0, recovery=1), Card(1))
    made, _ = planned("gpu-hardware-fault")
    assert [(place, fault.rule, fault.gpu.index) for place, fault in made.means.faults] == [(0, "recovery", 0)]


def test_memory_is_a_bounded_share_of_what_is_free(driver):
    driver(Card(0, total=8 * GIB), Card(1, total=8 * GIB))
    asked = asked_here("gpu-p2p-broken", world=2, backend="nccl", numel=1 << 40)
    made = api.plan_of(asked, load.load(()), api.Settings(python="/job/python"))
    experiment = made.experiments[0]
    assert 0 < experiment.memory < 8 * GIB
    assert not experiment.complete
    assert any("instead of" in text["en"] for text in experiment.differs)


def test_no_plan_exceeds_the_budget():
    made, _ = planned("rank-divergence", budget=7.0)
    assert made.seconds <= 7.0
    assert plan_record(made)["budget_s"] == 7.0


def test_secrets_of_the_job_are_in_no_plan():
    secrets = {
        "HF_TOKEN": "hf_abcdefghijklmnop",
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
        "NCCL_AUTH_TOKEN": "verysecret",
        "NCCL_PROXY": "http://user:hunter2@proxy",
    }
    asked = asked_here("rank-divergence", world=2, env={**secrets, "NCCL_IB_HCA": "mlx5_0"})
    made = api.plan_of(asked, load.load(()), api.Settings(python="/job/python"))
    shown = json.dumps(plan_record(made))
    assert "mlx5_0" in shown
    assert not [value for value in secrets.values() if value in shown]


@pytest.mark.parametrize(
    ("name", "value", "outcome"),
    [("NCCL_IB_TIMEOUT", "22", True), ("NCCL_DEBUG_FILE", "/tmp/x", True), ("NCCL_NET_PLUGIN", "aws-ofi", False)],
)
def test_a_variable_that_is_not_repeated_is_named_and_keeps_a_pass_from_refuting(driver, name, value, outcome):
    driver(Card(0), Card(1))
    asked = asked_here("gpu-p2p-broken", world=2, backend="nccl", env={name: value})
    (experiment,) = api.plan_of(asked, load.load(()), api.Settings(python="/job/python")).experiments
    assert experiment.complete is outcome
    shown = [text["en"] for text in experiment.differs if name in text["en"]]
    assert shown == ([] if outcome else [f"not set as in the log: {name}"])
    trusting = api.Settings(python="/job/python", options=PlanOptions(trust_env=True))
    (experiment,) = api.plan_of(asked, load.load(()), trusting).experiments
    assert experiment.complete


def test_of_what_is_not_repeated_only_names_are_shown():
    env = {f"NCCL_SECRET_{number}": f"value-{number}" for number in range(12)}
    asked = asked_here("rank-divergence", world=2, env=env)
    shown = json.dumps(plan_record(api.plan_of(asked, load.load(()), api.Settings(python="/job/python"))))
    assert "NCCL_SECRET_7 (+4)" in shown
    assert "NCCL_SECRET_8" not in shown
    assert "value-" not in shown


@pytest.mark.parametrize("name", ["gpu-a", "gpu-a.cluster.local", "10.0.0.1", "fd00::1", "fe80::1%eth0", "me@gpu-a"])
def test_ssh_gets_the_name_of_a_host_where_nothing_is_an_option(name):
    (place,) = places_of((name,))
    program, *options, end, given = place.command
    assert (program, end, given) == ("ssh", "--", name)
    assert set(options[::2]) == {"-o"} and "BatchMode=yes" in options[1::2]
    assert place.name == name.removeprefix("me@")


@pytest.mark.parametrize(
    "name",
    ["-oProxyCommand=x", "-v", "a b", "a\tb", "a\nb", "a;b", "$(x)", "`x`", "ssh://a", "a@-b", "-b@a", "a@b@c", "", "@a",
     "\N{CYRILLIC SMALL LETTER A}", "a" * 300, "a\x00", "=sh", "-x=sh", "::" * 40],
)  # fmt: skip
def test_what_is_no_name_of_a_host_is_refused(name):
    with pytest.raises(UsageError, match="expected NAME or NAME=COMMAND"):
        places_of((name,))


def test_secrets_of_this_process_are_in_no_record(monkeypatch, tmp_path):
    pytest.importorskip("torch", reason="needs torch")
    from nccl_triage.verify import api

    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnop")
    monkeypatch.setenv("NCCL_AUTH_TOKEN", "verysecret")
    settings = replace(
        api.Settings(),
        wait=120.0,
        options=PlanOptions(backend="gloo", timeout_factor=0.3, world=2),
        workdir=tmp_path / "work",
    )
    changed, _ = api.verify(asked_here("rank-divergence", world=2), load.load(()), settings)
    shown = json.dumps(changed)
    assert changed["diagnoses"][0]["verification"]["outcome"] == "inconclusive"
    assert "hf_abcdefghijklmnop" not in shown
    assert "verysecret" not in shown
    assert str(os.environ["HF_TOKEN"]) not in "".join(
        path.read_text(errors="replace") for path in (tmp_path / "work").rglob("*.log")
    )


def test_on_one_host_only_the_loopback_is_listened_on(tmp_path):
    pytest.importorskip("torch", reason="needs torch")
    settings = api.Settings(
        wait=120.0, options=PlanOptions(backend="gloo", timeout_factor=0.3, world=2), workdir=tmp_path / "work"
    )
    asked = asked_here("rank-divergence", world=2, port=29500)
    before = listening(os.getpid())
    with watched(os.getpid()) as seen:
        _, report = api.verify(asked, load.load(()), settings, faults={"1": {"name": "late", "seconds": 0.5}})
    assert {trial.result.outcome for trial in report.trials} == {"passed"}
    addresses = {address for address, _ in seen - before}
    assert addresses, "neither the store nor Gloo was seen"
    assert addresses <= {"127.0.0.1", "::1"}
