"""Code and conditions speak of kinds: short conditions, and no list written twice."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import nccl_triage
from nccl_triage.checks import names
from nccl_triage.diagnosis.case import fact_names
from nccl_triage.engine import load
from nccl_triage.engine.expression import Expression
from nccl_triage.engine.match import is_glob
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import RuleError
from nccl_triage.observations.kinds import KINDS
from nccl_triage.producers import produced_signatures

ROOT = Path(nccl_triage.__file__).parent
#: Characters of a condition; a longer one has parts that deserve names (rules/terms).
LONGEST = 160


def _strings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_no_cause_is_named_in_code(rules: RuleSet) -> None:
    named = [
        f"{path.relative_to(ROOT)}: {text}"
        for path in ROOT.rglob("*.py")
        for text in _strings(path)
        if text in rules.causes
    ]
    assert named == []


def test_one_cause_takes_every_exception(rules: RuleSet) -> None:
    assert [cause.id for cause in rules.causes.values() if cause.catch_all] == ["application-exception"]


def test_conditions_are_short(rules: RuleSet) -> None:
    long = [one.where for one in rules.conditions() if len(" ".join(one.source.split())) > LONGEST]
    assert long == []


def _lists(condition: Expression) -> Iterator[tuple[str, ...]]:
    """Yield the lists of three signatures and more that a condition writes out."""
    for node in ast.walk(condition.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("has", "count", "ranks"):
            texts = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if sum(text not in KINDS for text in texts) > 2:
                yield tuple(sorted(texts))


def test_no_list_of_signatures_is_written_twice(rules: RuleSet) -> None:
    distinct = {(one.where, one.source): one for one in rules.conditions()}
    written = Counter(names for one in distinct.values() for names in _lists(one))
    assert [names for names, times in written.items() if times > 1] == []


def test_no_list_of_evidence_is_written_twice(rules: RuleSet) -> None:
    rows = [
        (item.where_signatures or item.where_defined, tuple(sorted(item.signatures)))
        for cause in rules.causes.values()
        for item in (*cause.evidence, *cause.against)
        if sum(name not in KINDS for name in item.signatures) > 2 and item.where_signatures
    ]
    written = Counter(names for _, names in dict(rows).items())
    assert [names for names, times in written.items() if times > 1] == []


def test_a_cause_explains_what_another_one_explains(rules: RuleSet) -> None:
    assert rules.causes["straggler"].explains == rules.causes["rank-divergence"].explains != ()


def test_no_list_of_words_is_written_twice(rules: RuleSet) -> None:
    written = Counter(tuple(sorted(item.texts)) for item in rules.words.values())
    assert [texts for texts, times in written.items() if times > 1] == []


def test_kinds_are_words_of_their_own(rules: RuleSet) -> None:
    ids = {*rules.signatures, *produced_signatures()}
    assert not ids & set(KINDS)
    assert not any(is_glob(kind) for kind in KINDS)
    assert {made.kind for made in produced_signatures().values()} <= set(KINDS)


def test_every_kind_has_a_signature(rules: RuleSet) -> None:
    used = {signature.kind for signature in rules.signatures.values()}
    used |= {made.kind for made in produced_signatures().values()}
    assert set(KINDS) - used - {"speaker"} == set(), "kinds that no line is of"


MESSAGE = """program: acme
signatures:
  - id: acme.cache_gone
    kind: storage.error
    role: root
    pattern: 'acme cache (?P<host>\\S+) went away'
    meaning: The cache of our data service is gone.
    supports:
    - cause: storage-fault
      weight: strong
      says: The cache on {f:host} went away.
      fix:
        title: Restart the cache
        commands: [systemctl restart acme-cache]
    culprit: {host: host, why: its cache went away}
    match: ['acme cache node-7 went away']
    not: ['acme cache node-7 is back']
"""


def _folder(tmp_path: Path, text: str) -> Path:
    folder = tmp_path / "signatures" / "acme"
    folder.mkdir(parents=True)
    (folder / "cache.yaml").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_message_with_cause_weight_fix_and_culprit_is_one_entry_in_one_file(tmp_path: Path) -> None:
    rules = load.load((_folder(tmp_path, MESSAGE),))
    (row,) = [item for item in rules.causes["storage-fault"].evidence if item.signatures == ("acme.cache_gone",)]
    assert (row.id, row.weight, row.says["zh"]) == ("cache-gone", "strong", "The cache on {f:host} went away.")
    assert rules.causes["storage-fault"].fixes[0].title["en"] == "Restart the cache"
    from nccl_triage import diagnose

    log = tmp_path / "train.log"
    log.write_text("[rank3]: acme cache node-7 went away\n[rank3]: RuntimeError: no data\n", encoding="utf-8")
    document = diagnose(log, rules=rules).to_dict()
    best = document["diagnoses"][0]
    assert best["cause"] == "storage-fault"
    assert best["evidence"][0]["says"] == "The cache on node-7 went away."
    assert best["fixes"][0]["commands"] == ["systemctl restart acme-cache"]


def test_a_message_joins_the_row_of_another(tmp_path: Path) -> None:
    shipped = load.load().causes["storage-fault"]
    row = next(item for item in shipped.evidence if item.signatures and item.when is None and item.where is None)
    text = MESSAGE[: MESSAGE.index("    supports")] + f"    supports: [{{cause: storage-fault, id: {row.id}}}]\n"
    rules = load.load((_folder(tmp_path, text + MESSAGE[MESSAGE.index("    match") :]),))
    joined = next(item for item in rules.causes["storage-fault"].evidence if item.id == row.id)
    assert joined.signatures == (*row.signatures, "acme.cache_gone")
    assert (joined.weight, joined.says) == (row.weight, row.says)


@pytest.mark.parametrize(
    ("entry", "row", "weight"),
    [
        ("{cause: storage-fault}", "message", "strong"),
        ("{cause: storage-fault, weight: strong}", "message", "strong"),
        ("{cause: storage-fault, weight: moderate}", "message-moderate", "moderate"),
    ],
)
def test_a_message_without_words_says_what_it_means(tmp_path: Path, entry: str, row: str, weight: str) -> None:
    text = MESSAGE[: MESSAGE.index("    supports")] + f"    supports: [{entry}]\n"
    rules = load.load((_folder(tmp_path, text + MESSAGE[MESSAGE.index("    match") :]),))
    joined = next(item for item in rules.causes["storage-fault"].evidence if item.id == row)
    assert joined.signatures[-1] == "acme.cache_gone"
    assert joined.weight == weight
    from nccl_triage import diagnose

    log = tmp_path / "train.log"
    log.write_text("[rank3]: acme cache node-7 went away\n", encoding="utf-8")
    best = diagnose(log, rules=rules).to_dict()["diagnoses"][0]
    assert best["cause"] == "storage-fault"
    assert best["evidence"][0]["says"] == "The cache of our data service is gone."


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "      weight: strong\n      says: The cache on {f:host} went away.\n",
            "      weight: weak\n",
            "'says' is missing",
        ),
        ("storage-fault", "storage-falt", "did you mean 'storage-fault'?"),
        ("      weight: strong\n", "", "'weight' is missing"),
        ("{host: host,", "{host: hosst,", "'hosst' is not a named group"),
        ("    kind: storage.error\n", "", "'kind' is missing"),
        ("    kind: storage.error\n    role: root\n", "", "'kind', 'role' are missing"),
    ],
)
def test_errors_of_a_message(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        load.load((_folder(tmp_path, MESSAGE.replace(old, new)),))
    assert message in "\n".join(caught.value.lines())


def test_all_that_is_wrong_with_a_file_is_told_at_once(tmp_path: Path) -> None:
    entry = MESSAGE[MESSAGE.index("  - id") :]
    wrong = (
        entry.replace("acme.cache_gone", "acme.other")
        .replace("    role: root\n", "")
        .replace("    kind: storage.error\n", "")
    )
    with pytest.raises(RuleError) as caught:
        load.load((_folder(tmp_path, MESSAGE.replace("    role: root\n", "") + wrong),))
    told = [line for line in caught.value.lines() if line.startswith("error")]
    assert [line.partition("cache.yaml:")[2] for line in told] == [
        "3: the key 'role' is missing",
        "17: the keys 'kind', 'role' are missing",
    ]


CAUSE = """id: acme-down
family: application
title: Down
explanation: The service is down.
for:
  - id: gone
    signature: [acme.cache_gon]
    weight: strong
    says: It is gone.
  - id: silent
    when: has('colective.timeout') and fact('collective.timeoutz')
    weight: weak
    says: Nothing came.
culprit: [evidense]
fixes: [{title: Restart it}]
next_check: {what: Is it up?, if_yes: Restart., if_no: Wait., rivals: [stragler]}
experiment: {kind: none, why_not: No collective can show it.}
"""


def test_unknown_names_are_told_with_their_line_and_the_nearest(tmp_path: Path) -> None:
    folder = _folder(tmp_path, MESSAGE)
    (folder / "causes" / "application").mkdir(parents=True)
    path = folder / "causes" / "application" / "acme-down.yaml"
    path.write_text(CAUSE, encoding="utf-8")
    from nccl_triage.diagnosis.culprit import ways

    rules = load.load((folder,))
    found = names.check_causes(rules, fact_names(), ways(), produced_signatures())
    told = {int(one.where.rpartition(":")[2]): one.message for one in found if one.rule == "acme-down"}
    assert [(line, message.rpartition("; ")[2]) for line, message in sorted(told.items())] == [
        (7, "did you mean 'acme.cache_gone'?"),
        (11, "did you mean 'collective.timeouts'?"),
        (14, "did you mean 'evidence'?"),
        (16, "did you mean 'straggler'?"),
    ]
    assert any("did you mean 'collective.timeout'?" in one.message for one in found)


@pytest.mark.parametrize(
    ("folder", "text", "message"),
    [
        (
            "terms",
            "premises:\n  - {id: a, meaning: A., when: \"premise('a' if true else 'b')\"}\n",
            "takes one text in quotes",
        ),
        (
            "producers",
            "producers:\n  - signature: []\n    rows: [{cause: straggler, id: x, weight: weak, says: X.}]\n",
            "an empty list names nothing",
        ),
        (
            "producers",
            "producers:\n  - signature: [host.check]\n    rows: [{cause: straggler, id: A B, weight: weak, says: X.}]\n",
            "is not an id",
        ),
        (
            "producers",
            "producers:\n  - signature: [host.check]\n    rows: [{cause: strangler, id: x, weight: weak, says: X.}]\n",
            "did you mean 'straggler'?",
        ),
        (
            "producers",
            "producers:\n  - signature: [host.check]\n    rows: [{id: x, weight: weak, says: X.}]\n",
            "a row names its 'cause'",
        ),
    ],
)
def test_errors_of_terms_and_producers(tmp_path: Path, folder: str, text: str, message: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "own.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(RuleError) as caught:
        load.load((tmp_path,))
    told = "\n".join(caught.value.lines())
    assert message in told and "own.yaml:" in told


def test_premises_that_double_at_each_step_are_refused(tmp_path: Path) -> None:
    rows = [
        f"  - {{id: a{n}, meaning: A., when: \"premise('a{n + 1}') and premise('a{n + 1}')\"}}\n" for n in range(60)
    ]
    (tmp_path / "terms").mkdir()
    (tmp_path / "terms" / "own.yaml").write_text("premises:\n" + "".join(rows), encoding="utf-8")
    with pytest.raises(RuleError, match="refers to too many others"):
        load.load((tmp_path,))


def test_conditions_of_a_producer_and_of_its_row_are_joined_whole(tmp_path: Path) -> None:
    text = """producers:
  - signature: [host.check]
    when: has('step') or has('waiting')
    says: X.
    rows: [{cause: straggler, id: own-row, weight: weak, when: has('retry')}]
"""
    (tmp_path / "producers").mkdir()
    (tmp_path / "producers" / "own.yaml").write_text(text, encoding="utf-8")
    (row,) = [item for item in load.load((tmp_path,)).causes["straggler"].evidence if item.id == "own-row"]
    assert row.when is not None and row.when.source == "(has('step') or has('waiting')) and (has('retry'))"


def test_a_message_beside_the_evidence_names_nobody(tmp_path: Path) -> None:
    from nccl_triage import diagnose

    log = tmp_path / "train.log"
    log.write_text(
        "[rank3]: WARNING vocabulary of rank 3 differs from that of rank 0\n"
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/a/train.py", line 7, in <module>\n'
        "[rank1]: KeyError: 'weights'\n",
        encoding="utf-8",
    )
    document = diagnose(log).to_dict()
    assert [culprit["rank"] for culprit in document["diagnoses"][0]["culprits"]] == [1]


def test_saving_on_rank_0_alone_is_no_early_end(tmp_path: Path) -> None:
    from nccl_triage import diagnose

    log = tmp_path / "train.log"
    lines = [f"[rank{rank}]: Starting evaluation of 100 batches" for rank in range(4)]
    lines.append("[rank0]: checkpoint saved to /ckpt/step_5.pt")
    lines += [
        f"[rank{rank}]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=57, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600031 "
        "milliseconds before timing out."
        for rank in (1, 2, 3)
    ]
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert diagnose(log).case.value("progress.finished_early_ranks") is None
