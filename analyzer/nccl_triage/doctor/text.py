"""The document of ``doctor`` as text for a terminal: problems first, then what is fine, then what could not be seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from nccl_triage import messages
from nccl_triage.doctor import wording
from nccl_triage.doctor.checks import BAD
from nccl_triage.knowledge.entries import Text
from nccl_triage.render.words import visible

WHAT: dict[str, Text] = {
    "shm": {"en": "/dev/shm", "zh": "/dev/shm"},
    "cgroup": {"en": "limits of the cgroup", "zh": "cgroup 限制"},
    "infiniband": {"en": "InfiniBand and RoCE ports", "zh": "InfiniBand 与 RoCE 端口"},
    "pci": {"en": "devices on the PCI bus", "zh": "PCI 总线设备"},
    "iommu": {"en": "the IOMMU", "zh": "IOMMU"},
    "acs": {"en": "ACS of PCI bridges", "zh": "PCI 桥的 ACS"},
    "clock": {"en": "the state of the clock", "zh": "时钟状态"},
    "firewall-rules": {"en": "rules of packet filters", "zh": "防火墙规则"},
    "storage": {"en": "space on a file system", "zh": "文件系统空间"},
    "kernel-log": {"en": "the kernel log (Xid, killed processes)", "zh": "内核日志（Xid、被杀进程）"},
    "gpus": {"en": "GPUs", "zh": "GPU"},
    "gpu-details": {
        "en": "temperature limits, NVLink, paths and fabric of GPUs",
        "zh": "GPU 的温度阈值、NVLink、路径与 fabric",
    },
    "driver-cuda": {"en": "the CUDA version that the driver supports", "zh": "驱动支持的 CUDA"},
    "torch": {"en": "torch", "zh": "torch"},
    "nccl": {"en": "torch's NCCL", "zh": "torch 的 NCCL"},
    "host": {"en": "the host", "zh": "该主机"},
}
WHY: dict[str, Text] = {
    "absent": {"en": "{path} does not exist", "zh": "{path} 不存在"},
    "denied": {"en": "{path} cannot be read without root", "zh": "没有 root 权限无法读取 {path}"},
    "refused": {
        "en": "{path} cannot be read even by root: the container or a security module forbids it",
        "zh": "root 也无法读取 {path}：容器或安全模块不允许",
    },
    "unreadable": {"en": "{path} cannot be read ({error})", "zh": "无法读取 {path}（{error}）"},
    "failed": {"en": "{tool}: {error}", "zh": "{tool}：{error}"},
    "root": {"en": "that needs root", "zh": "需要 root"},
    "hidden": {
        "en": "hidden even from root: the container or a security module forbids it",
        "zh": "root 也看不到：容器或安全模块不允许",
    },
    "nft": {"en": "nft list ruleset shows them", "zh": "请用 nft list ruleset 查看"},
    "no-driver": {
        "en": "this host has no NVIDIA driver or device",
        "zh": "本机没有 NVIDIA 驱动及其设备",
    },
    "no-nvml": {
        "en": "the Python package nvidia-ml-py is missing ({error})",
        "zh": "缺少 Python 包 nvidia-ml-py（{error}）",
    },
    "no-cuda": {"en": "torch {torch} is built without CUDA", "zh": "torch {torch} 未带 CUDA"},
    "hangs": {"en": "no answer within {seconds} s", "zh": "{seconds} 秒内没有应答"},
    "died": {"en": "the probe died with {error}", "zh": "探测进程因 {error} 退出"},
    "broke": {"en": "a bug in the probe ({error})", "zh": "探测程序出错（{error}）"},
}


def words(entry: Mapping[str, str]) -> tuple[Text, Text]:
    """Return what could not be seen and why, in both languages."""
    return wording.unseen(WHAT, WHY, entry, entry)


Document = Mapping[str, Any]
Lang = Literal["en", "zh"]
_COLOURS = {"failed": "red", "warning": "yellow", "note": "cyan"}
_WORDS = {
    "failed": {"en": "FAILED", "zh": "失败"},
    "warning": {"en": "warning", "zh": "警告"},
    "note": {"en": "note", "zh": "提示"},
}
#: Hosts and subjects named in one line at most.
_SHOWN = 8


def text(document: Document, lang: Lang, *, verbose: bool = False, color: bool = False) -> str:
    """Return the document as lines."""
    lines = [headline(document, lang), *_problems(document, lang, color)]
    for state in BAD:
        lines += _differences(document, state, lang, color)
        lines += _results(document, state, lang, color, verbose or state != "note")
    lines += _fine(document, lang)
    lines += _unseen(document, lang)
    return "\n".join(lines) + "\n"


def say(template: str, lang: Lang, **values: object) -> str:
    """Return a text of ``messages`` with its values in place."""
    return messages.fill(template, values, lang)


def _suffix(lang: Lang) -> str:
    return "_zh" if lang == "zh" else ""


def _mark(state: str, lang: Lang, color: bool) -> str:
    word = _WORDS[state][lang]
    if not color:
        return word
    import click

    return click.style(word, fg=_COLOURS[state], bold=state == "failed")


def headline(document: Document, lang: Lang) -> str:
    """Return the document in one line."""
    hosts = document["hosts"]
    counted = Counter(check["state"] for host in hosts for check in host["checks"])
    counted["failed"] += sum(bool(host["problem"]) for host in hosts)
    counted.update(difference["state"] for difference in document["differences"])
    name = visible(hosts[0]["host"]) if len(hosts) == 1 else say("{count} hosts", lang, count=len(hosts))
    told = {
        "failed": say("{count} failed", lang, count=counted["failed"]),
        "warning": say("1 warning" if counted["warning"] == 1 else "{count} warnings", lang, count=counted["warning"]),
        "note": say("1 note" if counted["note"] == 1 else "{count} notes", lang, count=counted["note"]),
    }
    listed = [word for state, word in told.items() if counted[state]] or [say("nothing wrong was seen", lang)]
    missed = sum(len(host["unseen"]) for host in hosts)
    if missed:
        listed.append(
            say("1 thing could not be seen" if missed == 1 else "{count} things could not be seen", lang, count=missed)
        )
    return f"nccl-triage doctor: {name}: {('，' if lang == 'zh' else ', ').join(listed)}"


def _problems(document: Document, lang: Lang, color: bool) -> Iterator[str]:
    for host in document["hosts"]:
        if host["problem"]:
            told = say("{host} did not answer: {why}", lang, host=host["host"], why=host["problem"])
            yield f"{_mark('failed', lang, color)}: {visible(told)}"


def _differences(document: Document, state: str, lang: Lang, color: bool) -> Iterator[str]:
    suffix = _suffix(lang)
    for one in document["differences"]:
        if one["state"] != state:
            continue
        values = "; ".join(
            f"{_value(entry['value'], lang)} ({_names(entry['hosts'], lang)})" for entry in one["values"][:_SHOWN]
        )
        told = say("{title} differs between hosts: {values}", lang, title=one[f"title{suffix}"], values=values)
        yield f"{_mark(one['state'], lang, color)}: {visible(told)}"
        odd = (
            say("apart from the others: {hosts}.", lang, hosts=_names(one["minority"], lang))
            if one["minority"]
            else say("no value has a majority.", lang)
        )
        yield "    " + visible(f"{odd} {one[f'means{suffix}']}")
        yield from _causes(one["causes"], lang)


def _value(value: str | None, lang: Lang) -> str:
    return say("not set", lang) if value is None else value or '""'


def _names(hosts: list[str], lang: Lang) -> str:
    if len(hosts) <= _SHOWN:
        return ", ".join(hosts)
    return say("{names} and {count} more", lang, names=", ".join(hosts[:_SHOWN]), count=len(hosts) - _SHOWN)


def _causes(causes: list[str], lang: Lang) -> Iterator[str]:
    if causes:
        yield "    " + say("may cause: {causes}", lang, causes=", ".join(causes))


def _results(document: Document, state: str, lang: Lang, color: bool, full: bool) -> Iterator[str]:
    """Yield the results of a state; what is the same of several hosts, GPUs or ports is said once."""
    suffix = _suffix(lang)
    several = len(document["hosts"]) > 1
    grouped: dict[tuple[str, str], dict[str, list[str]]] = {}
    checks: dict[tuple[str, str], dict[str, Any]] = {}
    for host in document["hosts"]:
        for check in host["checks"]:
            if check["state"] == state:
                key = check["id"], check[f"says{suffix}"]
                checks.setdefault(key, check)
                grouped.setdefault(key, {}).setdefault(check["subject"], []).append(host["host"])
    for key, subjects in grouped.items():
        check = checks[key]
        where = _where(subjects, several, lang)
        glue = "" if check["says"].startswith("=") else " " if where else ""
        said = f"{where}{':' if where and glue else ''}{glue}{check[f'says{suffix}']}"
        yield f"{_mark(state, lang, color)}: {visible(said)} [{check['id']}]"
        if full:
            yield "    " + visible(check[f"do{suffix}"])
            yield from _causes(check["causes"], lang)


def _where(subjects: Mapping[str, list[str]], several: bool, lang: Lang) -> str:
    """Return what a result is about: subjects of this host, or hosts with their subjects."""
    if not several:
        return _names([subject for subject in subjects if subject], lang)
    by_hosts: dict[tuple[str, ...], list[str]] = {}
    for subject, hosts in subjects.items():
        by_hosts.setdefault(tuple(dict.fromkeys(hosts)), []).append(subject)
    parts = []
    for names, named in by_hosts.items():
        words = _names([subject for subject in named if subject], lang)
        parts.append(f"{_names(list(names), lang)}{' ' + words if words else ''}")
    return "; ".join(parts)


def _fine(document: Document, lang: Lang) -> Iterator[str]:
    """Yield a block of what is well, where it is well on every host that was asked."""
    suffix = _suffix(lang)
    hosts = [host for host in document["hosts"] if not host["problem"]]
    bad = {check["id"] for host in hosts for check in host["checks"] if check["state"] != "ok"}
    counted = Counter(
        text
        for host in hosts
        for text in {check[f"says{suffix}"] for check in host["checks"] if check["state"] == "ok"}
    )
    order = [check for host in hosts for check in host["checks"] if check["state"] == "ok" and check["id"] not in bad]
    said = list(
        dict.fromkeys(check[f"says{suffix}"] for check in order if counted[check[f"says{suffix}"]] == len(hosts))
    )
    if said:
        yield say("fine:", lang)
        yield from (f"    {visible(entry)}" for entry in said)


def _unseen(document: Document, lang: Lang) -> Iterator[str]:
    several = len(document["hosts"]) > 1
    grouped: dict[tuple[str, str], list[str]] = {}
    for host in document["hosts"]:
        for entry in host["unseen"]:
            what, why = words(entry)
            grouped.setdefault((what[lang], why[lang]), []).append(host["host"])
    for (thing, reason), hosts in grouped.items():
        where = (
            f" ({_names(list(dict.fromkeys(hosts)), lang)})" if several and len(hosts) < len(document["hosts"]) else ""
        )
        yield visible(say("not seen: {what}: {why}", lang, what=thing, why=reason)) + visible(where)
