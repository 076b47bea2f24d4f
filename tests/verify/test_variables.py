"""What of a job's variables an experiment repeats, what it names as missing, and what it forgets."""

from __future__ import annotations

from typing import Any

import pytest

from nccl_triage.verify import variables

#: Repeated: a switch, a number, a list of names.
REPEATED = {
    "NCCL_SOCKET_IFNAME": "=eth0,eth1", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_IB_HCA": "^=mlx5_0:1,mlx5_1::0:0",
    "NCCL_IB_PKEY": "2", "NCCL_IB_PKEY_VALUE": "0x8111", "NCCL_P2P_DISABLE": "", "NCCL_IB_TIMEOUT": "22",
    "NCCL_IB_RETRY_CNT": "7", "NCCL_SOCKET_RETRY_SLEEP_MSEC": "100", "NCCL_SOCKET_POLL_TIMEOUT_MSEC": "5",
    "NCCL_TIMEOUT": "1800", "NCCL_ALGO": "ring,collnetdirect;allreduce:^tree", "NCCL_CTA_POLICY": "EFFICIENCY|ZERO",
    "NCCL_NETDEVS_POLICY": "MAX:2", "NCCL_RINGS": "0 1 2 3|3 2 1 0", "NCCL_IB_ADDR_RANGE": "10.0.0.0/8,fd00::/8",
    "NCCL_IB_ADDR_FAMILY": "AF_INET", "NCCL_PROXY_CPUSET": "0-3,8", "NCCL_NET_PLUGIN": "none",
    "NCCL_GPUDIRECTTCPX_TX_BINDINGS": "eth1:8-21,112-125;eth2:112-125", "NCCL_MNNVL_RAIL_PER_HOST": "1",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "TORCH_NCCL_NAN_CHECK": "1", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "7200",
    "TORCH_GLOO_LAZY_INIT": "1", "GLOO_DEVICE_TRANSPORT": "TCP", "RCCL_MSCCL_ENABLE": "0",
    "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "1",
}  # fmt: skip
#: Left out and named: they load code, name a file, or name a place; only who trusts the log gets them.
TRUSTED = {
    "NCCL_NET_PLUGIN": "aws-ofi", "NCCL_TUNER_PLUGIN": "/opt/libtuner.so", "NCCL_PROFILER_PLUGIN": "inspector",
    "NCCL_ENV_PLUGIN": "site", "NCCL_GIN_PLUGIN": "a,b", "NCCL_RMA_PLUGIN": "x", "NCCL_CONF_FILE": "nccl.conf",
    "NCCL_TOPO_FILE": "/etc/nccl/topo.xml", "NCCL_GRAPH_FILE": "../graph.xml", "NCCL_TUNER_CONFIG_FILE": "a.csv",
    "NCCL_IBVERBS_LIB": "libibverbs.so.1", "NCCL_LIBIBVERBS_SO": "verbs", "NCCL_NET": "x.so.2", "NCCL_PROTO": "/LL",
    "NCCL_FASTRAK_PLUGIN_ACCEPT_TIMEOUT_MS": "a/b", "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX": "/run/tcpx",
    "NCCL_X_ADDR": "localhost", "NCCL_X_SERVER": "head", "NCCL_X_PROXY": "http://proxy:3128", "NCCL_X": "10.0.0.1",
    "NCCL_Y": "head-node:4000", "NCCL_Z": "fe80::1", "NCCL_A": "$(touch x)", "NCCL_B": "`x`", "NCCL_C": "a'b",
    "NCCL_D": "~", "NCCL_E": "a\\b", "NCCL_F": "\N{CYRILLIC SMALL LETTER A}",
    "GLOO_DEVICE_TRANSPORT_TCP_TLS_CA_FILE": "ca.pem", "GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY": "key.pem",
    "FI_PROVIDER": "efa", "UCX_NET_DEVICES": "mlx5_0:1", "UCX_GDB_COMMAND": "sh", "OFI_NCCL_PROTOCOL": "RDMA",
}  # fmt: skip
#: Left out and named, whatever the user says.
NEVER = {
    "NCCL_COMM_ID": "10.0.0.1:4000", "NCCL_HOSTID": "a", "NCCL_PSK": "x" * 32, "NCCL_API_KEY": "1", "NCCL_KEY": "1",
    "NCCL_ACCESSKEY_ID": "1", "NCCL_AUTH_TOKEN": "1", "GLOO_PASSWORD": "1", "TORCH_NCCL_SECRET": "1",
    "NCCL_P": "http://user:hunter2@proxy:3128", "NCCL_Q": "Authorization: Bearer abcdefgh12345", "NCCL_R": "token=abc",
    "NCCL_S": "hf_abcdefghijklmnopqrst", "NCCL_T": "a\nb", "NCCL_U": "a\x00b", "NCCL_V": "\x1b[2J",
    "NCCL_LONG": "1" * (variables.LONGEST + 1), "NCCL_ODD": 5, "NCCL_NESTED": [["a"]], "NCCL_EMPTY": [], "NCCL_NO": None,
}  # fmt: skip
#: Neither repeated nor missed: logs, dumps, RAS, what a build reads, and what is no variable of the communication.
FORGOTTEN = {
    "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/shared/%h.log", "NCCL_TOPO_DUMP_FILE": "/etc/passwd", "GLOO_LOG_LEVEL": "1",
    "NCCL_RAS_ADDR": "0.0.0.0:28028", "NCCL_RAS_ENABLE": "1", "NCCL_INSPECTOR_DUMP_DIR": "/shared", "NCCL_VERSION": "2.27",
    "TORCH_NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "TORCH_NCCL_DESYNC_DEBUG": "1", "NCCL_HOME": "/opt",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/shared/x", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000", "NCCL_LIB_DIR": "/usr/lib",
    "PATH": "/usr/bin", "LD_PRELOAD": "/tmp/x.so", "LD_LIBRARY_PATH": "/tmp", "XNCCL_A": "1", "nccl_algo": "Tree",
    "NCCL_X;reboot": "1", "NCCL_X=Y": "1", "NCCL_" + "A" * 100: "1", "PYTHONPATH": "/tmp", "HF_TOKEN": "hf_x", "": "1",
}  # fmt: skip


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("name", REPEATED)
def test_what_chooses_or_tunes_is_repeated(name: str, trusted: bool) -> None:
    found = variables.of_log({name: REPEATED[name]}, trusted)
    assert (found.env, found.left_out) == ({name: REPEATED[name]}, ())


@pytest.mark.parametrize("name", TRUSTED)
def test_what_loads_reads_or_connects_needs_the_users_word(name: str) -> None:
    doubtful = variables.of_log({name: TRUSTED[name]})
    assert (doubtful.env, doubtful.left_out) == ({}, (name,))
    trusted = variables.of_log({name: TRUSTED[name]}, trusted=True)
    assert (trusted.env, trusted.left_out) == ({name: TRUSTED[name]}, ())


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("name", NEVER)
def test_secrets_and_what_cannot_be_a_value_are_only_named(name: str, trusted: bool) -> None:
    found = variables.of_log({name: NEVER[name]}, trusted)
    assert (found.env, found.left_out) == ({}, (name,))


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("name", FORGOTTEN)
def test_what_only_tells_is_not_missed(name: str, trusted: bool) -> None:
    found = variables.of_log({name: FORGOTTEN[name]}, trusted)
    assert (found.env, found.left_out) == ({}, ())


def test_ranks_that_disagree_give_the_first_value_and_the_name() -> None:
    found = variables.of_log({"NCCL_ALGO": ["Ring", "Tree"], "NCCL_PROTO": ["LL"], "NCCL_DEBUG": ["INFO", "WARN"]})
    assert found.env == {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}
    assert found.left_out == ("NCCL_ALGO",)


def test_their_number_is_bounded() -> None:
    many: dict[str, Any] = {f"NCCL_A{number}": "1" for number in range(10_000)}
    found = variables.of_log(many)
    assert (len(found.env), len(found.left_out)) == (variables.MOST, variables.MOST)


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("NCCL_NET_PLUGIN", "/opt/libnccl-net.so", True),
        ("NCCL_DEBUG", "INFO", True),
        ("NCCL_TOPO_FILE", "/etc/nccl/topo.xml", True),
        ("TORCH_FR_BUFFER_SIZE", "200", True),
        ("NCCL_AUTH_TOKEN", "x", False),
        ("NCCL_X", "http://user:hunter2@proxy", False),
        ("NCCL_DEBUG_FILE", "/shared/%h.log", False),
        ("NCCL_INSPECTOR_DUMP_DIR", "/shared", False),
        ("NCCL_COMM_ID", "10.0.0.1:4000", False),
        ("NCCL_X", "a\nb", False),
        ("PATH", "/usr/bin", False),
    ],
)
def test_the_users_own_variables_are_the_users_affair(name: str, value: str, kept: bool) -> None:
    assert variables.of_user({name: value}) == ({name: value} if kept else {})
