"""Real NCCL on one GPU that several ranks share: hosts of their own (or NCCL_HOSTID) keep NCCL from refusing that.

None of this runs without a GPU. The job itself runs on CPUs with BACKEND=gloo.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial

from corpus.scenarios.build import bare_ranks, torchrun
from corpus.scenarios.network import HOSTS, Lab, flat, inside
from corpus.scenarios.recorder import Run
from corpus.scenarios.scenario import Action, Culprit, Node, Scenario

JOB = "nccl_train.py"
#: Few channels, as ranks that share a GPU take turns on it; nothing that only a rack of GPUs has.
SHARED = {"CUDA_VISIBLE_DEVICES": "0", "NCCL_MAX_NCHANNELS": "2", "NCCL_MNNVL_ENABLE": "0", "NCCL_NVLS_ENABLE": "0"}
WARN = {**SHARED, "NCCL_DEBUG": "WARN"}
INFO = {**SHARED, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET"}
#: The flight recorder under its older and its newer names; its dumps go to shared memory that only the host sees.
DUMPS = "/dev/shm/nccl_trace_rank_"
RECORDER = {
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": DUMPS,
    "TORCH_FR_DUMP_TEMP_FILE": DUMPS,
}
PRIVATE_SHM = "mount -t tmpfs tmpfs /dev/shm"
NOBODY = Culprit()
TIMED_OUT = r"Watchdog caught collective operation timeout"


def hosts(
    *arguments: str, count: int = 2, env: Mapping[str, str] | None = None, prelude: str = PRIVATE_SHM, tee: bool = False
) -> tuple[Node, ...]:
    """Return hosts with one rank each, which all use the same GPU."""
    return tuple(
        torchrun(
            JOB, *arguments, nproc=1, host=host, nodes=count, tee=tee, env={**SHARED, **(env or {})}, prelude=prelude
        )
        for host in range(count)
    )


def shared(*arguments: str, nproc: int, env: Mapping[str, str] | None = None, tee: bool = True) -> tuple[Node, ...]:
    """Return one host whose ranks share its GPU, each with its own NCCL_HOSTID, over the loopback interface."""
    variables = {**SHARED, "NCCL_SOCKET_IFNAME": "lo", **(env or {})}
    return (torchrun(JOB, "--own-host", *arguments, nproc=nproc, tee=tee, env=variables, prelude=PRIVATE_SHM),)


def labelled(*arguments: str, world_size: int, env: Mapping[str, str] | None = None) -> tuple[Node, ...]:
    """Return a host's ranks without a launcher, sharing its GPU as in ``shared``."""
    variables = {**SHARED, "NCCL_SOCKET_IFNAME": "lo", **(env or {})}
    return bare_ranks(JOB, "--own-host", *arguments, world_size=world_size, env=variables)


def _link_down(run: Run) -> str:
    inside(run.lab.hosts[1], "ip link set eth0 down")
    return f"eth0 of {HOSTS[1]} down"


def _scenario(
    name: str,
    cause: str,
    family: str,
    injected: str,
    nodes: tuple[Node, ...],
    expect: str,
    *,
    culprit: Culprit = NOBODY,
    also: tuple[str, ...] = (),
    determinable: str = "yes",
    telling: str | None = None,
    actions: tuple[Action, ...] = (),
    deadline: float = 180.0,
) -> Scenario:
    """Return an NCCL scenario; its world size is the end of its name, its network has as many hosts as it uses."""
    count = 1 + max(node.host for node in nodes)
    network: Callable[[], AbstractContextManager[Lab]] | None = None
    if count > 1:
        network = partial(flat, count)
    return Scenario(
        id=f"nccl_gpu_{name}",
        cause=cause,
        family=f"nccl-gpu-{family}",
        injected=injected,
        nodes=nodes,
        world_size=int(name.rpartition("_w")[2]),
        expect=expect,
        culprit=culprit,
        also=also,
        determinable=determinable,
        telling=telling,
        actions=actions,
        network=network,
        needs=("gpu",),
        deadline=deadline,
    )


DUPLICATE = r"Duplicate GPU detected|Multiple [Rr]anks (detected|are) using the same GPU"

DEVICES = (
    _scenario(
        "duplicate_w2",
        "duplicate-gpu",
        "duplicate",
        "two ranks of one host take the same GPU",
        (torchrun(JOB, nproc=2, env=SHARED),),
        DUPLICATE,
        culprit=Culprit(ranks=(0, 1)),
    ),
    _scenario(
        "duplicate_eager_w3",
        "duplicate-gpu",
        "duplicate",
        "three ranks of one host take the same GPU; the communicator is made in init_process_group",
        (torchrun(JOB, "--eager", nproc=3, tee=False, env=WARN),),
        DUPLICATE,
        culprit=Culprit(ranks=(0, 1, 2)),
    ),
    _scenario(
        "duplicate_info_w4",
        "duplicate-gpu",
        "duplicate",
        "four ranks of one host take the same GPU; NCCL_DEBUG=INFO",
        bare_ranks(JOB, world_size=4, env=INFO),
        DUPLICATE,
        culprit=Culprit(ranks=(0, 1, 2, 3)),
    ),
    _scenario(
        "out_of_memory_w2",
        "gpu-out-of-memory",
        "out-of-memory",
        "rank 1 allocates until its GPU is full",
        hosts("--fault", "keep_activations", env=WARN),
        r"OutOfMemoryError: CUDA out of memory",
        culprit=Culprit(ranks=(1,), hosts=("gpu-node-02",)),
    ),
    _scenario(
        "out_of_memory_w4",
        "gpu-out-of-memory",
        "out-of-memory",
        "rank 2 allocates until its GPU is full; nobody ends the others",
        labelled("--fault", "keep_activations", "--fault-rank", "2", world_size=4),
        r"OutOfMemoryError: CUDA out of memory",
        culprit=Culprit(ranks=(2,)),
    ),
    _scenario(
        "illegal_address_w2",
        "application-exception",
        "illegal-address",
        "rank 1 reads beyond the end of a buffer on its GPU",
        hosts("--fault", "read_replay_buffer", env=WARN),
        r"illegal memory access",
        culprit=Culprit(ranks=(1,), hosts=("gpu-node-02",)),
        also=("process-crashed", "gpu-hardware-fault"),
        telling=r"illegal memory access",
    ),
    _scenario(
        "device_assert_w2",
        "application-exception",
        "device-assert",
        "rank 1 looks up a token outside the vocabulary",
        shared("--fault", "embed_tokens", nproc=2),
        r"device-side assert",
        culprit=Culprit(ranks=(1,)),
        telling=r"Assertion .* failed|device-side assert",
    ),
)

WATCHDOG = (
    _scenario(
        "never_arrives_w2",
        "rank-divergence",
        "never-arrives",
        "rank 1 waits for a lock for ever and never enters the all-reduce",
        hosts("--fault", "wait_for_lock", env={**WARN, **RECORDER}),
        TIMED_OUT,
        culprit=Culprit(ranks=(1,), hosts=("gpu-node-02",)),
        also=("straggler", "unknown"),
        determinable="partly",
    ),
    _scenario(
        "late_w3",
        "straggler",
        "late",
        "rank 2 writes its optimizer state for longer than the time-out",
        shared("--fault", "write_state", "--fault-rank", "2", nproc=3, env=RECORDER),
        TIMED_OUT,
        culprit=Culprit(ranks=(2,)),
        also=("timeout-too-short",),
        telling=r"writing 96 GiB",
    ),
    _scenario(
        "leaves_loop_w2",
        "rank-divergence",
        "leaves-loop",
        "rank 1 runs out of data and goes on to the final barrier",
        shared("--fault", "stop_early", nproc=2, env={"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}),
        r"data loader exhausted",
        culprit=Culprit(ranks=(1,)),
        also=("collective-mismatch",),
        telling=r"data loader exhausted",
    ),
    _scenario(
        "exits_w3",
        "rank-divergence",
        "exits",
        "rank 1 ends with exit code 0 while the others train on",
        labelled("--fault", "leave", world_size=3, env=WARN),
        r"has not improved",
        culprit=Culprit(ranks=(1,)),
        telling=r"has not improved",
    ),
    _scenario(
        "size_w2",
        "collective-mismatch",
        "size",
        "rank 1 reduces 1000 elements where rank 0 reduces 4 Mi",
        hosts("--fault", "reduce_metrics", env={**WARN, **RECORDER}),
        rf"{TIMED_OUT}|[Tt]runcated",
        culprit=Culprit(ranks=(1,)),
        also=("straggler", "rank-divergence", "unknown"),
        determinable="partly",
        telling=r"[Tt]runcated|NumelIn",
    ),
    _scenario(
        "size_detail_w2",
        "collective-mismatch",
        "size-detail",
        "the same with TORCH_DISTRIBUTED_DEBUG=DETAIL",
        shared("--fault", "reduce_metrics", nproc=2, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
        r"Detected mismatch between collectives",
        culprit=Culprit(ranks=(1,)),
    ),
    _scenario(
        "operation_w2",
        "collective-mismatch",
        "operation",
        "rank 1 broadcasts where rank 0 reduces",
        hosts("--fault", "broadcast_metrics", env={**WARN, **RECORDER}),
        TIMED_OUT,
        culprit=Culprit(ranks=(1,)),
        also=("straggler", "rank-divergence"),
        telling=r"OpType=BROADCAST",
    ),
    _scenario(
        "link_down_w2",
        "network-link-fault",
        "link-down",
        "the interface of gpu-node-02 goes down while the job trains",
        hosts("--steps", "2000", env=INFO),
        TIMED_OUT,
        culprit=Culprit(hosts=("gpu-node-02",)),
        also=("straggler", "rank-divergence", "unknown"),
        determinable="partly",
        actions=(Action("step 10/", _link_down),),
    ),
)

DEATHS = (
    _scenario(
        "sigkill_w2",
        "process-crashed",
        "sigkill",
        "SIGKILL of rank 1",
        hosts("--fault", "kill", env=WARN),
        r"Signal 9 \(SIGKILL\)|exitcode: -9",
        culprit=Culprit(ranks=(1,), hosts=("gpu-node-02",)),
        also=("host-out-of-memory", "unknown"),
        telling=r"Signal 9|exitcode: -9",
    ),
    _scenario(
        "abort_w3",
        "process-crashed",
        "abort",
        "SIGABRT of rank 2",
        shared("--fault", "native_failure", "--fault-rank", "2", nproc=3, tee=False),
        r"Signal 6 \(SIGABRT\)|exitcode: -6",
        culprit=Culprit(ranks=(2,)),
        telling=r"Signal 6|exitcode: -6",
    ),
    _scenario(
        "exception_w4",
        "application-exception",
        "exception",
        "KeyError in the reward function of rank 3; nobody ends the others",
        labelled("--fault", "compute_reward", "--fault-rank", "3", world_size=4),
        r"KeyError: 'translation'",
        culprit=Culprit(ranks=(3,)),
    ),
    _scenario(
        "nan_check_w2",
        "numerical-divergence",
        "nan-check",
        "rank 1 reduces NaN with TORCH_NCCL_NAN_CHECK=1",
        shared("--fault", "poison", nproc=2, env={"TORCH_NCCL_NAN_CHECK": "1"}),
        r"(?i)\bnan\b|device-side assert",
        culprit=Culprit(ranks=(1,)),
        also=("application-exception",),
        telling=r"(?i)isnan|\bnan\b",
    ),
)

#: A topology file that ends in the middle.
BROKEN_TOPOLOGY = (
    """printf '<system version="1">\\n  <cpu numaid="0" affinity="ffff" arch="x86_64"\\n' > {logs}/topo.xml; """
    "export NCCL_TOPO_FILE={logs}/topo.xml"
)
SETTINGS = (
    _scenario(
        "algorithm_name_w2",
        "nccl-env-misconfig",
        "algorithm-name",
        "NCCL_ALGO=Rinng",
        hosts(env={**WARN, "NCCL_ALGO": "Rinng"}),
        r"Unrecognized element token",
        culprit=Culprit(why="NCCL_ALGO=Rinng"),
    ),
    _scenario(
        "protocol_name_w2",
        "nccl-env-misconfig",
        "protocol-name",
        "NCCL_PROTO=LL256",
        shared(nproc=2, env={**INFO, "NCCL_PROTO": "LL256"}),
        r"Unrecognized element token",
        culprit=Culprit(why="NCCL_PROTO=LL256"),
    ),
    _scenario(
        "algorithm_unusable_w2",
        "nccl-env-misconfig",
        "algorithm-unusable",
        "NCCL_ALGO=NVLS where no NVLS is",
        hosts(env={**INFO, "NCCL_ALGO": "NVLS"}),
        r"no algorithm/protocol available",
        culprit=Culprit(why="NCCL_ALGO=NVLS"),
    ),
    _scenario(
        "interface_w2",
        "network-wrong-interface",
        "interface",
        "NCCL_SOCKET_IFNAME=ib0 where only eth0 exists",
        hosts(env={**WARN, "NCCL_SOCKET_IFNAME": "ib0"}),
        r"no socket interface found",
        culprit=Culprit(why="NCCL_SOCKET_IFNAME=ib0"),
    ),
    _scenario(
        "net_name_w2",
        "nccl-env-misconfig",
        "net-name",
        "NCCL_NET=IB where no InfiniBand is",
        hosts(env={**INFO, "NCCL_NET": "IB"}),
        r"network IB not found|initialize any NET plugin",
        culprit=Culprit(why="NCCL_NET=IB"),
        also=("network-plugin",),
    ),
    _scenario(
        "topology_file_w2",
        "nccl-env-misconfig",
        "topology-file",
        "NCCL_TOPO_FILE is a file that ends in the middle",
        hosts(env=WARN, prelude=BROKEN_TOPOLOGY),
        r"XML|topo\.xml",
        culprit=Culprit(why="NCCL_TOPO_FILE"),
        telling=r"XML",
    ),
)

FINISHED = r"training finished"
HEALTHY = (
    _scenario("healthy_w2", "healthy", "healthy", "nothing; NCCL_DEBUG=INFO", hosts(env=INFO), FINISHED),
    _scenario(
        "healthy_all_subsystems_w4",
        "healthy",
        "healthy",
        "nothing; NCCL_DEBUG=INFO for every subsystem but the calls",
        shared(nproc=4, env={"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "ALL,^COLL,^PROXY"}),
        FINISHED,
    ),
    _scenario(
        "healthy_recorder_w3",
        "healthy",
        "healthy-recorder",
        "nothing; flight recorder, DETAIL, eager communicator",
        shared(
            "--eager",
            nproc=3,
            tee=False,
            env={**RECORDER, "TORCH_DISTRIBUTED_DEBUG": "DETAIL", "TORCH_CPP_LOG_LEVEL": "INFO"},
        ),
        FINISHED,
    ),
    _scenario(
        "healthy_no_topology_file_w2",
        "healthy",
        "healthy-warning",
        "nothing; NCCL_TOPO_FILE names no file, which NCCL only warns of",
        hosts(env={**WARN, "NCCL_TOPO_FILE": "/etc/nccl/topo.xml"}),
        FINISHED,
    ),
)

SCENARIOS = (*DEVICES, *WATCHDOG, *DEATHS, *SETTINGS, *HEALTHY)
