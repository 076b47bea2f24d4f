"""Hosts that have too little of something: memory, shared memory, descriptors, processes, disk; and a port too many."""

from __future__ import annotations

from corpus.scenarios.build import PORT, bare_ranks, torchrun
from corpus.scenarios.cgroups import Group
from corpus.scenarios.network import HOSTS
from corpus.scenarios.scenario import Action, Culprit, Node, Scenario

#: A small disk of the node's own with the shards that pretrain.py reads.
DATA = "mount -t tmpfs -o size=64m tmpfs /mnt; mkdir /mnt/cache; {python} {jobs}/prepare_shards.py /mnt/data"
IMAGES = DATA + " --format images"
#: A job that loads a model of 2 GiB on one rank in its fourth step.
REFERENCE = ("--reference-mib", "2048", "--timeout", "30", "--steps", "30")


def _memory(name: str, mib: int) -> Group:
    return Group(name, "memory", mib * 1024 * 1024)


RANK_MEMORY = _memory("step_extern", 700)
JOB_MEMORY = _memory("docker-4f1c", 1500)
LOADER_MEMORY = _memory("step_batch", 900)
PROCESSES = Group("user-1001", "pids", 70)
FEW_PROCESSES = Group("user-1002", "pids", 26)
LOADER_PROCESSES = Group("user-1003", "pids", 26)

#: Runs the ranks by hand and, as a batch script's epilogue does, shows what the kernel says about this job's group.
KERNEL_EPILOGUE = "dmesg | grep -E 'docker-4f1c|Memory cgroup out of memory' | tail -2"


def _shell(node: Node, script: str) -> Node:
    """Run a node's command inside a shell that stays: it says ``Killed`` as a job script's shell does."""
    quoted = " ".join(word if word.startswith("{") else f"'{word}'" for word in node.command)
    return Node(("bash", "-c", script.replace("COMMAND", quoted)), node.host, node.env, node.prelude, label=node.label)


def _with_prelude(nodes: tuple[Node, ...], prelude: str) -> tuple[Node, ...]:
    return tuple(Node(n.command, n.host, n.env, prelude, n.delay, n.label) for n in nodes)


HOST_MEMORY = (
    Scenario(
        id="hostoom_cgroup_rank_w4",
        cause="host-out-of-memory",
        family="host-oom-kill",
        injected="rank 2 put into a memory cgroup of 700 MiB before it loads a model of 2 GiB: the kernel kills it",
        nodes=(torchrun("pretrain.py", *REFERENCE, "--reference-rank", "2", prelude=DATA),),
        world_size=4,
        culprit=Culprit(ranks=(2,)),
        also=("process-crashed",),
        determinable="partly",
        expect=r"Signal 9 \(SIGKILL\)",
        actions=(Action("starting: ", RANK_MEMORY.take_rank(2), count=4),),
        network=RANK_MEMORY.host,
        needs=("memory-cgroup",),
    ),
    Scenario(
        id="hostoom_cgroup_rank_w2_plain",
        cause="host-out-of-memory",
        family="host-oom-kill",
        injected="rank 0 put into a memory cgroup of 700 MiB before it loads a model of 2 GiB: the kernel kills it",
        nodes=(
            torchrun(
                "pretrain.py", *REFERENCE, "--reference-rank", "0", "--log-style", "megatron", nproc=2, tee=False,
                prelude=DATA, env={"TORCH_CPP_LOG_LEVEL": "INFO"},
            ),
        ),
        world_size=2,
        culprit=Culprit(ranks=(0,)),
        also=("process-crashed",),
        determinable="partly",
        expect=r"Signal 9 \(SIGKILL\)",
        actions=(Action("starting: ", RANK_MEMORY.take_rank(0), count=2),),
        network=RANK_MEMORY.host,
        needs=("memory-cgroup",),
    ),
    Scenario(
        id="hostoom_bare_shell_w3",
        cause="host-out-of-memory",
        family="host-oom-shell-killed",
        injected="rank 1 put into a memory cgroup of 700 MiB; started from a shell, which says 'Killed'",
        nodes=tuple(
            _shell(node, "COMMAND; exit $?")
            for node in _with_prelude(
                bare_ranks("pretrain.py", *REFERENCE, "--reference-rank", "1", world_size=3), DATA
            )
        ),
        world_size=3,
        culprit=Culprit(ranks=(1,)),
        also=("process-crashed",),
        determinable="partly",
        expect=r"Killed +",
        actions=(Action(0.0, RANK_MEMORY.take_node(1)),),
        network=RANK_MEMORY.host,
        needs=("memory-cgroup",),
    ),
    Scenario(
        id="hostoom_container_w4",
        cause="host-out-of-memory",
        family="host-oom-kernel-log",
        injected="the whole job in a memory cgroup of 1500 MiB (a container's limit); rank 3 loads a model of 2 GiB",
        nodes=(
            _shell(
                torchrun("pretrain.py", *REFERENCE, "--reference-rank", "3", prelude=DATA),
                f"COMMAND; code=$?; {KERNEL_EPILOGUE}; exit $code",
            ),
        ),
        world_size=4,
        culprit=Culprit(ranks=(3,)),
        expect=r"Memory cgroup out of memory: Killed process",
        actions=(Action(0.0, JOB_MEMORY.take_job),),
        network=JOB_MEMORY.host,
        needs=("memory-cgroup",),
        deadline=120,
    ),
    Scenario(
        id="hostoom_allocator_w2",
        cause="host-out-of-memory",
        family="host-oom-allocator",
        injected="ulimit -v of 5 GB; rank 1 loads a model of 8 GiB",
        nodes=(
            torchrun(
                "pretrain.py", "--reference-mib", "8192", "--reference-rank", "1", "--timeout", "30", nproc=2,
                prelude=DATA + "; ulimit -v 5000000",
            ),
        ),
        world_size=2,
        culprit=Culprit(ranks=(1,)),
        expect=r"DefaultCPUAllocator: can't allocate memory",
        deadline=150,
    ),
    Scenario(
        id="hostoom_allocator_all_w3_plain",
        cause="host-out-of-memory",
        family="host-oom-allocator",
        injected="ulimit -v of 3.5 GB; every rank loads a model of 4 GiB",
        nodes=(
            torchrun(
                "pretrain.py", "--reference-mib", "4096", "--reference-rank", "-1", "--timeout", "30", "--log-style",
                "colons", nproc=3, tee=False, prelude=DATA + "; ulimit -v 3500000",
            ),
        ),
        world_size=3,
        expect=r"DefaultCPUAllocator: can't allocate memory",
        deadline=150,
    ),
    Scenario(
        id="hostoom_numpy_bare_w2",
        cause="host-out-of-memory",
        family="host-oom-numpy",
        injected="ulimit -v of 5 GB; rank 0 asks numpy for a table of 40 GiB",
        nodes=_with_prelude(
            bare_ranks("pretrain.py", "--token-cache-gib", "40", "--timeout", "10", world_size=2),
            DATA + "; ulimit -v 5000000",
        ),
        world_size=2,
        culprit=Culprit(ranks=(0,)),
        expect=r"MemoryError: Unable to allocate",
    ),
    Scenario(
        id="hostoom_loader_worker_w2",
        cause="host-out-of-memory",
        family="host-oom-loader-worker",
        injected="the job in a memory cgroup of 900 MiB; the DataLoader workers' batches of big images do not fit",
        nodes=(
            torchrun(
                "pretrain.py", "--format", "images", "--image-size", "1024", "--batch", "16", "--workers", "3",
                "--timeout", "30", nproc=2, prelude=IMAGES,
            ),
        ),
        world_size=2,
        also=("data-pipeline-failure", "shared-memory-exhausted", "process-crashed"),
        determinable="partly",
        expect=r"killed by signal: Killed|Signal 9 \(SIGKILL\)",
        actions=(Action(0.0, LOADER_MEMORY.take_job),),
        network=LOADER_MEMORY.host,
        needs=("memory-cgroup",),
    ),
)  # fmt: skip

SHARED_MEMORY = (
    Scenario(
        id="shm_small_w4",
        cause="shared-memory-exhausted",
        family="shm-full-dataloader",
        injected="/dev/shm of 8 MiB, DataLoader workers send batches of 4.8 MB",
        nodes=(
            torchrun(
                "pretrain.py", "--format", "images", "--workers", "2",
                prelude=IMAGES + "; mount -t tmpfs -o size=8m tmpfs /dev/shm",
            ),
        ),
        world_size=4,
        expect=r"(?i)insufficient shared memory|unable to allocate shared memory|bus error",
    ),
    Scenario(
        id="shm_small_w2_plain",
        cause="shared-memory-exhausted",
        family="shm-full-dataloader",
        injected="/dev/shm of 3 MiB, DataLoader workers send batches of 4.8 MB",
        nodes=(
            torchrun(
                "pretrain.py", "--format", "images", "--workers", "1", "--log-style", "bare", nproc=2, tee=False,
                prelude=IMAGES + "; mount -t tmpfs -o size=3m tmpfs /dev/shm",
            ),
        ),
        world_size=2,
        expect=r"(?i)insufficient shared memory|unable to allocate shared memory|bus error",
    ),
    Scenario(
        id="shm_small_bare_w3",
        cause="shared-memory-exhausted",
        family="shm-full-dataloader",
        injected="/dev/shm of 16 MiB on rank 1's container only, DataLoader workers send batches of 4.8 MB",
        nodes=tuple(
            Node(
                node.command, env=node.env, label=node.label,
                prelude=IMAGES + (f"; mount -t tmpfs -o size={'16m' if rank == 1 else '512m'} tmpfs /dev/shm"),
            )
            for rank, node in enumerate(
                bare_ranks("pretrain.py", "--format", "images", "--workers", "3", "--timeout", "15", world_size=3)
            )
        ),
        world_size=3,
        culprit=Culprit(ranks=(1,)),
        expect=r"(?i)insufficient shared memory|unable to allocate shared memory|bus error",
    ),
    Scenario(
        id="shm_filled_later_w2",
        cause="shared-memory-exhausted",
        family="shm-full-dataloader",
        injected="/dev/shm of 40 MiB, batches kept in a cache fill it after some steps",
        nodes=(
            torchrun(
                "pretrain.py", "--format", "images", "--workers", "1", "--cache-batches", "--log-style", "megatron",
                nproc=2, prelude=IMAGES + "; mount -t tmpfs -o size=40m tmpfs /dev/shm",
            ),
        ),
        world_size=2,
        expect=r"(?i)insufficient shared memory|unable to allocate shared memory|bus error",
    ),
)  # fmt: skip

BUS_ERRORS = (
    Scenario(
        id="shm_bus_error_worker_w2",
        cause="shared-memory-exhausted",
        family="shm-bus-error-dataloader",
        injected="/dev/shm of 4 MiB, each DataLoader worker of rank 1 and 0 fills a shared decode buffer of 16 MiB",
        nodes=(
            torchrun(
                "pretrain.py", "--workers", "2", "--decode-buffer-mib", "16", nproc=2,
                prelude=DATA + "; mount -t tmpfs -o size=4m tmpfs /dev/shm",
            ),
        ),
        world_size=2,
        expect=r"(?i)bus error",
    ),
    Scenario(
        id="shm_bus_error_rank_w4_plain",
        cause="shared-memory-exhausted",
        family="shm-bus-error-rank",
        injected="/dev/shm of 12 MiB, each rank fills a shared decode buffer of 16 MiB: SIGBUS",
        nodes=(
            torchrun(
                "pretrain.py", "--decode-buffer-mib", "16", "--log-style", "megatron", tee=False,
                env={"PYTHONFAULTHANDLER": "1"}, prelude=DATA + "; mount -t tmpfs -o size=12m tmpfs /dev/shm",
            ),
        ),
        world_size=4,
        also=("process-crashed",),
        determinable="partly",
        expect=r"SIGBUS|Bus error",
    ),
)  # fmt: skip

LIMITS = (
    Scenario(
        id="oslimit_files_leak_w2",
        cause="os-limit",
        family="os-limit-open-files",
        injected="ulimit -n 256; rank 1 opens 1024 shard files",
        nodes=(
            torchrun(
                "pretrain.py", "--open-shards", "1024", "--reference-rank", "1", nproc=2,
                prelude=DATA + "; ulimit -n 256",
            ),
        ),
        world_size=2,
        culprit=Culprit(ranks=(1,)),
        expect=r"Too many open files: '/mnt/cache",
    ),
    Scenario(
        id="oslimit_files_leak_w4_plain",
        cause="os-limit",
        family="os-limit-open-files",
        injected="ulimit -n 512; every rank opens 1024 shard files",
        nodes=(
            torchrun(
                "pretrain.py", "--open-shards", "1024", "--reference-rank", "-1", "--log-style", "colons", tee=False,
                prelude=DATA + "; ulimit -n 512",
            ),
        ),
        world_size=4,
        expect=r"Too many open files: '/mnt/cache",
    ),
    Scenario(
        id="oslimit_files_start_w4",
        cause="os-limit",
        family="os-limit-open-files-start",
        injected="ulimit -n 24: too few descriptors to start the ranks",
        nodes=(torchrun("pretrain.py", prelude=DATA + "; ulimit -n 24"),),
        world_size=4,
        expect=r"Too many open files",
    ),
    Scenario(
        id="oslimit_files_loader_w2",
        cause="os-limit",
        family="os-limit-descriptors-of-batches",
        injected="ulimit -n 64: batches of the DataLoader workers, kept in a cache, hold a descriptor each",
        nodes=(
            torchrun(
                "pretrain.py", "--format", "images", "--image-size", "64", "--workers", "2", "--cache-batches",
                "--steps", "60", "--step-time", "0.05", nproc=2, prelude=IMAGES + "; ulimit -n 64",
            ),
        ),
        world_size=2,
        expect=r"Too many open files|ancdata",
    ),
    Scenario(
        id="oslimit_store_accept_w8",
        cause="os-limit",
        family="os-limit-store-accept",
        injected="ulimit -n 16: rank 0's store cannot accept all clients; EMFILE is never printed",
        nodes=_with_prelude(
            bare_ranks("pretrain.py", "--timeout", "12", world_size=8), DATA + "; ulimit -n 16"
        ),
        world_size=8,
        also=("rendezvous-failed", "unknown"),
        determinable="partly",
        expect=r"(?i)too many open files|timed out|reset by peer|EMFILE",
        deadline=120,
    ),
    Scenario(
        id="oslimit_threads_w2",
        cause="os-limit",
        family="os-limit-threads",
        injected="pids cgroup of 70 (a user's limit of processes); rank 1 starts 512 threads",
        nodes=(
            torchrun(
                "pretrain.py", "--prefetch-threads", "512", "--reference-rank", "1", nproc=2, prelude=DATA
            ),
        ),
        world_size=2,
        culprit=Culprit(ranks=(1,)),
        expect=r"can't start new thread",
        actions=(Action(0.0, PROCESSES.take_job),),
        network=PROCESSES.host,
        needs=("pids-cgroup",),
    ),
    Scenario(
        id="oslimit_fork_start_w6_plain",
        cause="os-limit",
        family="os-limit-processes",
        injected="pids cgroup of 26: six ranks cannot all start their threads",
        nodes=(torchrun("pretrain.py", nproc=6, tee=False, prelude=DATA),),
        world_size=6,
        expect=r"Resource temporarily unavailable|can't start new thread",
        actions=(Action(0.0, FEW_PROCESSES.take_job),),
        network=FEW_PROCESSES.host,
        needs=("pids-cgroup",),
    ),
    Scenario(
        id="oslimit_fork_workers_w2",
        cause="os-limit",
        family="os-limit-processes",
        injected="pids cgroup of 26: the DataLoader cannot start its workers",
        nodes=(torchrun("pretrain.py", "--workers", "12", nproc=2, prelude=DATA),),
        world_size=2,
        expect=r"Resource temporarily unavailable|can't start new thread",
        actions=(Action(0.0, LOADER_PROCESSES.take_job),),
        network=LOADER_PROCESSES.host,
        needs=("pids-cgroup",),
    ),
    Scenario(
        id="oslimit_file_size_w2",
        cause="os-limit",
        family="os-limit-file-size",
        injected="ulimit -f of 512 KiB: the checkpoint is larger",
        nodes=(
            torchrun(
                "pretrain.py", "--hidden", "1024", "--checkpoint", "/mnt/cache", nproc=2,
                prelude=DATA + "; ulimit -f 512",
            ),
        ),
        world_size=2,
        culprit=Culprit(ranks=(0,)),
        also=("storage-fault",),
        expect=r"File too large|file write failed",
    ),
)  # fmt: skip

SMALL_DISK = DATA + "; mkdir /mnt/ckpt; mount -t tmpfs -o size=1m tmpfs /mnt/ckpt"
STORAGE = (
    Scenario(
        id="disk_full_first_rank_w4",
        cause="storage-fault",
        family="storage-checkpoint-no-space",
        injected="checkpoints of 280 KiB on a disk of 1 MiB; rank 0 saves every second step",
        nodes=(
            torchrun(
                "pretrain.py", "--checkpoint", "/mnt/ckpt", "--checkpoint-every", "2", "--steps", "20", prelude=SMALL_DISK
            ),
        ),
        world_size=4,
        culprit=Culprit(ranks=(0,)),
        expect=r"No space left on device|file write failed|unexpected pos",
    ),
    Scenario(
        id="disk_full_all_ranks_w2_plain",
        cause="storage-fault",
        family="storage-checkpoint-no-space",
        injected="every rank saves 8 MiB on a disk of 1 MiB",
        nodes=(
            torchrun(
                "pretrain.py", "--checkpoint", "/mnt/ckpt", "--checkpoint-ranks", "all", "--hidden", "1408",
                "--log-style", "megatron", nproc=2, tee=False, prelude=SMALL_DISK,
            ),
        ),
        world_size=2,
        expect=r"No space left on device|file write failed|unexpected pos",
    ),
    Scenario(
        id="disk_full_distributed_w4",
        cause="storage-fault",
        family="storage-checkpoint-no-space",
        injected="torch.distributed.checkpoint on a disk of 1 MiB that fills",
        nodes=(
            torchrun(
                "pretrain.py", "--checkpoint", "/mnt/ckpt", "--checkpoint-format", "distributed",
                "--checkpoint-every", "2", "--steps", "20", "--timeout", "30", prelude=SMALL_DISK,
            ),
        ),
        world_size=4,
        expect=r"No space left on device|file write failed|unexpected pos",
        deadline=120,
    ),
    Scenario(
        id="disk_full_event_log_bare_w3",
        cause="storage-fault",
        family="storage-log-no-space",
        injected="the event log fills a disk of 128 KiB on rank 2's host",
        nodes=tuple(
            Node(
                node.command, env=node.env, label=node.label,
                prelude=DATA + f"; mkdir /mnt/log; mount -t tmpfs -o size={'64k' if rank == 2 else '8m'} tmpfs /mnt/log",
            )
            for rank, node in enumerate(
                bare_ranks("pretrain.py", "--events", "/mnt/log", "--steps", "20", "--timeout", "12", world_size=3)
            )
        ),
        world_size=3,
        culprit=Culprit(ranks=(2,)),
        expect=r"No space left on device",
    ),
    Scenario(
        id="disk_no_inodes_w2",
        cause="storage-fault",
        family="storage-no-inodes",
        injected="a disk of 24 inodes: the files of rank 0's shard cache cannot be created",
        nodes=(
            torchrun(
                "pretrain.py", "--open-shards", "64", "--reference-rank", "0", nproc=2,
                prelude=DATA + "; mount -t tmpfs -o size=8m,nr_inodes=24 tmpfs /mnt/cache",
            ),
        ),
        world_size=2,
        culprit=Culprit(ranks=(0,)),
        expect=r"No space left on device",
    ),
    Scenario(
        id="disk_read_only_w4",
        cause="storage-fault",
        family="storage-read-only",
        injected="the checkpoint disk is mounted read-only",
        nodes=(
            torchrun(
                "pretrain.py", "--checkpoint", "/mnt/ckpt", "--checkpoint-every", "2",
                prelude=SMALL_DISK + "; mount -o remount,ro /mnt/ckpt",
            ),
        ),
        world_size=4,
        culprit=Culprit(ranks=(0,)),
        expect=r"Read-only file system|cannot be opened",
    ),
    Scenario(
        id="disk_read_only_launcher_w2_plain",
        cause="storage-fault",
        family="storage-read-only",
        injected="torchrun's log folder is on a read-only disk",
        nodes=(
            torchrun(
                "pretrain.py", nproc=2, tee=False, options=("--log-dir", "/mnt/ckpt/logs", "--redirects", "3"),
                prelude=SMALL_DISK + "; mount -o remount,ro /mnt/ckpt",
            ),
        ),
        world_size=2,
        expect=r"Read-only file system",
    ),
    Scenario(
        id="disk_read_error_w4",
        cause="storage-fault",
        family="storage-read-error",
        injected="a shard of rank 1 that gives EIO when it is read",
        nodes=(torchrun("pretrain.py", "--format", "jsonl", "--workers", "1",
                        prelude=DATA + " --format jsonl; ln -sf /proc/self/mem /mnt/data/train-00001.jsonl.gz"),),
        world_size=4,
        culprit=Culprit(ranks=(1,)),
        also=("data-pipeline-failure",),
        expect=r"Input/output error",
    ),
    Scenario(
        id="disk_full_mapped_index_w2",
        cause="storage-fault",
        family="storage-mapped-no-space",
        injected="a memory-mapped index of 64 MiB on a full disk of 1 MiB: SIGBUS on rank 1",
        nodes=(
            torchrun(
                "pretrain.py", "--index-mib", "64", "--cache", "/mnt/ckpt", nproc=2, prelude=SMALL_DISK,
                env={"PYTHONFAULTHANDLER": "1"},
            ),
        ),
        world_size=2,
        also=("process-crashed", "shared-memory-exhausted"),
        determinable="partly",
        expect=r"SIGBUS|Bus error",
    ),
)  # fmt: skip

#: Another process that listens on the port of the rendezvous.
TAKEN = "({python} -m http.server %d >/dev/null 2>&1 &); sleep 2"
PORTS = (
    Scenario(
        id="port_taken_w4",
        cause="port-in-use",
        family="port-in-use-static",
        injected="a web server listens on the master port",
        nodes=(torchrun("pretrain.py", prelude=DATA + "; " + TAKEN % PORT),),
        world_size=4,
        also=("rendezvous-failed",),
        expect=r"EADDRINUSE|Address already in use",
    ),
    Scenario(
        id="port_taken_info_w2_plain",
        cause="port-in-use",
        family="port-in-use-static",
        injected="a web server listens on the master port 12355",
        nodes=(
            torchrun(
                "pretrain.py", nproc=2, tee=False, port=12355, prelude=DATA + "; " + TAKEN % 12355,
                env={"TORCH_CPP_LOG_LEVEL": "INFO", "LOGLEVEL": "INFO"},
            ),
        ),
        world_size=2,
        also=("rendezvous-failed",),
        expect=r"EADDRINUSE|Address already in use",
    ),
    Scenario(
        id="port_taken_bare_w3",
        cause="port-in-use",
        family="port-in-use-bare",
        injected="a web server listens on the port of rank 0's store",
        nodes=tuple(
            Node(
                node.command, env=node.env, label=node.label,
                prelude=DATA + "; " + (TAKEN % PORT if rank == 0 else "sleep 2"),
            )
            for rank, node in enumerate(bare_ranks("pretrain.py", "--timeout", "12", world_size=3))
        ),
        world_size=3,
        culprit=Culprit(ranks=(0,)),
        also=("rendezvous-failed",),
        expect=r"EADDRINUSE|Address already in use",
        deadline=60,
    ),
    Scenario(
        id="port_second_job_w2",
        cause="port-in-use",
        family="port-in-use-two-jobs",
        injected="a second job is started on the host with the same master port while the first one runs",
        nodes=(
            Node(
                torchrun("pretrain.py", "--steps", "30", "--step-time", "0.4", "--timeout", "30", nproc=2, tee=False).command,
                prelude=DATA, label="[job 5121] ",
            ),
            Node(
                torchrun("pretrain.py", "--steps", "30", "--lr", "0.003", nproc=2, tee=False).command,
                prelude=DATA, delay=8.0, label="[job 5122] ",
            ),
        ),
        world_size=2,
        also=("rendezvous-failed",),
        expect=r"EADDRINUSE|Address already in use",
        deadline=60,
    ),
    Scenario(
        id="port_taken_c10d_w2",
        cause="port-in-use",
        family="port-in-use-c10d",
        injected="a web server listens on the port of the c10d rendezvous endpoint",
        nodes=(
            Node(
                (
                    "{bin}/torchrun", "--nproc-per-node", "2", "--nnodes", "1:2", "--rdzv-backend", "c10d",
                    "--rdzv-endpoint", f"{HOSTS[0]}:29400", "--rdzv-conf", "read_timeout=10,join_timeout=15",
                    "--log-dir", "{logs}", "--tee", "3", "{jobs}/pretrain.py",
                ),
                prelude=DATA + "; " + TAKEN % 29400,
            ),
        ),
        world_size=2,
        also=("rendezvous-failed",),
        determinable="partly",
        expect=r"RendezvousConnectionError|EADDRINUSE|Address already in use",
        telling=r"Address already in use|The connection to the C10d store has failed",
        deadline=90,
    ),
)  # fmt: skip

SCENARIOS = (*HOST_MEMORY, *SHARED_MEMORY, *BUS_ERRORS, *LIMITS, *STORAGE, *PORTS)
