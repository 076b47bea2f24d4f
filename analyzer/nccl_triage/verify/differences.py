"""How an experiment differs from the failure: each difference in words, and whether a pass is weaker because of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nccl_triage.engine.schema import Experiment, Text
from nccl_triage.verify.collective_run import CollectiveRun
from nccl_triage.verify.host_names import host_of
from nccl_triage.verify.question import Question, SuspectedCause
from nccl_triage.verify.worker.ops import operation


@dataclass(frozen=True, slots=True)
class ExperimentComparison:
    """The failure beside the control run; ``wanted`` is the number of elements in the log's collective."""

    question: Question
    suspect: SuspectedCause
    experiment: Experiment
    run: CollectiveRun
    wanted: int
    names: tuple[str, ...]


#: A difference, and whether a pass is weaker because of it.
Difference = tuple[Text, bool]
Check = Callable[[ExperimentComparison], Iterator[Difference]]


def _say(en: str, zh: str, matters: bool) -> Difference:
    return {"en": en, "zh": zh}, matters


def _inside_a_host(about: ExperimentComparison) -> bool:
    """Tell whether the cause lies inside a host: a GPU's fault is looked for on the accused host alone."""
    return about.experiment.scope == "host" or about.experiment.kind == "single"


def _ranks_wanted(about: ExperimentComparison) -> int | None:
    """Return the ranks of the failure that the experiment should have: those of one host for a cause inside a host."""
    question = about.question
    if not _inside_a_host(about) or question.world is None:
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
    """Fewer hosts than the failure had, or others than the accused ones."""
    wanted, have = len(about.question.hosts), len(about.run.places)
    if not _inside_a_host(about) and have < wanted:
        yield _say(f"{have} hosts instead of {wanted}", f"{have} 台主机，原作业为 {wanted} 台", True)
    accused = [host for host in about.suspect.hosts if host in about.question.hosts]
    left_out = [host for host in accused if about.names and host not in about.names]
    if left_out:
        listed = ", ".join(left_out[:4])
        yield _say(f"without {listed}, which the log accuses", f"不含日志所指的主机 {listed}", True)


def other_hosts(about: ExperimentComparison) -> Iterator[Difference]:
    """Hosts that were not part of the failure."""
    strange = [name for name in about.names if host_of(about.question, name) is None]
    if about.question.hosts and strange:
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


#: Characters of a type's name.
_TYPE = 40


def other_dtype(about: ExperimentComparison) -> Iterator[Difference]:
    """Another type of elements, where the backend or the verifier cannot use the log's."""
    wanted, message = about.question.dtype, about.run.message
    if wanted and message.op != "INIT" and wanted.lower() != message.dtype:
        # What is only moved is moved alike.
        matters = operation(message.op).reduces
        shown = wanted[:_TYPE]  # a report may have been written by anybody
        yield _say(f"{message.dtype} instead of {shown}", f"元素类型为 {message.dtype}，日志中为 {shown}", matters)


def even_shares(about: ExperimentComparison) -> Iterator[Difference]:
    """Shares that are all alike, where those of the failure were not."""
    if about.question.uneven and about.run.message.op != "INIT":
        yield _say(
            "even shares; those of the failed collective were not all alike",
            "各 rank 份额相同，而失败的集合操作中份额并不相同",
            True,
        )


def other_root(about: ExperimentComparison) -> Iterator[Difference]:
    """Another root than the failure had, which ranks of the experiment do not include."""
    wanted, message = about.question.root, about.run.message
    if wanted != message.root and operation(message.op).rooted:
        yield _say(f"root {message.root} instead of {wanted}", f"root 为 {message.root}，日志中为 {wanted}", True)


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


#: Names of variables that are listed.
_LISTED = 8


def other_variables(about: ExperimentComparison) -> Iterator[Difference]:
    """Variables of the failed job that are not repeated; only their names are told, for a value may be a secret."""
    names = about.question.left_out
    if names:
        more = f" (+{len(names) - _LISTED})" if len(names) > _LISTED else ""
        listed, listed_zh = (separator.join(names[:_LISTED]) + more for separator in (", ", "、"))
        yield _say(f"not set as in the log: {listed}", f"未按日志设置：{listed_zh}", True)


CHECKS: tuple[Check, ...] = (
    differing_ranks,
    differing_hosts,
    other_hosts,
    smaller_size,
    other_dtype,
    even_shares,
    other_root,
    other_backend,
    shared_gpu,
    other_variables,
)


def differences(about: ExperimentComparison) -> tuple[tuple[Text, ...], bool]:
    """Return every difference in words, and whether the experiment is at least as large as the failure."""
    found = [difference for check in CHECKS for difference in check(about)]
    return tuple(text for text, _ in found), not any(matters for _, matters in found)
