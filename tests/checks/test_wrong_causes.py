"""A cause with a mistake: ``rules test`` finds it, says where, and what to do."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nccl_triage.checks import causes
from nccl_triage.engine.expression import parse
from nccl_triage.engine.functions import FUNCTIONS
from nccl_triage.engine.schema import Cause, RuleSet, Step
from nccl_triage.evaluation import checkout
from tests.checks.wrong import CAUSE, broken, told, write

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # -- placeholders
        ("The Acme service is", "The Acme service {f:server} is", "title: {f:server} would be printed as it is: this text is not filled"),
        ("shard cache is down", "shard cache {f:path} on {f:sever} is down", "explanation: {f:sever} has no value: no line of acme.cache_gone has such a field; did you mean {f:server}?"),
        ("shard cache is down", "shard cache of {fact:job.hosts_} is down", "explanation: {fact:job.hosts_} is no fact"),
        ("while the cache {f:path} was", "while the cache {f:age} was", "says: {f:age} has no value in some lines of acme.cache_gone; put it in square brackets"),
        ('"缓存 {f:path} 消失期间', '"缓存 {f:pth} 消失期间', "says: in one language alone (zh): {f:pth}"),
        ("The cache {f:path}[ on", "The cache {f:pat}[ on", "headline: {f:pat} has no value: no line of acme.cache_gone has such a field; did you mean {f:path}?"),
        ("on {host}] went", "on {hots}] went", "headline: {hots} means nothing here"),
        ("Restart the cache on {f:server}", "Restart the cache on {f:srver}", "title of a fix: {f:srver} has no value"),
        ("lose their shards", "lose {f:path}", "caution: {f:path} may have no value: name it in 'title' too, or put it in square brackets"),
        ('commands: ["ls {f:path}"]', 'commands: ["ls {f:acme.cache_gon.path}"]', "command of a fix: {f:acme.cache_gon.path} names the unknown signature 'acme.cache_gon'; did you mean 'acme.cache_gone'?"),
        ('commands: ["ls {f:path}"]', 'env: {ACME: "{f:path}"}', "env of a fix, ACME: {f:path} would be printed as it is"),
        ('"ping -c 3 {f:server}"', '"ping -c 3 {env:NCCL_SOCKET_IFNAM}"', "command of a check: {env:NCCL_SOCKET_IFNAM} is no known variable; did you mean {env:NCCL_SOCKET_IFNAME}?"),
        ("if_no: {en: \"Restart {f:server}.", "if_no: {en: \"Restart {f:path}.", "if_no: {f:path} may have no value: name it in 'what' too"),
        ("Look whether the service", "Look whether {f:server}", "what: {f:server} would be printed as it is"),
        ('command: "ls {f:path}"', 'command: "ls {f:pth}"', "command: {f:pth} has no value"),
        ("No collective can", "No collective on {host} can", "why_not: {host} would be printed as it is"),
        # -- names
        ("    signature: [acme.cache_gone]", "    signature: [acme.cache_gon]", "mentions the unknown signature 'acme.cache_gon'; did you mean 'acme.cache_gone'?"),
        ("where: f.server", "where: f.sever", "asks for the field 'sever' that none of its lines has; did you mean 'server'?"),
        ("when: fact('collective.timeouts')", "when: f.server == 'x'", "'when' is about no line: f.server is always none; ask for it under 'where'"),
        ("when: fact('collective.timeouts')", "when: fact('collective.timeout')", "mentions the unknown fact 'collective.timeout'; did you mean 'collective.timeouts'?"),
        ("when: fact('collective.timeouts')", "when: premise('acme')", "mentions the unknown premise 'acme'"),
        ("when: fact('collective.timeouts')", "when: value('acme.cache_gone', 'servr') == 'x'", "asks acme.cache_gone for the field 'servr' that it never has; did you mean 'server'?"),
        ("when: fact('collective.timeouts')", "when: on('slurn')", "mentions the unknown platform 'slurn'; did you mean 'slurm'?"),
        ("when: fact('collective.timeouts')", "when: env('NCCL_P2P_DISABL') == '1'", "mentions the unknown variable 'NCCL_P2P_DISABL'; did you mean 'NCCL_P2P_DISABLE'?"),
        ("    of: acme.cache_gone", "    of: acme.cache_gon", "mentions the unknown signature 'acme.cache_gon'"),
        ("culprit: [evidence]", "culprit: [evidense]", "mentions the unknown culprit method 'evidense'; did you mean 'evidence'?"),
        ("rivals: [acme-slow]", "rivals: [acme-slw]", "mentions the unknown rival 'acme-slw'; did you mean 'acme-slow'?"),
        ("    - use: save-logs", "    - use: save-log", "names the unknown step 'save-log'"),
        ("culprit: [evidence]", "explains: [torchh.*]", "mentions the unknown signature 'torchh.*'"),
        ("culprit: [evidence]", "aliases: [acme-slow]", "its alias 'acme-slow' is 'acme-slow' already"),
        ("  kind: none\n", "  kind: none\n  predicts: [acme-slw]\n", "predicts 'acme-slw', which is no cause and no kind of finding; did you mean 'acme-slow'?"),
        # -- keys
        ("family: application", "family: aplication", "'aplication' is not one of"),
        ("    weight: moderate\n", "    weight: modest\n", "'modest' is not one of decisive, strong, moderate, weak"),
        ("  - id: gone-while-waiting", "  - id: cache-gone", "'cache-gone' already exists"),
        ("next_check:", "next_chek:", "unknown key 'next_chek'"),
        ("  kind: none\n  why_not: {en: \"No collective can show it.\", zh: \"集合操作无法显示。\"}\n", "  kind: none\n", "an experiment of kind none says why_not"),
        ("id: acme-down\n", "id: acme-dwn\n", "the file of cause 'acme-dwn' must be named acme-dwn.yaml"),
        ("  soon:\n    - what: {en: \"Restart the service.\", zh: \"重启服务。\"}\n", "", "the key 'soon' is missing"),
        ("when: fact('collective.timeouts')", "when: fact('collective.timeouts'", "cannot read the condition"),
        # -- what it does
        ('command: "ls {f:path}"', 'command: "rm -rf {f:path}"', "what is done at once must destroy nothing: rm -rf {f:path}"),
        ("    weight: moderate\n", "    weight: moderate\n    harmless: 'AcmeCache: /a on gpu-a went away'\n", "no text of 'harmless' has fields that its 'where' refuses"),
        ('command: "ls {f:path}"', """command: "python -c 'import os; print(os.path'" """, "its Python does not compile: '(' was never closed"),
        ('commands: ["ls {f:path}"]', """commands: ["python3 -c 'import os; print(path)'"]""", "its Python uses names that nothing defines: path"),
        ("    weight: moderate\n", "    weight: moderate\n    harmless: 'all is well'\n", "none of its signatures is in a text of 'harmless'"),
    ],
)  # fmt: skip
def test_a_mistake_is_found(tmp_path: Path, old: str, new: str, message: str) -> None:
    found = told(write(tmp_path, cause=broken(CAUSE, old, new)))
    assert any(message in one for one in found), found
    assert all(one.partition(":")[0].isdigit() for one in found), "where it is"


def test_a_cause_that_nothing_speaks_for(tmp_path: Path) -> None:
    start, end = CAUSE.index("headlines:"), CAUSE.index("fixes:")
    cause = CAUSE[:start] + CAUSE[end:].replace("{f:server}", "it").replace("{f:path}", "/")
    cause = cause.replace("acme-down", "acme-odd")
    folder = write(tmp_path)
    (folder / "causes" / "application" / "acme-odd.yaml").write_text(cause, encoding="utf-8")
    (wrong,) = told(folder)
    assert "has no evidence: write rows under 'for', or name it under 'supports' of a signature" in wrong


# -- what is asked of shipped causes


def changed(rules: RuleSet, name: str = "straggler", **values: Any) -> list[str]:
    """Return what is said of the shipped rules with one cause changed."""
    other = replace(rules, causes={**rules.causes, name: rules.causes[name]._replace(**values)})
    return [problem.message for problem in causes.check(other, {"late", "own-log"} | set(_predicted(rules)))]


def _predicted(rules: RuleSet) -> list[str]:
    return [name for cause in rules.causes.values() for name in cause.experiment.predicts]


def test_the_shipped_causes_lack_nothing(rules: RuleSet) -> None:
    assert changed(rules) == []


def experiment(cause: Cause, **values: Any) -> Any:
    return cause.experiment._replace(**values)


def test_what_a_shipped_cause_lacks_is_said(rules: RuleSet) -> None:
    cause = rules.causes["straggler"]
    strong = next(row for row in cause.evidence if row.weight == "strong" and "/producers/" not in row.where_defined)
    asking = strong._replace(where=parse("f.rank == '1'", "x:1", FUNCTIONS), harmless=())
    decisive = strong._replace(
        weight="decisive", when=parse("fact('job.failed')", "x:1", FUNCTIONS), harmless=(), where=None
    )
    one_wording = strong._replace(when=parse("has('cuda.oom')", "rules/causes/x.yaml:1", FUNCTIONS))
    restart = Step(use="restart-without-host")
    for values, message in (
        ({"stages": {}}, "has no step under 'stages' for now, soon, lasting: say what to do at once, soon and permanently"),
        ({"stages": {**cause.stages, "soon": ()}}, "has no step under 'stages' for soon: say what"),
        ({"stages": {**cause.stages, "now": (restart,)}}, "restarts the job before a step saves its evidence: put 'use: save-..' before it"),
        ({"family": "host"}, "belongs into rules/causes/host, the folder of its family"),
        ({"title": {"en": "A rank is late", "zh": "A rank is late!"}}, "the Chinese text is not Chinese: 'A rank is late!'"),
        ({"title": {"en": "迟到", "zh": "迟到"}}, "the English text is not English: '迟到'"),
        ({"experiment": experiment(cause, control=None)}, "its experiment does not say 'control'"),
        ({"experiment": experiment(cause, confirmed_if=None)}, "its experiment does not say 'confirmed_if'"),
        ({"evidence": (asking,)}, "a strong row that asks for fields needs a text under 'harmless'"),
        ({"evidence": (decisive,)}, "a decisive row with a condition needs a text under 'harmless'"),
        ({"evidence": (one_wording,)}, "names cuda.oom and not cuda.oom_old, the same message in other words"),
        ({"fixes": ()}, "has no fix"),
    ):  # fmt: skip
        found = changed(rules, **values)
        assert any(message in one for one in found), (message, found)


# -- what a checkout has beside the file of a cause


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A small checkout: the corpus without its logs, the pages of causes, the rules of causes and the schemas."""
    for name in ("recorded", "written"):
        (tmp_path / "corpus" / name).mkdir(parents=True)
        shutil.copy(ROOT / "corpus" / name / "cases.jsonl", tmp_path / "corpus" / name)
    shutil.copytree(ROOT / "docs" / "causes", tmp_path / "docs" / "causes")
    shutil.copy(ROOT / "docs" / "incident_pages.py", tmp_path / "docs")
    for folder in ("causes", "schema"):
        shutil.copytree(ROOT / "rules" / folder, tmp_path / "rules" / folder)
    return tmp_path


def test_a_whole_checkout_is_well(rules: RuleSet, copy: Path) -> None:
    assert checkout.check(rules, copy) == []
    assert checkout.check(rules, None) == []


def test_a_cause_without_case_page_and_incident(rules: RuleSet, copy: Path) -> None:
    new = rules.causes["straggler"]._replace(id="late-clock", where="rules/causes/collective/late-clock.yaml:1")
    found = checkout.check(replace(rules, causes={**rules.causes, new.id: new}), copy)
    assert {problem.where for problem in found} == {new.where}
    assert [problem.message.partition(":")[0] for problem in found] == [
        "no case of corpus/recorded or corpus/written is labelled with it",
        "docs/incident_pages.py lists no case of it",
        "docs/causes/late-clock.md is missing",
    ]
    foreign = replace(rules, causes={**rules.causes, new.id: new}, foreign=frozenset((new.where.rpartition(":")[0],)))
    assert checkout.check(foreign, copy) == []


def test_pages_that_are_old(rules: RuleSet, copy: Path) -> None:
    index = copy / "docs" / "causes" / "README.md"
    index.write_text(broken(index.read_text(encoding="utf-8"), "(straggler.md)", "(stragler.md)"), encoding="utf-8")
    other = rules.causes["os-limit"]._replace(title={"en": "A limit", "zh": "全新的标题"})
    found = checkout.check(replace(rules, causes={**rules.causes, "os-limit": other}), copy)
    assert sorted((problem.rule, problem.message) for problem in found) == [
        ("os-limit", "docs/causes/os-limit.md has another title: run `make docs`"),
        ("straggler", "docs/causes/README.md does not list it: run `make docs`"),
    ]


def test_a_label_without_a_cause(rules: RuleSet, copy: Path) -> None:
    with (copy / "corpus" / "written" / "cases.jsonl").open("a", encoding="utf-8") as index:
        index.write(json.dumps({"id": "x", "log": "logs/x.log", "cause": "stragler"}) + "\n")
    (problem,) = checkout.check(rules, copy)
    assert problem.show().startswith(
        "corpus/written/cases.jsonl: error: x: is labelled with the unknown cause 'stragler'"
    )
    assert "did you mean 'straggler'?" in problem.message


def test_a_key_that_the_schema_of_editors_lacks(rules: RuleSet, copy: Path) -> None:
    schema = copy / "rules" / "schema" / "cause.schema.json"
    schema.write_text(broken(schema.read_text(encoding="utf-8"), '"victims_speak"', '"victims_talk"'), encoding="utf-8")
    found = checkout.check(rules, copy)
    assert found
    for problem in found:
        assert problem.message.startswith("rules/schema/cause.schema.json refuses it: ")
        assert "'victims_speak' was unexpected" in problem.message
        path, _, line = problem.where.partition(":")
        assert (copy / path).is_file() and line.isdigit()


def test_words_that_only_yaml_1_1_takes_for_a_flag_are_texts(rules: RuleSet, copy: Path) -> None:
    folder = copy / "rules" / "signatures" / "acme"
    folder.mkdir(parents=True)
    text = """program: acme
signatures:
  - id: acme.x
    kind: note
    role: context
    on: line
    pattern: 'acme off'
    meaning: off
    match: ['acme off']
    not: [no]
"""
    (folder / "acme.yaml").write_text(text, encoding="utf-8")
    assert checkout.check(rules, copy) == []
    (folder / "acme.yaml").write_text(broken(text, "meaning: off", "meaning: true"), encoding="utf-8")
    (problem,) = checkout.check(rules, copy)
    assert problem.where == "rules/signatures/acme/acme.yaml:8"
