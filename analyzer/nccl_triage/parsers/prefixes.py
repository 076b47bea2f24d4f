"""The prefixes that cannot be mistaken for text, as a table: pattern and what it says about the line.

Grammars: Ray ``_private/ray_logging.py``, torchelastic ``multiprocessing/tail_log.py``, Slurm ``srun --label``,
Open MPI ``--tag-output``, Docker json-file, Kubernetes CRI, vLLM ``logger.py``, DeepSpeed ``utils/logging.py``.
"""

from __future__ import annotations

import re
from functools import lru_cache

from nccl_triage.lazy_regex import lazily
from nccl_triage.parsers import line_context

_LEVELS = r"(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|SUCCESS|TRACE)"
#: A date and a time of day.
ISO_TS = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_ADDRESS = r"[0-9A-Fa-f.:]+"
# Ray's `ip=` repeats --node-ip-address, which may be a host's name.
_RAY_NODE = r"[\w.:-]{1,253}"

#: Prefixes that cannot be mistaken for text: (name, first characters, pattern, handler).
_CERTAIN: tuple[tuple[str, str, re.Pattern[str], line_context.Handler], ...] = tuple(
    (name, first, lazily(pattern), handler)
    for name, first, pattern, handler in (
        (
            "vllm-process",
            "(",
            r"\((?P<proc>EngineCore(?:_(?:DP)?\d+)?|DPEngineCoreActor\w*|VllmWorkerProcess|VllmWorker(?:-\d+)?"
            r"(?: rank=\d+| TP\d{1,7}[\w ]{0,80})?|Worker(?:_\w+)?|RayWorkerProc\w*|APIServer|ApiServer_\d+|DPCoordinator"
            r"|Process-\d+|SpawnProcess-\d+|MainProcess) pid=(?P<pid>\d{1,18})\) ?",
            line_context.vllm_process,
        ),
        (
            "ray",
            "(",
            r"\((?:(?P<name>[^\s()][^()]{0,120}?(?:\([^()]{0,80}\))?) )?pid=(?P<pid>\d{1,18})(?:, ip=(?P<ip>"
            + _RAY_NODE
            + r"))?\) ?",
            line_context.ray,
        ),
        (
            "ray-daemon",
            "(",
            r"\((?:pid=)?(?P<comp>raylet|gcs_server|runtime_env)(?:, ip=(?P<ip>" + _RAY_NODE + r"))?\) ?",
            line_context.raylet,
        ),
        (
            "ray-autoscaler",
            "(",
            r"\((?P<comp>autoscaler) \+(?:\d+h)?(?:\d+m)?(?:\d+s)?(?:, ip=(?P<ip>" + _RAY_NODE + r"))?\) ?",
            line_context.raylet,
        ),
        ("monarch", "[", r"\[(?P<n>[1-9]\d{0,5}) similar log lines\] ", line_context.similar),
        ("torch-rank", "[", r"\[rank(?P<rank>\d{1,6})\](?:: ?| )", line_context.rank_of),
        (
            "rank-of-world",
            "[",
            r"\[(?i:rank)[ :=]{1,2}(?P<rank>\d{1,6})(?:/(?P<world>\d{1,7}))?\]:? ?",
            line_context.rank_of,
        ),
        (
            "torchelastic-tee",
            "[",
            r"\[(?!rank)(?P<role>[A-Za-z_][A-Za-z_-]{0,40})(?P<local>\d{1,4})\]:",
            line_context.tee,
        ),
        (
            "mpi-tag",
            "[",
            # Open MPI: [job,rank]<stream>:  Horovod: [rank]<stream>:  SageMaker: [job,mpirank:rank,host]<stream>:
            r"\[(?:(?:[\w.@-]*@)?\d+,)?(?:mpirank:)?(?P<rank>\d{1,7})(?:,(?P<host>[A-Za-z][\w.-]{0,100}))?\]"
            r"<(?P<stream>stdout|stderr|stddiag)>: ?",
            line_context.mpi_tag,
        ),
        (
            # horovodrun --prefix-output-with-timestamp
            "horovod-timed",
            "MTWFS",
            r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
            # mpirun --timestamp-output --tag-output writes the number of the job, too.
            r"\[(?:\d+,)?(?P<rank>\d{1,7})\]<(?P<stream>stdout|stderr)>: ?",
            line_context.mpi_tag,
        ),
        (
            "mpi-host",
            "[",
            # What has the ending of a source file is one: `[pretrain.py:288] `.
            r"\[(?P<host>(?!(?:PID|RANK|LOCAL_RANK|[\w.-]{1,200}\.(?:py|pyx|sh|cc?|cpp|cu|hp*|go|rs|java|scala|js)):)[A-Za-z][\w.-]*):"
            r"(?P<pid>\d{1,18})\] (?=\S)",
            line_context.mpi_host,
        ),
        ("axolotl", "[", r"\[PID:(?P<pid>\d{1,18})\](?: \[RANK:(?P<local>\d{1,7})\])? (?=\S)", line_context.axolotl),
        ("kubectl", "[", r"\[pod/(?P<pod>[a-z0-9.-]+)/(?P<container>[a-z0-9-]+)\] ", line_context.container),
        (
            # `grep` or `tail` over the files in which a kubelet keeps the output of containers.
            "container-file",
            "/",
            r"/(?:[^\s:]{1,200}/)?(?P<pod>[a-z0-9][a-z0-9.-]{0,252})_[a-z0-9-]{1,63}_[a-z0-9-]{1,200}\.log:",
            line_context.container,
        ),
        (
            "metaflow",
            "[",
            r"\[\d+/\w+/\d+ \(pid (?P<pid>\d{1,18})\)\] (?:\[[0-9a-f-]{36}\] )?",
            line_context.log_record,
        ),
        (
            "deepspeed",
            "[",
            r"\[(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\] \[(?P<level>[A-Z]+)\] "
            r"\[(?P<file>[\w.]+):\d+(?::[\w<>]+)?\] (?:\[Rank (?P<rank>-?\d{1,7})\] )?",
            line_context.log_record,
        ),
        (
            "torch-logging-old",
            "[",
            r"\[(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\](?: \[[^\]]{1,80}\])? (?P<name>[\w.]+): \[(?P<level>[A-Z]+)\] ",
            line_context.log_record,
        ),
        (
            "ray-cpp",
            "[",
            r"\[(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (?P<level>[DIWEC]) (?P<pid>\d{1,18}) \d+\](?: \(\w+\))? "
            r"(?P<file>[\w./]+):\d+: ",
            line_context.log_record,
        ),
        (
            "sglang",
            "[",
            r"\[(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?)(?P<ranks>(?: (?:DP|PP|TP|EP|ATTN_CP|MOE_DP)\d+)+)\] ",
            line_context.sglang,
        ),
        (
            "python-bracket",
            "[",
            r"\[(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3})?)\]\s?\[(?P<name>[\w.\-]+)\]\s?\[(?P<level>[A-Z]+)\]\s?(?:-\s)?",
            line_context.log_record,
        ),
        (
            "transformers",
            "[",
            r"\[(?P<level>[A-Z]+)\|(?P<file>[\w./]+):\d+\] (?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) >> ",
            line_context.log_record,
        ),
        (
            "llamafactory",
            "[",
            r"\[(?P<level>[A-Z]+)\|(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] (?P<name>[\w.]+):\d+ >> ",
            line_context.log_record,
        ),
        (
            "dmesg-time",
            "[",
            r"\[(?P<ts>(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2}\s+\d{1,2} \d\d:\d\d:\d\d \d{4})\] ",
            line_context.stamp,
        ),
        ("dmesg", "[<", r"(?:<\d+>)?\[\s*\+?\d+\.\d{3,6}\](?:\[\s*[TC]\d+\])? ", line_context.boot_time),
        (
            "fabricmanager",
            "[",
            r"\[(?P<ts>[A-Z][a-z]{2} \d{2} \d{4} \d\d:\d\d:\d\d)\] \[(?P<level>[A-Z]+)\] \[tid \d+\] ",
            line_context.log_record,
        ),
        ("bracket-time", "[", r"\[(?P<ts>" + ISO_TS + r")\](?:[ :]{1,2}(?=\S)| )", line_context.stamp),
        ("level-bracket", "[", r"\[" + _LEVELS + r"\] (?=\S)", line_context.log_record),
        (
            "cri",
            "0123456789",
            r"(?P<ts>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) (?P<stream>stdout|stderr) [FP] ",
            line_context.cri,
        ),
        (
            "syslog-iso",
            "0123456789",
            r"(?P<ts>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)) "
            # What Rust programs write there is a level (text-generation-inference's shards, for one).
            r"(?!(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL) )(?P<host>[A-Za-z][\w.-]*) "
            r"(?P<prog>(?![\w.]{0,120}(?:Error|Exception|Interrupt|Warning): )[A-Za-z][\w./-]*)(?:\[(?P<pid>\d{1,18})\])?: ",
            line_context.syslog,
        ),
        (
            "ray-python",
            "0123456789",
            r"(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\s(?P<level>[A-Z]+) (?:\(\w+\) )?(?P<file>[\w.]+):\d+ -- ",
            line_context.log_record,
        ),
        (
            "python-dash",
            "0123456789",
            r"(?P<ts>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?) ?[-|] ?(?P<name>[\w.\-]+) ?[-|] ?"
            + _LEVELS
            + r" ?[-|] ?",
            line_context.log_record,
        ),
        (
            "loguru",
            "0123456789",
            r"(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?) \| "
            + _LEVELS
            # A field that programs bind to their records is often the rank.
            + r"\s*\| (?:(?i:rank)[ =:]{1,2}(?P<rank>\d{1,6}) \| )?(?P<name>[\w.<>]+)(?::[\w<>]+:\d+)? [-|] ",
            line_context.log_record,
        ),
        (
            "python-level",
            "0123456789",
            r"(?P<ts>\d{4}-\d\d-\d\d[ T:]\d\d:\d\d:\d\d(?:[.,]\d+)?) ?-? ?\[?"
            + _LEVELS
            + r"\]?:?(?: - [A-Za-z_][\w.]{0,60} -| -| {1,8}\[(?!(?i:rank))[\w.<>]+(?::\d{1,6})?\])? ",
            line_context.log_record,
        ),
        (
            "hf-example",
            "0123456789",
            r"(?P<ts>\d\d/\d\d/\d{4} \d\d:\d\d:\d\d) - (?P<level>[A-Z]+) - (?P<name>[\w.]+) - ",
            line_context.log_record,
        ),
        (
            "mmengine",
            "0123456789",
            r"(?P<mmdd>\d\d/\d\d) (?P<time>\d\d:\d\d:\d\d) - (?P<name>[\w.]+) - (?P<level>[A-Z]+) - ",
            line_context.log_record,
        ),
        (
            # torch_xla.distributed.xla_dist: the address and the number of the client worker that speaks.
            "xla-dist",
            "0123456789",
            r"(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3})?) (?P<ip>\d{1,3}(?:\.\d{1,3}){3}) \[\d{0,6}\] ",
            line_context.xla_worker,
        ),
        # One blank, as what follows may be indented.
        ("stamp", "0123456789", r"(?P<ts>" + ISO_TS + r"):?\s(?=\s{0,200}\S)", line_context.stamp),
        (
            "syslog",
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
            r"(?P<ts>[A-Z][a-z]{2}\s+\d{1,2} \d\d:\d\d:\d\d)(?:\.\d{1,9})? (?P<host>[\w.:-]*\w) (?P<prog>[^\s:\[]+)(?:\[(?P<pid>\d{1,18})\])?: ",
            line_context.syslog,
        ),
        # moreutils' ts, when it is told no format; exactly one blank, as what follows may be indented.
        (
            "ts",
            "ADFJMNOS",
            r"(?P<ts>(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d) (?!\d{4}\b)",
            line_context.stamp,
        ),
        ("elapsed", "[", r"\[\s{0,8}\d{1,9}\.\d{1,6} ?s\] ", lambda match, context: None),
        (
            "syslog-5424",
            "<",
            r"<\d{1,3}>1 (?P<ts>\S+) (?P<host>\S+) (?P<prog>\S+) (?:(?P<pid>\d{1,18})|\S+) \S+ (?:-|\[[^\]]*\]) ?",
            line_context.syslog,
        ),
        (
            "vllm-log",
            "DIWEC",
            _LEVELS + r" (?P<mmdd>\d\d-\d\d) (?P<time>\d\d:\d\d:\d\d) \[(?P<file>[\w./]+):\d+\] ?",
            line_context.log_record,
        ),
        (
            "vllm-log-old",
            "DIWEC",
            _LEVELS + r" (?P<mmdd>\d\d-\d\d) (?P<time>\d\d:\d\d:\d\d) (?P<file>[\w.]+\.py):\d+\] ?",
            line_context.log_record,
        ),
        ("python-default", "DIWEC", _LEVELS + r":(?P<name>[A-Za-z_][\w.\-]*):(?! )", line_context.log_record),
        (
            "glog",
            "CDEFIVW",
            r"(?P<level>[CEWIVDF])(?P<mmdd>\d{4}) (?P<time>\d\d:\d\d:\d\d\.\d+)\s+(?P<pid>\d{1,18}) (?P<file>[\w./-]+):\d+\]"
            r"(?: \[\d+/\d+\])? ",
            line_context.log_record,
        ),
        ("rank-colon", "rR", r"(?i:rank) ?(?P<rank>\d{1,6})(?:/(?P<world>\d{1,7}))?: (?=\S)", line_context.rank_of),
        ("wandb", "w", r"wandb: ", lambda match, context: None),
    )
)


@lru_cache(maxsize=512)
def certain(first: str) -> tuple[tuple[str, re.Pattern[str], line_context.Handler], ...]:
    """Return the prefixes that may begin with a character, in the order in which they are tried."""
    return tuple((name, pattern, handler) for name, starts, pattern, handler in _CERTAIN if first and first in starts)
