"""Screens hosts in pairs, in rounds with changing partners, and bisects what fails only with all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nccl_triage.engine.schema import Text
from nccl_triage.verify import record
from nccl_triage.verify.collective_run import CollectiveRun
from nccl_triage.verify.conduct import bisect
from nccl_triage.verify.judge import Trial
from nccl_triage.verify.preflight_check import check
from nccl_triage.verify.screening import Screening, only
from nccl_triage.verify.tournament import Blame, blame, partner, rounds

Pair = tuple[int, int]


@dataclass
class PairScreening:
    """The rounds of a screening: what is known of each pair that met, and of the bad ones why."""

    screening: Screening
    trials: dict[tuple[int, ...], Trial] = field(default_factory=dict)
    unusable: dict[tuple[int, ...], Text] = field(default_factory=dict)
    results: dict[Pair, bool] = field(default_factory=dict)

    def carry_out(self) -> None:
        """Let the hosts meet, name who is bad with every partner, and which pairs are bad without such a one."""
        screening = self.screening
        places = screening.places
        if len(places) < 2:
            return
        for meeting in rounds(places):
            if not self._round(meeting):
                listed = screening.names(places)
                screening.unreached("pairs", f"some pairs of {listed}", f"{listed} 中的部分主机对")
                break
        says = {**self.unusable, **screening.bad(self.trials)}
        self.results = {pair: pair in says for pair in self.results}
        if says:
            self._name(blame(self.results), says)
        elif self.results:
            met, count = len(self.results), len(places)
            screening.checks.append(
                check(
                    "pairs",
                    "ok",
                    f"{met} pairs of {count} hosts, both ways",
                    f"{count} 台主机中的 {met} 对，双向均正常",
                )
            )

    def cut(self, places: list[int]) -> bool:
        """Tell whether two of these hosts cannot talk to each other."""
        return any(set(pair) <= set(places) for pair in self.unusable)

    def _round(self, meeting: list[Pair]) -> bool:
        """Run the collective on all pairs of a round at once; returns whether there was time for it."""
        screening = self.screening
        for pair in meeting:
            found = screening.live.findings(screening.live.realised(only(screening.base, pair)))
            if found:  # the probe knows: no need to wait for a deadline
                self.unusable[pair] = dict(found[0].says)
        fresh = [pair for pair in meeting if pair not in self.unusable]
        made = screening.together(fresh, screening.base.env, "two hosts", more=True) if fresh else {}
        if fresh and not made:
            return False
        self.trials |= made
        self.results |= dict.fromkeys(meeting, False)
        told = [self._pair(pair, made.get(pair)) for pair in meeting]
        screening.measured.setdefault("pairs", []).extend(told)
        return True

    def _pair(self, pair: Pair, trial: Trial | None) -> dict[str, Any]:
        """Return what was measured between two hosts: bus bandwidth, and GB/s from the first to the second and back."""
        names = [self.screening.live.names[place] for place in pair]
        found: dict[str, Any] = {"hosts": names, "passed": trial is not None and not trial.fails}
        if trial is None:
            return found
        measured = record.bandwidth(trial.result)
        found["busbw"] = measured["busbw"] if measured else None
        for name, index in (("there", 0), ("back", 1)):
            told = [trace.parts[index]["median"] for trace in trial.result.ranks.values() if len(trace.parts) > index]
            message = trial.result.run.more[index]
            rate = record.rate("SEND", message.numel, message.dtype, 2, max(told, default=0.0)) if told else None
            found[name] = rate["busbw"] if rate else None
        return found

    def _name(self, found: Blame[int], says: dict[tuple[int, ...], Text]) -> None:
        screening = self.screening
        if found.everywhere:
            first = next(iter(says.values()))
            screening.checks.append(
                check("pairs", "failed", f"every pair fails: {first['en']}", f"所有主机对都失败：{first['zh']}")
            )
            return
        for place in found.units:
            mine = next(text for pair, text in says.items() if place in pair)
            self._confirm_host(place, found, mine)
        for pair in found.pairs:
            self._confirm_pair(pair, says[pair])

    def _confirm_host(self, place: int, found: Blame[int], says: Text) -> None:
        """Try a host once more, with a partner that did well with somebody else."""
        screening = self.screening
        other = partner(place, self.results, found.units)
        pair = tuple(sorted((place, other))) if other is not None else None
        if pair is None or self._again(pair, screening):
            screening.suspect("pairs", [place], _with_all(says, self._partners(place)))
            if any(place in unit and not trial.result.passed for unit, trial in self.trials.items()) or any(
                place in unit for unit in self.unusable
            ):
                screening.failed.add(place)
        else:
            self._cleared([place], says)

    def _confirm_pair(self, pair: Pair, says: Text) -> None:
        screening, trial = self.screening, self.trials.get(pair)
        named = trial.finding.ranks if trial is not None and trial.finding is not None else ()
        odd = (
            [trace for trace in trial.result.ranks.values() if trace.slot.number in named] if trial is not None else []
        )
        if odd and {trace.slot.number for trace in odd} <= {suspect.rank for suspect in screening.suspects}:
            return  # named already for what it does alone
        if pair not in self.unusable and not self._again(pair, screening):
            self._cleared(pair, says)
        elif len(odd) == 1:
            screening.suspect("pairs", [odd[0].slot.place], says, odd[0])
        else:
            screening.suspect("pairs", pair, says)

    def _again(self, pair: tuple[int, ...], screening: Screening) -> bool:
        """Tell whether a pair is bad again."""
        if screening.live.findings(screening.live.realised(only(screening.base, pair))):
            return True
        made = screening.together([pair], screening.base.env, "two hosts, again")
        sound: set[tuple[int, ...]] = {met for met, failed in self.results.items() if not failed}
        earlier = {unit: trial for unit, trial in self.trials.items() if unit in sound}
        return bool(screening.still({pair: {}}, made, earlier)) if made else True

    def _partners(self, place: int) -> str:
        met = [one for pair in self.results if place in pair for one in pair if one != place]
        return self.screening.names(dict.fromkeys(met))

    def _cleared(self, places: tuple[int, ...] | list[int], says: Text) -> None:
        listed = self.screening.names(places)
        self.screening.checks.append(
            check(
                "pairs",
                "warning",
                f"{listed} stood out once and not again: {says['en']}",
                f"{listed} 异常一次，重复后未再出现：{says['zh']}",
            )
        )


def _with_all(says: Text, partners: str) -> Text:
    return {
        "en": f"bad with every partner ({partners}): {says['en']}",
        "zh": f"与每个对端（{partners}）都异常：{says['zh']}",
    }


def bisected(screening: Screening, run: CollectiveRun, says: Text) -> None:
    """Find the hosts without which a run of all of them passes, and try them once more before they are named."""
    places = list(run.places)
    unknown: list[tuple[int, ...]] = []

    def fails(group: tuple[int, ...]) -> bool:
        part = only(run, group, changed=f"only {screening.names(group)}")
        trial = screening.live.trial(part, 0, screening.planned)
        unknown.extend([] if trial is not None else [group])
        return trial is not None and trial.fails

    found = bisect(places, fails)
    listed = screening.names(places)
    if unknown:
        screening.unreached("bisection", f"halves of {listed}", f"{listed} 的二分查找")
        return
    group = found.units
    tried = (*group, next(place for place in places if place not in group)) if len(group) == 1 else group
    again = only(run, tried, changed=f"only {screening.names(tried)}")
    trial = screening.live.trial(again, 1, screening.planned) if len(tried) < len(places) else None
    if found.kind != "group" and (trial is None or trial.fails):
        screening.suspect("bisection", group, says)
        return
    screening.checks.append(
        check(
            "bisection",
            "warning",
            f"the failure follows no host or pair of {listed}",
            f"该故障与 {listed} 中的任何一台或一对主机都不对应",
        )
    )
