"""The closed list of kinds: what a line *is*, whichever program prints it.

Every signature has exactly one. The diagnosis and the conditions of rules ask for kinds, so that a message of another
program with the same meaning needs one entry in one file. A list of signature ids in code is a missing kind.
"""

from __future__ import annotations

from typing import NamedTuple

#: kind -> what a line of it says.
KINDS: dict[str, str] = {
    # -- the job, as launchers, schedulers and the program itself tell it
    "job.launched": "a launcher, scheduler or program starts the job: its command, banner or plan of processes",
    "job.finished": "the job, or one of its ranks, says that it finished",
    "job.failed": "a launcher, scheduler or service reports that the job failed, without saying how a process exited",
    "launch.failed": "a launcher or scheduler could not place or start the job or part of it",
    "job.cancelled": "the job was stopped from outside: time limit, preemption, eviction, cancel, Ctrl-C",
    "job.restarted": "a launcher starts or restarts its group of processes",
    # -- how far it came
    "setup": "a process does part of its setup, before any work on data: connects, meets others, starts a server",
    "step": "a training loop advanced: a step, iteration, epoch or episode with its number or its loss",
    "step.skipped": "a step was skipped, or its loss scale was lowered",
    "progress.bar": "a progress bar, whatever it counts",
    "progress": "other work advanced: requests served, batches generated, rows of a benchmark",
    "task.started": "a long piece of work begins: checkpoint, evaluation, tokenising, loading, compiling",
    "task.finished": "a long piece of work is done",
    "loop.left": "a rank leaves its training loop: data exhausted, early stop",
    "waiting": "a process or job says that it waits: for others, for machines, for something to come up",
    "retry": "something failed and is tried again",
    "fallback": "something is unavailable and an alternative is used",
    "recovered": "something that failed works again",
    "measurement": "a measured number or a reported state: speed, memory, timers, error counters, clocks, topology",
    # -- processes and nodes
    "rank.identity": "says which rank, process, host or GPU a process is",
    "process.exit": "another process reports the exit code or signal of a process",
    "process.finished": "another process reports that a process exited with code 0",
    "process.stopped": "a launcher stops a process because another one failed, or at the end",
    "process.signalled": "a process reports that a signal told it to stop",
    "process.abort": "a process says that it exits because of an earlier error",
    "process.crash": "a process reports its own crash: fatal signal, failed check in native code, terminate called",
    "process.lost": "another process, actor or worker is found dead or unresponsive",
    "process.stalled": "the kernel or a launcher finds a process, thread or processor stuck",
    "call.timeout": "a call to another process or service got no answer in time; no collective operation",
    "node.lost": "a host or its daemon is found dead or unresponsive",
    # -- exceptions of programs
    "exception": "a program raised an exception: its traceback or the line of its type and message",
    "exception.relayed": "a launcher or parent process passes on that a child raised an exception",
    "exception.frame": "a frame, header or other part of a traceback or of a dumped stack",
    "exception.ignored": "an exception that the interpreter or a library ignored",
    # -- collectives and communicators
    "collective.timeout": "a rank gave up waiting for a collective operation, or for a message of one",
    "collective.counters": "counters of a rank's collectives: last enqueued, last completed, launched",
    "collective.notified": "another rank told this rank that a collective timed out",
    "collective.absent": "names ranks that did not arrive at a collective",
    "collective.entered": "a rank says that it entered a collective",
    "collective.waiting": "a warning that a collective is not complete yet; no rank has given up",
    "collective.mismatch": "ranks disagree on the operation, its size, type, order or group",
    "collective.error": "a collective library reports a failed call, usually because of something earlier",
    "communicator.starting": "a rank starts to create a communicator or process group",
    "communicator.ready": "a communicator or process group is complete",
    "communicator.closed": "a communicator or process group was aborted or destroyed",
    # -- connections
    "connection.refused": "a connection could not be made: refused, no route, no answer",
    "connection.lost": "a connection that had worked broke: reset, closed by the peer, broken pipe",
    "rendezvous.failed": "ranks did not find each other: store or rendezvous timed out, or was refused",
    "address.unresolved": "a name or address of a host could not be resolved or used",
    "port.taken": "a port is in use already",
    # -- devices, links and hosts
    "interface.chosen": "a process says which interfaces, adapters and addresses it uses",
    "transport.chosen": "a process says which transport, path or plugin its data uses",
    "transport.error": "a transfer or a queue of a network adapter or transport failed",
    "link.down": "a link or port of a network adapter or switch is down or flapped",
    "hardware.error": "hardware reports an error: Xid, ECC, NVLink, bus, machine check",
    "gpu.error": "a GPU runtime returns an error other than out of memory",
    "gpu.unusable": "driver, fabric manager, library or permission keeps a GPU from being used",
    "peer.unusable": "direct access between GPUs, shared handles or multicast cannot be used",
    # -- resources
    "memory.gpu": "memory of a GPU ran out",
    "memory.host": "host or container memory could not be allocated or ran out",
    "memory.killed": "a process is (about to be) killed because its host, container or job is out of memory",
    "memory.shared": "shared memory ran out or cannot be used",
    "limit.reached": "a limit of the operating system: files, processes, locked memory, processor time",
    "storage.error": "a file system or object store failed, is full, read-only or slow",
    # -- configuration, versions, data, numbers
    "configuration": "a setting is wrong, missing, or conflicts with another one or the machine",
    "version.conflict": "versions or builds of libraries are incompatible",
    "library.missing": "a library, symbol, plugin or program is missing or cannot be loaded",
    "software.version": "says which version of something is running",
    "variable": "gives the value of an environment variable in effect",
    "setting": "gives the value of an option or parameter in effect",
    "data.error": "data cannot be read or has the wrong form",
    "numbers.bad": "NaN, infinity, overflow or a diverging loss",
    # -- the rest
    "teardown": "what processes print while exiting, after the work or after a failure",
    "note": "a hint, a warning or a remark that reports no event by itself",
    "recall": "what is known of earlier runs of the job, or how this one differs from a good run",
    "speaker": "a line of which only the speaker is known",
    "salient": "a line that looks like an error and that no signature knows",
}


class Produced(NamedTuple):
    """What a producer of events declares of a signature that is no pattern of a line.

    ``fields`` are those of every event, ``sometimes`` those that only some have: texts and conditions of rules name them.
    """

    kind: str
    meaning: str
    fields: tuple[str, ...] = ()
    sometimes: tuple[str, ...] = ()
