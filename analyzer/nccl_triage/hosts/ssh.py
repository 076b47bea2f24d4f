"""Hosts as a person names them: each behind ssh, or behind a command of its own."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from nccl_triage.errors import UsageError
from nccl_triage.hosts.links import HostPlace
from nccl_triage.lazy_regex import lazily

#: Nothing is asked of the person who waits, a host that is down is known to be after ten seconds, and no terminal comes
#: between, whatever the configuration wants for other uses.
_SSH = (
    "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "RequestTTY=no",
    "-o", "ClearAllForwardings=yes",
)  # fmt: skip
#: A name or an IPv4 address, or an IPv6 address with its interface; no name begins like an option.
_HOST = lazily(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})|[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:.]{1,45}(?:%[A-Za-z0-9._-]{1,15})?")
_USER = lazily(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


def places_of(hosts: Sequence[str], slots: int | None = None) -> tuple[HostPlace, ...]:
    """Return the places that ``--host`` names (``NAME`` or ``NAME=COMMAND``, by default ``ssh NAME``), or this host.

    Raises UsageError for one that cannot be read.
    """
    if not hosts:
        return (HostPlace(os.uname().nodename, slots=slots),)
    found = []
    for entry in hosts:
        name, given, command = entry.partition("=")
        label = _host_name(entry)
        try:
            # Nothing after "--" is an option of ssh, however it begins.
            words = shlex.split(command) if given else [*_SSH, "--", name]
        except ValueError as error:
            raise UsageError(
                "--host {entry}: {error}", remedy="quote the command as for a shell", entry=entry, error=error
            ) from None
        if given and not words:
            raise UsageError("--host {entry}: expected NAME or NAME=COMMAND", entry=entry)
        found.append(HostPlace(label, tuple(words), slots))
    refuse_twice([place.name for place in found])
    return tuple(found)


def refuse_twice(names: Sequence[str]) -> None:
    """Raise UsageError where two places are one host."""
    if len(set(names)) < len(names):
        raise UsageError(
            "--host names a host twice",
            remedy="name each host once; --ranks-per-host of verify and preflight starts several ranks on one",
        )


def _host_name(entry: str) -> str:
    """Return the host of ``[USER@]NAME[=COMMAND]``; raises UsageError for what is no name or address of a host."""
    user, at, name = entry.partition("=")[0].rpartition("@")
    if not (_HOST.fullmatch(name) and (not at or _USER.fullmatch(user))):
        raise UsageError(
            "--host {entry}: expected NAME or NAME=COMMAND",
            cause="a name has letters, digits, dots and hyphens, and begins with a letter or a digit",
            entry=entry,
        )
    return name
