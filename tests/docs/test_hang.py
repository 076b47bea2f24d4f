"""The manual way of docs/hang.md, with stand-ins for the programs of a host, names the rank that the others wait for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FRAMES = {
    "201": ("all_reduce (torch/distributed/distributed_c10d.py:2826)", "train (train.py:88)"),
    "202": ("_try_get_data (torch/utils/data/dataloader.py:1251)", "train (train.py:81)"),
    "203": ("all_reduce (torch/distributed/distributed_c10d.py:2826)", "train (train.py:88)"),
}


def test_the_commands_name_the_rank_that_the_others_wait_for(tmp_path: Path) -> None:
    tools, shared, dumps = tmp_path / "bin", tmp_path / "hang", tmp_path / "dumps"
    tools.mkdir()
    dumps.mkdir()
    for number, (pid, frames) in enumerate(FRAMES.items()):
        shown = "\n".join(f"    {frame}" for frame in frames)
        head = f"Process {pid}: python train.py --local_rank={number}\nPython v3.11.7 (python3.11)\n"
        (dumps / pid).write_text(f'{head}\nThread {pid} (idle): "MainThread"\n{shown}\n', encoding="utf-8")
    for name, script in {
        "pgrep": f"printf '%s\\n' {' '.join(FRAMES)}",
        "py-spy": f'cat "{dumps}/$3"',
        "nvidia-smi": "echo '==============NVSMI LOG=============='",
        "dmesg": "echo '[Thu Nov 26 10:00:00 2026] systemd[1]: Started.'",
        "hostname": "echo gpu07",
        "nccl-triage": f'exec "{sys.executable}" -m nccl_triage "$@"',
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (tools / name).chmod(0o755)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "train.log").write_text("step 7 loss 2.1\nstep 8 loss 2.0\n", encoding="utf-8")
    page = (ROOT / "docs" / "hang.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "".join(blocks).replace("/shared/hang", str(shared))],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL,
        env={"PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "analyzer"), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "root cause: data-pipeline-failure" in result.stdout, result.stdout
    assert "Rank 1 on gpu07 waits for its DataLoader" in result.stdout, result.stdout
