"""Output of nvidia-smi as lines that name their GPU: ``-q``, its XML (``-q -x``), and ``--query-gpu=.. --format=csv``.

``nvidia-smi gpu=00000000:3B:00.0 ecc_errors/volatile/dram_uncorrectable: 3``, of a table
``nvidia-smi gpu=00000000:3B:00.0 index=1; ecc.errors.uncorrected.volatile.total: 3; temperature.gpu: 61``.

Source: the output of nvidia-smi of the drivers 470 to 580; headings and indentation are those of the man page's list.
The XML has one element a line, so it is read line by line: nothing in it is expanded or fetched.

"""

from __future__ import annotations

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.store import SourceInfo
from nccl_triage.tool_reports import ToolReport
from nccl_triage.tool_reports.line_rewriting import MAX_DEPTH, MAX_LINE, MAX_SIZE, Sections, key, rewrite


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


_CSV_COLUMN = lazily(r"^[a-z][a-z0-9_.]{0,70}(?: \[[^\]]{0,20}\])?$")
_CSV_PLACES = ("pci.bus_id", "gpu_bus_id", "uuid", "gpu_uuid", "index")
_CSV_KNOWN = (
    *_CSV_PLACES, "name", "gpu_name", "timestamp", "driver_version", "pid", "process_name", "count", "serial", "vbios_version",
    "ecc.", "utilization.", "memory.", "temperature.", "clocks", "power.", "retired_pages.", "remapped_rows.", "pcie.",
    "pci.", "fabric.", "used_gpu_memory", "used_memory", "pstate", "compute_mode", "mig.mode.", "gpu_recovery_action",
)  # fmt: skip


def _columns(line: str) -> list[str]:
    """Return the names of the columns of a header; none where the line is no header of nvidia-smi."""
    names = [name.strip() for name in line.split(",")]
    if len(names) < 2 or not all(_CSV_COLUMN.match(name) and name.startswith(_CSV_KNOWN) for name in names):
        return []
    plain = [name.split(" ")[0] for name in names]
    return plain if any(name in _CSV_PLACES for name in plain) else []


def _is_csv(name: str, sample: bytes) -> bool:
    first = sample.split(b"\n", 1)[0]
    return len(first) <= MAX_LINE and b"," in first and bool(_columns(first.decode("utf-8", "replace").strip()))


def _wants_csv(name: str) -> bool:
    return name.endswith(".csv") and "smi" in name.lower()


class _CsvRows:
    def __init__(self) -> None:
        self._names: list[str] = []

    def change(self, line: str) -> str | None:
        """Return a row with its names, None for what is no row."""
        header = _columns(line.strip())
        if header:
            self._names = header
            return None
        cells = [cell.strip() for cell in line.split(", ")]
        if len(cells) != len(self._names):
            return None
        row = dict(zip(self._names, cells, strict=True))
        place = row.pop("pci.bus_id", None) or row.pop("gpu_bus_id", None) or "-"
        index = f" index={row['index']}" if row.get("index", "").isdigit() else ""
        told = "; ".join(f"{name}: {cell}" for name, cell in row.items() if name != "index")
        return f"nvidia-smi gpu={place}{index}; {told}"


def _render_csv(data: bytes, info: SourceInfo) -> bytes | None:
    """Return the table with the names of its columns in each row."""
    return rewrite(data, _CsvRows().change)


_CSV = ToolReport("nvidia-smi-csv", MAX_SIZE, _is_csv, _render_csv, wants=_wants_csv)


_Q_MARK = b"=NVSMI LOG="
_Q_GPU = lazily(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_Q_VALUE = lazily(r"^( *)(\S[^:]{0,70}?) *: (.*)$")
_Q_HEADING = lazily(r"^( +)(\S[^:]{0,70})$")


def _is_q(name: str, sample: bytes) -> bool:
    return _Q_MARK in sample[:400]


class _QLines(GpuReport):
    def __init__(self) -> None:
        super().__init__()
        self._above = Sections()

    def change(self, line: str) -> str | None:
        """Return a line with what it speaks of, None where it stays as it is."""
        found = _Q_GPU.match(line)
        if found is not None:
            self._above.clear()
            return self.begin(found[1])
        value = _Q_VALUE.match(line)
        if value is not None:
            return self._told(len(value[1]), value[2], value[3].strip())
        heading = _Q_HEADING.match(line)
        if heading is not None and self.gpu is not None:
            self._above.open(len(heading[1]), key(heading[2]))
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
            self._above.open(indent, key(name))
        text = f"nvidia-smi gpu={self.gpu} {above}{key(name)}: {value}"
        if above.endswith("link_width/"):
            if name == "Max":
                self.widest = value
            elif name == "Current" and self.widest:
                text += f" of {self.widest}"
        return text


def _render_q(data: bytes, info: SourceInfo) -> bytes | None:
    """Return the report with each value's GPU and headings on its line."""
    return rewrite(data, _QLines().change)


_Q = ToolReport("nvidia-smi-q", MAX_SIZE, _is_q, _render_q)


_XML_GPU = lazily(r'^\s*<gpu id="([0-9A-Fa-f:.]{7,20})">\s*$')
_XML_VALUE = lazily(r"^\s*<([a-z]\w{0,80})>([^<]*)</\1>\s*$")
_XML_OPEN = lazily(r"^\s*<([a-z]\w{0,80})>\s*$")
_XML_CLOSE = lazily(r"^\s*</([a-z]\w{0,80})>\s*$")
#: Names that the text form writes otherwise.
_XML_SAME = {
    "remapped_row_pending": "pending",
    "remapped_row_failure": "remapping_failure_occurred",
    "pid": "process_id",
}
_XML_HEAD = {"driver_version": "Driver Version", "cuda_version": "CUDA Version"}


def _is_xml(name: str, sample: bytes) -> bool:
    return b"<nvidia_smi_log" in sample[:600]


def _wants_xml(name: str) -> bool:
    return name.endswith(".xml") and "nvidia" in name.lower()


class _XmlLines(GpuReport):
    def __init__(self) -> None:
        super().__init__()
        self._above: list[str] = []

    def change(self, line: str) -> str | None:
        """Return a line with what it speaks of, None where it stays as it is."""
        found = _XML_GPU.match(line)
        if found is not None:
            self._above.clear()
            return self.begin(found[1])
        value = _XML_VALUE.match(line)
        if value is not None:
            return self._told(value[1], value[2].strip())
        opened, closed = _XML_OPEN.match(line), _XML_CLOSE.match(line)
        if opened is not None and len(self._above) < MAX_DEPTH:
            self._above.append(opened[1])
        elif closed is not None and closed[1] == "gpu":
            self.gpu = None
        elif closed is not None and self._above and self._above[-1] == closed[1]:
            self._above.pop()
        return None

    def _told(self, name: str, value: str) -> str | None:
        if self.gpu is None:
            return f"nvidia-smi {_XML_HEAD[name]}: {value}" if name in _XML_HEAD else None
        above = "".join(f"{heading}/" for heading in self._above)
        text = f"nvidia-smi gpu={self.gpu} {above}{_XML_SAME.get(name, name)}: {value}"
        if name == "max_link_width":
            self.widest = value
        elif name == "current_link_width" and self.widest:
            return f"nvidia-smi gpu={self.gpu} {above}link_width/current: {value} of {self.widest}"
        return text


def _render_xml(data: bytes, info: SourceInfo) -> bytes | None:
    """Return the document with each value's GPU and headings on its line."""
    return rewrite(data, _XmlLines().change)


_XML = ToolReport("nvidia-smi-xml", MAX_SIZE, _is_xml, _render_xml, wants=_wants_xml)

REPORTS = (_CSV, _Q, _XML)
