"""The GPUs of ranks: lines of the kernel and the driver joined to ranks by process, PCI address, index and host.

The kernel names a GPU by its PCI address and a process by the host's pid. NCCL prints the address of each rank's GPU
when a communicator starts (``busId 3b000``). nvidia-smi lists addresses with indexes and processes. A join holds within
one host. Where the host of a line is unknown, it holds if only one rank of the whole job fits.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple

from nccl_triage.lazy_regex import lazily
from nccl_triage.numbers import whole
from nccl_triage.observations.event import Event
from nccl_triage.story.identity import Identity

#: Lines of the kernel's own log: what they report happened at their time, on their host.
KERNEL = ("kernel.*", "nvidia-driver.xid_*", "nvidia-driver.sxid_*", "nvidia-driver.nvrm_*")
#: Signatures of these programs that are not lines of the kernel's log: reports of tools, and what applications print.
_NO_LOG = (
    "kernel.ib_port_*",
    "kernel.ib_physical_state",
    "kernel.pcie_downgraded",
    "kernel.pcie_acs_on",
    "kernel.mlx5_user_completion",
)
#: The kernel, and the daemons of a host that run its GPUs, networks and memory, as a syslog names them.
DAEMONS = lazily(
    r"(?i:kernel$|nvidia|nv-|nvsm|dcgm|systemd$|systemd-(?:oomd|coredump|logind)|earlyoom|oomd|opensm|ibacm|mlx)"
)
#: Lines of nvidia-smi that list a GPU with its number or its processes.
_LISTED = ("nvidia-driver.smi_*", "nvidia-driver.report_*")
#: Names in the process table of the kernel (15 characters at most) that processes of training jobs have.
JOB_NAMES = ("python", "pt_", "ray", "torchrun", "deepspeed", "accelerate", "vllm", "sglang", "train", "slurmstepd",
             "srun", "mpirun", "orted", "prted", "horovod", "megatron", "nemo", "verl", "openrlhf", "cuda-evt")  # fmt: skip

_PCI_ADDRESS = lazily(r"^(?:PCI:)?(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-9a-f])?$", re.IGNORECASE)
_BUS_ID = lazily(r"^[0-9a-f]{2,13}$", re.IGNORECASE)


class PciAddress(NamedTuple):
    """Where a device sits; its function is left out, since the driver leaves it out too."""

    domain: int
    bus: int
    device: int

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}"


def parse_pci_address(text: str | None) -> PciAddress | None:
    """Return the address in ``PCI:0000:3b:00``, ``00000000:3B:00.0`` or ``3b:00.0``; None for anything else."""
    found = _PCI_ADDRESS.match(text.strip()) if text else None
    if found is None:
        return None
    return PciAddress(int(found[1] or "0", 16), int(found[2], 16), int(found[3], 16))


def address_of_bus_id(text: str | None) -> PciAddress | None:
    """Return the address in NCCL's ``busId 3b000``: its hexadecimal digits without separators (``misc/utils.cc``)."""
    if text is None or _BUS_ID.match(text) is None:
        return None
    number = int(text, 16)
    return PciAddress(number >> 20, (number >> 12) & 0xFF, (number >> 4) & 0xFF)


class Place(NamedTuple):
    """The rank and device that a line of a host's log concerns; ``how`` is what joined it to the rank: pid, pci or None."""

    rank: int | None = None
    host: str | None = None
    address: PciAddress | None = None
    gpu: int | None = None
    pid: int | None = None
    how: str | None = None


@cache
def _matches(signature: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(signature, pattern) for pattern in patterns)


def is_kernel(event: Event) -> bool:
    """Tell whether a line comes from the log of the kernel."""
    return _matches(event.signature, KERNEL) and not _matches(event.signature, _NO_LOG)


def is_of_host(event: Event) -> bool:
    """Tell whether a line is about its host: a syslog names the kernel, or a daemon that runs the host's devices."""
    return event.context.service is not None and DAEMONS.match(event.context.service) is not None


def host_key(name: str | None) -> str | None:
    """Return what two names of one host share: the name without its domain, an address as a whole."""
    if not name:
        return None
    first = name.lower().partition(".")[0]
    return name.lower() if first.isdigit() else first


def job_like(name: str | None) -> bool:
    """Tell whether a process of this name may belong to a training job; a missing name may."""
    return not name or name.lower().startswith(JOB_NAMES)


class Devices:
    """The GPUs and processes that the job's own lines and nvidia-smi name; hosts go by ``host_key``."""

    def __init__(self, identity: Identity, events: Iterable[Event]) -> None:
        self._identity = identity
        self._hosts: set[str | None] = set()
        self._by_address: dict[PciAddress, set[tuple[str | None, int]]] = defaultdict(set)
        self._by_pid: dict[int, set[tuple[str | None, int]]] = defaultdict(set)
        self._index: dict[PciAddress, dict[str | None, int]] = defaultdict(dict)
        self._complete: dict[str | None, bool] = {}
        users: list[tuple[str | None, int, PciAddress]] = []
        for event in events:
            if event.signature.startswith("nccl."):
                self._learn(event)
            elif _matches(event.signature, _LISTED):
                self._learn_listed(event, users)
        for rank, info in identity.ranks.items():
            for number in info.pids:
                self._by_pid[number].add((host_key(info.host), rank))
        for host, process, address in users:
            user = self.rank_of_pid(process, host)
            if user is not None:
                self._by_address[address].add((host_key(host), user))

    def _learn(self, event: Event) -> None:
        """Learn from a line of NCCL: the host of a rank, the address and the number of its GPU."""
        host = host_key(self._identity.host_of(event))
        if host is not None:
            self._hosts.add(host)
        address = address_of_bus_id(event.fields.get("busid"))
        if address is None:
            return
        rank, index = self._identity.rank_of(event), whole(event.fields.get("nvml_dev"))
        if rank is not None:
            self._by_address[address].add((host, rank))
        if index is not None:
            self._index[address].setdefault(host, index)

    def _learn_listed(self, event: Event, users: list[tuple[str | None, int, PciAddress]]) -> None:
        """Learn from a line of nvidia-smi: the number of the GPU at an address, or a process on it."""
        host = self._identity.host_of(event)
        address = parse_pci_address(event.fields.get("bdf"))
        index = whole(event.fields.get("index") or event.fields.get("index2"))
        process = whole(event.fields.get("pid"))
        if address is not None and index is not None:
            self._index[address][host_key(host)] = index
        if process is not None and address is not None:
            users.append((host, process, address))

    def has_host(self, name: str | None) -> bool:
        """Tell whether NCCL's lines name this host."""
        return host_key(name) in self._hosts if name else False

    def knows_all_of(self, host: str | None) -> bool:
        """Tell whether all ranks of the job are known, and the addresses of the GPUs of those on a host."""
        key = host_key(host)
        if key not in self._complete:
            every = self._identity.ranks
            ranks = {rank for rank, info in every.items() if host_key(info.host) == key}
            known = {rank for places in self._by_address.values() for where, rank in places if where == key}
            whole_job = len(every) == self._identity.world_size and all(info.host for info in every.values())
            self._complete[key] = whole_job and bool(ranks) and ranks <= known
        return self._complete[key]

    def _one(self, places: Iterable[tuple[str | None, int]], host: str | None) -> int | None:
        """Return the only rank that fits a host: lines and ranks of unknown hosts fit any."""
        named, key = self.has_host(host), host_key(host)
        fitting = {rank for where, rank in places if not named or where is None or where == key}
        return fitting.pop() if len(fitting) == 1 else None

    def rank_at(self, address: PciAddress | None, host: str | None) -> int | None:
        """Return the rank whose GPU sits at an address."""
        return self._one(self._by_address.get(address, ()), host) if address is not None else None

    def rank_of_pid(self, pid: int | None, host: str | None) -> int | None:
        """Return the rank that ran as this process of this host; pids of other hosts are no match."""
        return self._one(self._by_pid.get(pid, ()), host) if pid is not None else None

    def index_of(self, address: PciAddress, host: str | None) -> int | None:
        """Return the number that nvidia-smi gives the GPU at an address."""
        known, key = self._index.get(address, {}), host_key(host)
        if key in known:
            return known[key]
        found = set(known.values()) if key is None else {known[None]} if None in known else set()
        return found.pop() if len(found) == 1 else None

    def place(self, event: Event) -> Place:
        """Return the rank and device that a line of a host's log concerns, as far as it can be joined."""
        host = self._identity.host_of(event)
        address = parse_pci_address(event.fields.get("bdf"))
        pid = whole(event.fields.get("pid"))
        by_pid, by_address = self.rank_of_pid(pid, host), self.rank_at(address, host)
        rank = by_pid if by_pid is not None else by_address
        how = None if rank is None else "pid" if by_pid is not None else "pci"
        known = self._identity.ranks.get(rank) if rank is not None else None
        if host is None and known is not None:
            host = known.host
        gpu = self.index_of(address, host) if address is not None else None
        if gpu is None and known is not None:
            gpu = known.gpu
        return Place(rank, host, address, gpu, pid, how)
