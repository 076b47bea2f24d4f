"""The Python interface: what is known besides the logs is weighed with them."""

from __future__ import annotations

from pathlib import Path

from nccl_triage import diagnose
from nccl_triage.observations.event import Context, Event
from nccl_triage.observations.store import Observations


def test_further_observations_are_weighed_with_the_log(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("[rank0]: step 1 loss 2.5\n[rank0]: step 2 loss 2.4\n")
    seen: list[list[str]] = []

    def host(observations: Observations) -> Observations:
        seen.append(sorted(observations.sources))
        found = Observations()
        found.add(Event("os.exit_code_generic", "probe", 1, "exit code 137", Context(host="node-1"), "cascade"))
        return found

    def nothing(observations: Observations) -> Observations:
        seen.append(observations.signatures())
        return Observations()

    alone, both = diagnose(log), diagnose(log, further=[host, nothing])
    assert alone.verdict == "healthy"
    assert [event.source for event in both.case.of("os.exit_code_generic")] == ["probe"]
    assert both.case.of("training.*"), "the log is still there"
    assert seen[0] == [str(log)]
    assert "os.exit_code_generic" not in seen[1], "each is given what was scanned, and nothing else"
