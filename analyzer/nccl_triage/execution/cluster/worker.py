"""The actor on a node: makes our code importable there and passes every call to a ``NodeService``.

Ray pickles this module by value, so that the cluster's nodes need no nccl-triage: standard library only.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any


class Worker:
    """A node service behind method calls.

    ``program`` is a zip with our code. It lies in a file without a name that is gone with this process, however it ends.
    """

    def __init__(self, program: bytes, rules: bytes) -> None:
        if hasattr(os, "memfd_create"):  # not in Pythons built for an old glibc (conda's, uv's)
            self._program = os.memfd_create("nccl_triage.zip")
        else:
            with tempfile.TemporaryFile() as unnamed:
                self._program = os.dup(unnamed.fileno())
        with open(self._program, "wb", closefd=False) as file:
            file.write(program)
        sys.path.insert(0, f"/proc/self/fd/{self._program}")
        # Nothing stays on the node; a home folder may be the same for thousands of them.
        os.environ["NCCL_TRIAGE_CACHE"] = "off"
        from nccl_triage.execution.cluster.node_service import NodeService

        self._service = NodeService(rules)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of the node service."""
        return getattr(self._service, name)(*arguments)
