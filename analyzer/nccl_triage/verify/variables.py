"""Which variables of a job an experiment repeats, judged by what a name stands for and by the shape of a value.

A log is written by anybody. What only chooses or tunes (a switch, a number, a list of names) is repeated. What loads
code, names a file, or names a place to connect to needs the user's word (``--trust-env``). What only logs or dumps is
left out and changes nothing; whatever else is left out is named: without it an experiment is not the failed collective.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nccl_triage.hosts.probes.host import ALLOWED
from nccl_triage.lazy_regex import lazily

#: Variables of the collective libraries: what has a harmless shape is repeated.
FAMILIES = ("NCCL_", "GLOO_", "TORCH_NCCL_", "TORCH_GLOO_", "RCCL_")
#: Variables of the network libraries below their plugins, which may run commands or send mail (UCX_GDB_COMMAND).
BELOW = ("OFI_NCCL_", "FI_", "UCX_", "RDMAV_", "MLX5_")
#: Characters of a value, and number of variables, at most: those of a real job have a few dozen.
LONGEST, MOST = 1024, 200

_NAME = lazily(r"[A-Za-z_][A-Za-z0-9_]{0,79}")
#: Whole words of a name, so that NCCL_IB_PKEY, the number of an InfiniBand partition, is no key.
_SECRET_NAME = lazily(
    r"TOKEN|SECRET|PASSW(?:OR)?D|PASSPHRASE|CREDENTIAL|(?:^|_)(?:(?:API|ACCESS|PRIVATE)?KEYS?|PSK)(?:_|$)",
    re.IGNORECASE,
)
#: A URL with a password, a header, an assignment, or the prefix of a well-known kind of token.
_SECRET_VALUE = lazily(
    r"://[^/\s@]*:[^/\s@]+@|\b(?:bearer|basic)\s+\S{8}|(?:token|secret|passw(?:or)?d|api_?key)\s*[=:]"
    r"|\b(?:hf_|gh[opsu]_|github_pat_|sk-|xox[abp]-|AKIA|eyJ)[\w-]{12}|-----BEGIN",
    re.IGNORECASE,
)
#: Logs, dumps, diagnostics, RAS (which answers questions and moves no data), and what only a build reads.
_QUIET = lazily(
    r"(?:^|_)(?:DEBUG|DESYNC|DIAGNOSTICS|DUMP|INSPECTOR|LOG|NVTX|PROFILE|RAS|REPORT|STATS|TIMESTAMP|TRACE|WARN|WARNING)(?:_|$)"
    r"|BLOCKING_WAIT|^NCCL_(?:VERSION\w*|HOME|ROOT(?:_DIR)?|LIBRAR(?:Y|IES)|TESTS_\w+|(?:(?:CUDA|INC|INCLUDE|LIB)_)?(?:DIRS?|PATH))$"
)
#: Files that a library would write elsewhere, over those of another rank.
_WRITTEN = lazily(r"(?:DUMP|DEBUG|PROFILE)\w*_(?:FILE|DIR)$")
#: The meeting point of the failed job, and an identity that is another on each host.
_NEVER = lazily(r"^NCCL_(?:COMM_ID|HOSTID)$")
#: Names of variables that load code, name files, run commands, or say where to connect to or to listen.
_REACHING = lazily(
    r"_PLUGINS?$|(?:^|_)(?:TUNER|PROFILER|TLS)(?:_|$)"
    r"|_(?:FILE|DIR|PATH|LIB|LIBRARY|SO|CONF|CONFIG|MODULE|CERT|SCRIPT|COMMAND|CMD|EXEC)S?(?:_RANK)?$"
    r"|_(?:ADDR|ADDRESS|SERVER|(?<!PER_)HOST|ENDPOINT|URL|URI|PROXY|DEST|MAIL_TO)S?$"
)
#: Values of a plugin's variable that load nothing.
_NO_PLUGIN = ("", "none", "STATIC_PLUGIN")
#: Lists of names, numbers and pairs; ranges of addresses, which choose among a host's own.
_HARMLESS = lazily(r"[\w.,:;|^=+ -]*|[0-9A-Fa-f.:]+/\d{1,3}(?:,[0-9A-Fa-f.:]+/\d{1,3})*", re.ASCII)
#: An address, HOST:PORT, or the name of a shared library.
_REACHES = lazily(r"\d{1,3}(?:\.\d{1,3}){3}|:[0-9A-Fa-f]*:|\b[A-Za-z][\w.-]*:\d{3,5}(?![\w-])|\.so\b", re.ASCII)
#: Filters that are compared with the names of a host's own devices, MLX5_0:1 among them.
_FILTER = lazily(r"_(?:IFNAME|HCA)$")


@dataclass(frozen=True, slots=True)
class RepeatedVariables:
    """The variables that an experiment repeats, and the names of those that it should have and has not."""

    env: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def of_log(environment: Mapping[str, Any], trusted: bool = False) -> RepeatedVariables:
    """Return which variables of a log's job are repeated; a list holds the values of ranks that disagree.

    ``trusted``: the user vouches for the log, so plugins, files and addresses are repeated, too. Secrets, control
    characters, what is too long or too much, and what would join the failed job never are.
    """
    kept: dict[str, str] = {}
    left_out = []
    for name, value in environment.items():
        if not (name.startswith((*FAMILIES, *BELOW)) and _NAME.fullmatch(name)) or _QUIET.search(name):
            continue
        first = value[0] if isinstance(value, list) and value else value
        repeated = isinstance(first, str) and len(kept) < MOST and _may_repeat(name, first, trusted)
        if repeated:
            kept[name] = first
        if not repeated or (isinstance(value, list) and len(value) > 1):
            left_out.append(name)
    return RepeatedVariables(kept, tuple(left_out[:MOST]))


def _may_repeat(name: str, value: str, trusted: bool) -> bool:
    if not _is_public(name, value) or len(value) > LONGEST or _NEVER.search(name):
        return False
    return trusted or (name.startswith(FAMILIES) and _is_harmless(name, value))


def _is_public(name: str, value: str) -> bool:
    return value.isprintable() and not (_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))


def _is_harmless(name: str, value: str) -> bool:
    """Tell whether a value can only choose or tune, whatever it is."""
    if not _HARMLESS.fullmatch(value):
        return False
    if _REACHING.search(name):
        return name.endswith("_PLUGIN") and value in _NO_PLUGIN
    return bool(_FILTER.search(name)) or "/" in value or not _REACHES.search(value)


def of_user(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the communication in the user's own environment; no secrets, and no files to write."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(ALLOWED)
        and _NAME.fullmatch(name)
        and _is_public(name, value)
        and not (_NEVER.search(name) or _WRITTEN.search(name))
    }
