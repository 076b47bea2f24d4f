"""Probes of a host: functions that return the facts they saw and what they could not see.

Everything is read and nothing is changed. These modules are sent to the nodes of a cluster and import only the standard
library, each other, and the GPU queries of ``verify``.
"""

from __future__ import annotations

#: group -> probe -> the seconds that it may take. A group is one process: what crashes or hangs in a driver leaves the
#: others alone. The facts of a probe are reported under its name.
GROUPS: dict[str, dict[str, float]] = {
    "host": {
        "system": 5.0,
        "limits": 5.0,
        "network": 5.0,
        "names": 15.0,
        "infiniband": 10.0,
        "pci": 10.0,
        "isolation": 10.0,
        "kernel": 10.0,
        "storage": 10.0,
        "clock": 5.0,
        "firewall": 5.0,
        "environment": 5.0,
    },
    # Without persistence mode the driver takes seconds to wake each GPU.
    "gpu": {"gpus": 60.0},
    # Imported from a busy shared file system, torch is slow.
    "software": {"software": 90.0},
}
#: The module of a probe whose name is not that of its module; its function is called ``probe_NAME``.
MODULES = {
    "names": "network",
    "firewall": "network",
    "isolation": "pci",
    "storage": "limits",
    "clock": "system",
    "environment": "software",
}
