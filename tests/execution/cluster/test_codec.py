"""What travels: our code runs where only Python is, and what comes back is findings or nothing."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from nccl_triage.api import diagnose
from nccl_triage.document.diagnosis import diagnose_observations
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import UsageError
from nccl_triage.execution.cluster import codec
from nccl_triage.execution.cluster.cluster_scan import FAN, MergePart, MergeTree
from nccl_triage.execution.cluster.engine import RayEngine
from nccl_triage.execution.cluster.node_service import NodeService
from nccl_triage.execution.cluster.workers import _SERVICE
from nccl_triage.hosts import ray_actors
from nccl_triage.observations.store import Observations

LOGS = Path(__file__).parents[3] / "corpus" / "written" / "logs"

#: A node: Python without any of our dependencies; ``ray_actors.py`` is what Ray would bring there.
NODE = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("orjson", "regex", "yaml", "click", "jinja2", "hyperscan", "isal", "zstandard", "stringzilla", "ray"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
program, rules, source, log, absent, out = sys.argv[1:]
space = dict()
exec(open(source).read(), space)
made = space["Service"](open(program, "rb").read(), *{_SERVICE!r}, open(rules, "rb").read())
listing = made.call("find", [log, absent], None)
assert made.call("scan", listing.sources) == ([], made.call("progress")[0])
done, found = made.call("take")
assert done == [log], done
open(out, "wb").write(found)
print(made.call("windows", [(listing.sources[0], [1])])[0]["marks"], listing.notes, made.call("find", [absent], None).notes)
"""


@pytest.mark.parametrize("name", ["S004-openrlhf-batch-size.log"])
def test_a_node_needs_nothing_but_python(tmp_path: Path, rules: RuleSet, name: str) -> None:
    (tmp_path / "program").write_bytes(codec.program())
    (tmp_path / "rules").write_bytes(codec.pack_rules(rules))
    words = [
        tmp_path / "program",
        tmp_path / "rules",
        ray_actors.__file__,
        LOGS / name,
        tmp_path / "none",
        tmp_path / "out",
    ]
    done = subprocess.run(
        [sys.executable, "-I", "-c", NODE, *map(str, words)], capture_output=True, text=True, timeout=120
    )
    missing = f"['cannot read {tmp_path}/none: No such file or directory']"
    assert (done.stdout, done.stderr) == (f"[1] {missing} {missing}\n", "")
    there = diagnose_observations(codec.unpack((tmp_path / "out").read_bytes()), rules).to_dict()
    here = diagnose(LOGS / name, rules=rules, model=None).to_dict()
    assert there["diagnoses"] == here["diagnoses"]


def test_findings_of_other_classes_are_refused() -> None:
    for odd in (Path("x"), [Observations(), subprocess.Popen], {"a": 1}):
        with pytest.raises(pickle.UnpicklingError):
            codec.unpack(zlib.compress(pickle.dumps(odd)))


def test_merged_in_any_tree_the_diagnosis_is_the_same(rules: RuleSet) -> None:
    paths = sorted(LOGS.glob("S00*.log"))
    service = NodeService(codec.pack_rules(rules))
    parts = []
    for path in paths:
        service.scan(service.find([str(path)], None).sources)
        parts.append(service.take()[1])
    assert codec.unpack(service.take()[1]) == Observations()
    documents = []
    for turn in range(3):
        parts = [*parts[3:], *reversed(parts[:3])]
        one = service.merge(*parts[: turn + 1])[1]
        two = service.merge(one, service.merge(*parts[turn + 1 :])[1])[1]
        documents.append(copy.deepcopy(diagnose_observations(codec.unpack(two), rules).to_dict()))
    assert documents[0] == documents[1] == documents[2]
    assert documents[0]["diagnoses"] == diagnose(paths, rules=rules, model=None).to_dict()["diagnoses"]


def test_a_tree_of_merges_has_few_levels_and_loses_nothing() -> None:
    tree, merges = MergeTree(), 0
    for number in range(4096):
        tree.add(MergePart(object(), (str(number),)))
    while parts := tree.next():
        merges += 1
        if merges == 7:
            tree.failed(parts)
        else:
            tree.merged(parts, object())
    assert sorted(name for part in tree.parts for name in part.of) == sorted(map(str, range(4096)))
    assert len(tree.parts) <= 2 * FAN
    assert max(part.level for part in tree.parts) <= 3


def test_without_ray_the_way_to_get_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="Ray cannot be imported") as caught, RayEngine():
        pass
    assert "pip install 'nccl-triage[ray]'" in str(caught.value.remedy)
