"""What the text and the XML of ``nvidia-smi -q`` have in common: GPUs one after another, and the width of their links."""

from __future__ import annotations


class GpuReport:
    """The GPU that the lines are about; None between and behind the GPUs. ``widest`` is the width its link may have."""

    def __init__(self) -> None:
        self.gpu: str | None = None
        self.widest: str | None = None
        self._index = -1

    def begin(self, address: str) -> str:
        """Begin the next GPU; returns the line that numbers it."""
        self.gpu, self._index = address, self._index + 1
        return f"nvidia-smi gpu={address} index: {self._index}"
