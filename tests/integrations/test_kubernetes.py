"""The commands and manifests for Kubernetes, with a kubectl that prints what kubectl 1.32 does."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import EXAMPLES, Commands
from .pages import block

KUBERNETES = EXAMPLES / "kubernetes"
PREFIX = "[pod/{pod}/pytorch] 2026-11-20T10:00:{second:02}.123456789Z "
#: The victim comes first, as it may: kubectl prints one container after the other, in any order.
VICTIM = """step 10 rank 0 loss 2.10
[rank0]: Traceback (most recent call last):
[rank0]:   File "/app/train.py", line 5, in <module>
[rank0]:     dist.all_reduce(gradient)
[rank0]: torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:2005, remote process exited or there was a network error, NCCL version 2.20.5
"""
CULPRIT = """step 10 rank 9 loss 2.11
[rank9]: Traceback (most recent call last):
[rank9]:   File "/app/train.py", line 4, in <module>
[rank9]:     loss.backward()
[rank9]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.10 GiB of which 1.00 GiB is free.
"""
HEALTHY = "step 10 rank 0 loss 2.10\nstep 11 rank 0 loss 2.09\n"


def printed(pod: str, text: str, second: int) -> str:
    """Return a container's log as ``--prefix --timestamps`` prints it."""
    prefix = PREFIX.format(pod=pod, second=second)
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


class Cluster:
    """A kubectl that knows one job."""

    def __init__(self, commands: Commands, folder: Path) -> None:
        self.commands = commands
        self.calls = folder / "calls"
        self.now, self.before, self.pods = folder / "now", folder / "before", folder / "pods"
        for path in (self.now, self.before, self.pods, self.calls):
            path.touch()
        commands.add(
            "kubectl",
            f"printf '%s\\n' \"$*\" >>{shlex.quote(str(self.calls))}\n"
            f"case \"$*\" in get*) cat '{self.pods}' ;; *--previous*) cat '{self.before}' ;; *) cat '{self.now}' ;; esac",
        )

    def asked(self) -> list[list[str]]:
        return [line.split() for line in self.calls.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def cluster(commands: Commands, tmp_path: Path) -> Cluster:
    return Cluster(commands, tmp_path)


def verdict(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)["diagnoses"][0]
    return {"cause": found["cause"], **{key: found["culprits"][0][key] for key in ("rank", "host")}}


def test_the_pod_and_rank_that_failed_first_are_named(cluster: Cluster, tmp_path: Path) -> None:
    cluster.now.write_text(
        printed("llama-master-0", VICTIM, 6) + printed("llama-worker-0", CULPRIT, 5), encoding="utf-8"
    )  # fmt: skip
    command = block("kubernetes.md", "--report").replace("nccl-triage", "nccl-triage --format json")
    result = cluster.commands.run("bash", "-c", command, cwd=tmp_path)
    assert verdict(result.stdout) == {"cause": "gpu-out-of-memory", "rank": 9, "host": "llama-worker-0"}
    assert "llama-worker-0" in (tmp_path / "post-mortem.html").read_text(encoding="utf-8")


def test_what_a_container_said_before_its_restart_counts(cluster: Cluster, tmp_path: Path) -> None:
    missing = 'error: previous terminated container "pytorch" in pod "llama-master-0" not found\n'
    cluster.before.write_text(missing + printed("llama-worker-0", CULPRIT, 5), encoding="utf-8")
    cluster.now.write_text(
        printed("llama-master-0", VICTIM, 6) + printed("llama-worker-0", HEALTHY, 30), encoding="utf-8"
    )
    command = block("kubernetes.md", "--previous").replace("nccl-triage", "nccl-triage --format json")
    assert verdict(cluster.commands.run("bash", "-c", command, cwd=tmp_path).stdout)["host"] == "llama-worker-0"


def test_the_absence_of_an_earlier_log_is_no_failure(cluster: Cluster, tmp_path: Path) -> None:
    cluster.before.write_text(
        'error: previous terminated container "pytorch" in pod "a-0" not found\n', encoding="utf-8"
    )
    cluster.now.write_text(printed("a-0", HEALTHY, 1), encoding="utf-8")
    command = block("kubernetes.md", "--previous").replace("nccl-triage", "nccl-triage --format json")
    assert json.loads(cluster.commands.run("bash", "-c", command, cwd=tmp_path).stdout)["verdict"] == "healthy"


class TestTriageFailed:
    label = "training.kubeflow.org/job-name"

    def run(self, cluster: Cluster, folder: Path, *options: str) -> tuple[int, str, str]:
        result = cluster.commands.run(KUBERNETES / "triage-failed.sh", self.label, folder, *options)
        return result.returncode, result.stdout, result.stderr

    def test_a_failed_job_is_reported_once(self, cluster: Cluster, tmp_path: Path) -> None:
        cluster.pods.write_text("llama 0a1b2c3d-0000-4000\nllama 11111111-0000-4000\n", encoding="utf-8")
        cluster.now.write_text(printed("llama-worker-0", CULPRIT, 5), encoding="utf-8")
        code, said, _ = self.run(cluster, tmp_path, "--lang", "en")
        assert code == 0 and "gpu-out-of-memory" in said
        assert sorted(path.name for path in tmp_path.glob("llama*")) == ["llama-0a1b2c3d.html", "llama-0a1b2c3d.txt"]
        get, previous, now = cluster.asked()
        assert get[:4] == ["get", "pods", "--selector", self.label]
        assert r"{.metadata.labels.training\.kubeflow\.org/job-name}" in " ".join(get)
        for call in (previous, now):
            assert {"--tail=-1", "--prefix", "--timestamps", "--all-containers", f"{self.label}=llama"} <= {*call}
        assert self.run(cluster, tmp_path)[:2] == (0, "")
        assert len(cluster.asked()) == 4  # one more, for the list of pods

    def test_no_failed_job_is_no_work(self, cluster: Cluster, tmp_path: Path) -> None:
        assert self.run(cluster, tmp_path) == (0, "", "")

    def test_a_failing_kubectl_is_an_error(self, cluster: Cluster, tmp_path: Path) -> None:
        cluster.commands.add("kubectl", "echo 'Unable to connect' >&2; exit 1")
        assert self.run(cluster, tmp_path)[0] == 1

    def test_one_failure_does_not_stop_the_others(self, cluster: Cluster, tmp_path: Path) -> None:
        cluster.pods.write_text("bad 1-a\ngood 2-b\n", encoding="utf-8")
        cluster.commands.add(
            "nccl-triage", '[[ $* == *bad* ]] && exit 70; while [[ $1 != --output ]]; do shift; done; echo ok >"$2"'
        )
        code, said, _ = self.run(cluster, tmp_path)
        assert (code, said) == (1, f"good: {tmp_path}/good-2.html\nok\n")

    @pytest.mark.parametrize("words", [[], ["label"], ["a b", "folder"], ["{range}", "folder"]])
    def test_a_wrong_call_shows_the_right_one(self, cluster: Cluster, words: list[str]) -> None:
        result = cluster.commands.run(KUBERNETES / "triage-failed.sh", *words)
        assert result.returncode == 2 and "triage-failed.sh LABEL FOLDER" in result.stderr


def test_the_job_leaves_its_verdict_as_the_termination_message(commands: Commands, tmp_path: Path) -> None:
    (container,) = manifest("Job")["spec"]["template"]["spec"]["containers"]
    (tmp_path / "printed").write_text(CULPRIT, encoding="utf-8")
    commands.add("torchrun", f"cat '{tmp_path}/printed'; exit 1")
    message = tmp_path / "termination-log"
    message.touch()  # Kubernetes makes it
    variables = {"NCCL_TRIAGE_TERMINATION_LOG": str(message)}
    result = commands.run(*container["command"], *container["args"], env=variables)
    assert result.returncode == 1
    told = message.read_bytes()
    assert len(told) <= 4096 and len(told.splitlines()) <= 3
    assert b"Rank 9" in told and b"gpu-out-of-memory" in told
    # Where it cannot be written, the end of the log is the message.
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


def manifests() -> list[dict[str, Any]]:
    return [
        document
        for path in sorted(KUBERNETES.glob("*.yaml"))
        if path.name != "kustomization.yaml"
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]


def manifest(kind: str) -> dict[str, Any]:
    (found,) = [document for document in manifests() if document["kind"] == kind]
    return found


class TestManifests:
    def test_the_schemas_of_kubernetes_accept_them(self) -> None:
        validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate (large) is not installed")
        for document in manifests():
            validator.validate(document, "1.32", strict=True)

    def test_the_names_fit_each_other(self) -> None:
        cron, binding = manifest("CronJob"), manifest("RoleBinding")
        pod = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        account = manifest("ServiceAccount")["metadata"]["name"]
        assert pod["serviceAccountName"] == account == binding["subjects"][0]["name"]
        assert binding["roleRef"]["name"] == manifest("Role")["metadata"]["name"]
        (container,) = pod["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        files = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text(encoding="utf-8"))
        (config,) = files["configMapGenerator"]
        assert config["name"] == next(v["configMap"]["name"] for v in pod["volumes"] if "configMap" in v)
        assert container["command"][-1] == f"/scripts/{config['files'][0]}"
        assert all((KUBERNETES / name).exists() for name in [*files["resources"], *config["files"]])

    def test_the_role_allows_no_more_than_the_script_asks(self) -> None:
        allowed = {(*rule["apiGroups"], *rule["resources"], *rule["verbs"]) for rule in manifest("Role")["rules"]}
        assert allowed == {("", "pods", "get", "list"), ("", "pods/log", "get")}

    def test_the_cronjob_has_few_rights_and_an_end(self) -> None:
        spec = manifest("CronJob")["spec"]
        assert spec["concurrencyPolicy"] == "Forbid"
        job = spec["jobTemplate"]["spec"]
        assert job["activeDeadlineSeconds"] and job["template"]["spec"]["securityContext"]["runAsNonRoot"] is True
        security = job["template"]["spec"]["containers"][0]["securityContext"]
        assert security["allowPrivilegeEscalation"] is False and security["capabilities"] == {"drop": ["ALL"]}
        assert (
            job["template"]["spec"]["restartPolicy"]
            == manifest("Job")["spec"]["template"]["spec"]["restartPolicy"]
            == "Never"
        )
