"""Hosts on this machine: a folder each, and the command that runs a program there."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corpus.scenarios.network import Lab, flat
from tests.verify.gpu_host.spec import Gpu, Host

MACHINE = Path(__file__).parent / "machine"
_DOUBLE = MACHINE / "gpu_double"
#: Seconds that the process which has imported torch may take to be ready.
READY = 120.0


class Starter:
    """A process that has imported torch, from which hosts' processes are forked."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gpu-host-")
        self.socket = Path(self._folder.name) / "starter"
        self._process = subprocess.Popen(
            [sys.executable, str(_DOUBLE / "starter.py"), str(self.socket)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def wait(self) -> None:
        """Wait until it serves."""
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise RuntimeError("the process that imports torch has ended")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._folder.cleanup()


class GpuHost:
    """One host that exists in a folder; what a test changes in ``spec`` is seen after ``write``."""

    def __init__(self, spec: Host, folder: Path, starter: Starter | None = None) -> None:
        self.spec, self.folder = spec, folder
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        (folder / "lib").mkdir(exist_ok=True)
        (folder / "site" / "torch").mkdir(parents=True, exist_ok=True)
        self.write()
        self._scripts(starter)

    @property
    def name(self) -> str:
        """The host's name."""
        return self.spec.name

    @property
    def told(self) -> dict[str, Any]:
        """The host as its programs read it."""
        return self.spec.told(str(self.folder))

    def change(self, **changes: Any) -> None:
        """Change fields of the host, as seen by every program from now on."""
        self.spec = replace(self.spec, **changes)
        self.write()

    def write(self) -> None:
        """Write the host's file and what shows that there are GPUs."""
        temporary = self.folder / "host.json.new"
        temporary.write_text(json.dumps(self.told))
        temporary.replace(self.folder / "host.json")
        present = self.spec.smi != "none" and (self.spec.gpus or self.spec.smi != "ok")
        library, tool = self.folder / "lib" / "libnvidia-ml.so.1", self.folder / "bin" / "nvidia-smi"
        if present:
            library.touch()
            words = [sys.executable, "-I", "-S", str(_DOUBLE / "smi.py"), str(self.folder)]
            _script(tool, f'exec {shlex.join(words)} "$@"')
        else:
            library.unlink(missing_ok=True)
            tool.unlink(missing_ok=True)
        torch = self.told["torch"]
        site = self.folder / "site" / "torch"
        (site / "__init__.py").write_text("")
        cuda = self.spec.cuda if torch["kind"] in ("cuda", "broken") else None
        hip = torch["version"].rpartition("rocm")[2] if torch["kind"] == "rocm" else None
        (site / "version.py").write_text(f"__version__ = {torch['version']!r}\ncuda = {cuda!r}\nhip = {hip!r}\n")

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a process on this host, besides those it inherits."""
        return {
            "GPU_HOST": str(self.folder),
            "PATH": f"{self.folder / 'bin'}:{_without_tool(os.environ.get('PATH', ''))}",
            "LD_LIBRARY_PATH": str(self.folder / "lib"),
            "PYTHONPATH": str(MACHINE),
            **self.spec.env,
        }

    def _scripts(self, starter: Starter | None) -> None:
        values = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.environment.items())
        lines = f"unset CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES\nexport {values}\n"
        if starter is None:
            own = f'exec ip netns exec {self.spec.namespace} "$@"' if self.spec.namespace else 'exec "$@"'
        else:
            words = [sys.executable, "-I", "-S", str(_DOUBLE / "starter.py"), str(starter.socket)]
            own = f'exec {shlex.join(words)} - "$@"'
        _script(self.folder / "enter", lines + own)
        _script(self.folder / "bin" / "python", lines + own.replace('"$@"', f'{shlex.quote(sys.executable)} "$@"'))

    @property
    def command(self) -> str:
        """The command prefix that runs a program on this host."""
        return shlex.quote(str(self.folder / "enter"))

    @property
    def option(self) -> str:
        """The value of ``--host``."""
        return f"{self.name}={self.command}"

    @property
    def python(self) -> str:
        """The host's Python, for ``--python`` where the host is the one that asks."""
        return str(self.folder / "bin" / "python")

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """Make this process one of the host's, as far as the verifier looks: variables, nvidia-smi, no NVML."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
            patch.setitem(sys.modules, "pynvml", None)
            for name, value in self.spec.env.items():
                patch.setenv(name, value)
            yield

    @contextlib.contextmanager
    def listening(self, port: int = 0) -> Iterator[int]:
        """Have a program of the host listen on a port, by default a free one."""
        text = (
            "import socket, sys; s = socket.socket(); s.bind(('', int(sys.argv[1]))); s.listen(1); "
            "print(s.getsockname()[1], flush=True); sys.stdin.read()"
        )
        words = [str(self.folder / "enter"), sys.executable, "-c", text, str(port)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdin is not None
            yield int(process.stdout.readline())
            process.stdin.close()

    # what happened

    def _lines(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def communicators(self) -> list[dict[str, Any]]:
        """The communicators that ranks here began to set up: rank, world, index and uuid of the GPU, eager, env."""
        return self._lines("communicators.jsonl")

    @property
    def used(self) -> set[int]:
        """The indices of the GPUs on which a process here made a context."""
        return {line["index"] for line in self._lines("used.jsonl")}

    def forget(self) -> None:
        """Forget what happened so far."""
        for name in ("communicators.jsonl", "used.jsonl"):
            (self.folder / name).unlink(missing_ok=True)


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _without_tool(path: str) -> str:
    """Return PATH without the folders that have a real nvidia-smi."""
    kept = [folder for folder in path.split(":") if folder and not (Path(folder) / "nvidia-smi").exists()]
    return ":".join(kept)


def namespaces() -> bool:
    """Tell whether network namespaces can be made here."""
    return os.geteuid() == 0 and shutil.which("ip") is not None and Path("/var/run").exists()


class Machine:
    """Makes hosts in a folder; processes of all of them are forked from one starter.

    With ``lab`` each host has a network namespace of its own, of which there are few: of more hosts, some share one.
    """

    def __init__(self, folder: Path, starter: Starter | None, lab: Lab | None = None) -> None:
        self._folder, self._starter, self._lab = folder, starter, lab
        self._names: dict[str, str] = {}
        self._count = 0

    @property
    def apart(self) -> bool:
        """Whether each host has an address of its own."""
        return self._lab is not None

    def host(self, name: str, gpus: Sequence[Gpu] = (), **changes: Any) -> GpuHost:
        """Return a new host; ``changes`` are further fields of ``spec.Host``."""
        self._count += 1
        if self._lab is not None and "namespace" not in changes:
            place = self._count % len(self._lab.hosts)
            changes.update(namespace=self._lab.hosts[place], address=f"10.0.0.{place + 1}")
        spec = Host(name, tuple(gpus), **changes)
        self._names[name] = spec.address or "127.0.0.1"
        (self._folder / "names.json").write_text(json.dumps(self._names))
        return GpuHost(spec, self._folder / f"{self._count}-{name}", self._starter)


#: Hosts that have a network of their own at a time.
PLACES = 4


@contextlib.contextmanager
def machine(quick: bool = True, apart: bool = True) -> Iterator[Machine]:
    """Yield a maker of hosts; ``quick``: processes there are forked from one that has imported torch.

    ``apart``: where root may, hosts get network namespaces with addresses of their own.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="gpu-hosts-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        starter = Starter() if quick else None
        if starter is not None:
            stack.callback(starter.close)
        lab = stack.enter_context(flat(PLACES, names=False)) if apart and namespaces() else None
        if starter is not None:
            starter.wait()
        yield Machine(folder, starter, lab)
