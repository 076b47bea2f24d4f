"""Whatever is planted anywhere in a document, no format shows it after redaction."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_triage.redaction import mask_secrets, redact
from nccl_triage.redaction.rewrite import FieldKind, kind_of
from nccl_triage.redaction.secret_kinds import expand
from nccl_triage.render import FORMATS, render
from tests.render import documents

#: Names that nothing else in a document holds: consonants that no word has.
stem = st.text("bcdfghjkqvwxz", min_size=5, max_size=9)
number = st.integers(0, 9999).map(str)
host = st.tuples(stem, st.sampled_from(["", "-", "-gpu", "gpu-", "."]), number).map(lambda parts: "".join(parts))
domain = stem.map(lambda name: f"{name}.com")
user = st.tuples(stem, st.sampled_from(["", ".", "_"])).map(lambda parts: f"{parts[0]}{parts[1]}{parts[0][:2]}7")
segment = st.tuples(stem, st.sampled_from(["", "_v2", "-run", ".d"])).map("".join)
# 172.17.* and 192.168.122.* are the same on every host and stay.
address = st.tuples(st.sampled_from(["10", "11", "172", "192.168"]), *[st.integers(18, 120)] * 3).map(
    lambda parts: ".".join(map(str, parts[: 3 if parts[0] == "192.168" else 4]))
)
token = st.sampled_from(["hf_<alnum:34>", "sk-proj-<alnum:40>", "AKIA<upper:16>", "glpat-<alnum:20>"]).map(expand)


hexes = st.text("0123456789abcdef", min_size=4, max_size=4)
mac = st.lists(hexes.map(lambda digits: digits[:2]), min_size=6, max_size=6).map(
    lambda pairs: "a1:" + ":".join(pairs[1:])
)
ipv6 = st.tuples(hexes, hexes).map(lambda groups: f"fd12:3456:789a:1::a{groups[0][1:]}:b{groups[1][1:]}")
uuid = st.tuples(*[hexes] * 8).map(lambda h: f"GPU-{h[0]}{h[1]}-{h[2]}-{h[3]}-{h[4]}-{h[5]}{h[6]}{h[7]}")


@st.composite
def plants(draw: st.DrawFn) -> dict[str, str]:
    """Return what is planted and must not survive."""
    names = {"host": host, "other": host, "user": user, "folder": segment, "file": segment, "project": segment}
    numbers = {"domain": domain, "address": address, "ipv6": ipv6, "mac": mac, "uuid": uuid, "secret": token}
    return {kind: draw(strategy) for kind, strategy in {**names, **numbers}.items()}


def lines(p: dict[str, str]) -> list[str]:
    """Return lines of logs that hold what is planted; only ``host`` stands in a field of the document as well."""
    return [
        f"{p['host']}:123:456 [0] NCCL INFO Bootstrap : Using eth0:{p['address']}<0>",
        f"srun: error: {p['other']}: task 3: Exited with exit code 1",
        f'File "/home/{p["user"]}/{p["folder"]}/{p["file"]}.py", line 3, in main',
        f"saved to /mnt/{p['folder']}/{p['file']}/model.pt by {p['user']}@{p['host']}",
        f"https://git.{p['domain']}/{p['folder']}/{p['file']} and s3://{p['folder']}/{p['file']}/x.bin",
        f"HF_TOKEN={p['secret']} USER={p['user']} WANDB_PROJECT={p['project']}",
        f"mail {p['user']}@{p['domain']}: {p['address']}:29500 is [{p['host']}]:29500",
        f"(Worker pid=1, ip={p['address']}) {p['host']}_rank3 GID ::ffff:{p['address']} lost {p['project']}",
        f"eth0 {p['mac']} inet6 {p['ipv6']}/64 scope global; connect to [{p['ipv6']}]:29500 failed",
        f"{p['uuid']}: Xid 79 on {p['host'].upper()}.{p['domain']}",
        f"  host      : {p['host']}.{p['folder']}.local",
        f"tcp://{p['host']}:29500 hdfs://{p['other']}.{p['domain']}:8020/user/{p['user']}/x.parquet",
        f"{p['file']}.py:12 <module> in ./{p['folder']}/{p['file']}.py {p['secret']}",
    ]


def planted(value: Any, texts: list[str], draw: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: planted(item, texts, draw, f"{key.rpartition('.')[2]}.{name}") for name, item in value.items()}
    if isinstance(value, list):
        return [planted(item, texts, draw, key) for item in value]
    if not isinstance(value, str) or kind_of(key) is not FieldKind.TEXT or draw(st.integers(0, 2)):
        return value
    text = draw(st.sampled_from(texts))
    return draw(st.sampled_from([f"{value} {text}", f"{text} {value}", text, f"({text}), {value}", f"{value}: {text}"]))


BASES = {name: documents.ALL[name]() for name in ("diagnosed", "unknown", "healthy", "verified")}


@settings(max_examples=40, deadline=None)
@given(data=st.data(), plant=plants(), base=st.sampled_from(sorted(BASES)))
def test_nothing_planted_survives(data: st.DataObject, plant: dict[str, str], base: str) -> None:
    texts = lines(plant)
    document = planted(copy.deepcopy(BASES[base]), texts, data.draw)
    document["job"]["hosts"].append({"name": plant["host"], "addresses": [plant["address"]], "ranks": []})
    document["inputs"][0]["path"] = f"/data/{plant['folder']}/{plant['file']}/rank_0.log"
    # Each stands where its kind is known at least once: elsewhere it may stand alone.
    document["notes"] += [f"{document['inputs'][0]['path']} has no end", *texts]
    made = redact(document)
    for format in FORMATS:
        shown = render(made, format, verbose=2).decode().lower()
        for kind, original in plant.items():
            assert original.lower() not in shown, (format, kind, original)
    assert redact(made) == made


PIECES = [
    *(
        "gpu-17",
        "node1",
        "host-1",
        "host-[1-3]",
        "gpu-[01-03]",
        "user-1",
        "zhangwei",
        "acme",
        "domain-1",
        "中文",
        "team-a",
    ),
    *(
        "/home/",
        "/data/path-1/",
        "x.py",
        "file-1.py",
        "train.py",
        "~",
        "..",
        "$",
        "{",
        "}",
        "/24",
        "com",
        "cn",
        "local",
    ),
    *(
        "@",
        "://",
        "https",
        "s3",
        "tcp",
        ":",
        "/",
        ".",
        "-",
        "_",
        "[",
        "]",
        "(",
        ")",
        " ",
        "=",
        "'",
        '"',
        "\\",
        "\n",
        "\t",
    ),
    *("10.1.2.3", "fe80::1:2", "fd00::7", "::ffff:10.1.2.3", "10.net-1.2", "a1:b2:c3:d4:e5:f6", "%eth0", "<0>", "İ"),
    *("NCCL INFO", ":1:2 [0] ", "srun: error: ", ": task", "USER=", "WANDB_PROJECT=", "host      : ", "GUID: ", "pod/"),
    *("password=", "hunter22", "Bearer ", expand("hf_<alnum:34>"), "[secret:jwt]", "\x1b[31m", "\0", "Serial Number: "),
    *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "0x506b4b0300cbd2c4", "8f5e2d1c"),
]
soup = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@settings(max_examples=60, deadline=None)
@given(
    notes=st.lists(soup, max_size=6), path=soup, name=st.sampled_from(["gpu-17", "node1.acme.cn", "host-1"]), value=soup
)
def test_any_text_is_masked_and_redacted_once(notes: list[str], path: str, name: str, value: str) -> None:
    job = {"hosts": [{"name": name, "addresses": ["10.1.2.3"]}], "env": {"WANDB_PROJECT": value}}
    document = {"job": job, "inputs": [{"path": path}], "notes": notes}
    masked = mask_secrets(document)
    assert mask_secrets(masked) == masked
    made = redact(document)
    assert redact(made) == made
    assert len(made["notes"]) == len(notes)
