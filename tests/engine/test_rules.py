"""The shipped rules: samples both ways, lint, healthy logs, both languages, all cause ids of the contract."""

from __future__ import annotations

from pathlib import Path

from nccl_triage.checks import samples
from nccl_triage.engine.schema import RuleSet
from nccl_triage.evaluation import cases
from nccl_triage.evaluation.suite import check_all

ROOT = Path(__file__).parents[2]


def test_all_samples_lints_and_names(rules: RuleSet) -> None:
    assert [finding.show() for finding in check_all(rules)] == []


def test_every_cause_is_the_file_of_its_name_in_the_folder_of_its_family(rules: RuleSet) -> None:
    files = {path.stem: path.parent.name for path in (ROOT / "rules" / "causes").glob("*/*.yaml")}
    assert {cause.id: cause.family for cause in rules.causes.values()} == files


def test_every_cause_that_a_case_is_labelled_with_has_its_file(rules: RuleSet) -> None:
    """Ids of causes are a contract: one that was renamed or lost would leave labels without a cause."""
    labels = {
        name
        for source in ("recorded", "written")
        for case in cases.read(ROOT / "corpus" / source)
        for name in case.acceptable
    }
    assert labels - {"healthy", "unknown"} == set(rules.causes)


def test_signature_ids_name_their_program(rules: RuleSet) -> None:
    wrong = [s.id for s in rules.signatures.values() if "." not in s.id]
    assert wrong == []


def test_texts_are_in_their_language(rules: RuleSet) -> None:
    for cause in rules.causes.values():
        pairs = [cause.title, cause.explanation, *(item.says for item in (*cause.evidence, *cause.against))]
        for pair in pairs:
            assert not any("\u4e00" <= char <= "\u9fff" for char in pair["en"]), (cause.id, pair["en"])
            assert any("\u4e00" <= char <= "\u9fff" for char in pair["zh"]), (cause.id, pair["zh"])


def test_the_trap_is_linted(rules: RuleSet) -> None:
    from nccl_triage.engine.pattern import Pattern

    signature = next(iter(rules.signatures.values()))
    trapped = signature._replace(id="x.trap", pattern=Pattern("(?i)ECC.*DBE"))
    assert samples.check_traps(RuleSet({"x.trap": trapped}, {}, ""))
    assert Pattern("(?i)ECC.*DBE").compiled.search("comm 0x950feccdbe rank 0")
    slow = signature._replace(id="x.slow", pattern=Pattern(r"abc(x+)+y"))
    assert samples.check_traps(RuleSet({"x.slow": slow}, {}, ""))


def test_hardware_signatures_do_not_match_inside_pointers(rules: RuleSet) -> None:
    from nccl_triage.engine import match

    line = "gpu07:4120:4388 [2] NCCL INFO comm 0x950feccdbe rank 3 nranks 16 cudaDev 3 busId ab000 - Init COMPLETE"
    found = [s.id for s, _ in match.matches(rules.signatures.values(), line, line)]
    assert found == ["nccl.init_complete"]
