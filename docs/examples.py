"""The outputs that pages show, each made by a real run: ``docs/build.py`` puts them between the markers of their name."""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from reports.examples.render import within

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "corpus" / "written" / "logs"
#: The log that README and quick start begin with.
LOG = "S001-openrlhf-broadcast-two-networks.log"
#: Columns of the terminal that the picture shows.
COLUMNS = 100
#: Columns of the pages of why.
_WHY = 140
#: Lines of what is fine that the example of ``doctor`` shows.
_FINE = 3


def printed(lang: Literal["en", "zh"], width: int | None, color: bool) -> str:
    """Return what a terminal shows of the first log."""
    from nccl_triage import diagnose
    from nccl_triage.render import terminal

    with within(LOGS):
        document = diagnose(LOG).to_dict()
    return terminal.render(document, color=color, width=width, lang=lang, verbose=0)


def _block(text: str) -> str:
    return f"```\n{text.rstrip()}\n```"


def verdict() -> str:
    """Return the verdict on the first log, as a pipe gets it."""
    return _block(f"$ cd corpus/written/logs && nccl-triage {LOG}\n{printed('en', None, color=False)}")


_WAITING = (
    "all_reduce (torch/distributed/distributed_c10d.py:2826)",
    "wrapper (torch/distributed/c10d_logger.py:81)",
    "train (train.py:88)",
    "<module> (train.py:151)",
)
_LATE = (
    "wait (threading.py:327)",
    "get (queue.py:180)",
    "_try_get_data (torch/utils/data/dataloader.py:1251)",
    "__next__ (torch/utils/data/dataloader.py:701)",
    "train (train.py:81)",
    "<module> (train.py:151)",
)


def why() -> str:
    """Return the chain of decisions behind the verdict of a written case."""
    return _told_why("S001-openrlhf-broadcast-two-networks.log")


def why_line() -> str:
    """Return the way of the line that decides it."""
    return _told_why("S001-openrlhf-broadcast-two-networks.log:7")


def _told_why(log: str) -> str:
    from click.testing import CliRunner

    from nccl_triage.cli import cli

    with within(ROOT / "corpus" / "written" / "logs"):
        result = CliRunner().invoke(cli, ["why", log, "--lang", "en"], prog_name="nccl-triage")
    lines = [line if len(line) <= _WHY else f"{line[: _WHY - 2]}.." for line in result.output.rstrip().splitlines()]
    return _block(f"$ cd corpus/written/logs && nccl-triage why {log}\n" + "\n".join(lines))


def stacks() -> str:
    """Return what ``hang`` says of four ranks on two hosts, one of which still reads its data."""
    from nccl_triage import diagnose
    from nccl_triage.hang import folder
    from nccl_triage.hang.hosts import HostReply
    from nccl_triage.render import terminal

    hosts = []
    for host in (0, 1):
        reply, ranks = HostReply(f"gpu0{host + 1}"), []
        for rank in (2 * host, 2 * host + 1):
            pid = 4100 + rank
            frames = "\n".join(f"    {frame}" for frame in (_LATE if rank == 2 else _WAITING))
            told = f'Process {pid}: python -u train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\nThread {pid} (idle): "MainThread"\n{frames}\n'
            for _ in range(2):
                reply.take({"answer": "sample", "pid": pid, "stacks": told, "state": "S", "gpu": True})
            numbers = {"rank": rank, "local_rank": rank % 2, "world_size": 4, "local_world_size": 2}
            ranks.append({"pid": pid, "command": "python -u train.py", "variables": {}, **numbers})
        hosts.append((reply, ranks))
    with tempfile.TemporaryDirectory() as place, within(Path(place)):
        made = Path("nccl-triage-hang-20261127-101500")
        folder.create(made)
        folder.write(made, "gpu01:29500", hosts)
        document = diagnose(made).to_dict()
    last = f"  evidence of 4 processes: {made}\n  diagnose again: nccl-triage {made}"
    return _block(terminal.render(document, color=False, width=COLUMNS, lang="en", verbose=0).rstrip() + "\n" + last)


def doctor() -> str:
    """Return what ``doctor`` says of a made-up host with some faults."""
    from nccl_triage.doctor.document import HostAnswer, build
    from nccl_triage.doctor.text import text
    from tests.doctor import hosts

    gpus = [hosts.gpu(number, ecc_uncorrected=4 if number == 3 else 0) for number in range(8)]
    facts = hosts.facts(gpus__gpus=gpus, limits__shm={"size": 64 << 20, "free": 60 << 20})
    said = text(build([HostAnswer("gpu07", {"facts": facts, "unseen": [], "seconds": {}})]), "en").splitlines()
    first = said.index("fine:") + 1
    return _block("\n".join([*said[: first + _FINE], "    ..."]))


def hang() -> str:
    """Return what ``--follow`` says of four ranks of which one is a step ahead when all fall silent."""
    from nccl_triage.follow.hang import describe
    from nccl_triage.render import phrases
    from tests.follow.test_hang import Job

    job = Job()
    job.steps(8, 4.0)
    job.now += 4.0
    job.say(2, "rank 2 step 9/900 loss 3.1", step="9")
    job.heartbeats.tick(job.now, live=True)
    found = job.suspicion(301.0)
    assert found is not None
    said = describe(found)
    lines = [phrases.hang_sentence(said, "en"), *(f"  {line}" for line in phrases.hang_lines(said, "en"))]
    return _block("\n".join(lines))


def history() -> str:
    """Return the line on a host that failed before, as the fourth failure of one host shows it."""
    from nccl_triage import diagnose
    from nccl_triage.history.memory import Memory
    from nccl_triage.render import terminal

    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory(Path(folder) / "history.sqlite")
        for number, day in enumerate((2, 6, 9, 13)):
            pid = 4000 + number
            log = (
                f"2026-11-{day:02} 09:55:2{number} gpu07 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid={pid}, name=python, "
                "GPU has fallen off the bus.\n"
                f"2026-11-{day:02} 09:55:33 gpu07:{pid}:{pid} [3] NCCL INFO comm 0x55 rank 3 nranks 16 cudaDev 3 busId "
                f"3b000 - Init COMPLETE\n2026-11-{day:02} 09:56:33 [rank3]: RuntimeError: CUDA error: unspecified launch "
                f"failure {number}\n"
            )
            result = diagnose("-", stdin=io.BytesIO(log.encode()), further=[memory.recall])
            found = result.to_dict()
            memory.keep(found)
    lines = terminal.render(found, color=False, width=None, lang="en", verbose=1).splitlines()
    (line,) = (line for line in lines if line.startswith("  history:"))
    return _block(line)


def rules_error() -> str:
    """Return what the pre-commit hook prints of a rule whose sample does not match."""
    from click.testing import CliRunner

    from nccl_triage.cli import cli

    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "docs" / "integrations" / "pre-commit" / "rules", Path(folder) / "rules")
        path = Path(folder) / "rules" / "signatures" / "site" / "cache.yaml"
        path.write_text(path.read_text(encoding="utf-8").replace("lease 4711 lost", "lease x lost"), encoding="utf-8")
        with within(Path(folder)):
            result = CliRunner().invoke(cli, ["rules", "test", "rules"], prog_name="nccl-triage")
    return _block("$ nccl-triage rules test rules\n" + result.output)


#: Page, name of its markers, and what makes the text between them.
EXAMPLES: tuple[tuple[str, str, Callable[[], str]], ...] = (
    ("docs/reading-a-verdict.md", "example verdict", verdict),
    ("docs/reading-a-verdict.md", "example why", why),
    ("docs/reading-a-verdict.md", "example why line", why_line),
    ("docs/hang.md", "example stacks", stacks),
    ("docs/doctor.md", "example doctor", doctor),
    ("docs/following.md", "example hang", hang),
    ("docs/history.md", "example history", history),
    ("docs/integrations/pre-commit.md", "example rules", rules_error),
)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for page, _, make in EXAMPLES:
        sys.stdout.write(f"{page}\n{make()}\n\n")
