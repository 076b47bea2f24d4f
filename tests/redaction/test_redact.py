"""A redacted document: pseudonyms everywhere, the same meaning, and the same again when it is redacted twice."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nccl_triage import diagnose, resources
from nccl_triage.redaction import redact
from nccl_triage.render import render
from tests.render import documents

ROOT = Path(__file__).parents[2]
S001 = ROOT / "corpus" / "written" / "logs" / "S001-openrlhf-broadcast-two-networks.log"
SCHEMA = json.loads((resources.reports_dir() / "schema" / "report.schema.json").read_text("utf-8"))


def shown(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False)


@pytest.fixture(scope="module")
def two_networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    log = tmp_path_factory.mktemp("acme") / "acme-llm.log"
    log.write_bytes(S001.read_bytes())
    return diagnose(log).to_dict()


def test_two_networks_are_still_two_networks(two_networks: dict[str, Any]) -> None:
    made = redact(two_networks)
    text = render(made, "text", verbose=2).decode()
    for original in ("gpu-a", "gpu-b", "45.63.16", "144.202.8", "acme"):
        assert original not in text
    assert (
        "Two hosts announced addresses that share no network: host-1 (public.net-1.1), host-2 (public.net-2.2)" in text
    )
    assert "host-1:18844:18844 [0] NCCL INFO Bootstrap : Using enp1s0:public.net-1.1<0>" in text
    assert [(c["host"], c["address"]) for c in made["diagnoses"][0]["culprits"]] == [
        ("host-1", "public.net-1.1"),
        ("host-2", "public.net-2.2"),
    ]


def test_a_command_names_the_path_that_the_report_shows(two_networks: dict[str, Any]) -> None:
    made = redact(two_networks)
    path = made["inputs"][0]["path"]
    assert path.endswith("/file-1.log")
    assert f"nccl-triage verify {path}" in render(made, "text", verbose=True).decode()


@pytest.mark.parametrize(
    "text",
    [
        "the user is not allowed to do that on the host: out of host memory, node 3 of 4 is down",
        "failed to load model Qwen/Qwen2.5-7B-Instruct from https://huggingface.co/Qwen/Qwen2.5-7B-Instruct",
        "User provided device_type of 'cuda', but CUDA is not available; user code failed in user space",
        "from rank 3 to rank 4: connection refused; worker at step:10000; loading weights 3/8 on node",
        "[rank:3] [GPU:0] [epoch:12] pool.map(fn, [a:3]) | rank-3 | 8 | in 10-04-12",
        "host=None node=3 hosts: none nodes: 2 project=None account for 12 GiB, telephone, +12.5 % 1e+10 20",
        "nvcr.io/nvidia/pytorch:24.01-py3 and docker.io/library/python on PyTorch 2.1.0",
    ],
)
def test_ordinary_words_are_no_names(text: str) -> None:
    assert redact({"notes": [text]})["notes"] == [text]


def test_only_counts_are_recorded(two_networks: dict[str, Any]) -> None:
    made = redact(two_networks)
    counts = made["redaction"]["pseudonyms"]
    assert {kind: counts[kind] for kind in ("hosts", "addresses", "networks")} == {
        "hosts": 2,
        "addresses": 2,
        "networks": 2,
    }
    assert all(isinstance(count, int) for count in counts.values())
    assert set(made["redaction"]) == {"pseudonyms"}


def test_findings_stay(two_networks: dict[str, Any]) -> None:
    made = redact(two_networks)
    for key in ("verdict", "tool", "timing", "collective"):
        assert made[key] == two_networks[key]
    for before, after in zip(two_networks["diagnoses"], made["diagnoses"], strict=True):
        for key in ("cause", "family", "status", "confidence", "score", "title", "experiment"):
            assert after[key] == before[key]
        assert [e["line"] for e in after["evidence"]] == [e["line"] for e in before["evidence"]]
        assert [e["signature"] for e in after["evidence"]] == [e["signature"] for e in before["evidence"]]
        assert [fix["title"] for fix in after["fixes"]] == [fix["title"] for fix in before["fixes"]]
    assert [r["rank"] for r in made["job"]["ranks"]] == [r["rank"] for r in two_networks["job"]["ranks"]]


@pytest.mark.parametrize("name", sorted(documents.ALL))
def test_redacting_twice_is_redacting_once(name: str) -> None:
    once = redact(documents.ALL[name]())
    assert redact(once) == once


@pytest.mark.parametrize("name", [name for name in sorted(documents.ALL) if name != "hostile"])
def test_a_redacted_document_follows_the_schema(name: str) -> None:
    jsonschema.validate(redact(documents.ALL[name]()), SCHEMA)


def test_the_document_given_is_not_changed() -> None:
    document = documents.verified()
    before = copy.deepcopy(document)
    redact(document)
    assert document == before


@pytest.mark.parametrize("name", ["diagnosed", "verified"])
def test_pseudonyms_do_not_depend_on_the_order_of_keys(name: str) -> None:
    document = documents.ALL[name]()
    assert redact(json.loads(json.dumps(document, sort_keys=True))) == redact(document)


def test_every_mention_of_a_host_has_the_same_pseudonym() -> None:
    document = documents.diagnosed()
    document["headline"] = "node-b died after node-a."
    document["headline_zh"] = "node-a之后node-b失联。"
    document["notes"] = ["NODE-A", "node-a.acme.com and node-b_rank3.log", "node-ab node-a1"]
    made = redact(document)
    assert [host["name"] for host in made["job"]["hosts"]] == ["host-1", "host-2"]
    assert made["headline"] == "host-2 died after host-1."
    assert made["headline_zh"] == "host-1之后host-2失联。"
    assert made["notes"] == ["host-1", "host-1.domain-1 and host-2_rank3.log", "node-ab node-a1"]
    assert "node-a" not in shown(made).replace("node-ab node-a1", "")


def test_names_of_the_verification_are_replaced() -> None:
    made = redact(documents.verified())
    text = shown(made)
    assert not [name for name in ("node-a", "node-b", "node-c") if name in text]
    assert "172.17.0.1" in text


def test_a_log_with_an_odd_path_is_found_in_texts() -> None:
    document = documents.diagnosed()
    path = "/data/谁的 日志 (new)/acme run.log"
    document["inputs"][0]["path"] = path
    document["notes"] = [f"The last line of {path} has no end", f"{path} 的最后一行不完整"]
    made = redact(document)
    assert "acme" not in shown(made)
    assert "谁" not in shown(made)
    assert made["notes"][0] == f"The last line of {made['inputs'][0]['path']} has no end"


def test_secrets_are_masked_first() -> None:
    document = documents.diagnosed()
    document["notes"] = ["login by https://zhangwei:hunter22@git.acme.cn/x"]
    made = redact(document)
    assert made["notes"] == ["login by https://user-1:[secret:url-credentials]@git.domain-1/x"]
    assert made["redaction"]["secrets"] == ["url-credentials"]


def test_a_host_with_the_name_of_a_pseudonym_is_not_taken_for_one() -> None:
    document = documents.diagnosed()
    document["job"]["hosts"] = [
        {"name": name, "addresses": [], "ranks": []} for name in ("zeus7", "host-1", "host-2", "user-1")
    ]
    document["notes"] = ["zeus7 host-1 host-2 user-1 /data/path-1/x"]
    made = redact(document)
    assert [host["name"] for host in made["job"]["hosts"]] == ["host-1", "host-2", "host-3", "host-4"]
    assert made["notes"] == ["host-1 host-2 host-3 host-4 /data/path-1/x"]
    assert made["redaction"]["pseudonyms"]["paths"] == 1


def test_what_comes_after_a_redaction_is_numbered_on() -> None:
    made = redact(documents.diagnosed())
    made["job"]["hosts"].append({"name": "zeus7", "addresses": ["10.0.0.1", "10.9.9.9"], "ranks": []})
    again = redact(made)
    assert [host["name"] for host in again["job"]["hosts"]] == ["host-1", "host-2", "host-3"]
    assert again["job"]["hosts"][0] == made["job"]["hosts"][0]
    assert again["job"]["hosts"][2]["addresses"] == ["10.net-2.3", "10.net-3.4"]


def test_variables_of_the_job() -> None:
    document = documents.diagnosed()
    document["job"]["env"] = {
        "NCCL_SOCKET_IFNAME": ["eth0", "bond0"],
        "MASTER_ADDR": "zeus7",
        "WANDB_PROJECT": "acme-llm",
        "USER": "zhangwei",
        "HF_HOME": "/home/zhangwei/hf",
        "zeus7": "1",
        "ZEUS7": "2",
    }
    made = redact(document)["job"]["env"]
    assert {name: made[name] for name in list(document["job"]["env"])[:5]} == {
        "NCCL_SOCKET_IFNAME": ["eth0", "bond0"],
        "MASTER_ADDR": "host-3",
        "WANDB_PROJECT": "name-1",
        "USER": "user-1",
        "HF_HOME": "/home/user-1/hf",
    }
    assert sorted(list(made.values())[-2:]) == ["1", "2"]
    assert "zeus7" not in shown(made).lower()


@pytest.mark.parametrize("format", ["text", "json", "markdown", "html"])
def test_no_format_shows_a_host_of_a_large_job(format: str) -> None:
    page = render(redact(documents.large()), format).decode()
    assert "gpu-node-" not in page
    assert "host-64" in page or format in ("text", "markdown")


@pytest.mark.parametrize(
    "document", [{}, {"job": None}, {"job": {"hosts": [None, {"name": 3}]}}, {"notes": [None, 1.5]}]
)
def test_documents_of_another_shape(document: dict[str, Any]) -> None:
    made = redact(document)
    assert {key: made[key] for key in document} == document
