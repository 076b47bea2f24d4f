"""What a host reports of itself: interfaces, limits, shared memory, versions, and processes."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import resource
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any

#: The address of a host that no other host reaches.
LOOPBACK = "127.0.0.1"
_SIOCGIFADDR, _SIOCGIFNETMASK, _SIOCGIFFLAGS, _SIOCGIFMTU = 0x8915, 0x891B, 0x8913, 0x8921
_UP, _LOOPBACK, _RUNNING = 0x1, 0x8, 0x40
#: Variables that belong to the communication and may leave the host; no other variable is ever reported.
ALLOWED = ("NCCL_", "GLOO_", "TORCH_NCCL_", "TORCH_FR_")


def interfaces() -> list[dict[str, Any]]:
    """Return the IPv4 interfaces in the kernel's order: name, address, netmask, mtu, up, loopback, default, speed_mbit."""
    found = []
    default = default_interface()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:

        def ask(number: int, name: str) -> bytes:
            return fcntl.ioctl(probe, number, struct.pack("256s", name.encode()[:15]))

        for _, name in socket.if_nameindex():
            try:
                address = socket.inet_ntoa(ask(_SIOCGIFADDR, name)[20:24])
                netmask = socket.inet_ntoa(ask(_SIOCGIFNETMASK, name)[20:24])
                flags = struct.unpack("H", ask(_SIOCGIFFLAGS, name)[16:18])[0]
                mtu = struct.unpack("i", ask(_SIOCGIFMTU, name)[16:20])[0]
            except OSError:
                continue  # no IPv4 address
            found.append(
                {
                    "name": name,
                    "address": address,
                    "netmask": netmask,
                    "mtu": mtu,
                    "up": bool(flags & _UP and flags & _RUNNING),
                    "loopback": bool(flags & _LOOPBACK),
                    "default": name == default,
                    "speed_mbit": speed_mbit(name),
                }
            )
    return found


def mac(name: str, network: Path = Path("/sys/class/net")) -> str | None:
    """Return the hardware address of an interface, or None where it has none."""
    with contextlib.suppress(OSError):
        return (network / name / "address").read_text().strip() or None
    return None


def speed_mbit(name: str, network: Path = Path("/sys/class/net")) -> int | None:
    """Return the rate of an interface in Mbit/s, or None where the kernel does not know it.

    A veth or tun reports a constant that measures nothing: only a device, a bond, and what lies upon exactly one of them
    (a VLAN) are believed (Documentation/ABI/testing/sysfs-class-net, "speed": EINVAL while down, -1 unknown).
    """
    folder = network / name
    if (folder / "device").exists() or (folder / "bonding").exists():
        with contextlib.suppress(OSError, ValueError):
            speed = int((folder / "speed").read_text())
            return speed if speed > 0 else None
        return None
    below = [entry.name.removeprefix("lower_") for entry in folder.glob("lower_*")]
    return speed_mbit(below[0], network) if len(below) == 1 and below[0] != name else None


def adapters(devices: Path = Path("/sys/class/infiniband")) -> dict[str, float]:
    """Return the rate in Gbit/s of each active port of the InfiniBand and RoCE adapters: ``mlx5_0:1`` -> 400."""
    found = {}
    with contextlib.suppress(OSError):
        for port in sorted(devices.glob("*/ports/*")):
            with contextlib.suppress(OSError, ValueError, IndexError):
                if "ACTIVE" in (port / "state").read_text():
                    # "400 Gb/sec (4X NDR)"
                    found[f"{port.parent.parent.name}:{port.name}"] = float((port / "rate").read_text().split()[0])
    return found


def default_interface() -> str | None:
    """Return the interface of the default route (/proc/net/route), or None."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/net/route").read_text().splitlines()[1:]:
            words = line.split()
            if len(words) > 7 and words[1] == "00000000" and words[7] == "00000000":
                return words[0]
    return None


def _shared_memory() -> dict[str, int] | None:
    with contextlib.suppress(OSError):
        about = os.statvfs("/dev/shm")
        return {"size": about.f_frsize * about.f_blocks, "free": about.f_frsize * about.f_bavail}
    return None


def _limits() -> dict[str, int]:
    names = {"nofile": resource.RLIMIT_NOFILE, "memlock": resource.RLIMIT_MEMLOCK, "nproc": resource.RLIMIT_NPROC}
    return {name: resource.getrlimit(number)[0] for name, number in names.items()}


def _version(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _driver() -> str | None:
    with contextlib.suppress(OSError):
        words = Path("/proc/driver/nvidia/version").read_text().split()
        return next((word for word in words if word[:1].isdigit() and "." in word), None)
    return None


def resolves(name: str) -> list[str]:
    """Return the IPv4 addresses of a name, empty when it has none."""
    try:
        return sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None, socket.AF_INET)})
    except (OSError, ValueError):  # ValueError: what cannot be a name at all
        return []


def has(name: str) -> bool:
    """Tell whether this host is called so, with or without its domain, or has this address; the name is not resolved."""
    own = socket.gethostname()
    addresses = [*resolves(own), *(entry["address"] for entry in interfaces())]
    return name.casefold() in {"localhost", own.casefold(), own.split(".")[0].casefold(), *addresses}


def facts() -> dict[str, Any]:
    """Return what this host says of itself; nothing is imported for it, no GPU is touched."""
    name = socket.gethostname()
    nccl = next((v for p in ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11") if (v := _version(p))), None)
    return {
        "host": name,
        "own_addresses": resolves(name),
        "interfaces": interfaces(),
        "adapters": adapters(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "torch": _version("torch"),
        "nccl": nccl,
        "driver": _driver(),
        "kernel": platform.release(),
        "shm": _shared_memory(),
        "limits": _limits(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "env": {name: value for name, value in sorted(os.environ.items()) if name.startswith(ALLOWED)},
    }


def state_of(pid: int) -> str | None:
    """Return the kernel's letter for a process (R, S, D, T, Z), or None when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return None


def free_port(address: str = "") -> int:
    """Return a TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
    return port


def port_free(port: int) -> str | None:
    """Return why a TCP port cannot be listened on, or None when it can; nothing listens while this is found out."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            return error.strerror or str(error)
    return None


_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
