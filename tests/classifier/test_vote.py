"""A vote is one explained, capped piece of evidence: it can tip the scales, never establish a cause."""

from __future__ import annotations

from dataclasses import replace

from nccl_triage.classifier.model import Model
from nccl_triage.classifier.vote import AGAINST_CAP, CAP, cast
from nccl_triage.diagnosis.weigh import VOTE_AGAINST, VOTE_ID, VOTE_SHARE
from nccl_triage.document.diagnosis import diagnose_observations
from nccl_triage.engine.schema import RuleSet
from nccl_triage.learned import form
from tests.classifier.test_features import features_of
from tests.scan_helpers import scan_text

#: The cause that takes every exception whose words no rule knows.
UNREAD = "application-exception"

#: The end of a process, which says nothing of its cause.
FAILED = "[rank1]: Segment 7 of the wheel is bent\nworker-3 exited with code 1\n"
UNSEEN = "step 3 loss 2.1\nfrobnicator: the flux capacitor of this board is not supported\n"


def model(strength: float, label: str = "gpu-hardware-fault") -> Model:
    labels = (label, "healthy", "unknown")
    return Model(
        labels=labels,
        idf={"w:flux": 1.0, "w:capacitor": 1.0},
        weights={"w:flux": f"{strength} 0 0", "w:capacitor": f"{strength} 0 0"},
        intercepts=(0.0, 0.0, 0.0),
        temperature=1.0,
        training={"incidents": {label: 7, "unknown": 3}},
        form=form.shipped(),
    )


def test_the_vote_is_silent_where_nothing_failed(rules: RuleSet) -> None:
    observed = scan_text(UNSEEN, rules)
    for voter in (None, model(8.0)):
        found = diagnose_observations(observed, rules, voter)
        assert (found.verdict, found.candidates) == ("healthy", [])


def test_a_cause_that_rests_on_its_vote_alone_is_only_possible(rules: RuleSet) -> None:
    diagnosis = diagnose_observations(scan_text(UNSEEN + FAILED, rules), rules, model(8.0))
    first = diagnosis.candidates[0]
    assert diagnosis.verdict == "unknown" and first.confidence < 0.5
    assert (first.id, first.status) == ("gpu-hardware-fault", "possible")
    item = first.weighed.contributions[0]
    assert item.evidence.id == VOTE_ID
    assert item.applied <= CAP * VOTE_SHARE
    assert "known incidents of this cause: 7 of the 10" in item.evidence.says["en"]
    assert "10 起事故中有 7 起" in item.evidence.says["zh"]
    assert "flux" not in item.evidence.says["en"] + item.evidence.says["zh"]
    assert [event.line for event in item.events] == [2]


def test_the_model_abstains_when_it_knows_no_word(rules: RuleSet) -> None:
    features = features_of(scan_text(UNSEEN, rules), rules)
    assert not cast(model(8.0), features, failed=True).abstained
    assert cast(replace(model(8.0), idf={}, weights={}), features, failed=True).abstained
    assert cast(model(0.0), features, failed=True).votes == ()


def test_a_cause_whose_incidents_have_no_such_lines_loses(rules: RuleSet) -> None:
    log = "step 1/9 loss 2.1\n[rank2]: RuntimeError: the flux capacitor is of another kind\n"
    observed = scan_text(log, rules)
    against = replace(model(3.0), labels=("gpu-hardware-fault", UNREAD, "unknown"))
    alone = diagnose_observations(observed, rules, None)
    both = diagnose_observations(observed, rules, against)
    assert alone.cause == UNREAD
    item = next(c for c in both.candidates if c.id == UNREAD)
    assert item.weighed.score < alone.candidates[0].weighed.score
    votes = [c for c in item.weighed.contributions if c.evidence.id == VOTE_ID]
    assert [c.against for c in votes] == [True]
    assert AGAINST_CAP * VOTE_AGAINST <= votes[0].applied < 0


def test_a_log_without_failures_gets_no_vote(rules: RuleSet) -> None:
    features = features_of(scan_text(UNSEEN, rules), rules)
    healthy = replace(model(2.0), intercepts=(0.0, 2.0, 0.0))
    assert cast(healthy, features, failed=False).abstained
    assert cast(healthy, features, failed=True).votes


def test_decisive_rules_outweigh_a_contrary_vote(rules: RuleSet) -> None:
    log = (
        "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity of "
        "79.11 GiB of which 1.02 GiB is free.\nthe flux capacitor is not supported\n"
    )
    diagnosis = diagnose_observations(scan_text(log, rules), rules, model(12.0, "port-in-use"))
    assert diagnosis.cause == "gpu-out-of-memory"


def test_a_vote_for_a_cause_that_the_rules_do_not_have_is_ignored(rules: RuleSet) -> None:
    diagnosis = diagnose_observations(scan_text(UNSEEN, rules), rules, model(8.0, "a-cause-of-yours"))
    assert all(candidate.id != "a-cause-of-yours" for candidate in diagnosis.candidates)


def test_what_a_rule_names_as_culprit_does_not_change_by_a_vote(rules: RuleSet) -> None:
    log = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n[rank1]: flux capacitor error\n"
    observed = scan_text(log, rules)
    alone = diagnose_observations(observed, rules, None).candidates[0].culprits
    both = diagnose_observations(observed, rules, model(9.0, "gpu-out-of-memory")).candidates[0].culprits
    assert [(c.rank, c.host) for c in alone] == [(c.rank, c.host) for c in both]


RAISED = (
    "[rank1]: Traceback (most recent call last):\n"
    '[rank1]:   File "/opt/fancy/engine.py", line 7, in start\n'
    "[rank1]:     self.check()\n"
    "[rank1]: RuntimeError: {words}\n"
)


def test_an_exception_of_the_program_is_no_other_cause_on_the_word_of_the_vote(rules: RuleSet) -> None:
    observed = scan_text(RAISED.format(words="the flux capacitor is of another kind"), rules)
    alone = diagnose_observations(observed, rules, None)
    assert alone.cause == UNREAD
    for cause in ("parallel-layout-mismatch", "network-firewall-port"):
        both = diagnose_observations(observed, rules, model(8.0, cause))
        assert (both.cause, both.verdict) == (UNREAD, alone.verdict)


def test_an_exception_whose_words_a_rule_knows_keeps_its_cause(rules: RuleSet) -> None:
    observed = scan_text(RAISED.format(words="CUDA error: device-side assert triggered, flux capacitor"), rules)
    alone = diagnose_observations(observed, rules, None)
    assert alone.cause == diagnose_observations(observed, rules, model(8.0, "parallel-layout-mismatch")).cause == UNREAD
