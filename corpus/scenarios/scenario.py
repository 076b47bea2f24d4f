"""What a scenario is: processes to start, a fault, and the label that the fault deserves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from corpus.scenarios.network import Lab


@dataclass(frozen=True)
class Culprit:
    """Who is to blame; any of several ranks or hosts counts as named right."""

    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    why: str | None = None


@dataclass(frozen=True)
class Node:
    """One host of the job: a command line in its own network, mount and host-name namespace.

    ``command`` may hold ``{python}``, ``{bin}`` (the folder of the virtual environment's programs), ``{jobs}`` (the
    folder of the job scripts) and ``{logs}`` (an empty folder whose files are kept as per-rank logs). ``prelude`` is
    shell that runs in the node's namespaces before the command (mounts, limits).
    """

    command: tuple[str, ...]
    host: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    prelude: str = ""
    delay: float = 0.0
    label: str | None = None


Trigger = float | str


@dataclass(frozen=True)
class Action:
    """Something done while the job runs: after seconds (float) or once a line with a text (str) was printed.

    ``do`` gets the ``recorder.Run`` and returns what it did, in words. ``count`` lines must have held the text.
    """

    when: Trigger
    do: Callable[..., str]
    count: int = 1


@dataclass(frozen=True)
class Scenario:
    """One failure to provoke (or one healthy run), with its label."""

    id: str
    cause: str
    #: Scenarios of one family never stand on both sides of a train/test split.
    family: str
    #: What was done to make it fail, in words; "nothing" for a healthy run.
    injected: str
    nodes: tuple[Node, ...]
    world_size: int
    #: The recording is refused unless this regular expression is found: a fault that did not strike is no case.
    expect: str
    culprit: Culprit = Culprit()
    also: tuple[str, ...] = ()
    determinable: str = "yes"
    #: Regular expression of the most telling line.
    telling: str | None = None
    actions: tuple[Action, ...] = ()
    #: Makes the network: a context manager that yields the hosts.
    network: Callable[[], AbstractContextManager[Lab]] | None = None
    #: Facilities without which the scenario is skipped (see ``facilities``).
    needs: tuple[str, ...] = ()
    #: Versions of what printed the log, instead of the environment's.
    versions: Mapping[str, str] = field(default_factory=dict)
    #: Seconds after which what still runs is killed (and that is written into the label).
    deadline: float = 90.0
    #: The node whose end ends the job, as the end of a batch script does; without one every node is waited for.
    ends_with: int | None = None
    #: Files of ``{logs}`` kept as this run's folder.
    keep: str = "**/*.log"
