"""What the samples of signatures teach, and that they never give away what they are judged by."""

from __future__ import annotations

from nccl_triage.classifier import examples
from nccl_triage.classifier.examples import SAMPLE, Example
from nccl_triage.classifier.features import words_of
from nccl_triage.classifier.train import for_training
from nccl_triage.engine.schema import RuleSet


def test_samples_teach_words_of_the_causes_for_which_their_signatures_speak(rules: RuleSet) -> None:
    found = examples.from_samples(rules)
    assert len(found) > 1500
    assert {example.source for example in found} == {SAMPLE}
    assert {example.label for example in found} <= rules.causes.keys()
    assert all(name.startswith(("w:", "p:")) for example in found for name in example.full)
    assert len({example.id for example in found}) == len(found)
    by_signature = {example.group: example.acceptable for example in found}
    assert by_signature["cuda.oom"] == ("gpu-out-of-memory",)
    assert not any(example.real for example in found)


def test_names_are_learnt_with_their_parts() -> None:
    words = set(words_of("ibv_reg_mr of RdmaTransport failed: NCCL_IB_HCA=mlx5_0"))
    assert {"w:ibv_reg_mr", "w:ibv", "w:reg", "w:transport", "w:rdma", "p:hca", "w:failed"} <= words
    assert "w:mr" not in words


def test_no_sample_of_what_an_incident_shows_may_judge_it() -> None:
    def example(name: str, source: str, *features: str) -> Example:
        return Example(name, "port-in-use", (), name, source, frozenset(features), frozenset())

    shown, other = example("net.taken", SAMPLE, "w:taken"), example("net.bound", SAMPLE, "w:bound")
    incident = example("c1", "written", "s:net.taken", "w:taken")
    assert for_training([shown, other, incident], [incident]) == [other, incident]
