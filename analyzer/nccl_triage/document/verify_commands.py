"""Commands that put a diagnosis to the test on the job's own hosts, one for each way to start ranks there.

The way of the platform that the log shows comes first. A command is meant to be copied into a shell, and the log is
untrusted: of its names only those that can be a host, an address or a namespace are filled in, and each word is quoted.
What the log does not tell stays a word in capitals. No torch and no I/O.
"""

from __future__ import annotations

import ipaddress
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nccl_triage.engine.schema import Text
from nccl_triage.lazy_regex import lazily

#: Paths of the input that are named one by one, and hosts that one command names.
PATHS, HOSTS = 3, 16
#: The folder, seen by every host, that --launcher slurm and print write to.
FOLDER = "nccl-triage-check"
_NAME = lazily(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,250}[A-Za-z0-9])?")
_WITH_PORT = lazily(r"[A-Za-z0-9][A-Za-z0-9.-]{0,250}:\d{1,5}")
_JOB_ID = lazily(r"\d{1,12}(?:_\d{1,8})?")
_OWN_NAMES = frozenset({"localhost", "localhost.localdomain"})
#: Most ranks on one host, where the log does not tell.
_PER_HOST = 8
#: Variables of a pod that hold its namespace.
_NAMESPACES = ("POD_NAMESPACE", "NAMESPACE", "KUBERNETES_NAMESPACE")


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Where a job ran, as far as commands need it; every name has been checked.

    ``log`` is what the tool reads, quoted. ``unnamed`` hosts beyond ``hosts`` are needed that the log does not name.
    ``ranks_per_host`` is None where the log does not tell. ``options`` are those that the user gave, quoted, and
    ``given`` the hosts as the user gave them (``NAME`` or ``NAME=COMMAND``), in place of those of the log.
    """

    log: str
    hosts: tuple[str, ...] = ()
    unnamed: int = 0
    ranks_per_host: int | None = None
    scheduler: str | None = None
    launcher: str | None = None
    ray_address: str | None = None
    namespace: str | None = None
    job_id: str | None = None
    options: tuple[str, ...] = ()
    given: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All hosts, a word in capitals for each that the log does not name."""
        if self.unnamed == 1:
            return (*self.hosts, "OTHER_HOST" if self.hosts else "HOST")
        return (*self.hosts, *(f"HOST{index + 1}" for index in range(self.unnamed)))


@dataclass(frozen=True, slots=True)
class ReadyCommand:
    """The lines that run the experiments by one launcher, in their order, and what to know before.

    ``names`` says which words in capitals must be replaced, or which hosts are left out.
    """

    launcher: str
    lines: tuple[str, ...]
    note: Text | None = None
    names: Text | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the command as a document has it."""
        note, names = (_both(text) for text in (self.note, self.names))
        return {
            "launcher": self.launcher,
            "commands": list(self.lines),
            "note": note["en"],
            "note_zh": note["zh"],
            "names": names["en"],
            "names_zh": names["zh"],
        }


def _both(text: Text | None) -> Mapping[str, str | None]:
    return text or {"en": None, "zh": None}


def host_word(name: str, addresses: Sequence[str] = ()) -> str | None:
    """Return the word by which a host of the log can be reached: its name, else its first address; None without any."""
    name = name.partition("#")[0]
    if name.casefold() not in _OWN_NAMES and _NAME.fullmatch(name):
        return name
    for address in (name, *addresses):
        try:
            known = ipaddress.ip_address(address)
        except ValueError:
            continue
        if not (known.is_loopback or known.is_unspecified):
            return str(known)
    return None


def log_words(paths: Sequence[str]) -> str:
    """Return the input as words of a shell: its paths where they are few, their folder, or LOG... for what has no name."""
    if not paths or any(path.startswith("<") or path in ("-", "None") for path in paths):
        return "LOG..."
    known = [path if not path.startswith("-") else f"./{path}" for path in paths]
    if len(known) <= PATHS:
        return " ".join(map(shlex.quote, known))
    if len({Path(path).is_absolute() for path in known}) > 1:
        return "LOG..."
    folder = os.path.commonpath(map(os.path.dirname, known))
    return shlex.quote(folder) if folder not in ("", "/") else "LOG..."


def place_of(
    document: Mapping[str, Any], paths: Sequence[str] = (), options: Sequence[str] = (), given: Sequence[str] = ()
) -> JobPlace:
    """Return where the job of a document ran; ``paths`` are what was read instead of the document's own inputs.

    ``options`` are what the user gave, in words of a shell, and ``given`` the hosts: they shape the plan, so that a
    command has to repeat them.
    """
    job = _mapping(document.get("job"))
    found = _mappings(document.get("diagnoses"))
    experiments = [_mapping(entry.get("experiment")) for entry in found]
    inputs = [str(entry.get("path")) for entry in _mappings(document.get("inputs"))]
    known = _mappings(job.get("hosts"))
    env = _mapping(job.get("env"))
    place = job_place(
        paths or inputs,
        [(_text(host.get("name")) or "", _texts(host.get("addresses")), _count(host.get("ranks"))) for host in known],
        accused=[_text(one.get("host")) or "" for entry in found[:1] for one in _mappings(entry.get("culprits"))],
        scope=next((str(entry.get("scope") or "all") for entry in experiments if entry.get("kind") != "none"), "all"),
        world=job.get("world_size") if isinstance(job.get("world_size"), int) else None,
        scheduler=_text(job.get("scheduler")),
        launcher=_text(job.get("launcher")),
        ray_address=_text(job.get("ray_address")),
        job_id=_text(job.get("id")),
        namespace=next((value for name in _NAMESPACES if (value := _text(env.get(name)))), None),
    )
    if given:
        # What the user types may be an address or have a login's name, which ssh alone needs.
        named = tuple(entry.partition("=")[0].rpartition("@")[2] for entry in given)
        place = replace(place, hosts=named, unnamed=0, given=tuple(given))
    return replace(place, options=tuple(options))


def job_place(
    paths: Sequence[str],
    hosts: Sequence[tuple[str, Sequence[str], int]],
    *,
    accused: Sequence[str] = (),
    scope: str = "all",
    world: int | None = None,
    scheduler: str | None = None,
    launcher: str | None = None,
    ray_address: str | None = None,
    namespace: str | None = None,
    job_id: str | None = None,
) -> JobPlace:
    """Return where a job ran, from its hosts (name, addresses, number of ranks) and the ``scope`` of the first experiment.

    The experiment inside one host takes the first: there the ``accused`` come first.
    """
    ordered = sorted(hosts, key=lambda host: host[0] not in accused) if scope in ("host", "rank") else list(hosts)
    named = tuple(dict.fromkeys(word for name, known, _ in ordered if (word := host_word(name, known)) is not None))
    each = max((ranks for _, _, ranks in hosts), default=0)
    wanted = 2 if scope == "hosts" else 1
    if world and scope == "all":
        wanted = -(-world // max(_PER_HOST, each))
    if world:
        each = max(each, -(-world // max(1, len(named), wanted)))
    return JobPlace(
        log=log_words(paths),
        hosts=named,
        unnamed=min(max(0, wanted - len(named)), HOSTS),
        ranks_per_host=each or None,
        scheduler=scheduler,
        launcher=launcher,
        ray_address=ray_address if ray_address is not None and _WITH_PORT.fullmatch(ray_address) else None,
        namespace=namespace if namespace is not None and _NAME.fullmatch(namespace) else None,
        job_id=job_id if job_id is not None and _JOB_ID.fullmatch(job_id) else None,
    )


def launcher_of(option: str, hosts: bool) -> str:
    """Return the launcher that ``--launcher`` chooses, with or without any ``--host``."""
    if option == "local":
        return "ssh" if hosts else "local"
    return "torchrun" if option == "print" else option


def ready_commands(place: JobPlace, chosen: str | None = None, tried: str | None = None) -> tuple[ReadyCommand, ...]:
    """Return the command of each launcher that could reach the job's hosts: the chosen one, then the job's own.

    The launcher that has been ``tried`` in vain is left out.
    """
    makers = {
        "local": _local,
        "ssh": _ssh,
        "ray": _ray,
        "slurm": _slurm,
        "torchrun": _torchrun,
        "mpirun": _mpirun,
        "kubectl": _kubectl,
    }
    if chosen == "local" and not place.hosts:
        chosen = None  # whether this is the job's host is not known: the job's platform is certain to have it
    names = dict.fromkeys([*([chosen] if chosen else []), *_own(place), "ssh", "ray", "slurm", "torchrun"])
    return tuple(makers[name](place) for name in names if name != tried)


def _own(place: JobPlace) -> list[str]:
    """Return the launchers that fit what the log shows of the job's platform."""
    scheduler, launcher = _OF_SCHEDULER.get(place.scheduler or ""), _OF_LAUNCHER.get(place.launcher or "")
    platform = [name for name in (scheduler, launcher) if name] or ["ssh"]
    if place.hosts or place.unnamed > 1:
        return platform
    # The one host of a log without names may be this one; ssh asks for nothing on others but a login.
    return [*platform, "local"] if scheduler or launcher else ["local", *platform]


def to_confirm(
    document: Mapping[str, Any], paths: Sequence[str] = (), tried: str | None = None, options: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return the commands of the job's own platform, of ssh and of torchrun, but that of the launcher just ``tried``."""
    place = place_of(document, paths, options)
    usual = {*_own(place), "ssh", "torchrun"}
    return [found.to_dict() for found in ready_commands(place, tried=tried) if found.launcher in usual]


#: Scheduler or launcher of a job -> the launcher whose command is the first.
_OF_SCHEDULER = {"slurm": "slurm", "kubernetes": "kubectl", "pbs": "mpirun", "lsf": "mpirun"}
_OF_LAUNCHER = {"ray": "ray", "slurm": "slurm", "mpirun": "mpirun", "kubernetes": "kubectl"}


def _verify(place: JobPlace, *options: str) -> str:
    # Of hosts that the log does not name nothing tells that they are the job's, but whoever fills them in.
    vouched = ["--job-hosts"] if place.unnamed and "--job-hosts" not in place.options else []
    return " ".join(["nccl-triage", "verify", place.log, *options, *place.options, *vouched])


def _hosts(place: JobPlace) -> list[str]:
    return [f"--host {shlex.quote(name)}" for name in place.names[:HOSTS]]


def _about_hosts(place: JobPlace) -> Text | None:
    """Return what must be filled in, or that a command names a part of the hosts only."""
    if place.unnamed:
        words = ", ".join(place.names[len(place.hosts) :])
        what = "a host of the job" if place.unnamed == 1 else "hosts of the job"
        return {
            "en": f"{words}: {what} that the log does not name",
            "zh": f"{words}：日志中没有写出的作业主机",
        }
    if (total := len(place.hosts)) > HOSTS:
        return {
            "en": f"{HOSTS} of the {total} hosts: a pass on fewer refutes nothing; add --host for more",
            "zh": f"仅列出 {total} 台主机中的 {HOSTS} 台：在更少的主机上通过不能否定诊断；可用 --host 增加",
        }
    return None


def _local(place: JobPlace) -> ReadyCommand:
    return ReadyCommand("local", (_verify(place),), {"en": "on the job's host", "zh": "在作业的主机上执行"})


def _ssh(place: JobPlace) -> ReadyCommand:
    python: Text = {
        "en": "add --python PATH where the job's Python is another than this one",
        "zh": "如果作业的 Python 与当前的不同，加上 --python PATH",
    }
    hosts = [f"--host {shlex.quote(entry)}" for entry in place.given] or _hosts(place)
    return ReadyCommand("ssh", (_verify(place, *hosts),), python, _about_hosts(place))


def _ray(place: JobPlace) -> ReadyCommand:
    address = ["--ray-address", shlex.quote(place.ray_address)] if place.ray_address else []
    note: Text = {"en": "on a node of the Ray cluster", "zh": "在 Ray 集群的节点上执行"}
    return ReadyCommand("ray", (_verify(place, "--launcher ray", *address),), note)


def _written(place: JobPlace, launcher: str) -> str:
    named = _hosts(place) if not place.unnamed and len(place.hosts) <= HOSTS else []
    return _verify(place, f"--launcher {launcher}", *named, f"--workdir {FOLDER}")


_SHARED: Text = {"en": "in a folder that every host sees", "zh": "在所有主机都能访问的文件夹中执行"}
_JUDGE = f"nccl-triage verify --collect {FOLDER}"


def _slurm(place: JobPlace) -> ReadyCommand:
    names: Text | None = None
    if not place.unnamed:
        nodes = f"--nodes={len(place.hosts)} --nodelist={shlex.quote(','.join(place.hosts))}"
    elif place.scheduler == "slurm" and place.job_id is not None:
        nodes = f'--nodelist="$(sacct -nXP -j {place.job_id} -o nodelist)"'
    else:
        nodes = f"--nodes={len(place.names)}"
        names = {
            "en": "choose the job's nodes with --nodelist: runs on others decide nothing",
            "zh": "用 --nodelist 选择作业的节点：在其他节点上运行不能得出结论",
        }
    start = f"{_written(place, 'slurm')} && salloc --exclusive {nodes} bash {FOLDER}/run.sh"
    return ReadyCommand("slurm", (start, _JUDGE), _SHARED, names)


def _torchrun(place: JobPlace) -> ReadyCommand:
    run = f"bash {FOLDER}/run.sh torchrun"
    if len(place.names) < 2:
        return ReadyCommand("torchrun", (_written(place, "print"), run, _JUDGE), _SHARED, _about_hosts(place))
    head = shlex.quote(place.names[0])
    starts = [f"HEAD={head} NODE_RANK={k} {run}   # on {name}" for k, name in enumerate(place.names[:HOSTS])]
    together: Text = {
        "en": f"{_SHARED['en']}, on all hosts at the same time",
        "zh": f"{_SHARED['zh']}，各主机同时执行",
    }
    return ReadyCommand("torchrun", (_written(place, "print"), *starts, _JUDGE), together, _about_hosts(place))


def _mpirun(place: JobPlace) -> ReadyCommand:
    slots = place.ranks_per_host or _PER_HOST
    hosts = shlex.quote(",".join(f"{name}:{slots}" for name in place.names[:HOSTS]))
    start = f"bash {FOLDER}/run.sh mpirun --host {hosts}"
    return ReadyCommand("mpirun", (_written(place, "print"), start, _JUDGE), _SHARED, _about_hosts(place))


def _kubectl(place: JobPlace) -> ReadyCommand:
    space = f" -n {place.namespace}" if place.namespace else ""
    options = [f"--host {shlex.quote(f'{pod}=kubectl exec -i {pod}{space} --')}" for pod in place.names[:HOSTS]]
    missing = "-c CONTAINER" if place.namespace else "-n NAMESPACE -c CONTAINER"
    note: Text = {
        "en": f"the pods must still run; add {missing} behind the pod where kubectl needs it",
        "zh": f"pod 必须仍在运行；如有需要，在 pod 名之后加上 {missing}",
    }
    return ReadyCommand("kubectl", (_verify(place, *options),), note, _about_hosts(place))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: Any) -> list[str]:
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []


def _count(value: Any) -> int:
    return len(value) if isinstance(value, list) else 0
