"""A small set of rules of one's own that is well, and what ``rules test`` says once a part of it is replaced."""

from __future__ import annotations

from pathlib import Path

from nccl_triage.checks import samples
from nccl_triage.checks.problem import RuleProblem
from nccl_triage.engine import load
from nccl_triage.errors import RuleError, RuleErrors
from nccl_triage.evaluation.suite import check_all

SIGNATURES = """program: acme
signatures:
  - id: acme.cache_gone
    kind: storage.error
    role: root
    pattern: 'AcmeCache: (?P<path>\\S+) on (?P<server>[\\w-]+) went away(?: after (?P<age>\\d+) s)?'
    meaning: The shard cache of a host went away.
    supports:
    - cause: acme-down
      id: cache-gone
      weight: strong
      says: {en: "The cache {f:path} on {f:server} went away[ after {f:age} s].", zh: "{f:server} 上的缓存 {f:path} 消失[（{f:age} 秒后）]。"}
    culprit: {host: server, why: {en: "the cache on {f:server} went away", zh: "{f:server} 上的缓存消失"}}
    match: ['AcmeCache: /shards on gpu-a went away after 12 s', 'AcmeCache: /shards on gpu-a went away']
    not: ['AcmeCache: /shards on gpu-a is ready']
  - id: acme.tokens_differ
    kind: configuration
    role: root
    pattern: 'AcmeToken: expected (?P<want>\\d+), got (?P<have>\\d+)'
    premise: f.want != f.have
    meaning: Two hosts have different tokens.
    supports:
    - {cause: acme-down}
    match: ['AcmeToken: expected 4, got 5']
    not: ['AcmeToken: expected 4, got 4', 'AcmeToken: none']
"""
CAUSE = """id: acme-down
family: application
title: {en: "The Acme service is down", zh: "Acme 服务不可用"}
explanation: {en: "The service of the shard cache is down.", zh: "分片缓存服务不可用。"}
headlines:
  - says: {en: "The cache {f:path}[ on {host}] went away", zh: "[{host} 上的]缓存 {f:path} 消失"}
    of: acme.cache_gone
for:
  - id: gone-while-waiting
    signature: [acme.cache_gone]
    where: f.server != 'localhost'
    when: fact('collective.timeouts')
    weight: moderate
    says: {en: "Ranks waited while the cache {f:path} was away.", zh: "缓存 {f:path} 消失期间各 rank 在等待。"}
culprit: [evidence]
fixes:
  - title: {en: "Restart the cache on {f:server}", zh: "重启 {f:server} 上的缓存"}
    commands: ["ls {f:path}"]
    caution: {en: "Jobs on {f:server} lose their shards.", zh: "{f:server} 上的作业会丢失分片。"}
  - title: {en: "Restart the service", zh: "重启服务"}
next_check:
  what: {en: "Does the cache of {f:server} answer?", zh: "{f:server} 的缓存是否有应答？"}
  command: "ping -c 3 {f:server}"
  if_yes: {en: "Look at the tokens.", zh: "检查令牌。"}
  if_no: {en: "Restart {f:server}.", zh: "重启 {f:server}。"}
  rivals: [acme-slow]
experiment:
  kind: none
  why_not: {en: "No collective can show it.", zh: "集合操作无法显示。"}
stages:
  now:
    - use: save-logs
    - what: {en: "Look whether the service runs.", zh: "查看服务是否在运行。"}
      command: "ls {f:path}"
  soon:
    - what: {en: "Restart the service.", zh: "重启服务。"}
  lasting:
    - what: {en: "Let the service restart by itself.", zh: "让服务自动重启。"}
"""


ROW = "{id: slow, signature: [acme.cache_gone], weight: weak, says: {en: The cache is away., zh: 缓存已消失。}}"
#: Another cause, which the first one names.
RIVAL = f"{CAUSE.partition('headlines:')[0]}{CAUSE[CAUSE.index('fixes:') :]}"
RIVAL = (
    RIVAL.replace("acme-down", "acme-slow")
    .replace("rivals: [acme-slow]", "rivals: [acme-down]")
    .replace("{f:server}", "it")
)
RIVAL = RIVAL.replace("{f:path}", "/").replace("is down", "is slow").replace("fixes:", f"for:\n  - {ROW}\nfixes:", 1)


def write(folder: Path, signatures: str = SIGNATURES, cause: str = CAUSE, name: str = "acme-down") -> Path:
    """Write a folder of rules and return it."""
    files = {
        "signatures/acme/acme.yaml": signatures,
        f"causes/application/{name}.yaml": cause,
        "causes/application/acme-slow.yaml": RIVAL,
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def broken(text: str, old: str, new: str) -> str:
    """Return a text with one part replaced, which has to be there."""
    assert old in text, old
    return text.replace(old, new)


def told(folder: Path) -> list[str]:
    """Return what ``rules test`` says of a folder: ``LINE: MESSAGE`` of each problem, or of each error of the reader."""
    try:
        rules = load.load((folder,), builtin=False)
    except RuleError as error:
        every = error.errors if isinstance(error, RuleErrors) else [error]
        return [f"{_line(one.where or '')}: {' '.join(one.lines())}" for one in every]
    found = [*check_all(rules), *samples.check_harmless(rules)]
    assert all(problem.severity == "error" for problem in found)
    return [f"{_line(problem.where)}: {problem.message}" for problem in found if _own(problem, folder)]


def _own(problem: RuleProblem, folder: Path) -> bool:
    return problem.where.startswith(str(folder))


def _line(where: str) -> str:
    return where.rpartition(":")[2]
