"""The catalogue of variables: what it must hold, how it is read, and what a wrong file says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from nccl_triage.engine import cache, nodes
from nccl_triage.errors import RuleError
from nccl_triage.knowledge import variables
from nccl_triage.knowledge.variables import Variables

ROOT = Path(__file__).parents[2]
#: The variables that a triage meets, program by program.
WANTED = """
NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_DEBUG_FILE NCCL_DEBUG_TIMESTAMP_FORMAT NCCL_DEBUG_TIMESTAMP_LEVELS
NCCL_WARN_ENABLE_DEBUG_INFO NCCL_CONF_FILE NCCL_PARAM_DUMP_ALL NCCL_SOCKET_IFNAME NCCL_SOCKET_FAMILY
NCCL_SOCKET_NTHREADS NCCL_NSOCKS_PERTHREAD NCCL_SOCKET_RETRY_CNT NCCL_SOCKET_RETRY_SLEEP_MSEC
NCCL_SOCKET_POLL_TIMEOUT_MSEC NCCL_COMM_ID NCCL_OOB_NET_ENABLE NCCL_OOB_NET_IFNAME NCCL_HOSTID NCCL_NET
NCCL_NET_PLUGIN NCCL_TUNER_PLUGIN NCCL_PROFILER_PLUGIN NCCL_ENV_PLUGIN NCCL_GIN_PLUGIN NCCL_RMA_PLUGIN NCCL_IB_DISABLE
NCCL_IB_HCA NCCL_IB_TIMEOUT NCCL_IB_RETRY_CNT NCCL_IB_GID_INDEX NCCL_IB_ROCE_VERSION_NUM NCCL_IB_ADDR_FAMILY
NCCL_IB_ADDR_RANGE NCCL_IB_SL NCCL_IB_TC NCCL_IB_FIFO_TC NCCL_IB_PKEY NCCL_IB_QPS_PER_CONNECTION
NCCL_IB_SPLIT_DATA_ON_QPS NCCL_IB_AR_THRESHOLD NCCL_IB_ADAPTIVE_ROUTING NCCL_IB_PCI_RELAXED_ORDERING
NCCL_IB_MERGE_NICS NCCL_IB_MERGE_VFS NCCL_IB_RETURN_ASYNC_EVENTS NCCL_IB_ECE_ENABLE NCCL_IB_MQP_RETRY_ALL
NCCL_IB_MQP_RETRY_CNT NCCL_IB_MQP_RETRY_SLEEP_MSEC NCCL_IB_DATA_DIRECT NCCL_IB_RESILIENCY_PORT_FAILOVER
NCCL_IB_RESILIENCY_PORT_RECOVERY NCCL_IBVERBS_LIB NCCL_NET_GDR_LEVEL NCCL_NET_GDR_READ NCCL_DMABUF_ENABLE
NCCL_NET_GDR_C2C NCCL_GDRCOPY_ENABLE NCCL_NET_MERGE_LEVEL NCCL_NET_FORCE_MERGE NCCL_CROSS_NIC NCCL_PXN_DISABLE
NCCL_P2P_PXN_LEVEL NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_IGNORE_DISABLED_P2P NCCL_P2P_DIRECT_DISABLE NCCL_SHM_DISABLE
NCCL_CUMEM_ENABLE NCCL_CUMEM_HOST_ENABLE NCCL_NVLS_ENABLE NCCL_MNNVL_ENABLE NCCL_MNNVL NCCL_ALGO NCCL_PROTO
NCCL_NTHREADS NCCL_MIN_NCHANNELS NCCL_MAX_NCHANNELS NCCL_MIN_NRINGS NCCL_MAX_NRINGS NCCL_MIN_CTAS NCCL_MAX_CTAS
NCCL_CGA_CLUSTER_SIZE NCCL_BUFFSIZE NCCL_COLLNET_ENABLE NCCL_RUNTIME_CONNECT NCCL_COMM_BLOCKING
NCCL_COMM_SPLIT_SHARE_RESOURCES NCCL_LAUNCH_MODE NCCL_LAUNCH_ORDER_IMPLICIT NCCL_LAUNCH_RACE_FATAL NCCL_GRAPH_REGISTER
NCCL_LOCAL_REGISTER NCCL_GRAPH_MIXING_SUPPORT NCCL_CHECK_POINTERS NCCL_CHECK_MODE NCCL_TOPO_FILE NCCL_TOPO_DUMP_FILE
NCCL_GRAPH_FILE NCCL_GRAPH_DUMP_FILE NCCL_RAS_ENABLE NCCL_RAS_ADDR NCCL_RAS_TIMEOUT_FACTOR NCCL_PROXY_DUMP_SIGNAL
NCCL_REPORT_CONNECT_PROGRESS NCCL_SET_THREAD_NAME NCCL_UID_STAGGER_RATE NCCL_UID_STAGGER_THRESHOLD
NCCL_MULTI_RANK_GPU_ENABLE NCCL_IGNORE_NET_MISMATCH NCCL_IGNORE_COLLNET_MISMATCH NCCL_ENABLE_VERSION_CHECK
NCCL_WIN_ENABLE NCCL_GIN_ENABLE NCCL_WORK_FIFO_BYTES NCCL_PAT_ENABLE NCCL_NVLS_CHUNKSIZE NCCL_IBEXT_DISABLE
NCCL_MAX_RINGS NCCL_IB_MTU NCCL_TIMEOUT TORCH_NCCL_ASYNC_ERROR_HANDLING NCCL_ASYNC_ERROR_HANDLING
TORCH_NCCL_BLOCKING_WAIT NCCL_BLOCKING_WAIT TORCH_NCCL_DESYNC_DEBUG TORCH_NCCL_ENABLE_TIMING
TORCH_NCCL_ENABLE_MONITORING TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC TORCH_NCCL_TRACE_BUFFER_SIZE TORCH_FR_BUFFER_SIZE
TORCH_NCCL_DUMP_ON_TIMEOUT TORCH_FR_DUMP_ON_TIMEOUT TORCH_NCCL_DEBUG_INFO_TEMP_FILE TORCH_FR_DUMP_TEMP_FILE
TORCH_NCCL_DEBUG_INFO_PIPE_FILE TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC
TORCH_NCCL_COORD_CHECK_MILSEC TORCH_NCCL_TRACE_CPP_STACK TORCH_FR_CPP_STACK TORCH_FR_DUMP_DYNAMIC_FILE_NAME
TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN TORCH_NCCL_RETHROW_CUDA_ERRORS TORCH_NCCL_PROPAGATE_ERROR
TORCH_NCCL_CUDA_EVENT_CACHE TORCH_NCCL_NAN_CHECK TORCH_NCCL_HIGH_PRIORITY TORCH_NCCL_BCAST_UNIQUEID
TORCH_NCCL_RANKS_PER_ROOT TORCH_NCCL_USE_COMM_NONBLOCKING TORCH_NCCL_NONBLOCKING_TIMEOUT
TORCH_NCCL_AVOID_RECORD_STREAMS TORCH_NCCL_EXTRA_DUMP_ON_EXEC TORCH_INCLUDE_STACK_TRACE TORCH_INCLUDE_ONLY_ACTIVE
TORCH_NCCL_TEARDOWN_ON_TIMEOUT TORCH_DISTRIBUTED_DEBUG TORCH_CPP_LOG_LEVEL TORCH_SHOW_CPP_STACKTRACES TORCH_LOGS
TORCH_LOGS_FORMAT TORCH_DIST_INIT_BARRIER USE_LIBUV GLOO_SOCKET_IFNAME TORCH_GLOO_LAZY_INIT GLOO_LOG_LEVEL
GLOO_DISABLE_CONNECTION_RETRIES TORCHELASTIC_SIGNALS_TO_HANDLE TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE
TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT TORCH_ELASTIC_SHUTDOWN_TIMEOUT TORCHELASTIC_USE_AGENT_STORE
TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID TORCHELASTIC_ERROR_FILE MASTER_ADDR
MASTER_PORT RANK WORLD_SIZE LOCAL_RANK GROUP_RANK LOCAL_WORLD_SIZE CUDA_VISIBLE_DEVICES CUDA_LAUNCH_BLOCKING
CUDA_DEVICE_MAX_CONNECTIONS PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF VLLM_USE_V1 VLLM_ENABLE_V1_MULTIPROCESSING
VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS VLLM_ENGINE_READY_TIMEOUT_S VLLM_RPC_TIMEOUT VLLM_ENGINE_ITERATION_TIMEOUT_S
VLLM_RINGBUFFER_WARNING_INTERVAL VLLM_ALLOW_INSECURE_SERIALIZATION VLLM_DISABLE_PYNCCL VLLM_ALLREDUCE_USE_SYMM_MEM
VLLM_ATTENTION_BACKEND VLLM_USE_RAY_COMPILED_DAG VLLM_USE_RAY_SPMD_WORKER VLLM_SLEEP_WHEN_IDLE VLLM_LOGGING_COLOR
VLLM_LOGGING_LEVEL VLLM_LOGGING_PREFIX VLLM_CONFIGURE_LOGGING VLLM_TRACE_FUNCTION VLLM_HOST_IP VLLM_PORT
VLLM_NCCL_SO_PATH VLLM_WORKER_MULTIPROC_METHOD VLLM_SKIP_P2P_CHECK VLLM_RAY_PER_WORKER_GPUS VLLM_RAY_BUNDLE_INDICES
VLLM_DP_MASTER_IP VLLM_DP_MASTER_PORT VLLM_DISABLE_COMPILE_CACHE VLLM_KEEP_ALIVE_ON_ENGINE_DEATH
RAY_memory_usage_threshold RAY_memory_monitor_refresh_ms RAY_worker_killing_policy_by_group RAY_DEDUP_LOGS
RAY_DEDUP_LOGS_AGG_WINDOW_S RAY_COLOR_PREFIX RAY_DISABLE_WORKER_LOG_PREFIX RAY_LOG_TO_STDERR RAY_BACKEND_LOG_LEVEL
RAY_BACKEND_LOG_JSON RAY_SCHEDULER_EVENTS RAY_IGNORE_UNHANDLED_ERRORS RAY_health_check_initial_delay_ms
RAY_health_check_period_ms RAY_health_check_timeout_ms RAY_health_check_failure_threshold
RAY_gcs_rpc_server_reconnect_timeout_s RAY_CGRAPH_get_timeout RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE
RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES DEEPSPEED_TIMEOUT DS_ENV_FILE --shm-size --ipc=host --network=host
--ulimit --cap-add --device=/dev/infiniband --kill-on-bad-exit --signal --node-ip-address --runtime-env-json
--vllm_sync_backend --vllm.sync_backend --vllm_sync_with_ray --colocate_all_models --train.colocate_all
actor_rollout_ref.nccl_timeout critic.nccl_timeout trainer.dist_backend --ddp_timeout --distributed-timeout-minutes
--dist-timeout --watchdog-timeout --rdzv-conf --master_port --tensor-parallel-size --gpu-memory-utilization
"""
GOOD = """program: nccl
touch: {en: Never., zh: 永远不要。}
verification: {en: Look., zh: 查看。}
undo: {en: Unset it., zh: 取消设置。}
variables:
  - id: NCCL_X
    values: {kind: integer, least: 1, most: 9}
    default: {old: 1, "2.20": 2}
    since: "2.10"
    status: tuning
    meaning: {en: A number., zh: 数字。}
    samples: [{value: 3}]
"""


def read(text: str) -> Variables:
    return Variables([("rules/variables/x.yaml", nodes.packed(nodes.parse(text, "rules/variables/x.yaml")))])


@pytest.mark.parametrize("name", WANTED.split())
def test_every_variable_that_a_triage_meets_has_an_entry(name: str) -> None:
    found = variables.shipped().find(name)
    assert found is not None
    assert name == found.id or name in found.aliases


def test_names_that_differ_in_case_alone_stay_apart() -> None:
    known = variables.shipped()
    found = {name: known.find(name) for name in ("NCCL_TIMEOUT", "nccl_timeout", "nccl_debug")}
    assert {name: entry.id for name, entry in found.items() if entry} == {
        "NCCL_TIMEOUT": "NCCL_TIMEOUT",
        "nccl_timeout": "actor_rollout_ref.nccl_timeout",
        "nccl_debug": "NCCL_DEBUG",
    }
    assert known.find("NCCL_NO_SUCH_THING") is None


def test_a_file_says_once_what_holds_for_all_its_entries() -> None:
    found = read(GOOD).find("NCCL_X")
    assert found is not None
    assert found.touch["en"] == "Never."
    assert found.default == (("", "1"), ("2.20", "2"))
    assert found.where == "rules/variables/x.yaml:6"
    assert (found.grammar.least, found.grammar.most) == (1, 9)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("status: tuning", "status: great", 10, "not one of tuning"),
        ("kind: integer", "kind: whole", 7, "not one of switch"),
        ("least: 1", "least: one", 7, "expected a number"),
        ("    meaning: {en: A number., zh: 数字。}\n", "", 6, "'meaning' is missing"),
        ("{en: A number., zh: 数字。}", "{en: A number.}", 11, "'zh' is missing"),
        ("{value: 3}", "{value: 3, finds: gold}", 12, "not one of unknown"),
        ("since:", "sinse:", 9, "unknown key 'sinse'"),
        ("undo: {en: Unset it., zh: 取消设置。}\n", "", 5, "'undo' is missing"),
        ("    samples", "    traps: [{says: {en: a, zh: 啊}}]\n    samples", 12, "a trap needs"),
        ("    samples", "    traps: [{matches: '(', says: {en: a, zh: 啊}}]\n    samples", 12, "regular expression"),
        (
            "    samples",
            "    traps: [{below: 1, versions: [new], says: {en: a, zh: 啊}}]\n    samples",
            12,
            "condition",
        ),
    ],
)
def test_errors_point_at_the_line(old: str, new: str, line: int, message: str) -> None:
    assert old in GOOD
    with pytest.raises(RuleError) as caught:
        read(GOOD.replace(old, new, 1)).all()
    assert message in str(caught.value)
    assert caught.value.where == f"rules/variables/x.yaml:{line}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + GOOD[GOOD.index("  - id") :], "already exists (rules/variables/x.yaml:6)"),
        ("program: nccl\n", "'variables' is missing"),
        (GOOD.replace("program: nccl", "programme: nccl"), "programme"),
        (GOOD.replace("status", "aliases: NCCL_Y\n    status"), "must be a list"),
    ],
)
def test_a_wrong_file_is_refused_when_it_is_read(text: str, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        read(text)
    assert message in str(caught.value)


@pytest.mark.usefixtures("fresh")
def test_a_damaged_cache_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_TRIAGE_CACHE", str(tmp_path))
    count = len(list(variables.shipped()))
    (entry,) = tmp_path.glob("knowledge_variables-*")
    whole = cache.read(entry.name) or b""
    files = len(json.loads(whole)["files"])
    for damage in (b"{", b'{"files": []}', whole[:999], json.dumps({"files": [["x", 1]] * files}).encode()):
        cache.write(entry.name, damage)
        variables.shipped.cache_clear()
        assert len(list(variables.shipped())) == count
        found = variables.shipped().find("NCCL_IB_HCA")
        assert found is not None


SCHEMAS = {
    "variables": "variable", "advice": "advice", "codes": "codes", "symptoms": "symptoms", "steps": "steps",
    "timeouts": "timeouts", "causes/*": "cause", "prefixes": "prefixes", "layouts": "layouts",
}  # fmt: skip


@pytest.mark.parametrize("folder", SCHEMAS)
def test_the_files_fit_the_schema_that_editors_use(folder: str) -> None:
    schema = json.loads((ROOT / "rules" / "schema" / f"{SCHEMAS[folder]}.schema.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    files = sorted(ROOT.glob(f"rules/{folder}/*.yaml"))
    assert files
    for path in files:
        document = yaml.safe_load(path.read_text("utf-8"))
        errors = [
            f"{path.name}: {list(e.absolute_path)}: {e.message[:80]}"
            for e in Draft202012Validator(schema).iter_errors(document)
        ]
        assert errors == []


def test_the_schema_refuses_what_the_reader_refuses() -> None:
    schema = json.loads((ROOT / "rules" / "schema" / "variable.schema.json").read_text("utf-8"))
    good = yaml.safe_load(GOOD)
    assert Draft202012Validator(schema).is_valid(good)
    for old, new in (("status: tuning", "status: great"), ("since:", "sinse:"), ("kind: integer", "kind: whole")):
        assert not Draft202012Validator(schema).is_valid(yaml.safe_load(GOOD.replace(old, new)))
