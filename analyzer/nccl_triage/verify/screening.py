"""Screens hosts before a job: each device alone and each host alone; ``pair_screening`` goes on with pairs of hosts.

As DLRover and other schedulers do: a timed matrix multiplication and a copy in memory first, then the collective inside
each host, then between disjoint pairs in rounds, so that whoever is bad with every partner is named. What stands out does
so against the median of the others, and is tried again before it is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nccl_triage.engine.schema import RuleSet, Text
from nccl_triage.errors import InputError
from nccl_triage.verify.collective_run import CollectiveMessage, CollectiveRun, RankTrace, RunResult
from nccl_triage.verify.judge import Trial
from nccl_triage.verify.outliers import above, others
from nccl_triage.verify.plan import Planned
from nccl_triage.verify.preflight_check import PreflightCheck, PreflightSuspect, check, who
from nccl_triage.verify.stragglers import work_of
from nccl_triage.verify.trials import Session

#: A host or a pair is slow when its collective takes this many times longer than the median of the others, and this much
#: longer at least (seconds): cores and sockets are noisy, GPUs are not.
SLOW = {"gloo": (3.0, 0.05), "nccl": (1.5, 0.0002)}
#: Elements of the messages from one host of a pair to the other, each way.
EACH_WAY_NUMEL = 1 << 20


def only(run: CollectiveRun, places: Iterable[int], **changes: Any) -> CollectiveRun:
    """Return a run with its ranks on some hosts, which keep their numbers and variables."""
    wanted = set(places)
    kept = [(rank, slot) for rank, slot in enumerate(run.slots) if slot.place in wanted]
    per_rank = {new: run.per_rank_env[old] for new, (old, _) in enumerate(kept) if old in run.per_rank_env}
    slots = tuple(slot for _, slot in kept)
    return replace(run, **{"slots": slots, "per_rank_env": per_rank, "store_address": None, **changes})


@dataclass
class Screening:
    """The stages of a screening on an open session, with what they have found so far."""

    live: Session
    base: CollectiveRun
    planned: Planned
    checks: list[PreflightCheck] = field(default_factory=list)
    suspects: list[PreflightSuspect] = field(default_factory=list)
    measured: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)

    def carry_out(self) -> None:
        """Screen each device and each host alone."""
        self._devices()
        self._inside()

    @property
    def places(self) -> list[int]:
        """The hosts that have not failed."""
        return [place for place in self.base.places if place not in self.failed]

    def names(self, places: Iterable[int]) -> str:
        """Return the names of hosts."""
        return ", ".join(self.live.names[place] for place in places)

    def unreached(self, stage: str, en: str, zh: str) -> None:
        """Note what there was no time for."""
        self.checks.append(check(stage, "skipped", f"not reached within the budget: {en}", f"时间预算内未能进行：{zh}"))

    def suspect(self, stage: str, places: Iterable[int], says: Text, trace: RankTrace | None = None) -> None:
        """Name hosts that stand out, or a rank on one."""
        hosts = tuple(self.live.names[place] for place in places)
        rank, gpu = (trace.slot.number, gpu_of(trace)) if trace is not None else (None, None)
        self.suspects.append(PreflightSuspect(hosts, stage, says, rank, gpu))
        en, zh = who(hosts, rank, gpu), who(hosts, rank, gpu, chinese=True)
        self.checks.append(check(stage, "failed", f"{en}: {says['en']}", f"{zh}：{says['zh']}"))

    # each device alone

    def _devices(self) -> None:
        alone = replace(self.base, message=CollectiveMessage("INIT", 1), more=(), alone=True, changed="each rank alone")
        first = self.live.trial(alone, 0, self.planned)
        if first is None:
            self.unreached("compute", "the computation of each device", "各设备的独立计算")
            return
        self.measured["compute"] = [self._device(trace) for _, trace in sorted(first.result.ranks.items())]
        unable = {trace.slot.place: trace for trace in first.result.ranks.values() if trace.own_failure is not None}
        for place, trace in unable.items():
            self.suspect("compute", [place], trace.own_failure or {})
            self.failed.add(place)
        if unable:
            return
        second = self.live.trial(alone, 1, self.planned) if first.fails else first
        again = set(second.finding.ranks) if second is not None and second.finding is not None else set()
        if first.finding is None or not set(first.finding.ranks) & again:
            self._sound_devices(first)
            return
        for trace in first.result.ranks.values():
            if trace.slot.number in set(first.finding.ranks) & again:
                self.suspect("compute", [trace.slot.place], first.finding.says, trace)
                if not trace.done:
                    self.failed.add(trace.slot.place)

    def _sound_devices(self, first: Trial) -> None:
        count = self.base.world
        if first.fails:
            en, zh = "a rank stood out once and not again", "某个 rank 异常一次，重复后未再出现"
            says = first.finding.says if first.finding else {"en": first.result.outcome, "zh": first.result.outcome}
            self.checks.append(check("compute", "warning", f"{en}: {says['en']}", f"{zh}：{says['zh']}"))
        else:
            en, zh = f"{count} ranks compute alike and right", f"{count} 个 rank 的独立计算正确且耗时相近"
            self.checks.append(check("compute", "ok", en, zh))

    def _device(self, trace: RankTrace) -> dict[str, Any]:
        told = trace.details.get("done", {}).get("compute") or {}
        rates = {name: told.get(name) for name in ("flop_s", "bytes_s")} if work_of(trace) else {}
        host = self.live.names[trace.slot.place]
        return {"host": host, "rank": trace.slot.number, "gpu": gpu_of(trace), **work_of(trace), **rates}

    # each host alone

    def _inside(self) -> None:
        inside = [place for place in self.places if sum(slot.place == place for slot in self.base.slots) > 1]
        nccl = self.base.backend == "nccl"
        if not inside or (len(self.base.places) < 2 and not nccl):
            return  # the collectives of one host come anyway
        # NCCL 2.31 and later then moves data between every pair of GPUs first; earlier ones ignore it.
        env = {**self.base.env, **({"NCCL_RUN_DIAGNOSTICS": "1"} if nccl else {})}
        found = self.together([(place,) for place in inside], env, "inside one host")
        if not found:
            self.unreached("inside", f"collectives inside {self.names(inside)}", f"{self.names(inside)} 内部的集合操作")
            return
        without: dict[tuple[int, ...], Trial] = {}
        if nccl:
            disabled = {**self.base.env, "NCCL_P2P_DISABLE": "1"}
            without = self.together(
                [(place,) for place in inside], disabled, "inside one host, with NCCL_P2P_DISABLE=1"
            )
        bad = self.bad(found)
        repeated = self.together(list(bad), env, "inside one host, again") if bad else {}
        for (place,), says in self.still(bad, repeated, found).items():
            self.failed |= {place} if not repeated[place,].result.passed else set()
            self.suspect("inside", [place], _with_p2p(says, without.get((place,))))
        self._compare_p2p(found, without)
        self._diagnostics(found)
        if not any(one.stage == "inside" for one in self.suspects):
            listed = self.names(inside)
            self.checks.append(check("inside", "ok", f"collectives inside {listed}", f"{listed} 内部的集合操作正常"))

    def _compare_p2p(self, found: Mapping[tuple[int, ...], Trial], without: Mapping[tuple[int, ...], Trial]) -> None:
        """Warn where GPUs talk directly no faster than through the host's memory."""
        for unit, trial in found.items():
            other = without.get(unit)
            direct, staged = trial.result.median, other.result.median if other is not None else None
            if direct is not None and staged is not None and not trial.fails and direct >= staged:
                name = self.names(unit)
                self.checks.append(
                    check(
                        "p2p",
                        "warning",
                        f"{name}: with P2P the collective takes {1000 * direct:.3g} ms, without {1000 * staged:.3g} ms: "
                        "NVLink or P2P is not used or does not help",
                        f"{name}：使用 P2P 时集合操作耗时 {1000 * direct:.3g} 毫秒，禁用后为 {1000 * staged:.3g} 毫秒："
                        "NVLink 或 P2P 未被使用或没有效果",
                    )
                )

    def _diagnostics(self, found: Mapping[tuple[int, ...], Trial]) -> None:
        """Name the hosts on which NCCL's own diagnostics found something."""
        for unit, trial in found.items():
            for symptom in own_symptoms(trial.result, self.live.rules):
                if symptom["signature"].startswith("nccl.diag_") and symptom["role"] == "root":
                    self.suspect("diagnostics", unit, {"en": symptom["meaning"], "zh": symptom["meaning"]})

    # helpers of all stages

    def together(
        self, units: Sequence[tuple[int, ...]], env: Mapping[str, str], changed: str, more: bool = False
    ) -> dict[tuple[int, ...], Trial]:
        """Run the collective on each unit of hosts at the same time; ``more``: and messages each way. Empty: no time."""
        runs = []
        for unit in units:
            run = only(self.base, unit, env=dict(env), changed=changed)
            runs.append(replace(run, more=each_way(run) if more else ()))
        return dict(zip(units, self.live.together(runs, self.planned), strict=False))

    def bad(self, found: Mapping[tuple[int, ...], Trial]) -> dict[tuple[int, ...], Text]:
        """Return which units failed or took long, and what is to be said of each."""
        says = {unit: says_of(trial) for unit, trial in found.items() if trial.fails}
        times = self.times(found)
        for size in {len(trial.result.run.slots) for trial in found.values()}:
            alike = {unit: value for unit, value in times.items() if len(found[unit].result.run.slots) == size}
            for unit in above(alike, *SLOW[self.base.backend]):
                says[unit] = _slow(alike[unit], others(alike, unit))
        return says

    def still(
        self,
        bad: Mapping[tuple[int, ...], Text],
        again: Mapping[tuple[int, ...], Trial],
        earlier: Mapping[tuple[int, ...], Trial],
    ) -> dict[tuple[int, ...], Text]:
        """Return which bad units are bad again, measured against the others of the first time."""
        usual = {unit: value for unit, value in self.times(earlier).items() if unit not in bad}
        found = {unit: says_of(trial) for unit, trial in again.items() if trial.fails}
        for unit, value in self.times(again).items():
            if unit not in found and usual and above({**usual, unit: value}, *SLOW[self.base.backend])[:1] == [unit]:
                found[unit] = _slow(value, others({**usual, unit: value}, unit))
        return found

    def times(self, found: Mapping[tuple[int, ...], Trial]) -> dict[tuple[int, ...], float]:
        """Return the seconds of the collective where it passed."""
        return {
            unit: trial.result.median
            for unit, trial in found.items()
            if trial.result.passed and trial.result.median is not None
        }


def each_way(run: CollectiveRun) -> tuple[CollectiveMessage, ...]:
    """Return a message from the first rank of one host to that of the other, and one back."""
    first, second = (run.first_rank(place) for place in run.places)
    dtype = run.message.dtype
    return tuple(
        CollectiveMessage("SEND", EACH_WAY_NUMEL, dtype, pair=pair) for pair in ((first, second), (second, first))
    )


def gpu_of(trace: RankTrace) -> str | None:
    """Return how the GPU of a rank is called, None on the CPU."""
    device = trace.details.get("device", {})
    if device.get("device") != "cuda":
        return None
    return f"GPU {device.get('index')}, {device.get('bus')}"


def says_of(trial: Trial) -> Text:
    """Return what a failing run says."""
    if trial.finding is not None:
        return dict(trial.finding.says)
    result = trial.result
    if result.own_failure is not None:
        return dict(result.own_failure)
    return {"en": f"{result.outcome} at {result.stage!r}", "zh": f"{result.outcome}（{result.stage!r}）"}


def _slow(seconds: float, usual: float) -> Text:
    return {
        "en": f"the collective takes {1000 * seconds:.3g} ms, the median of the others is {1000 * usual:.3g} ms",
        "zh": f"集合操作耗时 {1000 * seconds:.3g} 毫秒，其他的中位数为 {1000 * usual:.3g} 毫秒",
    }


def _with_p2p(says: Text, without: Trial | None) -> Text:
    """Return what a host's failure says, with what became of it without P2P."""
    if without is None:
        return says
    if without.fails:
        return {
            "en": f"{says['en']}; without P2P it fails as well",
            "zh": f"{says['zh']}；禁用 P2P 后同样失败",
        }
    return {
        "en": f"{says['en']}; without P2P it passes: look at NVLink and P2P of this host",
        "zh": f"{says['zh']}；禁用 P2P 后通过：请检查该主机的 NVLink 和 P2P",
    }


def own_symptoms(result: RunResult, rules: RuleSet) -> list[dict[str, Any]]:
    """Return the symptoms in the logs of a run, whether it passed or not."""
    from nccl_triage.api import diagnose

    if result.folder is None:
        return []
    try:
        return list(diagnose([result.folder], rules=rules, model=None).to_dict()["symptoms"])
    except InputError:  # the ranks printed nothing
        return []
