"""``nvidia-smi -q -x``: the same lines as of ``nvidia-smi -q``, one for each line of the document.

The document has one element a line, so it is read line by line: nothing in it is expanded or fetched.
"""

from __future__ import annotations

from nccl_triage.observations.store import SourceInfo
from nccl_triage.patterns import lazily
from nccl_triage.renderings import by_line
from nccl_triage.renderings.form import Rendering
from nccl_triage.renderings.gpu_report import GpuReport

_GPU = lazily(r'^\s*<gpu id="([0-9A-Fa-f:.]{7,20})">\s*$')
_VALUE = lazily(r"^\s*<([a-z]\w{0,80})>([^<]*)</\1>\s*$")
_OPEN = lazily(r"^\s*<([a-z]\w{0,80})>\s*$")
_CLOSE = lazily(r"^\s*</([a-z]\w{0,80})>\s*$")
#: Names that the text form writes otherwise.
_SAME = {"remapped_row_pending": "pending", "remapped_row_failure": "remapping_failure_occurred", "pid": "process_id"}
_HEAD = {"driver_version": "Driver Version", "cuda_version": "CUDA Version"}


def _recognises(name: str, sample: bytes) -> bool:
    return b"<nvidia_smi_log" in sample[:600]


def _wants(name: str) -> bool:
    return name.endswith(".xml") and "nvidia" in name.lower()


class _Reader(GpuReport):
    def __init__(self) -> None:
        super().__init__()
        self._above: list[str] = []

    def change(self, line: str) -> str | None:
        """Return a line with what it speaks of, None where it stays as it is."""
        found = _GPU.match(line)
        if found is not None:
            self._above.clear()
            return self.begin(found[1])
        value = _VALUE.match(line)
        if value is not None:
            return self._told(value[1], value[2].strip())
        opened, closed = _OPEN.match(line), _CLOSE.match(line)
        if opened is not None and len(self._above) < by_line.MAX_DEPTH:
            self._above.append(opened[1])
        elif closed is not None and closed[1] == "gpu":
            self.gpu = None
        elif closed is not None and self._above and self._above[-1] == closed[1]:
            self._above.pop()
        return None

    def _told(self, name: str, value: str) -> str | None:
        if self.gpu is None:
            return f"nvidia-smi {_HEAD[name]}: {value}" if name in _HEAD else None
        above = "".join(f"{heading}/" for heading in self._above)
        text = f"nvidia-smi gpu={self.gpu} {above}{_SAME.get(name, name)}: {value}"
        if name == "max_link_width":
            self.widest = value
        elif name == "current_link_width" and self.widest:
            return f"nvidia-smi gpu={self.gpu} {above}link_width/current: {value} of {self.widest}"
        return text


def render(data: bytes, info: SourceInfo) -> bytes | None:
    """Return the document with each value's GPU and headings on its line."""
    return by_line.rewrite(data, _Reader().change)


RENDERING = Rendering("nvidia-smi-xml", by_line.MAX_SIZE, _recognises, render, wants=_wants)
