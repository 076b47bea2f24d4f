"""When a verdict about a running job is made and when it is said."""

from __future__ import annotations

from nccl_triage.diagnosis.updates import PATIENCE, REST, SETTLE, Pace, ReportedVerdict, reason
from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

OOM = "rank 3: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79 GiB\n"


def test_a_verdict_is_made_when_no_more_news_comes() -> None:
    pace = Pace()
    assert not pace.due(0, 0.0, 100.0)
    assert not pace.due(1, 100.0, 100.0)
    assert not pace.due(2, 101.0, 101.0)
    assert pace.due(2, 101.0, 101.0 + SETTLE)
    pace.done(2, 103.0, 0.1)
    assert not pace.due(2, 101.0, 1000.0)


def test_news_without_end_is_not_waited_for_and_long_work_rests() -> None:
    pace = Pace()
    times = [100.0 + second for second in range(60)]
    due = [now for now in times if pace.due(int(now), now, now)]
    assert due[0] == 100.0 + PATIENCE
    pace.done(int(due[0]), due[0], took=2.0)
    due = [now for now in times if now > due[0] and pace.due(int(now), now, now)]
    assert due[0] == 100.0 + PATIENCE + REST * 2.0


def test_what_is_news(rules: RuleSet) -> None:
    healthy = ReportedVerdict.of(diagnose_text("step 1/9 loss 3.1\nstep 2/9 loss 3.0\n", rules))
    failed = ReportedVerdict.of(diagnose_text(f"step 1/9 loss 3.1\n{OOM}", rules))
    assert (healthy.verdict, failed.cause) == ("healthy", "gpu-out-of-memory")
    assert reason(healthy, None) is None
    begun = diagnose_text("loading the configuration\n", rules)
    assert begun.verdict == "unknown"
    assert reason(ReportedVerdict.of(begun), None) is None
    assert reason(failed, None) == "first"
    assert reason(failed, failed) is None
    assert reason(healthy, failed) == "update"
    repeated = ReportedVerdict.of(diagnose_text(f"step 1/9 loss 3.1\n{OOM}{OOM}", rules))
    assert reason(repeated, failed) is None
    other = ReportedVerdict.of(diagnose_text("step 1/9 loss 3.1\n" + OOM.replace("rank 3", "rank 1"), rules))
    assert failed.culprits != other.culprits
    assert reason(other, failed) == "update"
