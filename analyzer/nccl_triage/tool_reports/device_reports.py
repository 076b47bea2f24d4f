"""Reports that list each device with its values below it: ibstat, ibv_devinfo, lspci, ``nvidia-smi nvlink``.

Each value gets its device (and port): ``ibstat mlx5_0 port=1 State: Down``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.store import SourceInfo
from nccl_triage.tool_reports import ToolReport
from nccl_triage.tool_reports.line_rewriting import MAX_SIZE, rewrite

#: Bytes at the beginning in which the first device stands.
_BEGIN = 2000


class _DeviceReport(NamedTuple):
    """A kind of report: how a device begins, how a port of it does, which values are told."""

    name: str
    device: re.Pattern[str]
    value: re.Pattern[str]
    port: re.Pattern[str] | None = None


_KINDS = (
    _DeviceReport(
        "ibstat",
        lazily(r"^CA '(\w{1,40})'"),
        lazily(r"^\s+((?:State|Physical state|Rate|Link layer|CA type|Firmware version): .*)$"),
        lazily(r"^\s+Port (\d+):"),
    ),
    _DeviceReport(
        "ibv_devinfo",
        lazily(r"^hca_id:\s*(\w{1,40})"),
        lazily(r"^\s+((?:state|phys_state|active_mtu|link_layer|fw_ver):\s.*)$"),
        lazily(r"^\s+port:\s*(\d+)"),
    ),
    _DeviceReport(
        "lspci",
        lazily(r"^((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] [A-Z0-9][^\n]{3,160})"),
        lazily(r"^\s+((?:LnkCap|LnkSta|ACSCtl|DevSta):\s.*)$"),
    ),
    _DeviceReport(
        "nvlink",
        lazily(r"^GPU (\d{1,3}): [^(]{2,60} \(UUID: "),
        lazily(r"^\s+(Link \d{1,2}: .*)$"),
    ),
)


def _kind(sample: bytes) -> _DeviceReport | None:
    text = sample[:_BEGIN].decode("utf-8", "replace")
    for report in _KINDS:
        lines = text.split("\n")
        if report.device.match(lines[0]) and any(
            report.value.match(line) or (report.port and report.port.match(line)) for line in lines[1:40]
        ):
            return report
    return None


def _recognises(name: str, sample: bytes) -> bool:
    return _kind(sample) is not None


class _DeviceLines:
    def __init__(self, report: _DeviceReport) -> None:
        self._report = report
        self._device: str | None = None
        self._port = ""

    def change(self, line: str) -> str | None:
        """Return a value with its device and port, None for other lines."""
        device = self._report.device.match(line)
        if device is not None:
            self._device, self._port = device[1], ""
            return None
        if not line[:1].isspace():
            self._device = None  # the report is over
        port = self._report.port.match(line) if self._report.port is not None else None
        if port is not None:
            self._port = f" port={port[1]}"
            return None
        value = self._report.value.match(line)
        if value is None or self._device is None:
            return None
        return f"{self._report.name} {self._device}{self._port} {' '.join(value[1].split())}"


def render(data: bytes, info: SourceInfo) -> bytes | None:
    """Return the report with each value's device and port on its line."""
    report = _kind(data)
    return rewrite(data, _DeviceLines(report).change) if report is not None else None


REPORTS = (ToolReport("headed-report", MAX_SIZE, _recognises, render),)
