"""``nvidia-smi -q``: every value with the PCI address of its GPU and the headings above it.

``nvidia-smi gpu=00000000:3B:00.0 ecc_errors/volatile/dram_uncorrectable: 3``

Source: the output of nvidia-smi of the drivers 470 to 580; headings and indentation are those of the man page's list.
"""

from __future__ import annotations

from nccl_triage.observations.store import SourceInfo
from nccl_triage.patterns import lazily
from nccl_triage.renderings import by_line
from nccl_triage.renderings.form import Rendering
from nccl_triage.renderings.gpu_report import GpuReport

_MARK = b"=NVSMI LOG="
_GPU = lazily(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_VALUE = lazily(r"^( *)(\S[^:]{0,70}?) *: (.*)$")
_HEADING = lazily(r"^( +)(\S[^:]{0,70})$")


def _recognises(name: str, sample: bytes) -> bool:
    return _MARK in sample[:400]


class _Reader(GpuReport):
    def __init__(self) -> None:
        super().__init__()
        self._above = by_line.Sections()

    def change(self, line: str) -> str | None:
        """Return a line with what it speaks of, None where it stays as it is."""
        found = _GPU.match(line)
        if found is not None:
            self._above.clear()
            return self.begin(found[1])
        value = _VALUE.match(line)
        if value is not None:
            return self._told(len(value[1]), value[2], value[3].strip())
        heading = _HEADING.match(line)
        if heading is not None and self.gpu is not None:
            self._above.open(len(heading[1]), by_line.key(heading[2]))
        elif not line.startswith(" "):
            self.gpu = None  # the report is over
        return None

    def _told(self, indent: int, name: str, value: str) -> str | None:
        if not indent:
            self.gpu = None
            return f"nvidia-smi {name}: {value}" if name in ("Driver Version", "CUDA Version") else None
        if self.gpu is None:
            return None
        above = self._above.at(indent)
        if name == "Process ID" or name.startswith("GPU UUID"):
            self._above.open(indent, by_line.key(name))
        text = f"nvidia-smi gpu={self.gpu} {above}{by_line.key(name)}: {value}"
        if above.endswith("link_width/"):
            if name == "Max":
                self.widest = value
            elif name == "Current" and self.widest:
                text += f" of {self.widest}"
        return text


def render(data: bytes, info: SourceInfo) -> bytes | None:
    """Return the report with each value's GPU and headings on its line."""
    return by_line.rewrite(data, _Reader().change)


RENDERING = Rendering("nvidia-smi-q", by_line.MAX_SIZE, _recognises, render)
