"""What is put around a log: closing words, ends that schedulers report, and harmless trouble.

None of it changes what happened to the job. The words are drawn by the name of the run, in many wordings and both
languages, so that no rule can be fitted to one of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Literal

from corpus.compositions import EARLY, Composition
from corpus.relations.table import Trial, relation
from corpus.relations.world import Answer, Run

#: What scripts print when they have come to their end, whatever happened before.
CLOSING = (
    "Training completed!\n", "All done\n", "done\n", "===== finished =====\n", "Job finished at Tue Mar  3 04:12:55 UTC 2026\n",
    "训练完成！\n", "全部任务已结束\n", "脚本执行完毕\n", "Results are in ./outputs\nElapsed: 3h 12m 5s\n",
    "-----\nEnd of job script on node014\n-----\n", "Finished. Copying the logs back\n",
)  # fmt: skip
#: How schedulers end a job at its limit, or because somebody asked for it.
STOPPED = (
    "slurmstepd: error: *** JOB 4412907 ON node014 CANCELLED AT 2026-03-03T04:12:55 DUE TO TIME LIMIT ***\n",
    "slurmstepd: error: *** STEP 4412907.0 ON node014 CANCELLED AT 2026-03-03T04:12:55 ***\n",
    "=>> PBS: job killed: walltime 86437 exceeded limit 86400\n",
    "TERM_RUNLIMIT: job killed after reaching LSF run time limit.\n",
    "1093.2s: job.exception type=timeout severity=0 resource allocation expired\n",
    "Tue Mar 03 04:12:55 2026 +0000 (UTC) Info: maximum execution time exceeded; initiating job termination\n",
)
#: How schedulers and parents report that a job failed.
EXITED = (
    "srun: error: node014: task 0: Exited with exit code 1\n",
    "\nSender: LSF System <lsfadmin@node014>\nSubject: Job 4412907: <train> in cluster <gpu> Exited\n\n"
    "Exited with exit code 1.\n\nThe output (if any) is above this job summary.\n",
    "Exit_status=1\n", " Exit Status      = 1\n", "flux-job: task(s) exited with exit code 1\n", "the job script failed with exit status 1\n", "train.sh: process ended with code 1\n",
)  # fmt: skip
#: Trouble in the set-up that a program survives.
HARMLESS = (
    "WARNING: cannot read the topology file, using defaults\n",
    "ConnectionError: failed to fetch the dataset index (attempt 1 of 5), retrying in 2 s\nfetched the dataset index\n",
    'Traceback (most recent call last):\n  File "/opt/app/cache.py", line 40, in read\n    with open(path) as stream:\n'
    "FileNotFoundError: [Errno 2] No such file or directory: '/cache/index.json'\nno cached index, building it anew\n",
    "ERROR: could not load the optional plugin 'sound', going on without it\n",
    "libibverbs: Warning: couldn't load driver 'libbnxt_re-rdmav34.so': no such file\n",
    "警告：无法读取缓存，将重新构建\n",
)
#: What a server prints while it has nothing to do.
IDLE = "INFO 03-03 04:12:55 [loggers.py:118] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%\n"  # fmt: skip


def _keeps(expected: Answer, answer: Answer) -> bool:
    """Tell whether the cause is named as before; who is blamed may be left open."""
    if (answer.verdict, answer.cause) != (expected.verdict, expected.cause):
        return False
    return answer.culprit is None or expected.culprit is None or answer.culprit == expected.culprit


def _around(run: Run, words: str, where: Literal["below", "early"]) -> Trial:
    composed = Composition("", words, where, {}).make(run.text)
    return {"log": composed}, lambda answer: _keeps(run.answer, answer)


def _is_known(run: Run) -> bool:
    return run.answer.verdict in ("diagnosed", "healthy")


@relation("append a script's closing words")
def _closing(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    if _is_known(run):
        yield _around(run, chance.choice(CLOSING), "below")


@relation(
    "append a scheduler's stop to a failed run",
    "Where only broken connections and exits are known of a job that had worked, the stop itself explains them.",
)
def _stopped(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    if run.answer.verdict == "diagnosed" and run.case.cause != "job-preempted":
        yield _around(run, chance.choice(STOPPED), "below")


@relation("append the report of its exit to a failed run")
def _exited(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    if run.answer.verdict == "diagnosed" and run.case.cause != "job-preempted":
        yield _around(run, chance.choice(EXITED), "below")


@relation("append idle statistics of a server to a failed run")
def _idle(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    if run.answer.verdict == "diagnosed":
        yield _around(run, IDLE * chance.randrange(1, 30), "below")


@relation(
    "put harmless trouble into the set-up",
    "A short log of a failed run shows nothing between the first trouble and the end, so that the first one may be why.",
)
def _harmless(run: Run, runs: Sequence[Run], chance: random.Random) -> Iterator[Trial]:
    if _is_known(run) and len(run.lines) > EARLY:
        yield _around(run, chance.choice(HARMLESS), "early")
