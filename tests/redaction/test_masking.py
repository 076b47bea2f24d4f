"""Secrets in a report document: all of them are masked, evidence is not."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from docs import leaks
from nccl_triage import diagnose
from nccl_triage.document import diagnosis as documents_of
from nccl_triage.redaction.secret_kinds import expand
from nccl_triage.redaction.secrets import mask_secrets, mask_text, secret_name
from nccl_triage.render import FORMATS, render
from tests.render import documents

ROOT = Path(__file__).parents[2]
TOKEN, HEX = expand("hf_<alnum:34>"), expand("<hex:40>")
BODY = [expand("<base64:64>"), expand("<base64:64>")[::-1], "Abc9="]

#: What is evidence although it looks like a secret, or stands beside a word that names one.
EVIDENCE = [
    "fatal: reference is not a tree: 810ffae374a2b9cb4b5c5e28eaeca7d7998fca0c",
    "comm 0x55d8c1e2a4b0 rank 3 nranks 8 cudaDev 3 nvmlDev 3 busId 4f000 commId 0x9c1f3ad27b6e8450 - Init COMPLETE",
    "WorkNCCL(SeqNum=1204, OpType=ALLREDUCE, NumelIn=8388608, NumelOut=8388608, Timeout(ms)=600000)",
    "[PG ID 0 PG GUID 0(default_pg) Rank 2] last enqueued NCCL work: 1204, last completed NCCL work: 1203",
    "GPU-8f6b0f9e-3c2a-4d8e-9b1a-7c6d5e4f3a2b: Xid 79",
    "request 1f0c2b3a-11d2-4c5e-9e3b-0a1b2c3d4e5f aborted",
    "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae model.safetensors",
    "max_tokens=4096, num_tokens: 131072, tokens_per_second=1834.2, pad_token_id=151643, eos_token='</s>'",
    "Namespace(tokenizer_path='/models/tok', token_type_ids=True, special_token='<image>', hub_token=None)",
    "--tokenizer-model /models/tok --tokenizer_path=/models/tok --seq-length 4096 --image-token <image>",
    "tensor([[0.1314, -2.7182], [3.1415, 1.4142]], device='cuda:3') has 67108864 elements",
    "RuntimeError: The size of tensor a (151936) must match the size of tensor b (151643)",
    "rocep65s0f0:1/RoCE GID fe80::bace:f6ff:fe12:3456 guid 0x506b4b0300cbd2c4 lid 34",
    "ray::WorkerDict.actor_rollout_generate_sequences() (pid=123, actor_id=8b1f2c0d4e55a1c2b3d4e5f601000000)",
    "NCCL_ALGO=Ring NCCL_DEBUG_SUBSYS=INIT,NET NCCL_IB_HCA=mlx5_0:1 NCCL_SOCKET_IFNAME=eth0",
    "KeyError: 'secret'; missing key(s) in state_dict: \"model.layers.0.self_attn.k_proj.weight\"",
    "api_tokens=12 cached_tokens: 0 prompt_tokens=1834 completion_tokens=12 first_token=0.231s",
    "key=value token count 4096 pass: 3 of 5, password policy, auth ok, secret sauce, the key is 17",
    "PASS: test_allreduce_2 (8 ranks); first pass: fused, forward pass: 12 ms, pass=2, bpw=4.5, pw: 250W",
    "The password is too short, your token is invalid, credentials are expired: the API key is required",
    "Invalid credentials in Authorization header; token is expired; Cookie: expired; secret not found",
    "python -u train.py --nproc 8 -p 29500 -c conf.yaml -w 4; mkdir -p /data/x; scp -P 22 a b; nvidia-smi -pm 1",
    "docker run -u 1000:1000 --user root:root -p 8080:80 nvcr.io/nvidia/pytorch:24.01@sha256:2c26b46b68ffc68ff99b",
    "WARN [LeaseRenewer:ann@node-41:9000] retry; akka.tcp://sparkExecutorActorSystem@node-07:55904",
    "(name='conv1', key='layer_12', value=3); {'key': 'attention', 'value': 0.5}; KeyError: 'transformer.h.0.attn'",
    "torch inductor cache key: fxgraph_3k; NCCL_IB_PKEY=0x7fff pkey_index=0; ssh host key verification failed",
    "https://example.org/search?q=token&page=2&code=404; http://10.0.0.1:8265/api/jobs?limit=100",
    "License: Apache-2.0; license_id: apache; serial number 17; session 3 of 4; GOOGLE_APPLICATION_CREDENTIALS=/run/k.json",
    "<|im_end|> <pad> <token>4096</token> </s> [PAD] token_type: 3; PWD=/workspace/train OLDPWD=~/x",
    "wandb: (?:ERROR|W&B API key|Tried to log); | each kind of secret | ends at once | 0 |; password = self._auth[3]",
    "密码错误，令牌：4096，最大令牌数=131072，密钥为空，口令 错误，验证码：无效",
    "checkpoint step_4000-3f9a1c07e5b2d8463f9a1c07e5b2d8463f9a1c07.safetensors blob 3f9a1c07e5b2d8463f9a1c07e5b2d846",
    "run name: vivid-forest-12, run id a8kd3zp0, group llama3-70b-sft-lr1e5-bs512-seed42, session_2024-06-01_10-11-12_123456_7",
    "ncclUniqueId 0x9c1f3ad27b6e8450, opCount 1b3f, hash 0x7f3c2d1e9a8b4c5d, ptr 0x7f2c44000000 size 134217728",
    "shape=[8, 4096, 151936] dtype=bf16 stride=(622329856, 151936, 1) numel 4978638848",
    "cache_key=3f9a1c07e5b2d8463f9a1c07e5b2d846 graph_key: a8kd3zp0qw7xr2mt5vb9nl4cj6hy1sgx primary_key=17 sort_key: id",
    "image nvcr.io/nvidia/pytorch@sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae pulled",
    "void cutlass::Kernel<sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1>(Params)",
    "/opt/conda/envs/Train3/lib/python3/site/packages/Torch2/distributed/Elastic/multiprocessing/Errors/init",
    "_ZN2at6native13reduceKernelILi512ELi1ENS0_8ReduceOpIfNS0_14func_wrapper_tIfZNS0_11sumFunctorIfffEclEEE",
    "sdk-12.4.1 api-server mob-1 fc-layer-3 st.append(x) ak-47 sl.csv t1.micro pat.linear.weight rnd_state re_compile",
    "auth: ok, oauth: disabled, session_id=1f0c2b3a-11d2-4c5e-9e3b-0a1b2c3d4e5f, exit_code=137, access_code=17, pin_memory=True",
    "Exception in thread Thread-3: exit code 1; setenv: not found; ENV: production; AUTH failed for user 17",
    "mount -t nfs nas:/share /mnt -o user=ann,vers=4; mysql --port 3306 -u root -p; curl -u ann https://x; gpu user=3%",
]


@pytest.mark.parametrize("text", EVIDENCE)
def test_evidence_stays(text: str) -> None:
    assert mask_text(text) == text


def test_ordinary_lines_stay_in_a_window() -> None:
    """What follows a line that ends in a name or in letters and digits is no rest of a secret."""
    lines = [
        "--tokenizer",
        "llama3",
        "commit",
        HEX,
        "key:",
        "layer_12",
        "Missing key(s): ",
        HEX,
        *EVIDENCE,
        "token:",
        "4096",
    ]
    document = {"excerpts": [{"lines": lines}], "text": "\n".join(lines)}
    assert mask_secrets(document) is document


@pytest.mark.parametrize("form", leaks.forms("secrets"), ids=lambda form: form.line[:40])
def test_a_mask_never_nests(form: leaks.Form) -> None:
    lines = form.line.split("\n")
    written = (form.line, f"password={form.line}", f"{{'token': '{form.line}'}}", f"{form.line} {form.line}")
    document = {"lines": ["start", *lines, "end"], "texts": [{"text": text} for text in written]}
    made = mask_secrets(document)
    marks = json.dumps(made, ensure_ascii=False).split("[secret:")[1:]
    assert marks
    assert all(re.match(r"[a-z0-9-]+\]", mark) for mark in marks)
    once = mask_secrets({"lines": ["start", *lines, "end"]})
    assert mask_secrets(once) == once


def planted(document: Any, secret: str, key: str = "") -> Any:
    """Return the document with a secret at the end of every text that a log can reach."""
    if isinstance(document, dict):
        return {name: planted(value, secret, name) for name, value in document.items()}
    if isinstance(document, list):
        return [planted(value, secret, key) for value in document]
    fixed = {"verdict", "status", "weight", "state", "role", "cause", "time", "name", "version", "rules", "outcome"}
    return f"{document} {secret}" if isinstance(document, str) and key not in fixed else document


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ["diagnosed", "unknown", "healthy", "verified"])
def test_no_text_of_a_document_keeps_its_secret(name: str, format: str) -> None:
    shown = render(planted(documents.ALL[name](), TOKEN), format, verbose=2).decode()
    assert TOKEN not in shown
    assert format not in ("json", "html") or "[secret:huggingface-token]" in shown


def test_only_texts_change() -> None:
    before = planted(documents.diagnosed(), TOKEN)
    after = mask_secrets(copy.deepcopy(before))
    assert after.pop("redaction") == {"secrets": ["huggingface-token"]}
    assert json.dumps(after) == json.dumps(before).replace(TOKEN, "[secret:huggingface-token]")


def test_the_document_given_is_not_changed() -> None:
    document = planted(documents.diagnosed(), TOKEN)
    before = copy.deepcopy(document)
    mask_secrets(document)
    assert document == before


@pytest.mark.parametrize("name", [name for name in documents.ALL if name != "hostile"])
def test_a_document_without_secrets_is_returned_as_it_is(name: str) -> None:
    document = documents.ALL[name]()
    assert mask_secrets(document) is document


def test_masking_twice_is_masking_once() -> None:
    once = mask_secrets(planted(documents.diagnosed(), TOKEN))
    assert mask_secrets(once) is once


def test_kinds_of_an_earlier_run_stay_noted() -> None:
    document = {**documents.diagnosed(), "redaction": {"secrets": ["jwt"], "pseudonyms": {"hosts": 2}}}
    document["notes"] = [TOKEN]
    assert mask_secrets(document)["redaction"] == {
        "secrets": ["huggingface-token", "jwt"],
        "pseudonyms": {"hosts": 2},
    }


def test_a_variable_whose_name_tells_loses_all_of_its_value() -> None:
    document = documents.diagnosed()
    document["job"]["env"] = {
        "WANDB_API_KEY": "short one",
        "DB_PASSWORD": ["a b", "c;d"],
        "HF_TOKEN": "",
        "HUB_TOKEN": TOKEN,
        "API_TOKEN": "None",
        "PAD_TOKEN": "abcdefgh",
        "DEPLOY_KEY": "/root/.ssh/deploy_key",
        "DATADOG_APP_KEY": HEX,
        "NCCL_DEBUG": "INFO",
    }
    assert mask_secrets(document)["job"]["env"] == {
        "WANDB_API_KEY": "[secret:secret-key]",
        "DB_PASSWORD": ["[secret:password]", "[secret:password]"],
        "HF_TOKEN": "",
        "HUB_TOKEN": "[secret:huggingface-token]",
        "API_TOKEN": "None",
        "PAD_TOKEN": "abcdefgh",
        "DEPLOY_KEY": "/root/.ssh/deploy_key",
        "DATADOG_APP_KEY": "[secret:random-key]",
        "NCCL_DEBUG": "INFO",
    }


@pytest.mark.parametrize(
    "name", ["NCCL_IB_HCA", "TOKENIZERS_PARALLELISM", "MASTER_PORT", "PYTHONPATH", "KEY", "x" * 99]
)
def test_other_variables_are_no_secrets(name: str) -> None:
    assert secret_name(name) is None


def test_a_secret_in_a_name_is_masked_and_no_value_is_lost() -> None:
    document = {"env": {f"A {TOKEN}": "1", f"A {TOKEN[:-1]}": "2"}}
    assert sorted(mask_secrets(document)["env"].values()) == ["1", "2"]
    assert TOKEN[:-1] not in json.dumps(mask_secrets(document))


def pem(prefix: str = "") -> list[str]:
    return [
        f"{prefix}{line}"
        for line in ("-----BEGIN RSA PRIVATE KEY-----", *BODY, "-----END RSA PRIVATE KEY-----", "loading model")
    ]


@pytest.mark.parametrize("prefix", ["", "[rank3]: ", "(Worker pid=1, ip=10.0.0.1) ", "node1: 2024-06-01 10:00:00 | "])
@pytest.mark.parametrize(("first", "last"), [(0, 6), (0, 3), (2, 6), (1, 5)])
def test_a_key_of_several_lines_is_masked_line_by_line(prefix: str, first: int, last: int) -> None:
    lines = ["before", *pem(prefix)[first:last], "after"]
    made = mask_secrets({"excerpts": [{"lines": lines}]})["excerpts"][0]["lines"]
    assert len(made) == len(lines)
    assert not [line for line in made if any(body in line for body in BODY)]
    assert (made[0], made[-1]) == ("before", "after")
    assert all(line.startswith(prefix) for line in made[1:-1])


def test_a_key_inside_one_text_of_several_lines() -> None:
    text = "Traceback:\n" + "\n".join(pem("[rank0]: "))
    made = mask_text(text)
    assert made.count("\n") == text.count("\n")
    assert not [body for body in BODY if body in made]
    assert made.endswith("[rank0]: loading model")


@pytest.mark.parametrize("prefix", ["", "[rank3]: "])
def test_a_value_whose_name_stands_in_the_line_before(prefix: str) -> None:
    lines = [
        f"{prefix}{line}"
        for line in ("env:", "- name: DB_PASSWORD", "  value: hunter2", "- name: STEPS", "  value: 40000")
    ]
    document = {"excerpts": [{"lines": lines}], "text": "\n".join(lines)}
    made = mask_secrets(document)
    assert made["excerpts"][0]["lines"] == [line.replace("hunter2", "[secret:password]") for line in lines]
    assert made["text"] == "\n".join(made["excerpts"][0]["lines"])
    assert mask_secrets(made) == made


def test_lines_around_a_certificate_stay() -> None:
    lines = ["-----BEGIN CERTIFICATE-----", *BODY, "-----END CERTIFICATE-----"]
    document = {"excerpts": [{"lines": lines}]}
    assert mask_secrets(document) is document


@pytest.mark.parametrize("length", [4, 9, 20])
def test_a_secret_that_was_cut_with_its_text_is_masked(length: int) -> None:
    text = f"{'x ' * 120}env {TOKEN[: 3 + length]}"
    assert mask_text(text) == f"{'x ' * 120}env [secret:huggingface-token]"


@pytest.mark.parametrize(
    "end", ["hf_hub_download", "sk-learn", "npm_config", "eyJ", "access-log-2024", "fw_step_100", "torch-v1.0-beta2"]
)
def test_a_long_text_may_end_in_a_common_word(end: str) -> None:
    text = f"{'x ' * 120}{end}"
    assert mask_text(text) == text


def test_colours_between_a_name_and_its_value_hide_nothing() -> None:
    assert "hunter2" not in mask_text("\x1b[1mDB_PASSWORD\x1b[0m=\x1b[32mhunter2\x1b[0m")
    assert mask_text("\x1b[1mNCCL WARN\x1b[0m x") == "\x1b[1mNCCL WARN\x1b[0m x"


@pytest.mark.parametrize("text", ["@\x1b", "\x1b", "\x1b password=hunter2", "\x1b" * 5000 + "[0m" * 5000])
def test_an_escape_that_begins_no_colour_ends_nothing(text: str) -> None:
    assert mask_text(text) in (text, " password=[secret:password]")


def test_hidden_bytes_and_damaged_text_do_no_harm() -> None:
    document = {"a": f"\0{TOKEN}\0", "b": f"\udcff {TOKEN}", "c": "\0", "d": 10**400}
    made = mask_secrets(document)
    assert made["a"] == "\0[secret:huggingface-token]\0"
    assert made["b"] == "\udcff [secret:huggingface-token]"
    assert made["d"] == 10**400


@pytest.mark.parametrize("document", [{}, {"a": None}, {"a": []}, {"a": [1.5, True, {}]}])
def test_documents_without_texts(document: dict[str, Any]) -> None:
    assert mask_secrets(document) is document


def test_a_log_with_secrets_gives_the_same_verdict(tmp_path: Path) -> None:
    log = (ROOT / "corpus" / "written" / "logs" / "S001-openrlhf-broadcast-two-networks.log").read_text()
    lines = [
        f"{line} HF_TOKEN={TOKEN}" if "Connect to" in line or "Using enp1s0" in line else line
        for line in log.splitlines()
    ]
    path = tmp_path / "x.log"
    path.write_text("\n".join(lines))
    found = diagnose(path)
    plain, masked = documents_of.build(found, found.excerpts, found.seconds), found.to_dict()
    assert TOKEN in json.dumps(plain)
    assert TOKEN not in json.dumps(masked)
    assert masked["verdict"] == "diagnosed"
    for kept in ("cause", "confidence", "culprits", "contributions"):
        assert [d[kept] for d in masked["diagnoses"]] == [d[kept] for d in plain["diagnoses"]]
    places = [[(e["path"], e["line"]) for e in d["evidence"]] for d in masked["diagnoses"]]
    assert places == [[(e["path"], e["line"]) for e in d["evidence"]] for d in plain["diagnoses"]]


#: Lines of the corpus that do hold a secret: the password that Ray documents as its default.
KNOWN = "5241590000000000"


def test_nothing_in_the_corpus_is_masked_wrongly() -> None:
    texts = {
        line[:2000]
        for path in (ROOT / "corpus").rglob("logs/*")
        if path.is_file() and path.suffix in (".log", ".txt", ".out", ".err")
        for line in path.read_text("utf-8", "replace").split("\n")
    }
    assert len(texts) > 10_000
    masked = mask_secrets({"lines": sorted(texts)})
    changed = [line for line in masked["lines"] if line not in texts]
    assert changed == [line.replace(KNOWN, "[secret:redis-password]") for line in sorted(texts) if KNOWN in line]
