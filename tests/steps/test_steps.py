"""What numbers of steps establish, and above all what they do not."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from nccl_triage.document.diagnosis import diagnose_observations
from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.event import Event
from nccl_triage.observations.store import Observations
from nccl_triage.steps import PRODUCES, observe
from tests.scan_helpers import scan_text, undeclared

TIMEOUT = (
    "[rank{rank}]:[E603 14:50:00.000000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=88, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 "
    "milliseconds before timing out."
)
CRASH = "RuntimeError: CUDA error: an illegal memory access was encountered"


def noisy(usual: float, number: int, seed: int = 1, share: float = 0.03) -> list[float]:
    chance = random.Random(seed)
    return [usual * (1 + chance.uniform(-share, share)) for _ in range(number)]


def megatron(times: Iterable[float], losses: Iterable[float], norms: Iterable[float] | None = None) -> list[str]:
    rows = list(zip(times, losses, strict=True))
    grads = list(norms) if norms is not None else [1.0] * len(rows)
    return [
        f" iteration {n:8d}/ 1000 | consumed samples: {n * 256} | elapsed time per iteration (ms): {time * 1000:.1f} | "
        f"learning rate: 1.0E-05 | global batch size:   256 | lm loss: {loss:.6E} | grad norm: {grads[n - 1]:.3f} |"
        for n, (time, loss) in enumerate(rows, 1)
    ]


def found(rules: RuleSet, *texts: str) -> list[Event]:
    total = Observations()
    for number, text in enumerate(texts):
        total.absorb(scan_text(text, rules, path=f"log{number}" if number else "log"))
    events = observe(total).all_events()
    assert undeclared(events) == []
    return events


def brief(events: list[Event]) -> list[tuple[str, str | None, str | None]]:
    return sorted((e.signature, e.fields.get("metric"), e.fields.get("step")) for e in events)


def test_slow_steps_before_the_failure_in_every_kind_of_line(rules: RuleSet) -> None:
    usual, slow = noisy(2.0, 30), [9.5, 14.0]
    at = [*usual, *slow]
    kinds = {
        "megatron": megatron(at, noisy(3.0, 32)),
        "deepspeed": [
            f"[2025-06-03 14:22:00,000] [INFO] [timer.py:264:stop] epoch=0/micro_step={4 * n}/global_step={n}, "
            f"RunningAvgSamplesPerSec=31.2, CurrSamplesPerSec={64 / t:.3f}, MemAllocated=4.25GB, MaxMemAllocated=20.5GB"
            for n, t in enumerate(at)
        ],
        "deepspeed pipeline": [
            f"[default0]:steps: {n} loss: 2.5 iter time (s): {t:.3f} samples/sec: {64 / t:.2f}" for n, t in enumerate(at)
        ],
        "verl": [
            f"(TaskRunner pid=69569) step:{n} - actor/pg_loss:-0.012 - actor/grad_norm:0.5 - perf/time_per_step:{t:.3f}"
            for n, t in enumerate(at)
        ],
        "openrlhf": [
            f"Episode [1/2]:  10%|#| {n}/300 [1:02:00<8:58:00, {t:.2f}s/it, policy_loss=-0.01, kl=0.25, reward=0.5]"
            for n, t in enumerate(at)
        ],
        "swift": [
            f"{{'loss': 0.25, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'train_speed(iter/s)': {1 / t:.4f}, "
            f"'global_step/max_steps': '{n}/800'}}"
            for n, t in enumerate(at)
        ],
        "nemo": [
            f"Training epoch 0, iteration {n}/99 | lr: 1e-06 | global_step: {n} | reduced_train_loss: 11.03 | "
            f"train_step_timing in s: {t:.3f}"
            for n, t in enumerate(at)
        ],
        "lightning": [f"Epoch 0:  10%|#| {n}/1000 [00:10<01:30, {t:.2f}s/it, v_num=0, train_loss=2.3]" for n, t in enumerate(at)],
        "torchtitan": [
            f"[titan] 2025-06-03 14:22:01,123 - root - INFO - step: {n}  loss:  7.2534  grad_norm:  1.2031  "
            f"memory: 47.15GiB(59.6%)  tps: {int(8000 / t)}  tflops: {400 / t:.1f}  mfu: 40.7%"
            for n, t in enumerate(at, 1)
        ],
        "time stamps of Hugging Face": [
            f"2025-06-03T14:{int(t) // 60:02d}:{t % 60:06.3f}Z {{'loss': 2.31, 'grad_norm': 1.25, 'learning_rate': 4.5e-05, 'epoch': {n / 10}}}"
            for n, t in enumerate((sum(at[:n]) for n in range(len(at) + 1)), 1)
        ],
        "time stamps": [
            f"2025-06-03 14:{int(t) // 60:02d}:{t % 60:06.3f} - INFO - train - [rank 0/2] step {n} loss 2.5".replace(".", ",", 1)
            for n, t in enumerate((sum(at[:n]) for n in range(len(at) + 1)), 1)
        ],
    }  # fmt: skip
    for kind, lines in kinds.items():
        events = found(rules, "\n".join([*lines, CRASH]))
        slowed = [e for e in events if e.signature in ("steps.slow_down", "steps.throughput_drop")]
        assert slowed, kind
        assert {e.line for e in slowed} == {len(lines) - 1}, kind
        assert all(4 < float(e.fields["ratio"]) < 9 for e in slowed), kind
        assert ("derived" in slowed[0].fields) == kind.startswith("time stamps")
        assert found(rules, "\n".join([*lines[:-2], CRASH])) == [], kind


def test_a_spike_that_stays_until_the_failure(rules: RuleSet) -> None:
    losses = [11 * 0.93**n + 2 + noise for n, noise in enumerate(noisy(0.1, 60))]
    norms = noisy(1.0, 60)
    high = [*losses[:57], 7.5, 8.2, 9.9]
    events = found(rules, "\n".join([*megatron(noisy(2.0, 60), high, [*norms[:57], 40, 80, 120]), CRASH]))
    assert brief(events) == [("steps.loss_spike", "grad_norm", "58"), ("steps.loss_spike", "loss", "58")]
    assert events[0].text == "[step 58: grad_norm 120 (usual 0.997, 120x)]"


def test_what_is_no_evidence(rules: RuleSet) -> None:
    falling = [11 * 0.9**n + 2 for n in range(60)]
    calm = noisy(2.0, 60)
    spike = megatron(calm, [*falling[:30], 9.0, 11.0, *falling[32:]])
    checkpoints = megatron([t * (8 if n % 10 == 9 else 1) for n, t in enumerate(calm)], falling)
    short = megatron([2.0, 2.0, 2.0, 30.0], [11.0, 2.0, 2.0, 9.0])
    restarted = [*megatron(calm, falling), *megatron(calm[:5], falling[:5])]
    for name, lines in {
        "it falls from a high start": megatron(calm, falling),
        "the spike went away": spike,
        "checkpoints are slow, again and again": checkpoints,
        "too few numbers": short,
        "it began anew": restarted,
        "the first steps compile": megatron([90.0, 40.0, *calm[2:]], falling),
    }.items():
        assert found(rules, "\n".join([*lines, CRASH])) == [], name
    ends_high = megatron([*calm[:58], 30.0, 40.0], [*falling[:57], 9.0, 9.0, 9.0])
    assert found(rules, "\n".join(ends_high)) == [], "nothing failed"
    assert found(rules, "\n".join([CRASH, *ends_high])) == [], "the failure stands before it"


def test_nan_until_the_failure(rules: RuleSet) -> None:
    lines = [f"step:{n} - actor/pg_loss:{'nan' if n > 6 else -0.01} - actor/grad_norm:1.5" for n in range(9)]
    (event,) = found(rules, "\n".join([*lines, CRASH]))
    assert (event.signature, event.line, event.fields["value"]) == ("steps.loss_not_finite", 8, "nan")
    recovered = [*lines, "step:9 - actor/pg_loss:-0.02 - actor/grad_norm:1.5"]
    assert found(rules, "\n".join([*recovered, CRASH])) == []
    scaler = ["step 12 loss 2.5 grad norm inf", "step 13 loss 2.4 grad norm inf"]
    assert found(rules, "\n".join([*scaler, CRASH])) == [], "a loss scaler looks for its scale so"


def trainer(losses: list[str], norms: list[str]) -> str:
    """Write what the HF Trainer of transformers 5 logs: its numbers are words."""
    return "\n".join(
        f"{{'loss': '{loss}', 'grad_norm': '{norm}', 'learning_rate': '1e-05', 'epoch': '{n / 100}'}}"
        for n, (loss, norm) in enumerate(zip(losses, norms, strict=True))
    )


@pytest.mark.parametrize("end", ["", "\n{'train_runtime': '1.7', 'train_loss': '1.5', 'epoch': '0.1'}"])
def test_a_job_that_ran_on_with_nan_is_not_healthy(end: str, rules: RuleSet) -> None:
    """With logging_nan_inf_filter a loss of NaN is printed as 0: the gradient norm tells."""
    result = diagnose_observations(
        scan_text(trainer(["4.7"] * 4 + ["0"] * 6, ["1.5"] * 4 + ["nan"] * 6) + end, rules), rules
    )
    assert (result.verdict, result.candidates[0].id) == ("diagnosed", "numerical-divergence")
    shown = {item.evidence.id: item.events[0].line for item in result.candidates[0].weighed.contributions}
    assert shown["not-finite-for-good"] == 5


@pytest.mark.parametrize(
    ("losses", "norms"),
    [
        (["4.7"] * 10, ["nan"] * 4 + ["1.5"] * 6),
        (["4.7"] * 10, ["nan"] * 6 + ["1.5"] * 4),
        (["4.7"] * 5 + ["nan"] * 4 + ["4.6"], ["1.5"] * 10),
        (["4.7"] * 4, ["nan"] * 4),
        (["4.7"] * 10, ["1.5"] * 2 + ["inf"] * 8),
    ],
    ids=["a scaler begins", "a scaler begins slowly", "it came back", "too few to say", "infinite norms alone"],
)
def test_numbers_that_come_back_are_not_lost(losses: list[str], norms: list[str], rules: RuleSet) -> None:
    assert [e.signature for e in found(rules, trainer(losses, norms)) if e.signature == "steps.loss_lost"] == []


def ranks(slow: dict[int, float], number: int = 8, steps: int = 20, metric: str = "data_time") -> str:
    return "\n".join(
        f"[rank{rank}]: step {n} loss 2.5 {metric} {value:.4f}"
        for n in range(steps)
        for rank in range(number)
        for value in [noisy(slow.get(rank, 0.3), steps, seed=rank)[n]]
    )


def test_a_rank_that_is_slower_than_its_peers(rules: RuleSet) -> None:
    text = ranks({5: 1.4})
    (event,) = found(rules, text)
    assert (event.signature, event.context.rank, event.fields["metric"]) == ("steps.slow_rank", 5, "data_time")
    late = "\n".join([text, *(TIMEOUT.format(rank=rank) for rank in range(8))])
    result = diagnose_observations(scan_text(late, rules), rules)
    assert (result.cause, [c.rank for c in result.candidates[0].culprits]) == ("straggler", [5])
    assert diagnose_observations(scan_text(text, rules), rules).verdict == "healthy"


@pytest.mark.parametrize(
    ("slow", "number"),
    [({}, 8), ({1: 1.4}, 2), ({1: 1.4, 2: 1.4, 3: 1.5}, 8), ({5: 0.33}, 8)],
    ids=["all alike", "two ranks", "too many", "a little slower"],
)
def test_ranks_that_are_not_blamed(slow: dict[int, float], number: int, rules: RuleSet) -> None:
    assert found(rules, ranks(slow, number)) == []


def test_a_rank_that_was_slow_only_at_first(rules: RuleSet) -> None:
    lines = ranks({}, 4).splitlines()
    for n in range(7):
        lines[n * 4 + 2] = f"[rank2]: step {n} loss 2.5 data_time 9.5"
    assert found(rules, "\n".join(lines)) == []


def test_the_place_is_marked_on_the_curve(rules: RuleSet) -> None:
    losses = [*noisy(2.0, 40), 8.0, 9.0]
    text = "\n".join([*megatron(noisy(2.0, 42), losses), CRASH])
    document = diagnose_observations(scan_text(text, rules), rules).to_dict()
    marks = {series["metric"]: series["marks"] for series in document["series"]}
    spike = {"kind": "spike", "x": 41, "path": "log", "line": 41}
    assert spike in marks["loss"]
    assert spike not in marks["step_time"]
    assert all({"kind": "last_good", "x": 40, "path": "log", "line": 40} in found for found in marks.values())


def test_steps_with_nan_are_not_good(rules: RuleSet) -> None:
    lines = [f"step:{n} - actor/pg_loss:{'nan' if n > 6 else -0.01} - actor/grad_norm:1.5" for n in range(9)]
    document = diagnose_observations(scan_text("\n".join([*lines, CRASH]), rules), rules).to_dict()
    assert document["last_good_step"]["step"] == 6


def test_a_sample_of_a_long_log_is_enough(rules: RuleSet) -> None:
    times = [*noisy(2.0, 6000), 20.0, 30.0]
    events = found(rules, "\n".join([*megatron(times, noisy(3.0, 6002)), CRASH]))
    assert [(e.signature, e.fields["step"]) for e in events] == [("steps.slow_down", "6002")]


def test_every_signature_says_what_it_means() -> None:
    assert all(name.startswith("steps.") and made.meaning.endswith(".") for name, made in PRODUCES.items())
