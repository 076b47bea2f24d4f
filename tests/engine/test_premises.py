"""Premises of messages, and texts that look like evidence and are none: no strong row holds for equal or harmless fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nccl_triage.checks import samples
from nccl_triage.diagnosis.conditions import Conditions
from nccl_triage.diagnosis.weigh import supporting
from nccl_triage.engine import load, match
from nccl_triage.engine.schema import RuleSet
from nccl_triage.errors import RuleError
from tests.scan_helpers import scan_text

STRONG = ("strong", "decisive")
#: Names of two fields of a message that its words compare, besides x and x2.
COMPARED = (
    ("value", "expected"), ("value", "limit"), ("value", "max"), ("value", "of"), ("value", "n"), ("value", "have"),
    ("expected", "got"), ("expected", "gpu"), ("a", "b"), ("local", "remote"), ("local_size", "remote_size"),
    ("local_gid", "remote_gid"), ("link", "remote_link"), ("len_got", "len_want"), ("len", "cap"), ("size", "have"),
    ("size", "limit"), ("size", "chunk"), ("need", "have"), ("want", "have"), ("want_gb", "have_gb"), ("free", "want"),
    ("requested", "available"), ("world", "have"), ("world", "joined"), ("world", "ranks"), ("world", "what"),
    ("joined", "needed"), ("rank", "last"), ("used", "threshold"), ("used", "limit"), ("used_gb", "total_gb"),
    ("passed", "tested"), ("min", "max"), ("smem", "max"), ("retries", "max"), ("retries", "retry_limit"),
    ("device", "ndev"), ("gpu", "peer"), ("gpu", "peer_gpu"), ("n", "peer_n"), ("op", "peer_op"), ("seq", "peer_seq"),
    ("src", "dst"), ("cuda", "torch"), ("version", "driver"), ("batch", "min"), ("mini", "micro"),
    ("n", "mp"), ("init", "now"),
)  # fmt: skip
#: Messages that hold for equal values, too.
EQUAL_AND_BAD = {
    "kubernetes.workers_evicted": "all workers of all",
    "mpi.hydra_connect": "a proxy may call a daemon of its own host",
    "nccl.diag_p2p_pair": "a rank may see its only GPU as the first one",
    "nccl.ib_collective_mismatch": "NCCL cuts the local size to the remote one before it prints them",
    "nccl.ib_completion_error": "it gives the addresses and compares none",
    "nccl.ibv_modify_qp_detail": "it gives the addresses and compares none",
    "nccl.sock_pollconnect_errno": "two errors, of which each is one",
    "nccl.sock_retrying": "the last of the retries that are allowed",
    "nccl.sym_space_exhausted": "it compares nothing: other buffers fill the space",
    "pbs.memory_limit": "a job was killed, whatever the numbers say",
    "ray.oom_kill_reason": "a process was killed, whatever the numbers say",
    "ray.oom_memory_detail": "a process was killed, whatever the numbers say",
    "slurm.mem_limit": "a process was killed, whatever the numbers say",
    "torch.collective_mismatch": "what differs may be the shape or the type, of which it has no fields",
    "vllm.memory_profiling": "vLLM demands that less is free than before",
}

RULE = """program: site
signatures:
  - id: site.sizes_differ
    kind: configuration
    role: root
    pattern: 'shards of layer (?P<layer>\\d+): size (?P<size>\\d+) against (?P<size2>\\d+)'
    premise: f.size != f.size2
    meaning: Two sizes differ.
    match: ['shards of layer 3: size 4 against 8']
    not: ['shards of layer 3: size 8 against 8']
"""


def _load(tmp_path: Path, text: str = RULE) -> RuleSet:
    folder = tmp_path / "rules" / "signatures" / "site"
    folder.mkdir(parents=True)
    (folder / "site.yaml").write_text(text)
    return load.load((tmp_path / "rules",), builtin=False)


def test_a_line_that_breaks_the_premise_is_not_the_message(tmp_path: Path) -> None:
    signature = _load(tmp_path).signatures["site.sizes_differ"]
    assert match.search(signature, "shards of layer 3: size 4 against 8") == {"layer": "3", "size": "4", "size2": "8"}
    assert match.search(signature, "shards of layer 3: size 8 against 8") is None


def test_numbers_that_a_premise_compares_are_looked_at_in_every_line(tmp_path: Path) -> None:
    """Lines that differ in digits only are counted by the dozen: not those of which some are the message."""
    rules = _load(tmp_path)
    equal = [f"shards of layer 3: size {100 + number} against {100 + number}" for number in range(400)]
    found = scan_text("\n".join([*equal, "shards of layer 3: size 500 against 501", *equal]), rules)
    assert [event.line for event in found.events("site.sizes_differ")] == [401]
    unequal = [f"shards of layer 3: size {100 + number} against {600 + number}" for number in range(300)]
    mixed = [line for pair in zip(equal, unequal, strict=False) for line in pair]
    assert scan_text("\n".join(mixed), rules).count("site.sizes_differ") == 300


def test_a_premise_needs_a_sample_that_it_refuses(tmp_path: Path) -> None:
    rules = _load(tmp_path)
    assert samples.check_samples(rules) == []
    known = rules.signatures["site.sizes_differ"]
    bare = known._replace(not_samples=("layer 3 is well",))
    (finding,) = samples.check_samples(replace(rules, signatures={known.id: bare}))
    assert "its premise refuses" in finding.message


@pytest.mark.parametrize(
    ("premise", "message"),
    [
        ("f.size != f.sise", "not a named group"),
        ("has('step')", "unknown function"),
        ("f.size !=", "cannot read the condition"),
    ],
)
def test_a_wrong_premise_is_refused(tmp_path: Path, premise: str, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        _load(tmp_path, RULE.replace("f.size != f.size2", premise))
    assert message in str(caught.value)
    assert str(caught.value.where).endswith("site.yaml:7")


def _equal_values(rules: RuleSet) -> Iterator[tuple[str, str, str]]:
    """Yield signature, sample, and the sample with the second of two fields that are compared equal to the first."""
    for signature in rules.signatures.values():
        for sample in signature.match_samples:
            found = signature.pattern.search(sample)
            values = {name: text for name, text in found.groupdict().items() if text is not None} if found else {}
            pairs = [*COMPARED, *((name, f"{name}2") for name in values)]
            for one, two in pairs:
                if one in values and two in values and values[one] != values[two]:
                    start, end = found.span(two)
                    yield signature.id, sample, sample[:start] + values[one] + sample[end:]


def _holding(rules: RuleSet, signature: str, text: str) -> set[tuple[str, str]]:
    """Return the strong and decisive rows on a signature that hold for a text."""
    case = samples.read(text, rules)
    conditions = Conditions(case)
    return {
        (cause.id, row.id)
        for cause in rules.causes.values()
        for row in cause.evidence
        if row.weight in STRONG
        and any(match.stands_for(name, signature, rules.signatures[signature].kind) for name in row.signatures)
        and supporting(row, case, conditions) is not None
    }


def test_equal_values_are_no_difference(rules: RuleSet) -> None:
    tried = [(name, equal, _holding(rules, name, sample)) for name, sample, equal in _equal_values(rules)]
    assert len([name for name, _, holds in tried if holds]) > 70
    wrong = {name: equal for name, equal, holds in tried if holds & _holding(rules, name, equal)}
    assert {name: equal for name, equal in wrong.items() if name not in EQUAL_AND_BAD} == {}
    assert set(EQUAL_AND_BAD) - set(wrong) == set(), "no exception any more"
