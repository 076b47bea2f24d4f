"""Whether two shares of an input are of one job, by what their lines tell."""

from __future__ import annotations

import pytest

from nccl_triage.engine.schema import RuleSet
from nccl_triage.story import jobs
from nccl_triage.story.jobs import Likeness, Traits, compare, traits_of
from tests.scan_helpers import scan_text


def traits(text: str, rules: RuleSet) -> Traits:
    return traits_of(scan_text(text, rules).kept())


def stepping(hour: int, rank: int = 0, loss: float = 2.0) -> str:
    """Return the lines of a rank in an hour."""
    return "".join(
        f"2026-03-01 {hour:02d}:0{n}:00 [rank{rank}] step {n}/90 loss {loss - n / 10:.2f}\n" for n in range(9)
    )


INIT = "2026-03-01 10:00:00 {host}:{pid}:{pid} [0] NCCL INFO ncclCommInitRank comm 0x55d0 rank {rank} nranks 16 cudaDev 0 nvmlDev 0 busId 3b000 commId {id} - Init COMPLETE\n"


@pytest.mark.parametrize(
    ("one", "two", "likeness"),
    [
        ("SLURM_JOB_ID=4711\n" + stepping(10), "SLURM_JOB_ID=4711\nstep 1\n", Likeness.SAME),
        ("SLURM_JOB_ID=4711\n" + stepping(10), "SLURM_JOB_ID=4712\n" + stepping(10), Likeness.OTHER),
        ("step 1/9 loss 2.0 job_id=a1\n", "step 1/9 loss 2.0 job_id=a2\n", Likeness.OTHER),
        (
            '{"job_id": "a1", "message": "step 1/9 loss 2"}\n',
            '{"job_id": "a2", "message": "step 1/9 loss 2"}\n',
            Likeness.OTHER,
        ),
        (
            INIT.format(host="gpu07", pid=4120, rank=0, id="0xab1"),
            INIT.format(host="gpu08", pid=4120, rank=8, id="0xab1"),
            Likeness.SAME,
        ),
        (stepping(10, 0), stepping(10, 1), Likeness.RATHER_SAME),
        (stepping(10), stepping(14), Likeness.RATHER_OTHER),
        (stepping(10), stepping(10, loss=5.5), Likeness.RATHER_OTHER),
        (stepping(10), stepping(10), None),
        ("+ torchrun --node_rank=0 train.py\n", "+ torchrun --node_rank=1 train.py\n", None),
        ("+ torchrun train.py --lr 1\n", "+ torchrun train.py --lr 2\n", Likeness.RATHER_OTHER),
        ("[rank0]: KeyError: 'a'\n", "[rank0]: ValueError: bad\n", Likeness.RATHER_OTHER),
        ("KeyError: 'a'\n", "ValueError: bad\n", None),
    ],
)
def test_what_tells_two_logs_apart(one: str, two: str, likeness: Likeness | None, rules: RuleSet) -> None:
    assert compare(traits(one, rules), traits(two, rules)) is likeness
    assert compare(traits(two, rules), traits(one, rules)) is likeness


def test_the_log_of_a_scheduler_is_of_no_job(rules: RuleSet) -> None:
    many = "".join(
        f"slurmstepd: error: *** JOB {n} ON n1 CANCELLED AT 2026-03-01T10:00:00 ***\n" for n in range(11, 19)
    )
    assert not traits(many, rules).ids


def pods(*names: str, end: str = "") -> str:
    lines = [f"[pod/{name}/pytorch] 2026-03-01 10:00:0{n} step {n}/90 loss 2.0" for n in range(6) for name in names]
    return "\n".join(lines) + "\n" + end


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (pods("bert-worker-0", "bert-worker-1"), []),
        (pods("bert-worker-0", "llama-worker-0"), ["bert", "llama"]),
        (pods("grpo-trainer-0", "grpo-rollout-0"), []),
        (pods("gpu07", "cpu01"), ["cpu", "gpu"]),
    ],
)
def test_the_jobs_whose_pods_speak(text: str, names: list[str], rules: RuleSet) -> None:
    assert list(jobs.speakers(scan_text(text, rules))) == names


@pytest.mark.parametrize(
    ("one", "two", "likeness"),
    [
        (pods("bert-worker-0"), pods("llama-worker-0"), Likeness.OTHER),
        (pods("x-gpu-worker-0"), pods("x-cpu-worker-0"), Likeness.RATHER_SAME),
        (pods("gpu07"), pods("cpu01"), Likeness.RATHER_SAME),
        (
            pods("sft-a-0", end="[pod/sft-a-0/pytorch] Training finished\n"),
            pods("sft-b-0", end="[pod/sft-b-0/pytorch] KeyError: 'a'\n"),
            Likeness.RATHER_OTHER,
        ),
    ],
)
def test_pods_of_two_jobs(one: str, two: str, likeness: Likeness, rules: RuleSet) -> None:
    assert jobs.compare_speakers(traits(one, rules), traits(two, rules)) is likeness


@pytest.mark.parametrize(
    ("lines", "likeness"),
    [
        (["[rank0] step 1/9 loss 2", "[rank1] step 1/9 loss 2"], None),
        (["[rank0] step 1/9 loss 2", "[rank0] step 1/9 loss 2"], Likeness.RATHER_OTHER),
        (["SLURM_JOB_ID=4711\nstep 1/9", "SLURM_JOB_ID=4712\nstep 1/9"], Likeness.OTHER),
        (["step 1/9 loss 2", "step 1/9 loss 3"], Likeness.RATHER_OTHER),
        ([INIT.format(host="n1", pid=7, rank=n, id="0xab1") + "step 1/9" for n in (0, 1)], None),
        (["", ""], None),
    ],
)
def test_numbers_in_names_are_ranks_or_jobs(lines: list[str], likeness: Likeness | None, rules: RuleSet) -> None:
    assert jobs.are_jobs({number: traits(text, rules) for number, text in enumerate(lines)}) is likeness
