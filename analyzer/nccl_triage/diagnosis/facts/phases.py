"""What the job was doing when it stopped, such as long work, an unfinished progress bar, generation or evaluation."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict

from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.diagnosis.facts.progress import progress_of
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Event
from nccl_triage.story.differences import minority

_LONG_BAR = lazily(
    r"token|preproc|prepar|process|map\b|filter|pack|group|load|read|download|extract|convert|index|cach|build|compil|sav|writ|"
    r"eval|valid|predict|inference|generat|shard|merge|init",
    re.IGNORECASE,
)
#: A rank that waits is not busy.
_WAITING = lazily(r"\bwaiting (?:in|at|for) (?:a |the )?barrier\b", re.IGNORECASE)
_CLOCK = lazily(r"^(?:(?:(?P<d>\d{1,6})d,? ?)?(?P<h>\d{1,9}):)?(?P<m>\d{1,9}):(?P<s>\d{1,9})$")


@fact(
    "progress.long_task_ranks",
    "ranks whose last lines are about long work (evaluation, tokenising, saving, loading); -1: unknown rank",
    blames=("was busy with long work", "当时正忙于耗时的工作"),
)
def _long_task(case: Case) -> Fact | None:
    first = case.first_complaints
    last: dict[int | None, Event] = {}
    for event in case.events:
        rank = case.rank(event)
        if rank is None and event.kind == "task.started" and (told := event.number("on_rank")) is not None:
            rank = int(told)
        # Work that ends after others gave up was still under way when they did.
        ends = event.kind == "task.finished" and case.position(event) > first.get(None, len(case.events))
        speaks = (event.kind == "task.started" or event.role == "progress") and not ends
        if speaks and case.position(event) < first.get(rank, len(case.events)):
            last[rank] = event
    busy = {r: event for r, event in last.items() if event.kind == "task.started" and not _WAITING.search(event.text)}
    # A rank that gave up waiting in a collective, as all others did, was not at its work.
    if set(case.identity.ranks) <= (waited := set(case.value("collective.timed_out_ranks") or [])):
        busy = {rank: event for rank, event in busy.items() if rank not in waited}
    # Nor was a rank that says for whom it waits.
    for event in case.of("collective.absent"):
        busy.pop(event.context.rank, None)
    if not busy:
        return None
    # Long work without a rank belongs to the ranks without output, if there are any.
    named = sorted(rank for rank in busy if rank is not None) or case.value("progress.unheard_ranks") or []
    if len(named) > 1 and len(named) == len(case.identity.ranks):
        # If all ranks do the same, those that did not complain while others waited are the late ones.
        named = [rank for rank in named if rank not in first]
    return Fact(named or [-1], list(busy.values())[:3])


@fact("progress.slow_work_ranks", "ranks whose own piece of work took as long as the timeout of the others, or longer")
def _slow_work(case: Case) -> Fact | None:
    limit = case.value("collective.timeout_ms")
    if not limit:
        return None
    slow: dict[int, Event] = {}
    usual: dict[int, Event] = {}
    for event in case.having("task.finished", "seconds"):
        rank, took = case.rank(event), event.number("seconds")
        if rank is not None and took is not None:
            (slow if took * 1000 >= 0.9 * limit else usual)[rank] = event
    if not slow or len(slow) >= max(2, len(case.identity.ranks)):
        return None
    return Fact(sorted(slow), list(slow.values())[:3])


def seconds(clock: str | None) -> int | None:
    """Return the seconds of a tqdm clock such as 29:02 or 3:40:16."""
    found = _CLOCK.match((clock or "").strip())
    if found is None:
        return None
    part = {name: int(value or 0) for name, value in found.groupdict().items()}
    return ((part["d"] * 24 + part["h"]) * 60 + part["m"]) * 60 + part["s"]


@fact(
    "progress.long_bar",
    "an unfinished progress bar of preparatory work ran about as long as the collective's timeout: its seconds",
)
def _long_bar(case: Case) -> Fact | None:
    timeout, seq = case.value("collective.timeout_ms"), case.value("collective.seq")
    if not timeout or timeout < 60_000:
        return None
    for event in reversed(case.of("progress.bar")):
        elapsed = seconds(event.fields.get("elapsed"))
        named = _LONG_BAR.search(event.text.split("%|")[0])
        if elapsed is None or event.fields.get("pct") == "100" or not 0.7 <= elapsed * 1000 / timeout <= 1.5:
            continue
        if named or seq is None or seq <= _BEFORE_TRAINING:
            return Fact(elapsed, [event])
    return None


_RATE = lazily(r"([\d.]+) ?s/(?:it|step|batch|iter)")
#: A usual step that takes this share of the timeout leaves no room for a longer one. So many steps show what is usual.
_NEAR, _USUAL = 0.7, 2


@fact("progress.long_steps", "usual steps take nearly as long as the collective's timeout: seconds of the last one")
def _long_steps(case: Case) -> Fact | None:
    timeout = case.value("collective.timeout_ms")
    first = case.first_complaints.get(None, len(case.events))
    bars = [
        e for e in case.of("progress.bar") if case.position(e) < first and not _LONG_BAR.search(e.text.split("%|")[0])
    ]
    if not timeout or len(bars) < _USUAL:
        return None
    rates = [_RATE.match(event.fields.get("rate") or "") for event in bars[-_USUAL:]]
    steps = [float(rate[1]) for rate in rates if rate is not None]
    if len(steps) < _USUAL or not all(_NEAR * timeout <= 1000 * step <= timeout for step in steps):
        return None
    return Fact(round(steps[-1]), bars[-_USUAL:])


@fact(
    "progress.unfinished_bar", "the last progress before the failure is an unfinished bar of preparatory work: its text"
)
def _unfinished_bar(case: Case) -> Fact | None:
    first = case.first_complaints.get(None, len(case.events))
    before = [e for e in progress_of(case) if case.position(e) < first]
    if not before or before[-1].kind != "progress.bar":
        return None
    what = before[-1].text.split("%|")[0]
    if before[-1].fields.get("pct") == "100" or not _LONG_BAR.search(what):
        return None
    return Fact(what.rsplit(":", 1)[0].strip()[:80], before[-1:])


#: Highest sequence number that belongs to set-up (barriers, broadcasts of the model) rather than to training.
_BEFORE_TRAINING = 10


@fact("progress.phase", "what the job was doing when it stopped: generate, evaluate, load or none of them")
def _phase(case: Case) -> Fact | None:
    first = case.first_complaints.get(None, len(case.events))
    for event in case.having("exception.frame", "name"):
        name = event.fields.get("name", "")
        if "generate" in name or "rollout" in name:
            return Fact("generate", [event])
        if name.startswith(("evaluat", "validat", "eval_", "prediction_step", "predict_step", "validation_step")):
            return Fact("evaluate", [event])
    words = [e for e in case.events if e.kind == "task.started" or "phase" in e.fields or "step2" in e.fields]
    trained: dict[int | None, list[int]] = defaultdict(list)
    for event in case.of("step"):
        if "step2" not in event.fields:
            trained[case.rank(event)].append(case.position(event))
    for event in reversed(words):
        position = case.position(event)
        if position > first:
            continue
        steps = trained[case.rank(event)]
        if bisect_right(steps, position) < bisect_left(steps, first):
            continue  # a step came between
        text = event.text.lower()
        if event.fields.get("phase") == "generate" or "generat" in text or "rollout" in text or "inference" in text:
            return Fact("generate", [event])
        if "eval" in text or "validat" in text or "prediction" in text:
            return Fact("evaluate", [event])
        if "load weight" in text or "loading" in text:
            return Fact("load", [event])
    return None


_RETURNED = lazily(
    r"\b(?:collective|broadcast|all_?reduce|all_?gather|reduce_?scatter|barrier)\b.{0,20}\b(?:returned|ok|done|finished)\b",
    re.IGNORECASE,
)


@fact("progress.came_out_ranks", "ranks that say a collective returned which others, who time out now, never say")
def _came_out(case: Case) -> Fact | None:
    told: dict[str, dict[int, Event]] = {}
    for event in case.of("task.finished"):
        rank = case.rank(event)
        if rank is not None and _RETURNED.search(event.text):
            told.setdefault(re.sub(r"\d+", "#", event.text), {})[rank] = event
    timed_out = set(case.value("collective.timed_out_ranks") or [])
    for ranks in told.values():
        if set(ranks) < timed_out:
            return Fact(sorted(ranks), list(ranks.values())[:3])
    return None


@fact(
    "progress.unserved_ranks",
    "ranks that wait to receive in a collective whose sender still waits, while the others completed it",
    blames=("expects data from a different rank than the sender", "等待的发送方与实际发送方不同"),
)
def _unserved(case: Case) -> Fact | None:
    through = set(case.value("progress.came_out_ranks") or [])
    if not through:
        return None
    sending = set(case.ranks(e for e in case.of("collective.timeout") if "send operation" in e.text))
    waiting = [e for e in case.of("collective.timeout") if "recv operation" in e.text and case.rank(e) not in through]
    if not sending - through or not waiting:
        return None
    # The root of a broadcast cannot send to a rank that expects the data from another one.
    return Fact(case.ranks(waiting), waiting[:2])


def _without_own(text: str, rank: int) -> str:
    """Return a line without its own rank, written as rank 3, rank=3, r3 or [3]."""
    return re.sub(rf"(?i)\b(?:rank|r)[ =:_#]?{rank}\b|\[{rank}\]", "", text)


def _amounts(case: Case) -> dict[str, dict[int, tuple[str, Event]]]:
    """Return announcement of an amount (its digits folded) -> rank -> its text, if no rank repeats the announcement."""
    told: dict[str, dict[int, tuple[str, Event]]] = {}
    again: set[str] = set()
    for event in case.telling("amount"):
        rank = case.rank(event)
        if rank is None or not re.search(r"\d", event.text):
            continue
        text = _without_own(event.text, rank)
        shape = re.sub(r"\d+", "#", text)
        said = told.setdefault(shape, {})
        if rank in said and event.kind != "task.started":
            again.add(shape)
        said[rank] = (text, event)
    # Announcements that are repeated, as in each step, differ by chance between ranks that were stopped together.
    return {shape: said for shape, said in told.items() if shape not in again}


@fact(
    "progress.odd_amount_ranks",
    "the minority among ranks that announce the same work or setting with different amounts",
    blames=("announced a different amount of work than the others", "宣布的工作量与其他 rank 不同"),
)
def _odd_amount(case: Case) -> Fact | None:
    for said in _amounts(case).values():
        texts = {rank: text for rank, (text, _) in said.items()}
        apart = minority(texts, case.presence.unheard())
        if len(set(texts.values())) == 2 and len(apart) < len(said):
            odd = {rank: said[rank][1] for rank in apart}
            return Fact(sorted(odd), [*odd.values(), *(e for r, (_, e) in said.items() if r not in odd)][:3])
    return None
