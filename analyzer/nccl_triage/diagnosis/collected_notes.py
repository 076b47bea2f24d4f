"""Notes on what a collector added: the one place where everything was found, and a clock that is not the program's."""

from __future__ import annotations

from nccl_triage.observations.store import Observations
from nccl_triage.story import collected

_HOUR = 3600.0


def notes(observations: Observations) -> list[dict[str, str]]:
    """Return a note on the only place of all lines, and one on every source with two clocks."""
    found = []
    if (place := collected.only_place(observations)) is not None:
        found.append(
            {
                "en": f"Every line was collected at {place}: that tells no rank or host apart.",
                "zh": f"所有日志行都采集自 {place}：无法据此区分 rank 或主机。",
            }
        )
    for source, seconds in sorted(collected.two_clocks(observations).items())[:3]:
        hours = f"{abs(seconds) / _HOUR:.1f}".removesuffix(".0")
        en, zh = ("behind", "慢") if seconds > 0 else ("ahead of", "快")
        found.append(
            {
                "en": f"{source} has two clocks: the collector's is {hours} h {en} the program's. Times are the collector's.",
                "zh": f"{source} 有两个时钟：采集器的时钟比程序{zh} {hours} 小时。此处的时间为采集器的时间。",
            }
        )
    return found
