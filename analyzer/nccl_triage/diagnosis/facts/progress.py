"""Did the job advance, when did it stop, did it go on after an error, who stopped early, who was busy."""

from __future__ import annotations

import re
from itertools import pairwise

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.events import Event

FINISHED = ("training.finished", "lightning.fit_stopped", "huggingface.train_completed", "deepspeed.process_exits_ok")
#: A rank that prints one of these leaves its training loop, though it may still wait somewhere.
LEAVING = (*FINISHED, "training.dataloader_exhausted", "training.early_stop")
SKIPPED = ("training.skip_step",)
LONG_TASK = ("training.phase_start", "training.checkpoint_saving", "deepspeed.checkpoint_saving", "megatron.saving_ckpt",
             "sglang.load_weight_begin")  # fmt: skip
TASK_DONE = ("training.phase_done", "training.checkpoint_saved", "deepspeed.checkpoint_saved", "sglang.load_weight_end")
ENTERED = ("training.collective_entered",)
#: After these a process group is taken down: progress of other ranks that comes later is no recovery.
FATAL = ("torch.watchdog_timeout", "torch.blocking_wait_timeout", "torch.taking_process_down", "torch.watchdog_terminated*",
         "torch.terminate_called", "torch.terminating_after_dump")  # fmt: skip
RESTARTED = ("torchelastic.worker_group_restart", "torchelastic.rendezvous_complete")
_LONG_BAR = re.compile(
    r"token|preproc|prepar|process|map\b|filter|pack|group|load|read|download|extract|convert|index|cach|build|compil|sav|writ|"
    r"eval|valid|predict|inference|generat|shard|merge|init",
    re.IGNORECASE,
)
_CLOCK = re.compile(r"^(?:(?:(?P<d>\d+)d,? ?)?(?P<h>\d+):)?(?P<m>\d+):(?P<s>\d+)$")


def _progress(case: Case) -> list[Event]:
    return [e for e in case.events if e.role == "progress"]


def failures(case: Case) -> list[Event]:
    """Return the events that speak of a failure."""
    return [e for e in case.events if e.is_failure]


@fact("progress.steps", "how many lines showed that training or serving advanced")
def _steps(case: Case) -> Fact | None:
    found = _progress(case)
    names = {e.signature for e in found}
    return Fact(sum(case.observations.count(name) for name in names), found[-2:]) if found else None


@fact("progress.before_failure", "training steps (or their like) stand before the first sign of failure")
def _before(case: Case) -> Fact | None:
    before: list[Event] = []
    if not failures(case):
        return None
    for events in case.scopes():
        first = next((i for i, e in enumerate(events) if e.is_failure), None)
        before += [e for e in events[: first or 0] if e.role == "progress"]
    return Fact(bool(before), before[-1:]) if _progress(case) else None


@fact("progress.resumed", "the job went on after its last error line")
def _resumed(case: Case) -> Fact | None:
    found, bad = _progress(case), failures(case)
    if not found or not bad:
        return None
    after: list[Event] = []
    for events in case.scopes():
        # Without a common order every source that shows a failure must have gone on by itself.
        last = max((i for i, e in enumerate(events) if e.is_failure), default=None)
        if last is not None:
            went_on = [e for e in events[last + 1 :] if e.role == "progress"]
            if not went_on:
                return Fact(False, [])
            after += went_on
    finished = any(e in after for e in case.of(*FINISHED))
    if case.of(*FATAL) and not finished and not case.of(*RESTARTED):
        return Fact(False, after[:2])
    return Fact(len(after) >= 2 or finished, after[:2])


@fact("progress.finished", "the job says that it finished")
def _finished(case: Case) -> Fact | None:
    found = case.of(*FINISHED)
    return Fact(True, found[-2:]) if found else None


@fact(
    "progress.finished_early_ranks",
    "ranks that say they finished or ran out of data while others failed or waited afterwards",
)
def _early(case: Case) -> Fact | None:
    bad = failures(case)
    failed = {r for e in bad if (r := case.rank(e)) is not None}
    known = set(case.identity.ranks)
    for names in (LEAVING, ("training.phase_done",)):
        found = case.of(*names)
        if names is not LEAVING:
            # Only a phase that the others began too and did not end.
            began = set(case.ranks(case.of("training.phase_start")))
            found = [e for e in found if began >= known and (r := case.rank(e)) is not None and r in began]
        ranks = set(case.ranks(found))
        if ranks and failed - ranks and not ranks >= known:
            return Fact(sorted(ranks), found[:2])
    return None


@fact("progress.skipped_ranks", "ranks that say they left out a step while others did not")
def _skipped(case: Case) -> Fact | None:
    found = case.of(*SKIPPED)
    ranks = set(case.ranks(found))
    if not ranks or ranks >= set(case.identity.ranks):
        return None
    return Fact(sorted(ranks), found[:2])


def _first_complaint(case: Case) -> dict[int | None, int]:
    """Return where each rank's own first error line stands; under None the first of all."""
    first: dict[int | None, int] = {}
    for event in failures(case):
        position = case.position(event)
        for key in {None, case.rank(event)}:
            first[key] = min(position, first.get(key, position))
    return first


@fact(
    "progress.long_task_ranks",
    "ranks whose last words are about long work (evaluation, tokenising, saving, loading); -1: unknown rank",
)
def _long_task(case: Case) -> Fact | None:
    first = _first_complaint(case)
    tasks = {n for p in LONG_TASK for n in case.signatures(p)}
    done = {n for p in TASK_DONE for n in case.signatures(p)}
    last: dict[int | None, Event] = {}
    for event in case.events:
        rank = case.rank(event)
        speaks = event.signature in tasks or (event.role == "progress" and event.signature not in done)
        if speaks and case.position(event) < first.get(rank, len(case.events)):
            last[rank] = event
    busy = {rank: event for rank, event in last.items() if event.signature in tasks}
    if not busy:
        return None
    named = sorted(rank for rank in busy if rank is not None)
    if len(named) > 1 and len(named) == len(case.identity.ranks):
        # All do it: those that did not complain while others waited are the late ones, otherwise nobody stands out.
        named = [rank for rank in named if rank not in first]
        through = set(case.ranks(case.of(*TASK_DONE)))
        named = [rank for rank in named if rank not in through] or named
    return Fact(named or [-1], list(busy.values())[:3])


def seconds(clock: str | None) -> int | None:
    """Return the seconds of a tqdm clock such as 29:02 or 3:40:16."""
    found = _CLOCK.match((clock or "").strip())
    if found is None:
        return None
    part = {name: int(value or 0) for name, value in found.groupdict().items()}
    return ((part["d"] * 24 + part["h"]) * 60 + part["m"]) * 60 + part["s"]


@fact(
    "progress.long_bar",
    "an unfinished progress bar of preparatory work ran about as long as the collective's time-out: its seconds",
)
def _long_bar(case: Case) -> Fact | None:
    timeout, seq = case.value("collective.timeout_ms"), case.value("collective.seq")
    if not timeout or timeout < 60_000:
        return None
    for event in reversed(case.of("huggingface.tqdm", "huggingface.ckpt_shards")):
        elapsed = seconds(event.fields.get("elapsed"))
        named = _LONG_BAR.search(event.text.split("%|")[0])
        if elapsed is None or event.fields.get("pct") == "100" or not 0.7 <= elapsed * 1000 / timeout <= 1.5:
            continue
        if named or seq is None or seq <= _BEFORE_TRAINING:
            return Fact(elapsed, [event])
    return None


@fact(
    "progress.unfinished_bar", "the last progress before the failure is an unfinished bar of preparatory work: its text"
)
def _unfinished_bar(case: Case) -> Fact | None:
    first = _first_complaint(case).get(None, len(case.events))
    before = [e for e in _progress(case) if case.position(e) < first]
    if not before or before[-1].signature not in ("huggingface.tqdm", "huggingface.ckpt_shards"):
        return None
    what = before[-1].text.split("%|")[0]
    if before[-1].fields.get("pct") == "100" or not _LONG_BAR.search(what):
        return None
    return Fact(what.rsplit(":", 1)[0].strip()[:80], before[-1:])


#: Sequence numbers up to this belong to set-up (barriers, broadcasts of the model), not to training steps.
_BEFORE_TRAINING = 10


@fact("progress.phase", "what the job was doing when it stopped: generate, evaluate, load or none of them")
def _phase(case: Case) -> Fact | None:
    first = _first_complaint(case).get(None, len(case.events))
    for event in case.of("huggingface.generate_frame", "python.frame"):
        name = event.fields.get("name", "")
        if "generate" in name or "rollout" in name:
            return Fact("generate", [event])
        if name.startswith(("evaluat", "validat", "eval_", "prediction_step", "predict_step", "validation_step")):
            return Fact("evaluate", [event])
    words = case.of("training.phase_start", "huggingface.pad_token", "huggingface.running_training", "training.iteration_line",
                    "sglang.load_weight_begin")  # fmt: skip
    trained = [
        case.position(e)
        for e in _progress(case)
        if e.signature in ("training.step_loss", "huggingface.loss_dict", "megatron.iteration")
    ]
    for event in reversed(words):
        position = case.position(event)
        if position > first:
            continue
        rank = case.rank(event)
        if event.signature == "training.iteration_line" and not event.fields.get("step2"):
            continue
        later = [p for p in trained if position < p < first and case.rank(case.events[p]) == rank]
        if later:
            continue
        text = event.text.lower()
        if event.signature == "huggingface.pad_token" or "generat" in text or "rollout" in text or "inference" in text:
            return Fact("generate", [event])
        if "eval" in text or "validat" in text or "prediction" in text:
            return Fact("evaluate", [event])
        if "load weight" in text or "loading" in text:
            return Fact("load", [event])
    return None


_RETURNED = re.compile(
    r"\b(?:collective|broadcast|all_?reduce|all_?gather|reduce_?scatter|barrier)\b.{0,20}\b(?:returned|ok|done|finished)\b",
    re.IGNORECASE,
)


@fact("progress.came_out_ranks", "ranks that say a collective returned which others, who time out now, never say")
def _came_out(case: Case) -> Fact | None:
    told: dict[str, dict[int, Event]] = {}
    for event in case.of("training.phase_done"):
        rank = case.rank(event)
        if rank is not None and _RETURNED.search(event.text):
            told.setdefault(re.sub(r"\d+", "#", event.text), {})[rank] = event
    timed_out = set(case.value("collective.timed_out_ranks") or [])
    for ranks in told.values():
        if set(ranks) < timed_out:
            return Fact(sorted(ranks), list(ranks.values())[:3])
    return None


@fact(
    "progress.unequal_work",
    "ranks begin the same phase with different amounts (as: generating 4 tokens, generating 12 tokens)",
)
def _unequal(case: Case) -> Fact | None:
    told: dict[str, dict[str, Event]] = {}
    ranks: dict[str, set[int]] = {}
    for event in case.of("training.phase_start"):
        rank, text = case.rank(event), event.text
        if rank is None or not re.search(r"\d", text):
            continue
        shape = re.sub(r"\d+", "#", text)
        told.setdefault(shape, {}).setdefault(text, event)
        ranks.setdefault(shape, set()).add(rank)
    for shape, texts in told.items():
        if len(texts) > 1 and len(ranks[shape]) > 1:
            return Fact(True, list(texts.values())[:3])
    return None


@fact("progress.stalled_ranks", "ranks that were alive, had not finished and reported no error while others timed out")
def _stalled(case: Case) -> Fact | None:
    timed_out = case.fact("collective.timed_out_ranks")
    silent = case.value("progress.silent_ranks")
    if timed_out is None or not silent:
        return None
    gone: set[int] = set()
    for name in ("process.clean_exit_ranks", "progress.finished_early_ranks", "process.killed_ranks", "process.crashed_ranks",
                 "process.aborted_ranks", "exception.ranks"):  # fmt: skip
        gone |= set(case.value(name) or [])
    ranks = [r for r in silent if r not in gone and r in case.identity.ranks]
    return (
        Fact(ranks, [*timed_out.events[:2], *[e for e in case.events if case.rank(e) in ranks][-1:]]) if ranks else None
    )


@fact("progress.entered_late_ranks", "ranks that entered the collective only after another rank had given up waiting")
def _entered_late(case: Case) -> Fact | None:
    gave_up = [
        e
        for e in case.of("training.collective_deadline", "torch.watchdog_timeout", "gloo.recv_timeout")
        if case.rank(e) is not None
    ]
    if not gave_up or not case.order_known:
        return None
    first = case.position(gave_up[0])
    late: dict[int, Event] = {}
    early: set[int] = set()
    for event in case.of(*ENTERED):
        rank = case.rank(event)
        if rank is None:
            continue
        if case.position(event) < first:
            early.add(rank)
        elif rank != case.rank(gave_up[0]):
            late.setdefault(rank, event)
    ranks = sorted(set(late) - early)
    return Fact(ranks, [gave_up[0], *late.values()][:3]) if ranks and early else None


@fact(
    "progress.vanished_ranks",
    "ranks whose NCCL communicator came up and which, unlike the others, never aborted or ended it",
)
def _vanished(case: Case) -> Fact | None:
    up = set(case.ranks(case.of("nccl.init_complete")))
    ended = set(case.ranks(case.of("nccl.comm_teardown", "nccl.comm_destroyed")))
    closed = case.of("nccl.sock_closed_by_peer", "nccl.sock_sendrecv_failed")
    ranks = sorted(up - ended)
    if not closed or not ended or not ranks or len(ranks) >= len(ended):
        return None
    return Fact(ranks, [*[e for e in case.events if case.rank(e) in ranks][-1:], *closed[:2]])


@fact("progress.slowing", "iterations take longer and longer: the ratio of the last to the first of at least four")
def _slowing(case: Case) -> Fact | None:
    found = [
        (value, e) for e in case.of("megatron.iteration") if (value := e.number("value")) is not None and value > 0
    ]
    if len(found) < 4:
        return None
    values = [value for value, _ in found]
    ratio = values[-1] / values[0]
    if ratio < 1.05 or any(b < a * 0.995 for a, b in pairwise(values)):
        return None
    return Fact(round(ratio, 3), [found[0][1], found[-1][1]])


@fact("progress.last_step_rank_gap", "ranks whose last step is behind that of the others")
def _gap(case: Case) -> Fact | None:
    last: dict[int, tuple[float, Event]] = {}
    for event in _progress(case):
        rank, step = case.rank(event), event.number("step")
        step = event.number("iter") if step is None else step
        if rank is not None and step is not None:
            last[rank] = (step, event)
    if len(last) < 3:
        return None
    top = max(step for step, _ in last.values())
    behind = {rank: event for rank, (step, event) in last.items() if step < top}
    if not behind or len(behind) * 2 > len(last):
        return None
    return Fact(sorted(behind), list(behind.values())[:3])


@fact("progress.entered_ranks", "ranks that say they entered the collective, where others do not")
def _entered(case: Case) -> Fact | None:
    found = case.of(*ENTERED)
    return Fact(case.ranks(found), found[:3]) if found else None


@fact("progress.not_entered_ranks", "ranks that were ready and never entered the collective that others entered")
def _not_entered(case: Case) -> Fact | None:
    # A rank that gave up waiting had entered, whether or not its own line was seen.
    entered = set(case.value("progress.entered_ranks") or [])
    if entered:
        entered |= set(case.value("collective.timed_out_ranks") or [])
    ready = {r for e in _progress(case) if (r := case.rank(e)) is not None} | set(case.identity.ranks)
    absent = sorted(ready - entered)
    if not entered or not absent or len(absent) > len(entered):
        return None
    events = [e for e in case.events if case.rank(e) in absent]
    return Fact(absent, events[-2:])


@fact("progress.silent_ranks", "ranks without any error line of their own while others report errors")
def _silent(case: Case) -> Fact | None:
    world = case.identity.world_size
    known = set(case.identity.ranks) | (set(range(world)) if world and world <= 4096 else set())
    own = [e for e in failures(case) if not e.signature.startswith(("torchelastic.", "slurm.", "deepspeed."))]
    loud = {r for e in own if (r := case.rank(e)) is not None}
    silent = sorted(known - loud)
    if not loud or not silent or len(silent) > max(1, len(known) // 2):
        return None
    return Fact(silent, [e for e in case.events if case.rank(e) in silent][-2:])


@fact("progress.missing_ranks", "ranks of the world that printed nothing at all")
def _missing(case: Case) -> Fact | None:
    world = case.identity.world_size
    if not world or world < 2 or world > 65_536 or len(case.identity.ranks) < 2:
        return None
    missing = sorted(set(range(world)) - set(case.identity.ranks))
    if not missing or len(missing) > world // 2:
        return None
    return Fact(missing, [])


@fact("progress.init_missing_ranks", "ranks of the communicator that never printed Init START while others did")
def _init_missing(case: Case) -> Fact | None:
    started = case.of("nccl.init_start")
    ranks = set(case.ranks(started))
    sizes = [int(n) for e in started if (n := e.number("nranks")) is not None]
    if not ranks or not sizes or case.of("nccl.init_complete"):
        return None
    size = max(sizes)
    missing = sorted(set(range(size)) - ranks)
    # A log of a few ranks of many is a part of the job's output, and says nothing about the others.
    if not missing or len(missing) > 2 * len(ranks) or size > 65_536:
        return None
    return Fact(missing, started[:2])


@fact(
    "progress.p2p_off_helped",
    "a run whose GPUs talked over P2P failed or was stopped, and a later one with NCCL_P2P_DISABLE=1 did not",
)
def _p2p_off(case: Case) -> Fact | None:
    off = [
        e
        for e in case.of("nccl.env_setting")
        if e.fields.get("name") == "NCCL_P2P_DISABLE" and e.fields.get("value") == "1"
    ]
    over = [e for e in case.of("nccl.channel_via_net") if e.fields.get("transport") == "P2P"]
    if not off or not over or not case.order_known or case.position(over[0]) > case.position(off[0]):
        return None
    bad = [case.position(e) for e in failures(case)]
    failed = [place for place in bad if case.position(over[0]) < place < case.position(off[0])]
    if not failed or max(bad) > case.position(off[0]):
        return None
    return Fact(True, [over[0], off[0]])


@fact("progress.stalled_after_engine", "an inference engine came up, no error and no training step follows")
def _stalled_engine(case: Case) -> Fact | None:
    up = case.of("vllm.init_engine", "vllm.v1_engine_start")
    if not up or failures(case):
        return None
    last = case.position(up[-1])
    served = ("vllm.server_ready", "vllm.stats", "vllm.stats_idle")
    after = [
        e
        for e in [*_progress(case), *case.of(*served)]
        if case.position(e) > last and (e.signature in served or not e.signature.startswith("vllm."))
    ]
    return Fact(not after, up[-2:])
