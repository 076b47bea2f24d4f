"""The relations: each makes changed logs of a run, and tells what must hold of the answers."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from corpus.relations import noise
from corpus.relations.collectors import prefixes
from corpus.relations.world import Answer, Run, ask, diagnose

Files = Mapping[str, str]
#: Changed files, and whether an answer on them holds.
Trial = tuple[Files, Callable[[Answer], bool]]
Maker = Callable[[Run, Sequence[Run], random.Random], Iterator[Trial]]

#: Lines between two runs of one file.
SEPARATORS = ("nohup: ignoring input\n", "+ torchrun --nproc_per_node=2 train.py\n", "$ python3 train.py\n")


@dataclass(frozen=True, slots=True)
class Relation:
    """One relation, by what is done to the log; ``reason`` says why it may hold seldom."""

    name: str
    make: Maker
    reason: str = ""


RELATIONS: list[Relation] = []


def relation(name: str, reason: str = "") -> Callable[[Maker], Maker]:
    """Register a maker of trials."""

    def register(make: Maker) -> Maker:
        RELATIONS.append(Relation(name, make, reason))
        return make

    return register


def _log(text: str) -> Files:
    return {"log": text}


def _end(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


def _healthy(answer: Answer) -> bool:
    return answer.verdict == "healthy"


def _not_accused(answer: Answer) -> bool:
    return not answer.accuses


def _same(expected: Answer, or_less: bool = False) -> Callable[[Answer], bool]:
    """Return whether an answer is the expected one; with ``or_less`` it may leave open who or what it was."""

    def holds(answer: Answer) -> bool:
        if or_less and not answer.accuses and answer.verdict != "healthy":
            return True
        if or_less and answer.culprit is None:
            return (answer.verdict, answer.cause) == (expected.verdict, expected.cause)
        return (answer.verdict, answer.cause, answer.culprit) == (expected.verdict, expected.cause, expected.culprit)

    return holds


def _failed(run: Run) -> bool:
    return run.answer.verdict == "diagnosed"


@relation("append a healthy run")
def _append_healthy(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    other = chance.choice([one for one in runs if one.answer.verdict == "healthy"])
    yield _log(_end(run.text) + chance.choice(SEPARATORS) + other.text), _healthy


@relation("prepend a healthy run")
def _prepend_healthy(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    other = chance.choice([one for one in runs if one.answer.verdict == "healthy"])
    if _failed(run):
        yield _log(_end(other.text) + chance.choice(SEPARATORS) + run.text), _same(run.answer)


@relation("prepend a failed run")
def _prepend_failed(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    other = chance.choice([one for one in runs if _failed(one)])
    if _failed(run) or run.answer.verdict == "healthy":
        yield _log(_end(other.text) + chance.choice(SEPARATORS) + run.text), _same(run.answer)


@relation(
    "cut a healthy run",
    "Some recorded runs survive a failure: a worker that is restarted, a rank that is interrupted and comes back. A cut "
    "between the failure and the recovery leaves a log that shows a failure and nothing else. To call it healthy would be "
    "wrong for every log of a run that did die there.",
)
def _cut_healthy(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    if run.answer.verdict == "healthy":
        lines = run.lines
        for share in (0.1, 0.3, 0.5, 0.7, 0.9):
            yield _log("\n".join(lines[: int(len(lines) * share)])), _not_accused


@relation("cut a failed run before its first fault")
def _cut_failed(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    if _failed(run) and run.first_fault is not None and run.first_fault > 1:
        yield _log("\n".join(run.lines[: run.first_fault - 1])), _not_accused


def _appended(name: str, text: Callable[[random.Random], str]) -> None:
    @relation(f"append {name}")
    def _append(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
        yield _log(_end(run.text) + text(chance)), _same(run.answer)


_appended("what is printed at exit", lambda chance: noise.TEARDOWN)
_appended("errors of a shell", lambda chance: noise.SHELL)
_appended("a log of sshd", lambda chance: noise.SSHD)
_appended("the start of a kernel", lambda chance: noise.BOOT)
_appended("10,000 other lines", noise.others)


@relation("insert what was survived")
def _insert(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    end = run.first_fault if run.first_fault is not None and _failed(run) else len(run.lines) + 1
    steps = [line for line in run.steps if line < end]
    if len(steps) < 4:
        return
    lines = run.lines
    for text in noise.SURVIVED:
        place = chance.choice(steps[:-3])
        yield _log("\n".join([*lines[:place], text.rstrip("\n"), *lines[place:]]) + "\n"), _same(run.answer)


@relation("interleave again within a second")
def _interleave(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    """Lines of different ranks that stand in one second may be printed in any order; those of one rank keep theirs."""
    groups: list[list[tuple[int, str]]] = []
    second = None
    for line in run.lines:
        peeled = prefixes().peel(line)
        rank, time = peeled.context.rank, peeled.context.time
        if rank is None or time is None:
            groups.append([])
            second = None
            groups[-1].append((-1, line))
            groups.append([])
            continue
        if second != int(time) or not groups:
            groups.append([])
            second = int(time)
        groups[-1].append((rank, line))
    changed: list[str] = []
    moved = False
    for group in groups:
        queues: dict[int, list[str]] = {}
        for rank, line in group:
            queues.setdefault(rank, []).append(line)
        moved = moved or len(queues) > 1
        while queues:
            rank = chance.choice(sorted(queues))
            changed.append(queues[rank].pop(0))
            if not queues[rank]:
                del queues[rank]
    if moved:
        yield _log("\n".join(changed) + "\n"), _same(run.answer)


_RANK_FILE = re.compile(r"^rank(\d+)\.(?:err|out)\.log$")


def _by_rank(run: Run) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name, text in run.files.items():
        match = _RANK_FILE.match(name)
        if match:
            found.setdefault(int(match[1]), []).extend(text.splitlines())
    return found


#: Prefixes that launchers put before the lines of a rank.
PREFIXES: dict[str, Callable[[int], str]] = {
    "srun --label": lambda rank: f"{rank}: ",
    "torchrun": lambda rank: f"[rank{rank}]: ",
    "Ray": lambda rank: f"(Trainer pid={4100 + rank}, ip=10.0.0.{rank + 1}) ",
    "kubectl": lambda rank: f"[pod/train-{rank}/trainer] ",
}


def _merged(run: Run, prefix: Callable[[int], str]) -> str:
    """Return the lines of all ranks in one log, one of each in turn."""
    ranks = _by_rank(run)
    longest = max((len(lines) for lines in ranks.values()), default=0)
    return "".join(
        f"{prefix(rank)}{lines[index]}\n"
        for index in range(longest)
        for rank, lines in sorted(ranks.items())
        if index < len(lines)
    )


def _relabelled(name: str) -> None:
    @relation(f"label the lines of ranks as {name} does")
    def _relabel(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
        ranks = _by_rank(run)
        if len(ranks) < 2 or not _failed(run):
            return
        first, second = (_merged(run, PREFIXES[one]) for one in ("srun --label", name))
        base = ask(first)
        # The name of a pod or an actor is no rank: where it stood the rank is lost, and with it evidence.
        lost = name != "torchrun"
        if base.accuses:
            yield (
                _log(second),
                lambda answer: (
                    (answer.verdict, answer.cause) == (base.verdict, base.cause)
                    or (lost and not answer.accuses and answer.verdict != "healthy")
                ),
            )


for _name in ("torchrun", "Ray", "kubectl"):
    _relabelled(_name)


@relation("merge the files of ranks into one")
def _merge(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    if len(_by_rank(run)) < 2 or not _failed(run):
        return
    base = Answer.of(diagnose(run.files))
    if base.accuses:
        others = [text for name, text in sorted(run.files.items()) if not _RANK_FILE.match(name)]
        text = _merged(run, PREFIXES["torchrun"]) + "".join(_end(text) for text in others)
        yield _log(text), lambda answer: (answer.verdict, answer.cause) == (base.verdict, base.cause)


@relation("put standard error above standard output")
def _streams(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    """Standard output is held back where it is no terminal, and `cat rank*.err rank*.out` turns both round."""
    streams = [[text for name, text in sorted(run.files.items()) if f".{kind}." in name] for kind in ("err", "out")]
    if all(streams) and _failed(run) and Answer.of(diagnose(run.files)).accuses:
        yield _log("".join(map(_end, chain(*streams)))), lambda answer: answer.verdict != "healthy"


@relation(
    "split a log into one file for each rank",
    "Which of two ranks failed first the one log shows by the order of its lines. Files show it by their stamps, and many "
    "lines have none, or whole seconds.",
)
def _split(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    """What no rank printed stays in a file of its own, as a launcher's output does."""
    if not _failed(run):
        return
    files: dict[str, list[str]] = {}
    for line in run.lines:
        rank = prefixes().peel(line).context.rank
        files.setdefault("launcher.log" if rank is None else f"rank{rank}.log", []).append(line)
    if len(files) > 2:
        yield {name: "\n".join(lines) + "\n" for name, lines in files.items()}, _same(run.answer, or_less=True)


@relation(
    "drop the files of half the victims",
)
def _drop(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    ranks = _by_rank(run)
    if len(ranks) < 3 or not _failed(run):
        return
    base = Answer.of(diagnose(run.files))
    if not base.accuses or base.culprit is None or base.culprit[0] is None:
        return
    victims = [rank for rank in ranks if rank != base.culprit[0]]
    gone = set(chance.sample(victims, len(victims) // 2))
    left = {
        name: text
        for name, text in run.files.items()
        if not ((match := _RANK_FILE.match(name)) and int(match[1]) in gone)
    }
    yield left, _same(base, or_less=True)


@relation("rename hosts")
def _rename(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    if not run.hosts:
        return
    names = {
        host: f"c{chance.randrange(10, 99)}e{number}n{chance.randrange(10, 99)}"
        for number, host in enumerate(run.hosts)
    }
    pattern = re.compile("|".join(re.escape(host) for host in sorted(names, key=len, reverse=True)))
    text = pattern.sub(lambda match: names[match[0]], run.text)
    culprit = run.answer.culprit
    if culprit is not None and culprit[1] is not None:
        culprit = culprit[0], names.get(culprit[1], culprit[1])
    renamed = Answer(run.answer.verdict, run.answer.cause, run.answer.confidence, culprit)
    yield _log(text), _same(renamed)


@relation("carriage returns at the ends of lines")
def _returns(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    yield _log("\r\n".join(run.lines) + "\r\n"), _same(run.answer)


@relation("a hole of NUL bytes behind the first line")
def _hole(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    first, _, rest = run.text.partition("\n")
    yield _log(f"{first}\n" + "\0" * 4096 + rest), _same(run.answer)


_SEARCHED = ("error", "warn", "nccl", "rank", "fail", "timeout")


def _not_healthy(answer: Answer) -> bool:
    return answer.verdict != "healthy"


@relation("leave what grep finds")
def _grep(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    """A search leaves single lines: of a failed run not its end, of a good one nothing that shows that it is good."""
    for word in _SEARCHED:
        found = [line for line in run.lines if word in line.lower()]
        if found and len(found) < len(run.lines):
            yield _log("\n".join(found) + "\n"), _not_healthy if _failed(run) else _not_accused


@relation("leave the last lines")
def _tail(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    for number in (3, 10, 30):
        if number < len(run.lines):
            yield _log("\n".join(run.lines[-number:]) + "\n"), _not_healthy if _failed(run) else _not_accused
