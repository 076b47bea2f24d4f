"""Compositions: a labelled log with something put around it, and what its label is then.

A wrapper's closing words, a scheduler's report, an attempt before it, or trouble that a job survived: none of them
changes what happened to the job itself. They need no label of their own, and show what a label of a log alone cannot:
whether an answer rests on who can know, or on words that happen to stand in some place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from nccl_triage.learned.ending import CUT, FAILED, FINISHED, RUNNING, STOPPED

#: The outcome of a run that finished or goes on, where its label does not say which.
WELL = "well"
#: Outcomes of runs that were well.
ALL_WELL = (FINISHED, RUNNING, WELL)
_CLOSING = (
    ("closing-words", "Training completed!\n"),
    ("closing-words-zh", "训练完成！\n"),
    ("closing-banner", "==========================================\n  All experiments finished\n  Results are in ./outputs\n"
                       "==========================================\n"),
    ("closing-time", "Job ended at Tue Mar  3 04:12:55 UTC 2026\nElapsed: 3h 12m 5s\n"),
    ("closing-done", "done\n"),
    ("closing-either", "训练已结束或被中断\n"),
)  # fmt: skip
_TIME_LIMIT = (
    "slurmstepd: error: *** JOB 4412907 ON node014 CANCELLED AT 2026-03-03T04:12:55 DUE TO TIME LIMIT ***\n"
    "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
)
_CANCELLED = "slurmstepd: error: *** JOB 4412907 ON node014 CANCELLED AT 2026-03-03T04:12:55 ***\n"
_TASK_FAILED = "srun: error: node014: task 0: Exited with exit code 1\n"
_LSF = """\

------------------------------------------------------------
Sender: LSF System <lsfadmin@node014>
Subject: Job 4412907: <train> in cluster <gpu> {subject}

Job <train> was submitted from host <login2> by user <kim> in cluster <gpu> at Tue Mar  3 01:00:07 2026
Job was executed on host(s) <8*node014>, in queue <normal>, as user <kim> in cluster <gpu> at Tue Mar  3 01:00:11 2026
Started at Tue Mar  3 01:00:11 2026
Terminated at Tue Mar  3 04:12:55 2026
Results reported at Tue Mar  3 04:12:55 2026

{result}

Resource usage summary:

    CPU time :                                   11517.00 sec.
    Max Memory :                                 41022 MB
    Run time :                                   11571 sec.

The output (if any) is above this job summary.
"""
_LSF_FAILED = _LSF.format(subject="Exited", result="Exited with exit code 1.")
_LSF_DONE = _LSF.format(subject="Done", result="Successfully completed.")
_EARLIER = """\
$ bash run.sh
Traceback (most recent call last):
  File "/opt/app/main.py", line 12, in <module>
    import settings_of_cluster
ModuleNotFoundError: No module named 'settings_of_cluster'
$ pip install settings-of-cluster
Successfully installed settings-of-cluster-1.2
$ bash run.sh
"""
_LATER = """\
$ bash evaluate.sh
Traceback (most recent call last):
  File "/opt/app/evaluate.py", line 31, in <module>
    main(sys.argv[1])
IndexError: list index out of range
"""
_HARMLESS = (
    ("warned-early", "WARNING: cannot read the cluster's topology file, using defaults\n"
                     "libibverbs: Warning: couldn't load driver 'libbnxt_re-rdmav34.so': no such file\n"),
    ("retried-early", "ConnectionError: failed to fetch the dataset index (attempt 1 of 5), retrying in 2 s\n"
                      "fetched the dataset index\n"),
    ("caught-early", "Traceback (most recent call last):\n  File \"/opt/app/cache.py\", line 40, in read\n"
                     "    with open(path) as stream:\nFileNotFoundError: [Errno 2] No such file or directory: "
                     "'/cache/index.json'\nno cached index, building it anew\n"),
)  # fmt: skip
#: Line of a log after which harmless trouble is put: it stands in the set-up.
EARLY = 4


@dataclass(frozen=True, slots=True)
class Composition:
    """Words that are put around a log: below it, above it, or early in it."""

    name: str
    words: str
    where: Literal["below", "above", "early"]
    #: Outcome of the log alone -> outcome of the composition; what is missing is not composed.
    outcomes: Mapping[str, str]
    #: Whether cause and telling line are still those of the log.
    keeps_cause: bool = True

    def make(self, text: str) -> str:
        """Return the composition of a log."""
        if self.where == "below":
            return _whole(text) + self.words
        lines = text.splitlines(keepends=True)
        place = self._place
        return "".join([*lines[:place], self.words, *lines[place:]])

    def line(self, line: int) -> int:
        """Return where a line of the log stands in the composition."""
        return line + (self.words.count("\n") if self.where != "below" and line > self._place else 0)

    @property
    def _place(self) -> int:
        return EARLY if self.where == "early" else 0


def _whole(text: str) -> str:
    return text if text.endswith("\n") or not text else text + "\n"


def _same(*outcomes: str) -> dict[str, str]:
    return {outcome: outcome for outcome in outcomes}


#: What closing words of a shell leave as it is: whether a job that was at work finished, they do not know.
_FINISHES = _same(FINISHED, WELL, FAILED, STOPPED) | {RUNNING: WELL}
COMPOSITIONS = (
    *(Composition(name, words, "below", _FINISHES) for name, words in _CLOSING),
    Composition("time-limit", _TIME_LIMIT, "below", _same(FAILED)),
    Composition("cancelled", _CANCELLED, "below", _same(FAILED)),
    Composition("task-failed", _TASK_FAILED, "below", _same(FAILED)),
    Composition("lsf-exited", _LSF_FAILED, "below", _same(FAILED)),
    Composition("lsf-done", _LSF_DONE, "below", dict.fromkeys(ALL_WELL, FINISHED)),
    Composition("earlier-attempt", _EARLIER, "above", _same(*ALL_WELL, FAILED, STOPPED)),
    Composition("later-attempt", _LATER, "below", dict.fromkeys(ALL_WELL, FAILED), keeps_cause=False),
    *(Composition(name, words, "early", _same(*ALL_WELL, FAILED, STOPPED, CUT)) for name, words in _HARMLESS),
)


def of(text: str, outcome: str) -> Iterator[tuple[Composition, str, str]]:
    """Yield every composition of a log whose outcome is known: the way, the text, and its outcome."""
    for composition in COMPOSITIONS:
        if outcome in composition.outcomes:
            yield composition, composition.make(text), composition.outcomes[outcome]
