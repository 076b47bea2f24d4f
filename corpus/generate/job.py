"""The job that a log comes from: ranks, hosts, addresses, process ids, clocks and software."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

from corpus.generate import clock, data

#: Stems of host names and how wide their number is.
_STEMS = (("gpu-node-", 3), ("gn", 2), ("worker", 1), ("dgx-", 2), ("hpc-h100-", 3), ("ip-10-4-7-", 1), ("node", 3))
_NETWORKS = ("10.0.{b}.{c}", "10.12.{b}.{c}", "192.168.{b}.{c}", "172.20.{b}.{c}")
_BUSES = ("18000", "2a000", "3a000", "5d000", "9a000", "ab000", "ba000", "db000")


@dataclass(frozen=True)
class Release:
    """A PyTorch release, as far as its lines differ."""

    version: str
    nccl: str
    cuda: str
    texts: dict[str, Any]

    @property
    def number(self) -> tuple[int, int]:
        """Major and minor number."""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)

    @property
    def nccl_number(self) -> tuple[int, ...]:
        """Numbers of the NCCL version."""
        return tuple(map(int, self.nccl.split(".")))


def releases() -> list[Release]:
    """Return the known releases, oldest first."""
    return [
        Release(name, texts["nccl"], texts["cuda"], texts)
        for name, texts in data.load("torch.yaml")["releases"].items()
    ]


@dataclass(frozen=True)
class Job:
    """A job; every attribute of a rank is computed on demand, so that 16,384 ranks cost nothing."""

    world_size: int
    per_host: int
    release: Release
    framework: dict[str, Any]
    launcher: str
    started: float
    stem: str
    width: int
    first_host: int
    network: str
    subnet: int
    first_pid: int
    python: str
    port: int
    name: str
    salt: int
    #: Hosts from this one on have addresses in another network.
    split_at: int | None = None
    #: Interface that NCCL takes on every host, with its address, when it is not the right one.
    interface: str | None = None

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return -(-self.world_size // self.per_host)

    def host_of(self, rank: int) -> int:
        """Return the index of a rank's host."""
        return rank // self.per_host

    def host_name(self, host: int) -> str:
        """Return the short name of a host."""
        return f"{self.stem}{self.first_host + host:0{self.width}d}"

    def host_names(self, host: int) -> list[str]:
        """Return every name under which a log may know a host: its own, its address, its pod."""
        pod = [f"{self.name}-worker-{host}"] if self.launcher == "kubernetes" else []
        name = self.host_name(host)
        return [name, f"{name}.cluster.local", self.address(host), *pod]

    def address(self, host: int) -> str:
        """Return the address of a host."""
        if self.split_at is not None and host >= self.split_at:
            return f"{144 + self.salt % 40}.{self.subnet + 1}.{self.salt % 200 + 8}.{host % 240 + 10}"
        return self.network.format(b=(self.subnet + host // 240) % 250 + 1, c=host % 240 + 10)

    def pid(self, rank: int) -> int:
        """Return the process id of a rank."""
        host = self.host_of(rank)
        return self.first_pid + (host * 7919 + self.salt) % 30_011 + (rank % self.per_host) * (1 + self.salt % 3) + 2

    def agent_pid(self, host: int) -> int:
        """Return the process id of a host's launcher."""
        return self.pid(host * self.per_host) - 64 - self.salt % 40

    def skew(self, host: int) -> float:
        """Return by how many seconds a host's clock is off (the clocks of a cluster differ by tenths)."""
        return Random(f"{self.salt}/skew/{host}").gauss(0.0, 0.15)

    def moment(self, at: float, host: int) -> dict[str, str]:
        """Return the texts of a moment, as the clock of a host shows it."""
        return clock.fields(at + self.skew(host), (self.salt * 0.137 + host * 0.61803) % 1)

    @cached_property
    def common(self) -> dict[str, str]:
        """Fields that are the same for every rank."""
        nccl = self.release.nccl_number
        packages = f"/usr/local/lib/python{self.python}/dist-packages"
        if self.salt % 2:
            packages = f"/opt/conda/lib/python{self.python}/site-packages"
        executable = "/usr/bin/python3" if not self.salt % 2 else f"/opt/conda/bin/python{self.python}"
        return {
            "world": str(self.world_size),
            "nodes": str(self.hosts),
            "local_world": str(self.per_host),
            "torch": self.release.version,
            "nccl": self.release.nccl,
            "nccl_code": str(nccl[0] * 10000 + nccl[1] * 100 + nccl[2]),
            "cuda": self.release.cuda,
            "packages": packages,
            "executable": executable,
            "python": self.python,
            "script": str(self.framework["script"]),
            "script_name": str(self.framework["script"]).rsplit("/", 1)[-1],
            "actor": str(self.framework["actor"]),
            "port": str(self.port),
            "master": self.host_name(0),
            "master_ip": self.address(0),
            "job": self.name,
            "job_id": str(40_000 + self.salt % 50_000),
            "comm_id": f"{(self.salt * 0x9E3779B97F4A7C15) % 2**64:016x}",
            "datadir": f"/mnt/{('lustre', 'nfs', 'data', 'scratch')[self.salt % 4]}",
        }

    def host_fields(self, host: int) -> dict[str, str]:
        """Return the fields of a host."""
        name = self.host_name(host)
        interface, _, taken = (self.interface or ("eth0", "ens9", "bond0", "enp1s0")[self.salt % 4]).partition(":")
        return {
            "host": name,
            "node_rank": str(host),
            "fqdn": f"{name}.cluster.local",
            "ip": self.address(host),
            "agent_pid": str(self.agent_pid(host)),
            "node_id": f"{(host * 2654435761 + self.salt * 40503) % 2**96:056x}",
            "iface": interface,
            "nccl_ip": taken or self.address(host),
        }

    def rank_fields(self, rank: int) -> dict[str, str]:
        """Return the fields of a rank, its host's and the common ones."""
        local = rank % self.per_host
        pid = self.pid(rank)
        following = (rank + 1) % self.world_size
        return {
            **self.common,
            **self.host_fields(self.host_of(rank)),
            "rank": str(rank),
            "group_rank": str(rank),
            "local": str(local),
            "pid": str(pid),
            "tid": str(pid + 180 + (rank * 13) % 90),
            "next": str(following),
            "next_local": str(following % self.per_host),
            "previous": str((rank - 1) % self.world_size),
            "bus": _BUSES[local % len(_BUSES)],
            "pci": f"0000:{_BUSES[local % len(_BUSES)][:2]}:00",
            "hca": f"mlx5_{local}",
            "comm": f"0x55{(rank * 0x9E3779B1 + self.salt) % 2**40:010x}",
            "actor_id": f"{(rank * 0x5851F42D4C957F2D + self.salt) % 2**96:024x}01000000",
        }


def make(
    chance: Random,
    *,
    world_size: int,
    launcher: str,
    framework: dict[str, Any],
    release: Release,
    per_host: int | None = None,
) -> Job:
    """Draw a job."""
    stem, width = chance.choice(_STEMS)
    if per_host is None:
        per_host = min(8, world_size) if world_size > 8 or chance.random() < 0.7 else max(1, world_size // 2)
    if world_size % per_host:
        per_host = max(n for n in range(1, min(8, world_size) + 1) if world_size % n == 0)
    return Job(
        world_size=world_size,
        per_host=per_host,
        release=release,
        framework=framework,
        launcher=launcher,
        started=float(chance.randrange(1_704_000_000, 1_767_000_000)) + chance.random(),
        stem=stem,
        width=width,
        first_host=chance.randrange(1, 40),
        network=chance.choice(_NETWORKS),
        subnet=chance.randrange(0, 120),
        first_pid=chance.choice((120, 2_100, 31_000, 310_000, 1_200_000)),
        python=chance.choice(("3.10", "3.11", "3.12")),
        port=chance.choice((29500, 29500, 29501, 6000, 23456, chance.randrange(20_000, 60_000))),
        name=chance.choice(("pretrain-7b", "sft-13b", "ppo-qwen", "grpo-32b", "ablation-17", "llama-ft")),
        salt=chance.randrange(1, 1 << 30),
    )
