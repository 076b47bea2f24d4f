"""Hosts whose nvidia-smi prints what a test says, and whose torch says how it is built: for agents behind a command."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_TOOL = """#!/bin/sh
case "$1" in
--query-gpu=index,uuid,*) /bin/cat '{folder}/gpus' ;;
--query-gpu=uuid,mig*) /bin/cat '{folder}/mig' ;;
--query-gpu=uuid,gpu_recovery_action) /bin/cat '{folder}/recovery' ;;
--query-remapped-rows=*) /bin/cat '{folder}/rows' ;;
--query-compute-apps=*) /bin/cat '{folder}/apps' ;;
--query-gpu=index,utilization.gpu) /bin/cat '{folder}/busy' ;;
-L) /bin/cat '{folder}/listed' ;;
*) exit 9 ;;
esac
"""
#: A torch as the asking step meets it: nothing can be computed with it.
_TORCH = """
__version__ = {version!r}
class version:
    cuda, hip = {cuda!r}, {hip!r}
class cuda:
    class nccl:
        def version():
            if {nccl!r} is None:
                raise AttributeError("module 'torch._C' has no attribute '_nccl_version'")
            return {nccl!r}
"""


@dataclass
class Row:
    """One GPU of a host, as nvidia-smi prints it."""

    index: int
    uuid: str
    bus: str = ""
    used: int = 4
    busy: int = 0
    mode: str = "Default"
    ecc: int = 0
    recovery: str = "None"
    mig: str = "Disabled"
    apps: Sequence[int] = ()
    instances: Sequence[str] = ()


@dataclass
class SmiHost:
    """A host in a folder: its GPUs and its torch; ``command`` is what goes behind ``--host NAME=``."""

    folder: Path
    name: str
    gpus: Sequence[Row] = ()
    torch: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "bin").mkdir(parents=True)
        if self.gpus:
            tool = self.folder / "bin" / "nvidia-smi"
            tool.write_text(_TOOL.format(folder=self.folder))
            tool.chmod(0o755)
        self.write()
        package = self.folder / "modules" / "torch"
        (package / "distributed").mkdir(parents=True)
        about = {"version": "2.9.1+cu128", "cuda": "12.8", "hip": None, "nccl": (2, 27, 5), **self.torch}
        (package / "__init__.py").write_text(_TORCH.format(**about))
        (package / "version.py").write_text(
            "\n".join(f"{name} = {about[key]!r}" for name, key in (("__version__", "version"), ("cuda", "cuda")))
        )
        (package / "distributed" / "__init__.py").write_text(
            f"def is_available(): return True\ndef is_nccl_available(): return {about['cuda'] is not None}\n"
        )

    def write(self) -> None:
        """Write what the tool prints now."""

        def put(name: str, lines: Sequence[str]) -> None:
            (self.folder / name).write_text("".join(f"{line}\n" for line in lines))

        put(
            "gpus",
            [
                f"{gpu.index}, {gpu.uuid}, NVIDIA H100 80GB HBM3, 81559, {gpu.used}, {81559 - gpu.used}, {gpu.busy}, "
                f"{gpu.mode}, {gpu.ecc}, {gpu.bus or f'00000000:{gpu.index + 16:02X}:00.0'}, 550.127.05"
                for gpu in self.gpus
            ],
        )
        put("mig", [f"{gpu.uuid}, {gpu.mig}" for gpu in self.gpus])
        put("recovery", [f"{gpu.uuid}, {gpu.recovery}" for gpu in self.gpus])
        put("rows", [f"{gpu.uuid}, No, No" for gpu in self.gpus])
        put("apps", [f"{gpu.uuid}, {pid}, 3000" for gpu in self.gpus for pid in gpu.apps])
        put("busy", [f"{gpu.index}, {gpu.busy}" for gpu in self.gpus])
        listed = []
        for gpu in self.gpus:
            listed.append(f"GPU {gpu.index}: NVIDIA H100 80GB HBM3 (UUID: {gpu.uuid})")
            listed += [f"  MIG 1g.10gb     Device  {k}: (UUID: {uuid})" for k, uuid in enumerate(gpu.instances)]
        put("listed", listed)

    def command(self, **environment: str) -> str:
        """Return the value of ``--host`` for this host; its Python finds the host's torch and no pynvml."""
        own = {
            "PATH": f"{self.folder / 'bin'}:{Path(sys.executable).parent}:/usr/bin:/bin",
            "PYTHONPATH": str(self.folder / "modules"),
            **environment,
        }
        words = ["env", *(f"{name}={value}" for name, value in own.items())]
        return f"{self.name}={shlex.join(words)}"
