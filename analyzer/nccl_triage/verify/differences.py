"""How an experiment differs from the failure: each difference in words, and whether a pass is weaker because of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nccl_triage.engine.schema import Experiment, Text
from nccl_triage.verify.collective_run import CollectiveRun
from nccl_triage.verify.question import Question


@dataclass(frozen=True, slots=True)
class ExperimentComparison:
    """The failure beside the control run; ``wanted`` is the number of elements in the log's collective."""

    question: Question
    experiment: Experiment
    run: CollectiveRun
    wanted: int
    names: tuple[str, ...]


#: A difference, and whether a pass is weaker because of it.
Difference = tuple[Text, bool]
Check = Callable[[ExperimentComparison], Iterator[Difference]]


def _say(en: str, zh: str, matters: bool) -> Difference:
    return {"en": en, "zh": zh}, matters


def _ranks_wanted(about: ExperimentComparison) -> int | None:
    """Return the ranks of the failure that the experiment should have: those of one host for a cause inside a host."""
    question = about.question
    if about.experiment.scope != "host" or question.world is None:
        return question.world
    counts = [len(ranks) for ranks in question.ranks_of.values() if ranks]
    return max(counts) if counts else -(-question.world // max(1, len(question.hosts)))


def differing_ranks(about: ExperimentComparison) -> Iterator[Difference]:
    """Fewer ranks than the failure had, or an unknown number."""
    wanted, have = _ranks_wanted(about), about.run.world
    if wanted is None:
        matters = not about.question.hosts or about.experiment.scope != "hosts"
        yield _say(
            f"{have} ranks; the log does not show how many there were", f"{have} 个 rank；日志未给出原有数量", matters
        )
    elif have < wanted:
        yield _say(f"{have} ranks instead of {wanted}", f"{have} 个 rank，原作业为 {wanted} 个", True)


def differing_hosts(about: ExperimentComparison) -> Iterator[Difference]:
    """Fewer hosts than the failure had."""
    wanted, have = len(about.question.hosts), len(about.run.places)
    if about.experiment.scope != "host" and have < wanted:
        yield _say(f"{have} hosts instead of {wanted}", f"{have} 台主机，原作业为 {wanted} 台", True)


def _short(name: str) -> str:
    return name.split("#")[0].split(".")[0].casefold()


def other_hosts(about: ExperimentComparison) -> Iterator[Difference]:
    """Hosts that were not part of the failure."""
    known = {_short(name) for name in about.question.hosts}
    strange = [name for name in about.names if _short(name) not in known]
    if known and strange:
        listed = ", ".join(strange[:4])
        yield _say(f"on {listed}, which the log does not name", f"在 {listed} 上运行，日志中没有该主机", True)


def smaller_size(about: ExperimentComparison) -> Iterator[Difference]:
    """A smaller message than the failure had, or an unknown size."""
    numel = about.run.message.numel
    if numel < about.wanted:
        yield _say(
            f"{numel:,} elements instead of {about.wanted:,}", f"{numel:,} 个元素，日志中为 {about.wanted:,} 个", True
        )
    elif about.question.numel is None and about.run.message.op != "INIT":
        yield _say("the log does not show the size of the collective", "日志未给出集合操作的大小", False)


def other_backend(about: ExperimentComparison) -> Iterator[Difference]:
    """Gloo instead of NCCL; the cause's file says where it may be used."""
    wanted, have = about.question.backend, about.run.backend
    if wanted and wanted != have:
        yield _say(f"backend {have} instead of {wanted}", f"后端为 {have}，原作业为 {wanted}", False)


def shared_gpu(about: ExperimentComparison) -> Iterator[Difference]:
    """Several ranks on one GPU."""
    if about.run.backend == "nccl" and about.run.shares_gpus:
        yield _say(
            "several ranks share a GPU, so the paths between GPUs (P2P, shared memory, NVLS) are not tested",
            "多个 rank 共用一块 GPU：未涉及 GPU 之间的通路（P2P、共享内存、NVLS）",
            True,
        )


CHECKS: tuple[Check, ...] = (differing_ranks, differing_hosts, other_hosts, smaller_size, other_backend, shared_gpu)


def differences(about: ExperimentComparison) -> tuple[tuple[Text, ...], bool]:
    """Return every difference in words, and whether the experiment is at least as large as the failure."""
    found = [difference for check in CHECKS for difference in check(about)]
    return tuple(text for text, _ in found), not any(matters for _, matters in found)
