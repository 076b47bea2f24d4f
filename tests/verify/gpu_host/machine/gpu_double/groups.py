"""torch.distributed of a build with NCCL: groups are Gloo's, each with a communicator that only talks."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from . import nccl_log
from .communicator import Communicator

#: Calls that start a collective, as people name them.
COLLECTIVES = [
    "all_reduce",
    "all_reduce_coalesced",
    "broadcast",
    "reduce",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_single",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "reduce_scatter_single",
    "all_to_all",
    "all_to_all_single",
    "send",
    "recv",
    "gather",
    "scatter",
    "barrier",
    "batch_isend_irecv",
]
_DEFAULT = timedelta(minutes=10)


class ProcessGroupNCCL:
    """The name that programs take options from."""

    class Options:
        """What a program may ask of a group; nothing comes of it."""

        def __init__(self, is_high_priority_stream: bool = False) -> None:
            self.is_high_priority_stream = is_high_priority_stream
            self.config = SimpleNamespace(blocking=None, min_ctas=None, max_ctas=None, split_share=None)
            self._timeout = _DEFAULT


class Groups:
    """The communicators of a process, and torch's functions that make and use them."""

    def __init__(self, torch: Any, told: dict[str, Any], devices: Any) -> None:
        self._torch, self._told, self._devices = torch, told, devices
        self._c10d = torch.distributed.distributed_c10d
        self._known: dict[int, Communicator] = {}
        self._inside = threading.local()
        self._real = {name: getattr(self._c10d, name) for name in ("init_process_group", "new_group", "get_backend")}

    def of(self, group: Any) -> Communicator | None:
        """Return the communicator of a group, None for one that never was NCCL's."""
        if group is None or group is self._c10d.GroupMember.WORLD:
            if not self._c10d.is_initialized():
                return None
            group = self._c10d._get_default_group()
        return self._known.get(id(group))

    def _made(self, group: Any, timeout: timedelta | None, device: Any) -> None:
        number = len(self._known)
        self._known[id(group)] = Communicator(self._torch, self._told, self._devices, number, timeout or _DEFAULT)
        if device is not None:
            self._known[id(group)].connect(group, eager=True)

    def init_process_group(self, backend: Any = None, *arguments: Any, **options: Any) -> None:
        """Make the default group."""
        device = options.pop("device_id", None)
        name = str(backend or "nccl").partition(":")[0 if ":" not in str(backend or "") else 2].partition(",")[0]
        if name != "nccl":
            self._real["init_process_group"](backend, *arguments, **options)
            return
        options.pop("pg_options", None)
        taken = nccl_log.network(nccl_log.interfaces(), os.environ.get("NCCL_SOCKET_IFNAME"))
        # Where NCCL would find no interface its communicator fails; the group beneath must come to be until then.
        os.environ["GLOO_SOCKET_IFNAME"] = taken[0][0] if taken else "lo"
        if isinstance(device, int):
            device = self._torch.device("cuda", device)
        if device is not None:
            self._devices.set_device(device)
        self._real["init_process_group"]("gloo", *arguments, **options)
        self._made(self._c10d._get_default_group(), options.get("timeout"), device)

    def new_group(self, ranks: Any = None, timeout: Any = None, backend: Any = None, **options: Any) -> Any:
        """Make a further group; its communicator comes with its first collective."""
        default = self.of(None)
        options.pop("device_id", None)
        options.pop("pg_options", None)
        ours = backend == "nccl" or (backend is None and default is not None)
        group = self._real["new_group"](ranks, timeout, "gloo" if ours else backend, **options)
        if ours and group is not self._c10d.GroupMember.NON_GROUP_MEMBER:
            self._made(group, timeout, None)
        return group

    def get_backend(self, group: Any = None) -> str:
        """Return the backend's name."""
        return "nccl" if self.of(group) is not None else str(self._real["get_backend"](group))

    def _movable(self, value: Any) -> Any:
        """Return tensors of a type that Gloo does not know as the bytes that they are."""
        if isinstance(value, (list, tuple)) and value and hasattr(value[0], "dtype"):
            return [self._movable(part) for part in value]
        return value.view(self._torch.uint8) if "float8" in str(getattr(value, "dtype", "")) else value

    def collective(self, name: str) -> Callable[..., Any]:
        """Return a function of torch.distributed as NCCL's groups carry it out."""
        real = getattr(self._c10d, name)

        @functools.wraps(real)
        def call(*arguments: Any, **options: Any) -> Any:
            group = options.get("group")
            if name == "batch_isend_irecv" and arguments and arguments[0]:
                group = arguments[0][0].group
            communicator = None if getattr(self._inside, "now", False) else self.of(group)
            if communicator is None:
                return real(*arguments, **options)
            options.pop("device_ids", None)
            self._inside.now = True
            try:
                communicator.connect(group, eager=False)
                communicator.before()
                work = real(*(self._movable(value) for value in arguments), **options)
            except self._torch.distributed.DistBackendError:
                raise
            except RuntimeError as error:
                communicator.lost(name, error)
                raise
            finally:
                self._inside.now = False
            if name not in ("barrier", "batch_isend_irecv", "send") and communicator.faults("collective"):
                if work is not None:
                    work.wait()
                communicator.after(_tensors([*arguments, *options.values()]))
            return work

        return call


def _tensors(values: Any) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if hasattr(value, "numel") and hasattr(value, "view"):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _tensors(value)
    return found


def install(torch: Any, told: dict[str, Any], devices: Any) -> None:
    """Replace what makes and uses groups, where programs and torch itself look for it."""
    groups = Groups(torch, told, devices)

    def like(name: str) -> Callable[..., Any]:
        """Return our function with the signature of the real one, which programs look at."""
        own = getattr(groups, name)
        return functools.wraps(getattr(groups._c10d, name))(lambda *arguments, **options: own(*arguments, **options))

    replaced: dict[str, Any] = {
        **{name: like(name) for name in ("init_process_group", "new_group", "get_backend")},
        "is_nccl_available": lambda: True,
        "ProcessGroupNCCL": ProcessGroupNCCL,
    }
    replaced.update({name: groups.collective(name) for name in COLLECTIVES if hasattr(groups._c10d, name)})
    for module in (torch.distributed, groups._c10d):
        for name, value in replaced.items():
            setattr(module, name, value)
