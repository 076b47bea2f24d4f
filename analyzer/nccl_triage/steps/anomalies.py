"""Find what is unusual in the metrics of training steps: slow ranks, slow-downs, losses out of range."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from nccl_triage.observations.curves import NOT_KNOWN, CurveProcess, CurveRow
from nccl_triage.observations.event import Context, Event
from nccl_triage.steps.metric_series import JobMetrics, MetricSeries, Usual, tail, usual


class Anomaly(NamedTuple):
    """An unusual ``value`` at a row, and the ``usual`` one (in the metric's unit); it rests on ``over`` numbers."""

    signature: str
    metric: str
    row: CurveRow
    value: float
    usual: float
    over: int
    derived: bool = False
    word: str = ""

    @property
    def ratio(self) -> float:
        """How far the value is from the usual one, at least 1; 0 where they do not compare."""
        if self.word or min(self.value, self.usual) <= 0:
            return 0.0
        return max(self.value / self.usual, self.usual / self.value)

    def event(self) -> Event:
        """Return the event. Its text names the numbers, since the line itself was not kept."""
        row, value, usual = self.row, self.word or _short(self.value), _short(self.usual)
        step = f"step {int(row.step)}: " if row.step >= 0 else ""
        # Only what lasts until the failure, or to the end of the log, is an anomaly.
        fields = {"metric": self.metric, "value": value, "over": str(self.over), "lasts": "yes"}
        if not self.word:
            fields |= {"usual": usual, "ratio": _short(self.ratio)}
        if row.step >= 0:
            fields["step"] = str(int(row.step))
        if self.derived:
            fields["derived"] = "time stamps"
        compared = "" if self.word else f" (usual {usual}, {_short(self.ratio)}x)"
        text = f"[{step}{self.metric} {value}{compared}]"
        return Event(self.signature, row.source, row.line, text, context_of(row.process, row.time), "context", fields)


def context_of(process: CurveProcess, time: float) -> Context:
    """Return who printed a row, and when."""
    return Context(
        rank=_known(process.rank),
        local_rank=_known(process.local_rank),
        group_rank=_known(process.group_rank),
        host=process.host or None,
        place=process.place or None,
        writer=_known(process.writer),
        pid=_known(process.pid),
        time=time if time >= 0 else None,
    )


def _known(number: int) -> int | None:
    return None if number == NOT_KNOWN else number


def _short(number: float) -> str:
    """Return three significant digits."""
    return f"{number:.3g}" if abs(number) < 1000 else f"{number:.0f}"


#: Metric -> (times the peers' median, seconds above it) from which a rank is slow.
_SLOW_RANK = {"step_time": (1.3, 0.05), "data_time": (2.0, 0.2), "generation_time": (1.5, 0.5)}
#: Least number of ranks and of values of each; standard deviations among the peers; share of a rank's own values that
#: must be above those of its peers; one in so many ranks may be slow.
_MIN_RANKS, _MIN_NUMBERS, _PEER_SIGMA, _OFTEN, _FEW = 3, 6, 6.0, 0.8, 4
#: How far a value must lie between the peers' median and the rank's own to count as slow.
_HALFWAY = 0.5


def slow_ranks(metrics: JobMetrics) -> list[Anomaly]:
    """Return the ranks whose durations are longer than those of the others in most of their steps."""
    return [one for metric in _SLOW_RANK for one in _slow(metric, metrics.of(metric))]


def _slow(metric: str, metrics: list[MetricSeries]) -> list[Anomaly]:
    points: dict[object, list[tuple[CurveRow, float]]] = defaultdict(list)
    for series in metrics:
        points[_who(series)] += series.settled()
    known = {who: own for who, own in points.items() if len(own) >= _MIN_NUMBERS}
    if len(known) < _MIN_RANKS:
        return []
    middles = {who: usual([value for _, value in own]).middle for who, own in known.items()}
    factor, least = _SLOW_RANK[metric]
    found: list[Anomaly] = []
    for who, own in known.items():
        peers = usual([middle for other, middle in middles.items() if other != who])
        mine = middles[who]
        if mine < factor * peers.middle or mine - peers.middle < max(least, _PEER_SIGMA * peers.spread):
            continue
        bar = peers.middle + _HALFWAY * (mine - peers.middle)
        slow = [(row, value) for row, value in own if value > bar]
        if len(slow) >= _OFTEN * len(own):
            found.append(Anomaly("steps.slow_rank", metric, max(slow)[0], mine, peers.middle, len(own)))
    return found if len(found) <= max(1, len(known) // _FEW) else []


def _who(series: MetricSeries) -> object:
    process = series.process
    if process.rank != NOT_KNOWN:
        return process.rank
    return process._replace(group_rank=NOT_KNOWN)


#: Durations, and by how many seconds at least the unusual ones exceed the usual.
_DURATIONS = {"step_time": 0.2, "data_time": 0.5, "generation_time": 1.0, "weight_sync_time": 1.0}
_RATES = ("tokens_per_second", "samples_per_second", "tflops")
#: Times the usual from which two steps are a slow-down, or one alone; standard deviations, and factor to the slowest
#: step that was usual: evaluations and checkpoints come again and again.
_SLOW_DOWN, _ONE_SLOW, _PACE_SIGMA, _BEYOND = 3.0, 6.0, 8.0, 1.5


def slowed(metrics: JobMetrics) -> list[Anomaly]:
    """Return where the last steps before a failure are slow."""
    found: list[Anomaly] = []
    for series in (*metrics.of(*_DURATIONS), *metrics.timed()):
        least = _DURATIONS[series.metric]

        def slow(value: float, known: Usual, least: float = least) -> bool:
            far = value > _SLOW_DOWN * known.middle and value > _BEYOND * known.high
            return far and value - known.middle > max(least, _PACE_SIGMA * known.spread)

        found += _slow_down(metrics, series, "steps.slow_down", slow)
    for series in metrics.of(*_RATES):

        def poor(value: float, known: Usual) -> bool:
            far = value * _SLOW_DOWN < known.middle and value * _BEYOND < known.low
            return far and known.middle - value > known.spread

        found += _slow_down(metrics, series, "steps.throughput_drop", poor)
    return found


def _slow_down(
    metrics: JobMetrics, series: MetricSeries, signature: str, unusual: Callable[[float, Usual], bool]
) -> list[Anomaly]:
    points = series.settled()
    run = tail([value for _, value in points], unusual)
    if run is None:
        return []
    length, known = run
    (row, _), last = points[-length], max((value for _, value in points[-length:]), key=lambda v: abs(v - known.middle))
    found = Anomaly(signature, series.metric, row, last, known.middle, len(points), series.derived)
    enough = length > 1 or found.ratio > _ONE_SLOW or last <= 0
    return [found] if enough and metrics.fails_after(row) else []


#: Metric -> how many times its usual value is a spike. Losses of reinforcement learning are noisy and change sign.
_SPIKE = {"loss": 1.5, "grad_norm": 10.0}
#: Metrics that must be finite.
_FINITE = ("loss", "policy_loss", "critic_loss", "grad_norm")
#: Standard deviations above the usual, factor above the highest that was usual, and the factor above which one number
#: is enough where otherwise two are needed.
_LOSS_SIGMA, _ABOVE_ALL, _ONE_SPIKE = 8.0, 1.1, 4.0
#: Numbers before the last ones with which they are compared: a loss falls, so what was long ago says nothing.
_WINDOW = 20
#: Infinite gradient norms that a loss scaler may make: so few mean nothing.
_OVERFLOWS = 3
#: Numbers in a row, the last ones of a log without a failure, that say that a metric will not come back. A loss scaler
#: leaves out a few steps at the start, and each of them may print a gradient norm that is none.
_FOR_GOOD = {"loss": 3, "policy_loss": 3, "critic_loss": 3, "grad_norm": 6}


def spikes(metrics: JobMetrics) -> list[Anomaly]:
    """Return where losses rose and stayed high until a failure."""
    found: list[Anomaly] = []
    for series in metrics.of(*_SPIKE):
        factor = _SPIKE[series.metric]

        def high(value: float, known: Usual, factor: float = factor) -> bool:
            above = known.middle > 0 and value > factor * known.middle and value > _ABOVE_ALL * known.high
            return above and value > known.middle + _LOSS_SIGMA * known.spread

        points = series.settled()
        run = tail([value for _, value in points], high, _WINDOW)
        if run is None:
            continue
        length, known = run
        (row, _), top = points[-length], max(value for _, value in points[-length:])
        if (length > 1 or top > _ONE_SPIKE * factor * known.middle) and metrics.fails_after(row):
            found.append(Anomaly("steps.loss_spike", series.metric, row, top, known.middle, len(points)))
    return found


def not_finite(metrics: JobMetrics) -> list[Anomaly]:
    """Return where losses stopped being finite for good, before a failure or without one."""
    found: list[Anomaly] = []
    for metric in _FINITE:
        rows, _ = metrics.table.strange.get(metric, ([], 0))
        last: dict[object, CurveRow] = {}
        for series in metrics.of(metric):
            last[series.process] = max(series.points[-1][0], last.get(series.process, series.points[-1][0]))
        tails: dict[object, list[CurveRow]] = {}
        for row in rows:
            if row.process not in last or row > last[row.process]:
                tails.setdefault(row.process, []).append(row)
        found += [one for own in tails.values() if (one := _lost(metrics, metric, own)) is not None]
    return found


def _lost(metrics: JobMetrics, metric: str, rows: list[CurveRow]) -> Anomaly | None:
    """Judge the last rows of a process, in which a metric is never finite."""
    word = dict(rows[0].strange)[metric]
    scaled = metric == "grad_norm" and word != "nan"
    if metrics.fails_after(rows[0]):
        name, needed = "steps.loss_not_finite", _OVERFLOWS if scaled else 1
    elif scaled:
        return None
    else:
        name, needed = "steps.loss_lost", _FOR_GOOD[metric]
    return Anomaly(name, metric, rows[0], 0.0, 0.0, len(rows), word=word) if len(rows) >= needed else None
