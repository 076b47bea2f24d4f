"""The incidents whose reports are opened in a browser: each goes through the real pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.api import diagnose
from reports.examples import render as examples
from tests.render import documents

ROOT = Path(__file__).parents[2]
RECORDED, WRITTEN = ROOT / "corpus" / "recorded" / "logs", ROOT / "corpus" / "written" / "logs"

Doc = dict[str, Any]

#: What a log may carry to break out of a page, to run, or to lie about its own text.
ATTACKS = (
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    "</style></pre></code></svg></title><svg onload=window.pwned=1>",
    "<!-- --!> ]]> <![CDATA[",
    "\" onmouseover=window.pwned=1 x=\" ' autofocus onfocus='window.pwned=1",
    "<a href='javascript:window.pwned=1'>x</a> javascript:window.pwned=1",
    "{{7*7}} {% raw %} ${7*7} #{7*7}",
    "&lt;b&gt; &amp;amp; &#x3c;script&#x3e;",
    "\u202egnp.exe\u2066 \u200f\u061c",
    "\x1b[31mred\x1b[0m \x1b]0;owned\x07",
    "\x00\x08\x0b\x7f\x9b",
    "<iframe src=//example.invalid></iframe><link rel=stylesheet href=//example.invalid/x.css>",
    "<style>*{background:url(//example.invalid/y)}</style><base href=//example.invalid>",
    '<meta http-equiv=refresh content="0;url=//example.invalid">',
)


@dataclass(frozen=True)
class Incident:
    """One incident: what its report must say, and how its document is made in an empty folder."""

    verdict: str
    family: str | None
    ranks: int
    make: Callable[[Path], Doc]


def _log(path: Path) -> Callable[[Path], Doc]:
    return lambda folder: diagnose(path).to_dict()


def _written(lines: list[str]) -> Callable[[Path], Doc]:
    def make(folder: Path) -> Doc:
        log = folder / "trainer.log"
        log.write_text("\n".join(lines) + "\n", "utf-8", newline="")
        return diagnose(log).to_dict()

    return make


def _example(name: str) -> Callable[[Path], Doc]:
    return lambda folder: examples.document(next(one for one in examples.EXAMPLES if one.name == name))


def _watchdog(rank: int) -> str:
    return (
        f"[rank{rank}]:[E822 14:13:{rank % 60:02d}.{rank % 1000:03d}114093 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog "
        "caught collective operation timeout: WorkNCCL(SeqNum=8313, OpType=ALLREDUCE, NumelIn=116391936, "
        f"NumelOut=116391936, Timeout(ms)=600000) ran for {600_000 + rank} milliseconds before timing out."
    )


def _one_of_4096() -> list[str]:
    """Return a log in which every rank but one waits in the same collective."""
    joined = [
        f"gpu-node-{rank // 8:03d}:{20_000 + rank}:{30_000 + rank} [{rank % 8}] NCCL INFO ncclCommInitRank comm "
        f"0x55d0{rank:08x} rank {rank} nranks 4096 cudaDev {rank % 8} nvmlDev {rank % 8} busId {rank % 8:x}000 "
        "commId 0x9a51c8d4 - Init COMPLETE"
        for rank in range(4096)
    ]
    return joined + [_watchdog(rank) for rank in range(4096) if rank != 2817]


def _alone() -> list[str]:
    """Return the log of a job of one process that runs out of memory, with a training loop before it."""
    steps = [
        f"2024-08-22 14:{step // 60:02d}:{step % 60:02d},120 INFO step {step} loss {11.2 - step / 100:.4f} "
        f"mem {40 + step / 10:.1f} GiB"
        for step in range(0, 240, 5)
    ]
    return [
        "2024-08-22 13:59:58,001 INFO trainer: world_size 1, rank 0, torch 2.5.1+cu124",
        *steps,
        "2024-08-22 14:04:02,512 ERROR [rank0]: Traceback (most recent call last):",
        '[rank0]:   File "/opt/train/train.py", line 211, in <module>',
        "[rank0]:     loss.backward()",
        "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of "
        "79.15 GiB of which 1.21 GiB is free. Including non-PyTorch memory, this process has 77.93 GiB memory in use.",
    ]


def _hostile_log() -> list[str]:
    """Return a real failure with an attack in every place that a report quotes."""
    lines = []
    for rank, attack in enumerate(ATTACKS):
        lines += [
            f"2024-08-22 14:00:{rank:02d} INFO rank {rank} of {len(ATTACKS)} {attack}",
            f'[rank{rank}]:   File "/opt/{attack}/train.py", line {rank}, in <module>',
            f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. {attack}",
            f"node{rank}:{7000 + rank}:{8000 + rank} [0] NCCL WARN {attack} Connect to 10.0.0.{rank + 1}<4242> failed : "
            "Connection refused",
            _watchdog(rank) + attack,
            f"NCCL_SOCKET_IFNAME={attack} NCCL_DEBUG={attack}",
        ]
    lines.append("[rank0]: RuntimeError: NCCL error " + ATTACKS[0] + "x" * 1_000_000 + ATTACKS[1])
    return lines


def _hostile_document() -> Doc:
    """Return the hostile document with the verifier's own words, which no log can reach."""
    made = documents.hostile()
    for diagnosis in made["diagnoses"]:
        if diagnosis["verification"]:
            diagnosis["verification"]["outcome"] = "confirmed"
    return made


#: Ordinary reports of every verdict, the main families and sizes from 1 to 4,096 ranks, and the odd ones.
INCIDENTS = {
    "memory-1": Incident("diagnosed", "host", 1, _written(_alone())),
    "network-2": Incident("diagnosed", "network", 2, _example("network-two-subnets")),
    "mismatch-8": Incident("diagnosed", "collective", 8, _example("mismatch-8-ranks")),
    "late-512": Incident("diagnosed", "collective", 512, _example("late-512-ranks")),
    "missing-4096": Incident("diagnosed", "collective", 4096, _written(_one_of_4096())),
    "healthy-4": Incident("healthy", None, 4, _log(RECORDED / "healthy_two_hosts_w4.log")),
    "unknown-2": Incident("unknown", None, 2, _log(WRITTEN / "S005-openrlhf-connection-reset.log")),
    "verified-8": Incident("diagnosed", "network", 8, lambda folder: documents.verified()),
    "hostile-log": Incident("diagnosed", None, len(ATTACKS), _written(_hostile_log())),
    "hostile-document": Incident("diagnosed", None, 8, lambda folder: _hostile_document()),
}


def document(name: str, folder: Path) -> Doc:
    """Return the report document of the incident, as a JSON reader would get it."""
    made: Doc = json.loads(json.dumps(INCIDENTS[name].make(folder)))
    return made


def grouped(*names: str) -> list[Any]:
    """Return the names as parameters whose tests share a worker, so that each report is made once."""
    return [pytest.param(name, marks=pytest.mark.xdist_group(f"report-{name}")) for name in names]


def only(*names: str) -> pytest.MarkDecorator:
    """Return the mark of a test that these incidents are enough for."""
    return pytest.mark.parametrize("name", grouped(*names), indirect=True)
