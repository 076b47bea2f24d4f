"""Makes this process one of a host: its name, its torch, and children that need not import torch again."""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import importlib.metadata
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from . import forking, host

_CLONE_NEWNET = 0x40000000
_NCCL_PACKAGES = ("nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13")


def become(folder: str) -> None:
    """Give this process the host's name, its versions of packages, its torch, and its way of starting itself again."""
    told = host.read(folder)
    enter_network(told)
    sys.modules["pynvml"] = None  # type: ignore[assignment]
    _be_called(told)
    _have_packages(told)
    _find_torch(told)
    sys.meta_path.insert(0, _LightWork())
    forking.install(subprocess)


def enter_network(told: dict[str, Any]) -> None:
    """Move this process into the host's network namespace, if it has one and we are not there."""
    if not told["namespace"]:
        return
    with Path("/var/run/netns", told["namespace"]).open("rb") as file:
        if os.fstat(file.fileno()).st_ino == Path("/proc/self/ns/net").stat().st_ino:
            return
        library = ctypes.CDLL(None, use_errno=True)
        if library.setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"the network {told['namespace']} cannot be entered")


def _be_called(told: dict[str, Any]) -> None:
    name, names = told["name"], told["names"]
    real_uname, real_lookup = os.uname, socket.getaddrinfo
    socket.gethostname = lambda: name  # type: ignore[assignment]

    def uname() -> os.uname_result:
        found = real_uname()
        return os.uname_result((found.sysname, name, found.release, found.version, found.machine))

    def lookup(host_name: Any, *arguments: Any, **more: Any) -> Any:
        return real_lookup(names.get(host_name, host_name), *arguments, **more)

    os.uname = uname  # type: ignore[assignment]
    socket.getaddrinfo = lookup  # type: ignore[assignment]


def _have_packages(told: dict[str, Any]) -> None:
    real = importlib.metadata.version
    torch, nccl = told["torch"], told["nccl"]

    def version(package: str) -> str:
        if package == "torch":
            if torch["kind"] == "missing":
                raise importlib.metadata.PackageNotFoundError(package)
            return str(torch["version"])
        if package in _NCCL_PACKAGES:
            if torch["kind"] != "cuda" or package[-2:] != told["cuda"].split(".")[0]:
                raise importlib.metadata.PackageNotFoundError(package)
            return str(nccl)
        return real(package)

    importlib.metadata.version = version


def _find_torch(told: dict[str, Any]) -> None:
    loaded = sys.modules.pop("torch", None)
    if told["torch"]["kind"] == "missing":
        sys.path[:] = [entry for entry in sys.path if not (Path(entry or ".") / "torch" / "__init__.py").is_file()]
    else:
        # Who wants to know how torch was built reads torch/version.py, without importing it.
        sys.path.insert(0, str(Path(told["folder"]) / "site"))
    sys.meta_path.insert(0, _Finder(told, loaded))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the host's torch: after its time, with its error, or with its doubles of CUDA and NCCL."""

    def __init__(self, told: dict[str, Any], loaded: ModuleType | None) -> None:
        self._told, self._loaded = told, loaded

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch":
            return None
        about = self._told["torch"]
        time.sleep(about["import_seconds"])
        if about["kind"] == "missing":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        if about["kind"] == "broken":
            raise ImportError(about["error"])
        own = str(Path(self._told["folder"]) / "site")
        found = importlib.machinery.PathFinder.find_spec("torch", [entry for entry in sys.path if entry != own])
        if found is None or found.loader is None:
            return None
        found.loader = _Loader(found.loader, self._told, self._loaded)
        return found


class _Loader(importlib.abc.Loader):
    def __init__(self, real: Any, told: dict[str, Any], loaded: ModuleType | None) -> None:
        self._real, self._told, self._loaded = real, told, loaded

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loaded or self._real.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        if self._loaded is None:
            self._real.exec_module(module)
        if not getattr(module, "gpu_double", False):
            from . import install

            install.into(module, self._told)
            module.gpu_double = True  # type: ignore[attr-defined]


class _LightWork(importlib.abc.MetaPathFinder):
    """Gives the worker's GPUs as much work of their own as a processor can bear, timed as if nobody else used it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.endswith(".worker.compute"):
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        if found is None or found.loader is None:
            return None
        load: Any = found.loader.exec_module

        def light(module: Any) -> None:
            from . import cuda

            load(module)
            module.time = SimpleNamespace(perf_counter=cuda.work_clock)
            for amounts in (module.LITTLE, module.MUCH):
                amounts["cuda"] = amounts["cuda"]._replace(rows=64, copied=1 << 16, times=2)

        found.loader = _Light(found.loader, light)
        return found


class _Light(importlib.abc.Loader):
    def __init__(self, real: Any, load: Any) -> None:
        self._real, self._load = real, load

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        self._load(module)
