"""The environment variables of a rank: those of the experiment, and what makes libraries say much and wait little."""

from __future__ import annotations

import os
from typing import Any

#: What NCCL says at INFO: which network and which links it takes, and each attempt to connect; not each collective.
SUBSYSTEMS = "INIT,BOOTSTRAP,ENV,NET"
#: Milliseconds that torch's watchdog leaves for dumps; it sleeps four times as long before it aborts (15 s each
#: otherwise: ProcessGroupNCCL.cpp, Watchdog::runLoop).
DUMP_WAIT = 500
#: Variables with which torch is asked for dumps of its flight recorder.
DUMPS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


def set_up(spec: dict[str, Any]) -> None:
    """Set the variables of this process; whatever was exported on the host, except for the experiment's own, gives way."""
    own = {name: str(value) for name, value in spec.get("env", {}).items()}
    os.environ.update(own)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # torch would write the flight recorder's dumps into the user's home; the parent asks for them over the pipe.
    if not set(DUMPS) & set(os.environ):
        os.environ["TORCH_NCCL_DUMP_ON_TIMEOUT"] = "0"
    if spec.get("backend") == "nccl":
        os.environ.update({name: value for name, value in _nccl(spec).items() if name not in own})


def _nccl(spec: dict[str, Any]) -> dict[str, str]:
    wanted = {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": SUBSYSTEMS,
        "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": str(DUMP_WAIT),
        # C++ stacks take seconds to be written, and are not safe (ProcessGroupNCCL.cpp).
        "TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN": "0",
        # With device_id some releases of torch make the communicator in the background: its failure came later.
        "TORCH_NCCL_USE_COMM_NONBLOCKING": "0",
    }
    if spec.get("nccl_log"):
        wanted["NCCL_DEBUG_FILE"] = str(spec["nccl_log"]).replace("%", "%%")
    return wanted
