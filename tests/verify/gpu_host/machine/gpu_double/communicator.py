"""A communicator of NCCL that exists only in words: its set-up through the store, its log, its faults, its watchdog."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from . import nccl_log

#: Seconds after which nobody waits any more.
_FOREVER = 3600.0


def code_of(version: str) -> int:
    """Return a release of NCCL as its ncclGetVersion counts."""
    major, minor, patch = (int(part) for part in version.split("."))
    return major * 10000 + minor * 100 + patch


class Communicator:
    """What NCCL and torch's watchdog do for one process group."""

    def __init__(self, torch: Any, told: dict[str, Any], devices: Any, number: int, timeout: timedelta) -> None:
        self._torch, self._told, self._devices = torch, told, devices
        self._number, self._timeout = number, timeout
        self._rank = self._world = self._calls = 0
        self._connected = False
        self.local = 1

    # set-up

    def connect(self, group: Any, eager: bool) -> None:
        """Set the communicator up, once; raises DistBackendError as torch does."""
        if self._connected:
            return
        dist = self._torch.distributed
        self._rank, self._world = dist.get_rank(group), dist.get_world_size(group)
        gpu = self._devices.use()
        self._note(gpu, eager)
        log = nccl_log.Log(self._told["name"], self._devices.number())
        self._hello(log)
        self._act("init", log)
        peers = self._meet(gpu)
        self._compare(peers, log)
        self._describe(peers, log)
        self._connected = True

    def _note(self, gpu: dict[str, Any], eager: bool) -> None:
        env = {name: value for name, value in os.environ.items() if name.startswith(("NCCL_", "TORCH_NCCL_"))}
        told = {"rank": self._rank, "world": self._world, "index": gpu["index"], "uuid": gpu["uuid"]}
        with (Path(self._told["folder"]) / "communicators.jsonl").open("a") as file:
            file.write(json.dumps({**told, "number": self._number, "eager": eager, "env": env}) + "\n")

    def _hello(self, log: nccl_log.Log) -> None:
        if self._rank == 0:
            log.version(f"{self._told['nccl']}+cuda{self._told['cuda']}")
        for name in ("NCCL_SOCKET_IFNAME", "NCCL_HOSTID"):
            if name in os.environ:
                log.info(f"{name} set by environment to {os.environ[name]}")
        taken = nccl_log.network(nccl_log.interfaces(), os.environ.get("NCCL_SOCKET_IFNAME"))
        if not taken:
            log.warn("bootstrap.cc:57", "Bootstrap : no socket interface found")
            self._fail("ncclInternalError", "Bootstrap : no socket interface found")
        log.info(f"Bootstrap: Using {taken[0][0]}:{taken[0][1]}<0>")
        log.info("cudaDriverVersion 12080")
        log.info("NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.")
        log.info("NET/IB : No device found.")
        used = " ".join(f"[{index}]{name}:{address}<0>" for index, (name, address) in enumerate(taken))
        log.info(f"NET/Socket : Using {used}")
        log.info("Using network Socket")

    def _meet(self, gpu: dict[str, Any]) -> list[dict[str, Any]]:
        """Exchange what the ranks tell each other at the bootstrap; returns it in the order of the ranks."""
        dist = self._torch.distributed
        store = dist.PrefixStore(f"nccl/{self._number}", dist.distributed_c10d._get_default_store())
        own = {
            "host": os.environ.get("NCCL_HOSTID", self._told["name"]),
            "uuid": gpu["uuid"],
            "bus": int(gpu["bus"].replace(":", "").replace(".", ""), 16),
            "version": code_of(self._told["nccl"]),
            "device": self._devices.number(),
        }
        store.set(str(self._rank), json.dumps(own))
        keys = [str(rank) for rank in range(self._world)]
        try:
            store.wait(keys, self._timeout)
        except RuntimeError as error:
            raise dist.DistBackendError(
                f"[{self._rank}] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value "
                f"store by key '0', but store->get('0') got error: {error}"
            ) from None
        return [json.loads(store.get(key)) for key in keys]

    def _compare(self, peers: list[dict[str, Any]], log: nccl_log.Log) -> None:
        own = peers[self._rank]
        for rank, peer in enumerate(peers):
            if peer["version"] != own["version"]:
                last = (
                    f"Mismatched NCCL version detected : rank {self._rank} version {own['version']} "
                    f"rank {rank} version {peer['version']}"
                )
                log.warn("init.cc:782", last)
                self._fail("ncclInvalidUsage", last)
        for rank, peer in enumerate(peers):
            if rank != self._rank and (peer["host"], peer["uuid"]) == (own["host"], own["uuid"]):
                if os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1" and own["version"] >= 23003:
                    continue
                last = f"Duplicate GPU detected : rank {self._rank} and rank {rank} both on CUDA device {own['bus']:x}"
                log.warn("init.cc:799", last)
                self._fail("ncclInvalidUsage", last)

    def _describe(self, peers: list[dict[str, Any]], log: nccl_log.Log) -> None:
        own = peers[self._rank]
        self.local = sum(peer["host"] == own["host"] for peer in peers)
        about = (
            f"ncclCommInitRankConfig comm 0x{id(self):x} rank {self._rank} nranks {self._world} cudaDev {own['device']} "
            f"nvmlDev {self._devices.seen[own['device']]['index']} busId {own['bus']:x} commId 0x{0xABC0 + self._number:x}"
        )
        log.info(f"{about} - Init START")
        after = (self._rank + 1) % self._world
        if self._world > 1:
            for channel in range(2):
                log.info(
                    f"Channel {channel:02d}/0 : {self._rank}[{own['device']}] -> {after}[{peers[after]['device']}] via "
                    f"{self._way(own, peers[after])}"
                )
            log.info("Connected all rings, use ring PXN 0 GDR 1")
        log.info(f"{about} - Init COMPLETE")

    @staticmethod
    def _way(own: dict[str, Any], peer: dict[str, Any]) -> str:
        if peer["host"] == own["host"]:
            if os.environ.get("NCCL_P2P_DISABLE") != "1":
                return "P2P/CUMEM"
            if os.environ.get("NCCL_SHM_DISABLE") != "1":
                return "SHM/direct/direct"
        return "NET/Socket/0"

    def _fail(self, result: str, last: str) -> None:
        raise self._torch.distributed.DistBackendError(nccl_log.error_text(result, last, self._told["nccl"]))

    # faults

    def faults(self, at: str) -> list[dict[str, Any]]:
        """Return the faults of this rank's GPU that strike now."""
        gpu = self._devices.seen[self._devices.number()]
        return [
            fault
            for fault in gpu["faults"]
            if fault["at"] == at
            and not (fault["unless"] and all(os.environ.get(name) == value for name, value in fault["unless"].items()))
            and self.local >= fault["local"]
            and self._world >= fault["world"]
            and (at == "init" or self._calls > fault["after"])
        ]

    def _act(self, at: str, log: nccl_log.Log | None = None) -> None:
        for fault in self.faults(at):
            if fault["does"] == "slow":
                time.sleep(fault["seconds"])
            elif fault["does"] == "raise":
                if log is not None:
                    log.warn("misc/socket.cc:474", fault["last"])
                self._fail(fault["result"], fault["last"])
            elif fault["does"] == "hang" and at == "init":
                time.sleep(_FOREVER)
            elif fault["does"] == "hang":
                time.sleep(self._timeout.total_seconds())
                raise RuntimeError("Timed out waiting")

    def before(self) -> None:
        """Act as a faulty GPU does before a collective."""
        self._calls += 1
        self._act("collective")

    def after(self, tensors: list[Any]) -> None:
        """Act as a faulty GPU does to what a collective brings."""
        if any(fault["does"] == "wrong" for fault in self.faults("collective")):
            for tensor in tensors:
                if tensor.numel():
                    first = tensor.view(-1).view(self._torch.uint8) if tensor.is_contiguous() else tensor.view(-1)
                    first[0] ^= 1

    # the watchdog

    def lost(self, name: str, error: RuntimeError) -> None:
        """End the process as the watchdog does when a collective fails; errors of another kind are raised again."""
        text = str(error)
        head = f"[rank{self._rank}]:[E{time.strftime('%m%d %H:%M:%S')}.000000000 ProcessGroupNCCL.cpp:"
        limit = int(self._timeout.total_seconds() * 1000)
        if "imed out" in text or "timeout" in text:
            what = (
                f"[Rank {self._rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={self._calls}, "
                f"OpType={name.upper()}, NumelIn=1, NumelOut=1, Timeout(ms)={limit}) ran for {limit} milliseconds "
                "before timing out."
            )
        elif "closed by peer" in text or "reset by peer" in text or "refused" in text:
            what = nccl_log.error_text(
                "ncclRemoteError", "socketProgress: Connection closed by remote peer", self._told["nccl"]
            )
        else:
            raise error
        if os.environ.get("TORCH_NCCL_BLOCKING_WAIT") == "1":
            raise self._torch.distributed.DistBackendError(what) from None
        print(f"{head}685] {what}", file=sys.stderr, flush=True)
        time.sleep(4 * float(os.environ.get("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "15000")) / 1000)
        print(
            f"{head}755] [Rank {self._rank}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of "
            "CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n"
            f"{head}761] [Rank {self._rank}] To avoid data inconsistency, we are taking the entire process down.\n"
            f"terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  {what}",
            file=sys.stderr,
            flush=True,
        )
        os.abort()
