"""Hosts with GPUs on a machine that has none: the planner, the agents, the ranks and the judge are the real ones.

    with machine() as made:
        a, b = (made.host(name, gpus(8)) for name in ("gpu-a", "gpu-b"))
        settings = api.Settings(hosts=(a.option, b.option))

A host is a folder with a description (``spec.Host``), a ``nvidia-smi`` that answers from it, and a command that runs
programs there. Python there has a torch whose CUDA is a double: tensors on "cuda" lie in the processor's memory, "nccl"
groups are Gloo's with a communicator that compares versions and devices, obeys NCCL_SOCKET_IFNAME, NCCL_HOSTID, NCCL_DEBUG
and NCCL_DEBUG_FILE, fails as NCCL does and is watched as torch's watchdog watches. GPUs can be busy, broken, divided,
exclusive or lost, and do wrong (``spec.Fault``); torch can be slow, missing, broken, or built for something else.
``GpuHost.communicators`` and ``GpuHost.used`` tell what really ran where. Processes are forked from one that has imported
torch, so that a session with 16 ranks takes a second. Where root may, each host has a network namespace of its own with eth0 and an address (``Machine.apart``);
elsewhere all share this machine's network, and tests of what passes between hosts skip.
"""

from tests.verify.gpu_host.hosts import GpuHost, Machine, machine
from tests.verify.gpu_host.spec import Fault, Gpu, Host, Torch, gpus

__all__ = ["Fault", "Gpu", "GpuHost", "Host", "Machine", "Torch", "gpus", "machine"]
