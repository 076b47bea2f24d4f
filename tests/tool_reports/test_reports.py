"""Reports of nvidia-smi, RDMA tools, lspci and dcgmi as lines: each line stays a line and says what it speaks of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nccl_triage import diagnose, tool_reports
from nccl_triage.engine.schema import RuleSet
from nccl_triage.observations.store import SourceInfo
from nccl_triage.tool_reports import json_reports
from tests.diagnosis import hosts
from tests.scan_helpers import scan_text

SMI_Q = """
==============NVSMI LOG==============

Timestamp                                 : Tue Jun  3 14:02:00 2025
Driver Version                            : 550.54.15
CUDA Version                              : 12.4

Attached GPUs                             : 2
GPU 00000000:1B:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    GPU Reset Status
        Reset Required                    : No
    ECC Errors
        Volatile
            SRAM Uncorrectable Parity     : 0
            DRAM Uncorrectable            : 0
        Aggregate
            DRAM Uncorrectable            : 4
GPU 00000000:3B:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    PCI
        GPU Link Info
            Link Width
                Max                       : 16x
                Current                   : 8x
    Clocks Event Reasons
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Active
    ECC Errors
        Volatile
            DRAM Correctable              : 9
            DRAM Uncorrectable            : 3
    Remapped Rows
        Pending                           : Yes
    Fabric
        State                             : In Progress
    Processes
        Process ID                        : 40005
            Type                          : C
"""
SMI_X = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<driver_version>550.54.15</driver_version>
	<attached_gpus>1</attached_gpus>
	<gpu id="00000000:3B:00.0">
		<pci>
			<pci_gpu_link_info>
				<link_widths>
					<max_link_width>16x</max_link_width>
					<current_link_width>8x</current_link_width>
				</link_widths>
			</pci_gpu_link_info>
		</pci>
		<clocks_event_reasons>
			<clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown>
		</clocks_event_reasons>
		<ecc_errors>
			<volatile>
				<dram_uncorrectable>3</dram_uncorrectable>
			</volatile>
		</ecc_errors>
		<remapped_rows>
			<remapped_row_pending>Yes</remapped_row_pending>
		</remapped_rows>
		<fabric>
			<state>In Progress</state>
		</fabric>
		<processes>
			<process_info>
				<pid>40005</pid>
			</process_info>
		</processes>
	</gpu>
</nvidia_smi_log>
"""
CSV = """index, pci.bus_id, ecc.errors.uncorrected.volatile.total, temperature.gpu
0, 00000000:1B:00.0, 0, 31
1, 00000000:3B:00.0, 3, 61
"""
IBSTAT = """CA 'mlx5_0'
	CA type: MT4129
	Number of ports: 1
	Port 1:
		State: Active
		Physical state: LinkUp
CA 'mlx5_1'
	CA type: MT4129
	Port 1:
		State: Down
		Physical state: Polling
"""
LSPCI = """3b:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)
	Subsystem: NVIDIA Corporation Device 16c1
		LnkCap:	Port #0, Speed 32GT/s, Width x16, ASPM not supported
		LnkSta:	Speed 32GT/s, Width x8 (downgraded)
"""
NVLINK = (
    "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-12ab34cd-1111-2222-3333-44ab55cd66ef)\n"
    "\t Link 0: 26.562 GB/s\n"
    "\t Link 3: <inactive>\n"
    "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-12ab34cd-1111-2222-3333-44ab55cd66f0)\n"
    "\t Link 2: Recovery Errors: 2\n"
)
TOPO = (
    "\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\n"
    "GPU0\t X \tNV18\tSYS\tPIX\t0-31\n"
    "GPU1\tNV18\t X \tPHB\tSYS\t0-31\n"
    "GPU2\tSYS\tPHB\t X \tSYS\t32-63\n"
)


def rendered(text: str, name: str = "report.txt") -> list[str]:
    form = tool_reports.recognise(name, text.encode())
    assert form is not None
    found = form.render(text.encode(), SourceInfo(name))
    assert found is not None
    return found.decode().split("\n")


@pytest.mark.parametrize(
    "text", [SMI_Q, SMI_X, CSV, IBSTAT, LSPCI, NVLINK], ids=["q", "xml", "csv", "ib", "pci", "nvl"]
)
def test_a_line_stays_a_line(text: str) -> None:
    assert len(rendered(text)) == len(text.split("\n"))


@pytest.mark.parametrize("text", [SMI_Q, SMI_X], ids=["q", "xml"])
def test_values_of_nvidia_smi_name_their_gpu(text: str, rules: RuleSet) -> None:
    lines = rendered(text)
    place = "nvidia-smi gpu=00000000:3B:00.0 "
    assert f"{place}ecc_errors/volatile/dram_uncorrectable: 3" in lines
    found = scan_text("\n".join(lines), rules)
    seen = {name.partition(".")[2] for name in found.signatures() if name.startswith("nvidia-driver.report_")}
    assert seen >= {
        "report_ecc", "report_remap", "report_fabric", "report_pcie_width", "report_throttle", "report_process",
        "report_gpu", "report_driver",
    }  # fmt: skip
    assert {event.fields["bdf"] for event in found.events("nvidia-driver.report_remap")} == {"00000000:3B:00.0"}


def test_a_row_of_a_query_names_its_columns(rules: RuleSet) -> None:
    lines = rendered(CSV)
    assert (
        lines[2]
        == "nvidia-smi gpu=00000000:3B:00.0 index=1; ecc.errors.uncorrected.volatile.total: 3; temperature.gpu: 61"
    )
    assert [e.line for e in scan_text("\n".join(lines), rules).events("nvidia-driver.report_ecc")] == [3]


def test_devices_and_ports(rules: RuleSet) -> None:
    assert "ibstat mlx5_1 port=1 State: Down" in rendered(IBSTAT)
    assert "nvlink 1 Link 2: Recovery Errors: 2" in rendered(NVLINK)
    assert rendered(LSPCI)[3].startswith("lspci 3b:00.0 3D controller: NVIDIA")
    found = scan_text("\n".join([*rendered(IBSTAT), *rendered(LSPCI), *rendered(NVLINK), TOPO]), rules)
    assert found.count("kernel.ib_port_state") == 2
    assert found.count("kernel.pcie_downgraded") == 1
    assert found.count("nvidia-driver.nvlink_inactive") == 1
    assert found.count("nvidia-driver.topo_row") == 3


def result(**told: object) -> dict[str, object]:
    return {"test_categories": [{"category": "Hardware", "tests": [{"name": "memory", "results": [told]}]}]}


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (
            {"DCGM GPU Diagnostic": result(gpu_id="3", status="Fail", warnings=["GPU 3: bad\nmemory"])},
            "dcgm diag: test=memory gpu=3 status=Fail warnings=GPU 3: bad memory",
        ),
        (
            {"DCGM Diagnostic": result(entity_group="GPU", entity_id=1, status="Pass")},
            "dcgm diag: test=memory gpu=1 status=Pass",
        ),
    ],
)
def test_results_of_dcgm(document: dict[str, object], line: str) -> None:
    assert rendered(json.dumps(document), "diag.json") == [line, ""]


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"DCGM Diagnostic": 5}', b'{"DCGM Diagnostic": ' + b"[" * 60_000])
def test_broken_documents_of_dcgm_are_none(data: bytes) -> None:
    assert json_reports.render_dcgm_diag(data, SourceInfo("x")) is None


@pytest.mark.parametrize(
    "sample",
    [
        b"step 1, loss 2.0\n",
        b"name, value\n1, 2\n",
        b"index, loss\n0, 1\n",
        b'{"message": "DCGM"}\n',
        b"GPU 0: NVIDIA H100 (UUID: GPU-1)\nepoch 1\n",
        b"",
    ],
)
def test_logs_are_no_reports(sample: bytes) -> None:
    assert tool_reports.recognise("train.log", sample) is None


def test_what_follows_a_report_is_left_alone() -> None:
    assert rendered(SMI_Q + "Epoch 1 begins\n    rate        : 3\n")[-2] == "    rate        : 3"


def test_hostile_reports_are_read_in_time() -> None:
    deep = "=NVSMI LOG=\nGPU 00000000:1B:00.0\n" + "".join(" " * (4 * n) + "A\n" for n in range(1, 240)) + "x" * 100_000
    assert max(map(len, rendered(deep))) <= 100_000
    wide = "=NVSMI LOG=\nGPU 00000000:1B:00.0\n" + ("    a : b\x1b[31m\n" * 50_000)
    assert len(rendered(wide)) == 50_003


def test_counters_beside_a_healthy_job_are_no_fault(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(hosts.trainer(finished=True))
    (tmp_path / "nvidia-smi-q.gpu-a2.log").write_text(SMI_Q)
    (tmp_path / "ibstat.gpu-a2.log").write_text(IBSTAT)
    assert diagnose([tmp_path]).to_dict()["verdict"] == "healthy"


def test_counters_beside_a_failed_job_name_the_rank(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(hosts.trainer(dead=5))
    report = SMI_Q.replace(": Active", ": Not Active")
    (tmp_path / "nvidia-smi-q.gpu-a2.log").write_text(report)
    best = diagnose([tmp_path]).to_dict()["diagnoses"][0]
    assert best["cause"] == "gpu-hardware-fault"
    assert (best["culprits"][0]["rank"], best["culprits"][0]["host"]) == (5, "gpu-a2")
    lines = [one["line"] for one in best["evidence"] if one["path"].endswith("nvidia-smi-q.gpu-a2.log")]
    assert report.split("\n").index("            DRAM Uncorrectable            : 3") + 1 in lines


def test_a_throttled_gpu_makes_its_silent_rank_a_straggler(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(hosts.trainer(dead=5))
    (tmp_path / "nvidia-smi-q.gpu-a2.log").write_text(SMI_Q.replace(": 3\n", ": 0\n"))
    best = diagnose([tmp_path]).to_dict()["diagnoses"][0]
    assert (best["cause"], best["culprits"][0]["rank"]) == ("straggler", 5)
    assert any("hw_thermal_slowdown" in one["text"] for one in best["evidence"])
