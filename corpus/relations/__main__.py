"""Try the relations: ``python -m corpus.relations [--share N] [--only WORD] [--misses] [--write docs/accuracy.md]``."""

from __future__ import annotations

import argparse
import random
import sys
import zlib
from collections import defaultdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from corpus.relations import around, transport  # noqa: F401
from corpus.relations.table import RELATIONS, Relation
from corpus.relations.world import Answer, Run, diagnose, read

#: One log in so many is tried in all the ways that it may come.
SHARE_CARRIED = 4
#: Share of trials that must hold; what stays below needs its reason.
WANTED = 0.97

_runs: list[Run] = []


def trials(relation: Relation, run: Run, runs: list[Run]) -> list[tuple[bool, Answer]]:
    """Return whether each trial of a relation on one run holds, with the answer; the same ones every time."""
    chance = random.Random(zlib.crc32(f"{relation.name}/{run.case.id}".encode()))
    found = []
    for files, holds in relation.make(run, runs, chance):
        answer = Answer.of(diagnose(files))
        found.append((holds(answer), answer))
    return found


def _one(job: tuple[int, int]) -> tuple[int, int, list[tuple[bool, Answer]]]:
    relation, run = job
    return relation, run, trials(RELATIONS[relation], _runs[run], _runs)


def main() -> int:
    """Print how often each relation holds; the exit code tells whether all do as often as wanted, or have their reason."""
    parser = argparse.ArgumentParser(prog="python -m corpus.relations")
    parser.add_argument("--share", type=int, default=1, help="try one run in so many")
    parser.add_argument("--only", default="", help="relations with this word in their name")
    parser.add_argument("--misses", action="store_true", help="list the runs on which a relation fails")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", type=Path, help="the document whose tables are replaced")
    asked = parser.parse_args()
    _runs.extend(read())
    chosen = [n for n, run in enumerate(_runs) if zlib.crc32(run.case.id.encode()) % asked.share == 0]
    jobs = [(r, n) for r, one in enumerate(RELATIONS) if asked.only in one.name for n in chosen]
    held: dict[int, list[bool]] = defaultdict(list)
    misses: list[str] = []
    with get_context("fork").Pool(asked.jobs) as pool:
        for relation, run, found in pool.imap(_one, jobs, chunksize=8):
            for good, answer in found:
                held[relation].append(good)
                if not good:
                    was = _runs[run].answer
                    misses.append(
                        f"{RELATIONS[relation].name}: {_runs[run].case.id}: {was.cause or was.verdict} {was.culprit} -> "
                        f"{answer.cause or answer.verdict} {answer.confidence:.2f} {answer.culprit}"
                    )
    rows = [(RELATIONS[n], len(found), sum(found) / len(found)) for n, found in sorted(held.items())]
    text = "".join(f"| {one.name} | {tried} | {100 * share:.1f} % |\n" for one, tried, share in rows)
    below = [one for one, _, share in rows if share < WANTED]
    reasons = "".join(f"- *{one.name}*: {one.reason}\n" for one in below if one.reason)
    if reasons:
        reasons = f"\nBelow {100 * WANTED:.0f} %, and why:\n{reasons}"
    carried = _transport(asked)
    misses += [
        f"{one.way}: {one.case}: {one.before} -> {one.after}"
        for one in carried
        if not (one.cause_holds and one.culprit_holds)
    ]
    table = f"| what is done to a log | trials | the answer holds |\n|---|---|---|\n{text}{reasons}"
    ways = transport.table(carried)
    sys.stdout.write(f"{table}\n{ways}")
    if asked.misses:
        sys.stdout.write("\n".join(misses) + "\n")
    if asked.write:
        page = asked.write.read_text(encoding="utf-8")
        for name, made in (("relations", table), ("transport", ways)):
            begin, end = f"<!-- {name}: begin (make relations) -->\n", f"<!-- {name}: end -->"
            before, _, rest = page.partition(begin)
            page = f"{before}{begin}{made}{end}{rest.partition(end)[2]}"
        asked.write.write_text(page, encoding="utf-8")
    return 0 if all(one.reason for one in below) and not transport.below(carried) else 1


def _transport(asked: argparse.Namespace) -> list[transport.Trial]:
    logs = transport.logs(SHARE_CARRIED * asked.share)
    ways = [name for name in transport.EVERY if asked.only in name]
    with get_context("fork").Pool(asked.jobs) as pool:
        return [
            trial for found in pool.imap(partial(transport.trials, ways=ways), logs, chunksize=8) for trial in found
        ]


if __name__ == "__main__":
    raise SystemExit(main())
