"""Notes on the nodes for the reader of a report: which logs are missing, and why. Of many alike only some are spelled out."""

from __future__ import annotations

from collections.abc import Iterable

#: Notes of one kind that are spelled out.
_EXAMPLES = 8


class NodeNotes:
    """Notes on nodes by kind, the most serious kind first."""

    def __init__(self) -> None:
        self._dead: list[str] = []
        self._missing: list[str] = []
        self._dropped: list[str] = []
        self._common: list[str] = []
        self._told: list[str] = []

    def dead(self, nodes: Iterable[str]) -> None:
        """Note nodes that were dead before the scan."""
        self._dead += [f"node {node} is dead: its logs are not read" for node in nodes]

    def missing(self, node: str, why: str, count: int = 0, every: int = 0) -> None:
        """Note that ``count`` of ``every`` files of a node were not read; without numbers, none was."""
        if count < every:
            self._missing.append(f"{count} of {every} files of node {node} were not read: {why}")
        else:
            self._missing.append(f"the logs of node {node} are missing, so its ranks only seem silent: {why}")

    def lost(self, nodes: Iterable[str], why: str) -> None:
        """Note that the findings of nodes did not reach the driver."""
        self._missing += [f"what was found on node {node} is lost: {why}" for node in dict.fromkeys(nodes)]

    def unread(self, path: str, why: str) -> None:
        """Note a file that no node could read."""
        self._missing.append(f"cannot read {path}: {why}")

    def dropped(self, node: str, why: str) -> None:
        """Note that a node was lost and others read its share."""
        self._dropped.append(f"node {node} was lost during the scan and others read its share: {why}")

    def common(self, nodes: list[str]) -> None:
        """Note that several nodes have the same files."""
        self._common.append(f"node {nodes[0]} and {len(nodes) - 1} more have the same files: each is read once")

    def told(self, node: str, notes: Iterable[str]) -> None:
        """Note what a node says of the files that it left out."""
        self._told += [f"on node {node}: {note}" for note in notes]

    def texts(self) -> list[str]:
        """Return the notes."""
        found = []
        # Skipped files are the least: every node has some.
        told = sorted(self._told, key=lambda note: ": skipped " in note)
        for notes in (self._dead, self._missing, self._dropped, self._common, told):
            found += notes[:_EXAMPLES]
            if len(notes) > _EXAMPLES:
                found.append(f"{len(notes) - _EXAMPLES} more of this kind")
        return found
