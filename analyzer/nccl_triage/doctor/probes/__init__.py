"""One module a subject: a function ``probe(where)`` that returns the facts it saw and what it could not see.

Everything is read and nothing is changed. Standard library only, and the questions to GPUs of ``verify``: these modules
travel to the nodes of a cluster.
"""

from __future__ import annotations

#: group -> (module, seconds that its probe may take). A group is one process: what crashes or hangs in a driver leaves
#: the others alone. A module's facts stand under its name.
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
    # Without persistence mode a driver takes seconds a GPU to wake them.
    "gpu": {"gpus": 60.0},
    # Imported from a busy shared file system, torch takes its time.
    "software": {"software": 90.0},
}
