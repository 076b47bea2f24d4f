"""What the fields of a report document hold, by their keys: ids stay, hosts and paths are names as a whole."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache


class Kind(Enum):
    """What a string of the document is."""

    FIXED = "an id, a word of the schema, a time, a version: never changed"
    HOST = "the name of a host"
    PATH = "the path of a log"
    TEXT = "text, in which names may stand"


#: Last parts of keys whose strings are never changed.
_FIXED = frozenset(
    {
        *("schema_version", "verdict", "cause", "family", "status", "weight", "role", "signature", "state", "kind"),
        *("outcome", "decided_by", "explained_by", "id", "time", "started", "since", "until", "stage", "op", "dtype"),
        *("backend", "passing", "type", "port_kind", "interface", "to_interface", "by_interface", "references"),
        *("run", "runs", "launcher", "frameworks", "exit", "secrets", "metric", "unit", "x", "x_start", "urgency"),
        *("when", "level", "dtype_assumed", "via"),
    }
)
_FIXED_WITHIN = frozenset({"tool", "software", "treatment", "vary", "pseudonyms"})
_HOSTS = frozenset({"host", "hosts"})
_HOSTS_WITHIN = frozenset(
    {"hosts.name", "peers.names", "reachability.from", "reachability.to", "failed.from", "failed.to"}
)


@lru_cache(maxsize=4096)
def kind_of(key: str) -> Kind:
    """Return what a key's strings are; the key comes with that of the mapping around it, as ``hosts.name``."""
    around, _, last = key.rpartition(".")
    if around in _FIXED_WITHIN or last in _FIXED:
        return Kind.FIXED
    if last in _HOSTS or key in _HOSTS_WITHIN:
        return Kind.HOST
    return Kind.PATH if last == "path" or key == "series.source" else Kind.TEXT
