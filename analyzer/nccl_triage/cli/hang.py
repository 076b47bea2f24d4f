"""``nccl-triage hang``: take the evidence of a hanging job from its processes, and say who is elsewhere."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccl_triage import errors
from nccl_triage.cli import language, launching, options, output

if TYPE_CHECKING:
    from nccl_triage.hang.hosts import HostReply, JobHosts

#: Seconds between the two samples.
WAIT = 5.0
#: Notes on what is missing that are printed.
MOST_NOTES = 4
#: Jobs that an error lists, and processes of each.
_JOBS, _PIDS = 6, 8


@click.command(
    "hang",
    epilog="""\b
Examples:
  nccl-triage hang
  nccl-triage hang --host gpu-a --host gpu-b
  nccl-triage hang --slurm 4711 --out /shared/hang-4711
  nccl-triage hang --ray --report post-mortem.html""",
)
@click.option(
    "--pid",
    "pids",
    type=click.IntRange(1),
    multiple=True,
    metavar="PID",
    help="A process of the job: a rank, or the launcher above it (default: the only job of this user here; repeatable).",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME[=COMMAND]",
    callback=launching.typed_commands,
    help="Another host of the job, reached with ssh NAME or with COMMAND (repeatable).",
)
@click.option(
    "--slurm",
    metavar="JOBID",
    help="Look on every node of this Slurm job (4711, 4711_3 or 4711.0), with srun --overlap.",
)
@click.option("--ray", "on_ray", is_flag=True, help="Look on every node of the job's Ray cluster.")
@click.option("--ray-address", metavar="ADDRESS", help="Address of the Ray cluster (default: auto); implies --ray.")
@click.option("--python", metavar="PATH", help="Python on the other hosts (default: the path of this one).")
@click.option(
    "--wait",
    type=click.FloatRange(0, 600),
    default=WAIT,
    show_default=True,
    metavar="SECONDS",
    help="Time between the two samples of the stacks.",
)
@click.option(
    "--signal",
    type=click.Choice(["USR1", "USR2"]),
    help="Also send this signal to the ranks that handle it, where the program registered faulthandler for it. "
    "Without this option no process is signalled.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the evidence in this new folder (default: nccl-triage-hang-TIME).",
)
@output.output_options
@options.rules_options
@options.model_option
@options.language_option
@output.exit_code_option
@options.debug_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    rules_dirs: tuple[Path, ...],
    model_name: str | None,
    out: Path | None,
    want_code: bool,
    debug: bool,
    **given: Any,
) -> None:
    """Find the processes of a hanging job, keep what they show in a folder, and say who is elsewhere.

    Takes the stacks of all ranks twice, NCCL's RAS, flight recorder dumps, nvidia-smi, the kernel log, connections and
    the logs that the ranks have open. No process is stopped or signalled. --redact does not change the folder.
    """
    wish = output.wanted(given)
    from nccl_triage.hang import folder

    place = out or Path(time.strftime("nccl-triage-hang-%Y%m%d-%H%M%S"))
    reach = _hosts(given)
    try:
        job, replies, ranks = _found(reach, given)
        folder.create(place)
        try:
            _take(reach, replies, ranks, given, wish)
        except BaseException:
            place.rmdir()  # nothing is in it yet
            raise
    finally:
        reach.launcher.close()
    hosts = [(reply, ranks.get(index, [])) for index, reply in replies.items()]
    made = folder.write(place, job, hosts, _advanced(list(replies.values()), rules_dirs), reach.whole)
    for note in folder.notes(made, list(replies.values()), wish.lang, reach.whole)[:MOST_NOTES]:
        wish.say({"en": note, "zh": note})
    document = _diagnosed(place, rules_dirs, model_name, wish)
    output.deliver(document, wish)
    _tell_of_folder(place, made, wish)
    ctx.exit(output.exit_code(document, want_code))


def _hosts(given: dict[str, Any]) -> JobHosts:
    """Return the hosts that were asked for; raises UsageError for two ways to them at once."""
    from nccl_triage.hang import hosts
    from nccl_triage.hosts.slurm import slurm_job
    from nccl_triage.hosts.ssh import places_of

    on_ray = given["on_ray"] or given["ray_address"] is not None
    if sum((bool(given["hosts"]), given["slurm"] is not None, on_ray)) > 1:
        raise errors.UsageError(
            "--host, --slurm and --ray cannot be combined", remedy="name the hosts of the job in one way"
        )
    if on_ray:
        return hosts.on_ray(given["ray_address"])
    if given["slurm"] is not None:
        if given["pids"]:
            raise errors.UsageError(
                "--pid and --slurm cannot be combined",
                cause="--pid is a process of this host",
                remedy="name a step of the job, as in --slurm 4711.0",
            )
        job = slurm_job(given["slurm"])
        return hosts.behind_commands(job.places, given["python"], job)
    # The job may run here, too: this is the place where somebody looks for it.
    here = places_of(()) if Path("/proc/self/stat").is_file() else ()
    places = [*here, *(places_of(given["hosts"]) if given["hosts"] else ())]
    if not places:
        raise errors.UsageError(
            "processes can be looked at on Linux only", remedy="name the hosts of the job with --host, or use --ray"
        )
    return hosts.behind_commands(places, given["python"])


def _found(reach: JobHosts, given: dict[str, Any]) -> tuple[str, dict[int, HostReply], dict[int, list[dict[str, Any]]]]:
    """Return the job, the replies of its hosts, and its ranks on each; raises UsageError when it is not clear which job."""
    from nccl_triage.hang import collect, folder, hosts

    wish: dict[str, Any] = {"do": "find", "slurm": reach.slurm}
    asked = {index: {**wish, "pids": given["pids"] if index == 0 else ()} for index in range(len(reach.names))}
    replies = reach.ask(asked, collect.FIND)
    jobs: dict[str, dict[int, list[dict[str, Any]]]] = {}
    kept = hosts.once_each(replies)
    for index in kept:
        for job, ranks in hosts.new_ranks(replies, index).items():
            if reach.job in (None, job):
                jobs.setdefault(job, {})[index] = ranks
    jobs = hosts.without_launchers(jobs)
    here = {job: those for job, those in jobs.items() if 0 in those}
    # The processes that were named are here; and of several jobs, the one that is here is meant.
    if given["pids"] or (given["hosts"] and len(here) == 1):
        jobs = here
    if not jobs:
        raise _none(given, replies)
    if len(jobs) > 1:
        raise _several(jobs, reach.slurm is not None)
    [(job, found)] = jobs.items()
    # A host that was named and shows nothing of the job is told of; this one may only be where somebody types.
    shown = {i: replies[i] for i in kept if i in found or i or replies[i].problem}
    folder.name_hosts(list(shown.values()))
    return job, shown, found


def _none(given: dict[str, Any], replies: dict[int, HostReply]) -> errors.UsageError:
    alike: dict[str, list[str]] = {}
    for reply in replies.values():
        if reply.problem:
            alike.setdefault(reply.problem, []).append(reply.name)
    problems = [f"{', '.join(names)}: {why}" for why, names in alike.items()]
    if given["pids"] and not problems:
        return errors.UsageError(
            "there is no process {pids} of this user here",
            cause="only root sees what other users run",
            pids=", ".join(map(str, given["pids"])),
        )
    if given["slurm"] is not None and not problems:
        return errors.UsageError(
            "no rank was found on the nodes of Slurm job {job}",
            cause="no process of it has RANK, OMPI_COMM_WORLD_RANK, PMI_RANK or SLURM_PROCID",
            remedy="look at its steps with: squeue --me --steps",
            job=given["slurm"],
        )
    return errors.UsageError(
        "no rank of a distributed job was found",
        cause="{problems}"
        if problems
        else "no process has RANK, OMPI_COMM_WORLD_RANK, PMI_RANK or SLURM_PROCID, or is a worker of Ray",
        remedy="run this as the job's user on one of its hosts, or name a process of it with --pid"
        if not problems
        else "check --python: it is the path of a Python on the nodes, 3.10 or later"
        if given["slurm"] is not None
        else "check that ssh reaches the hosts without asking for anything, and --python: the path of a Python there, 3.10 or later",
        problems="; ".join(problems),
    )


def _several(jobs: dict[str, dict[int, list[dict[str, Any]]]], slurm: bool) -> errors.UsageError:
    from nccl_triage.redaction.secrets import mask_text

    told = []
    for job, by_host in list(jobs.items())[:_JOBS]:
        ranks = [one for found in by_host.values() for one in found]
        pids = ", ".join(str(one["pid"]) for one in ranks[:_PIDS]) + (", .." if len(ranks) > _PIDS else "")
        told.append(f"{job}: pid {pids} ({mask_text(ranks[0]['command'])[:60]})")
    return errors.UsageError(
        "{count} jobs were found",
        cause="{jobs}",
        remedy="choose a step, as in --slurm 4711.0, or run this on its host with --pid and one of its processes"
        if slurm
        else "choose one with --pid and the number of one of its processes",
        count=len(jobs),
        jobs="; ".join(told),
    )


def _take(
    reach: JobHosts,
    replies: dict[int, HostReply],
    ranks: dict[int, list[dict[str, Any]]],
    given: dict[str, Any],
    wish: output.OutputOptions,
) -> None:
    """Take the evidence on all hosts at once, into their replies."""
    from nccl_triage.hang import collect

    needed = ("pid", "started", "rank", "local_rank", "world_size", "local_world_size", "host_ranks", "workers")
    wishes = {
        index: {
            "do": "take",
            "host": replies[index].name,
            "wait": given["wait"],
            "signal": given["signal"],
            "ranks": [{name: one.get(name) for name in needed} for one in found],
        }
        for index, found in ranks.items()
    }
    count = sum(map(len, ranks.values()))
    template = (
        "looking at 1 process, twice, {seconds:g} s apart; nothing is stopped"
        if count == 1
        else "looking at {count} processes, twice, {seconds:g} s apart; nothing is stopped"
    )
    wish.tell(template, count=count, seconds=given["wait"])
    for index, reply in reach.ask(wishes, given["wait"] + collect.ALL + collect.KIND).items():
        replies[index].files, replies[index].samples, replies[index].grown = reply.files, reply.samples, reply.grown
        replies[index].unseen += reply.unseen
        replies[index].problem = reply.problem


def _advanced(replies: list[HostReply], rules_dirs: tuple[Path, ...]) -> bool:
    """Tell whether what was added to the logs meanwhile shows the job at work."""
    import io

    from nccl_triage.api import diagnose

    for added in filter(None, (reply.added() for reply in replies)):
        found = diagnose("-", stdin=io.BytesIO(added), rules_dirs=options.all_rules(rules_dirs), model=None)
        if found.case.story.outcome.state == "running":
            return True
    return False


def _diagnosed(
    place: Path, rules_dirs: tuple[Path, ...], model_name: str | None, wish: output.OutputOptions
) -> output.Document:
    """Return the document of the ordinary diagnosis of the folder."""
    from nccl_triage.api import diagnose
    from nccl_triage.cli.progress import Progress

    with Progress(wish.quiet) as progress:
        diagnosis = diagnose(
            place,
            rules_dirs=options.all_rules(rules_dirs),
            progress=progress.bytes,
            model=options.chosen_model(model_name),
        )
    return diagnosis.to_dict(similar=diagnosis.verdict == "unknown" or wish.shows_similar)


def _tell_of_folder(place: Path, made: dict[str, Any], wish: output.OutputOptions) -> None:
    """Say where the evidence is: below a text for people, else on stderr."""
    count = sum(len(host["ranks"]) for host in made["hosts"])
    template = "evidence of 1 process: {path}" if count == 1 else "evidence of {count} processes: {path}"
    lines = [
        language.text(template, count=count, path=place),
        language.text("diagnose again: {command}", command=f"nccl-triage {shlex.quote(str(place))}"),
    ]
    if wish.kind == "text" and wish.output is None:
        text = "".join(f"  {language.harmless(line)}\n" for line in lines)
        output.write(text.encode("utf-8", "replace"), None, False)
        return
    for line in lines:
        wish.say({"en": line, "zh": line})
