"""What was survived and what was not: the same structures with the words of several programs."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from tests.scan_helpers import diagnose_text

STEPS = "".join(f"step {n}/100 loss 2.{n}\n" for n in range(1, 6))
MORE = "".join(f"step {n}/100 loss 1.{n}\n" for n in range(6, 12))
#: A traceback from the middle of a program, and one that went through to the module that was run.
CAUGHT = "Traceback (most recent call last):\n  File \"/app/data.py\", line 8, in fetch\n    x = y[k]\nKeyError: 'fr'\n"
UNCAUGHT = (
    'Traceback (most recent call last):\n  File "/app/train.py", line 90, in <module>\n    main()\n'
    "  File \"/app/data.py\", line 8, in fetch\n    x = y[k]\nKeyError: 'fr'\n"
)
ENDS = "[rank0]:[W1206 18:44:12.715298746 ProcessGroupNCCL.cpp:1250] Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources.\n"  # fmt: skip

FAULTS = {
    "a refused connection": "ConnectionRefusedError: [Errno 111] Connection refused\n",
    "memory of a GPU": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
    "a full disk": "OSError: [Errno 28] No space left on device: '/ckpt/5.pt'\n",
    "a traceback": CAUGHT,
    "an overflow": "Gradient norm: inf\n",
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_what_the_job_went_on_after_is_a_remark(fault: str, rules: RuleSet) -> None:
    found = diagnose_text(STEPS + fault + MORE, rules)
    assert (found.verdict, found.case.story.outcome.state) == ("healthy", "running")
    assert found.case.aside, "nothing disappears without a word"


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_what_stands_at_the_end_is_not_survived(fault: str, rules: RuleSet) -> None:
    found = diagnose_text(STEPS + MORE + fault, rules)
    assert found.verdict != "healthy"
    assert found.case.story.outcome.is_bad


def test_an_exception_that_left_the_program_ends_it_whatever_is_flushed_later(rules: RuleSet) -> None:
    """What a process holds back in its buffer is printed when it ends, below its traceback."""
    found = diagnose_text(UNCAUGHT + STEPS + MORE, rules)
    assert (found.verdict, found.cause) == ("diagnosed", "application-exception")


def test_the_driver_of_ray_ends_the_job_whatever_workers_flush(rules: RuleSet) -> None:
    worker = "(Trainer pid=4711, ip=10.0.0.3) step {}/100 loss 2.1\n"
    driver = (
        'Traceback (most recent call last):\n  File "/app/main.py", line 40, in <module>\n    ray.get(trainer.fit.remote())\n'
        "ray.exceptions.RayTaskError(ValueError): ray::Trainer.fit() (pid=4711, ip=10.0.0.3, actor_id=1)\n"
        '  File "/app/trainer.py", line 12, in fit\n    raise ValueError("bad shape")\nValueError: bad shape\n'
    )
    text = "".join(worker.format(n) for n in range(3)) + driver + "".join(worker.format(n) for n in range(3, 9))
    assert diagnose_text(text, rules).verdict == "diagnosed"


def test_hydra_says_that_nobody_caught_it(rules: RuleSet) -> None:
    text = STEPS + "Error executing job with overrides: ['a=1',\n'b=2',\n'c=3',\n'd=4'\n]\n" + CAUGHT + MORE
    assert diagnose_text(text, rules).verdict == "diagnosed"


@pytest.mark.parametrize(
    "header",
    [
        "Exception ignored in: <function Pool.__del__ at 0x7f4d8c3212d0>",
        "Exception ignored in atexit callback: <function flush at 0x7f4d8c3212d0>",
        "Exception ignored while calling deallocator <function Pool.__del__ at 0x7f4d8c3212d0>:",
        "Exception ignored on calling ctypes callback function <function f at 0x7f4d8c3212d0>:",
        "Error in atexit._run_exitfuncs:",
    ],
)
def test_what_python_ignores_is_no_failure(header: str, rules: RuleSet) -> None:
    found = diagnose_text(f"{STEPS}{header}\n{UNCAUGHT}", rules)
    assert found.verdict == "healthy"


def test_a_traceback_behind_a_record_is_caught_unless_an_end_follows(rules: RuleSet) -> None:
    record = "ERROR:2026-03-26 21:59:41,526:Error when calling the tool 'search'\n"
    work = "INFO 06-03 10:00:10 [loggers.py:116] Engine 000: Avg prompt throughput: 120.1 tokens/s, Avg generation throughput: 9.1 tokens/s, Running: 3 reqs\n"  # fmt: skip
    assert diagnose_text(work + record + CAUGHT + work, rules).verdict == "healthy"
    ended = work + record + CAUGHT + "train.sh: line 12: 40112 Killed                  python3 train.py\n"
    assert diagnose_text(ended, rules).verdict != "healthy"


def test_who_raises_the_same_again_and_again_lives(rules: RuleSet) -> None:
    def worker(text: str) -> str:
        return "".join(f"(Worker pid=812) {line}\n" for line in text.splitlines())

    once = worker(CAUGHT)
    assert diagnose_text(once, rules).verdict == "diagnosed"
    again = diagnose_text(once * 6, rules)
    assert again.verdict != "diagnosed"


def test_a_rank_that_tells_its_steps_must_take_the_next_one_itself(rules: RuleSet) -> None:
    ranks = "".join(f"[rank{rank}]: step {n}/100 loss 2.1\n" for n in range(3) for rank in range(2))
    fault = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    others = "".join(f"[rank0]: step {n}/100 loss 2.1\n" for n in range(3, 9))
    assert diagnose_text(ranks + fault + others, rules).cause == "gpu-out-of-memory"
    assert diagnose_text(ranks + fault + others + others.replace("rank0", "rank1"), rules).verdict == "healthy"


@pytest.mark.parametrize("later", ["", "step 12/100 loss nan\n"], ids=["then good", "to the end"])
def test_numbers_convict_only_to_the_end(later: str, rules: RuleSet) -> None:
    text = STEPS + "Gradient norm: nan\n" + (later or MORE)
    assert (diagnose_text(text, rules).verdict == "healthy") is not later


def test_an_end_is_not_undone_by_the_progress_of_others(rules: RuleSet) -> None:
    dead = "srun: error: node001: task 3: Exited with exit code 1\n"
    assert diagnose_text(STEPS + dead + MORE, rules).verdict != "healthy"


def test_what_was_survived_before_is_survivable_whatever_it_is_about(rules: RuleSet) -> None:
    """A program that catches an exception says in it what it was about: the words in front stay the same."""
    caught = "(Worker pid=57) ValueError: step {n} - no action found in the answer: {about}\n"
    steps = "".join(f"(Runner pid=38) step:{n} - loss:0.{n}\n" for n in range(1, 8))
    text = caught.format(n=0, about="I press the button") + steps + caught.format(n=7, about="a search bar is seen")
    assert diagnose_text(text, rules).verdict == "healthy"
    other = text + "(Worker pid=57) ValueError: the table has no such column\n"
    assert diagnose_text(other, rules).verdict == "diagnosed"


BARS = "".join(f"\r {5 * n}%|#   | {n}/20 [00:0{n}<00:09,  1.00it/s, {{what}}=1.{n}]" for n in range(1, 8)) + "\n"
WARNED = "".join(
    f"11/27/2026 21:22:26 - WARNING - __main__ - [RANK {r}] CUDA out of memory. Tried to allocate 4.00 GiB. Trying half of it\n"
    for r in (0, 1)
)


def test_a_bar_with_a_loss_is_that_of_the_training_loop(rules: RuleSet) -> None:
    """Only one rank draws it, and the others print nothing after their warnings."""
    later = "\n".join(f" {5 * n}%|##  | {n}/20 [00:0{n}<00:09,  1.00it/s, loss=1.{n}]" for n in range(8, 10)) + "\n"
    assert diagnose_text(BARS.format(what="loss") + WARNED + later, rules).verdict == "healthy"
    loading = later.replace("loss=", "shards=")
    assert diagnose_text(BARS.format(what="shards") + WARNED + loading, rules).cause == "gpu-out-of-memory"


def test_a_warning_did_not_keep_a_job_from_finishing(rules: RuleSet) -> None:
    end = "11/27/2026 21:22:30 - INFO - __main__ - [RANK 0] Training done\n"
    assert diagnose_text(WARNED + end, rules).verdict == "healthy"
    errors = WARNED.replace("WARNING", "ERROR")
    assert diagnose_text(errors + end, rules).cause == "gpu-out-of-memory"
    killed = "E1123 10:22:31.418000 40112 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1 (pid: 402) of binary: /opt/venv/bin/python3\n"
    assert diagnose_text(WARNED + end + killed, rules).verdict != "healthy"


LOGGED = "2026-11-27:21:03:1{n},916 ERROR    [evaluator.py:14] sample {n}: the solution failed its test\n" + UNCAUGHT
WORK = "2026-11-27:21:03:19,240 INFO     [evaluator.py:16] humaneval: accuracy 0.764 (3 samples failed)\n"


def test_who_logs_the_same_again_and_again_and_goes_on_lives(rules: RuleSet) -> None:
    """An evaluation counts the samples that fail; nobody knows the lines of its ordinary work."""
    counted = "".join(LOGGED.format(n=n) for n in range(3))
    found = diagnose_text(counted + WORK, rules)
    assert (found.verdict, {why.answer for _, why in found.case.aside}) == ("unknown", {"again", "caught"})
    assert diagnose_text(counted, rules).cause == "application-exception", "nothing follows the last one"
    assert diagnose_text(LOGGED.format(n=1) + WORK, rules).cause == "application-exception", "it may clean up and exit"


def test_steps_before_such_exceptions_show_no_job_at_work(rules: RuleSet) -> None:
    found = diagnose_text(STEPS + "".join(LOGGED.format(n=n) for n in range(3)) + WORK, rules)
    assert (found.verdict, found.case.story.outcome.state) == ("unknown", "cut")
