"""A document whose diagnoses were put to the test: every field that the verifier writes, made by hand."""

from __future__ import annotations

from typing import Any

from .documents import Doc, diagnosed, diagnosis

#: Three hosts: node-c's eth0 lies behind a firewall, docker0 has the same address everywhere.
HOSTS = ("node-a", "node-b", "node-c")


def finding(cause: str, kind: str, says: str, says_zh: str, **more: Any) -> Doc:
    return {"cause": cause, "kind": kind, "says": says, "says_zh": says_zh, "ranks": [], "hosts": [], **more}


def run(number: int, **more: Any) -> Doc:
    made = {
        "run": f"run-{number:02d}",
        "changed": None,
        "changed_zh": None,
        "op": "ALLREDUCE",
        "numel": 67108864,
        "dtype": "bfloat16",
        "backend": "nccl",
        "world_size": 6,
        "ranks": [0, 1, 2, 3, 4, 5],
        "hosts": list(HOSTS),
        "env": {"NCCL_SOCKET_IFNAME": "docker0"},
        "outcome": "passed",
        "stage": "end",
        "seconds": 4.25,
        "reason": None,
        "bandwidth": None,
        "expected": None,
        "parts": [],
        "finding": None,
        "errors": [],
        "symptoms": [],
    }
    return {**made, **more}


def failing(number: int, **more: Any) -> Doc:
    return run(
        number,
        outcome="error",
        stage="group",
        seconds=32.1,
        finding=finding(
            "network-wrong-interface",
            "same-address",
            "node-a and node-b both have 172.17.0.1 on docker0: a bridge on each host, not a network between them",
            "node-a 和 node-b 的 docker0 地址都是 172.17.0.1：这是各自的网桥，而不是互通的网络",
            hosts=["node-a", "node-b"],
        ),
        errors=[
            {
                "rank": rank,
                "slot": rank,
                "stage": "store",
                "exit_code": 3,
                "type": "DistBackendError",
                "text": "NCCL error: unhandled system error\nsocketStartConnect: Connect to 172.17.0.1<40153> failed",
                "last_call": "all_reduce",
                "flight": {"profiling_name": "nccl:all_reduce", "state": "scheduled"},
            }
            for rank in (2, 3)
        ],
        symptoms=[
            {
                "signature": "nccl.connect_failed",
                "role": "root",
                "meaning": "A connection failed",
                "count": 2,
                "ranks": [2, 3],
                "path": "rank-2.log",
                "line": 14,
            }
        ],
        **more,
    )


def measured(busbw: float, state: str, says: str, says_zh: str, low: float | None, high: float | None) -> Doc:
    """Return bandwidth and expectation of a run that passed."""
    size = 134217728.0 if state != "message-too-small" else 64.0
    return {
        "bandwidth": {"bytes": size, "median_s": 0.01789, "algbw": round(busbw * 0.6, 4), "busbw": busbw},
        "expected": {
            "state": state,
            "low": low,
            "high": high,
            "source": "tcp-25" if low is not None else None,
            "basis": "measured" if low is not None else None,
            "references": ["https://github.com/NVIDIA/nccl/issues/209 (read 2026-11-22)"] if low is not None else [],
            "says": says,
            "says_zh": says_zh,
            "candidates": ["network-link-fault", "network-wrong-interface"] if state == "below" else [],
        },
    }


def path(one: str, two: str, interface: str, address: str, port: int, state: str, **more: Any) -> Doc:
    return {
        "from": one,
        "to": two,
        "to_interface": interface,
        "address": address,
        "port": port,
        "port_kind": "free port",
        "by_interface": "eth0" if interface == "eth0" else None,
        "state": state,
        **more,
    }


def reachability() -> list[Doc]:
    """Return the paths of three hosts, two interfaces each, three ports."""
    found = []
    for one in HOSTS:
        for k, two in enumerate(HOSTS):
            if one == two:
                continue
            for port in (40153, 52655, 52805):
                found.append(path(one, two, "docker0", "172.17.0.1", port, "refused", error="ECONNREFUSED", answered=0))
                if "node-c" in (one, two):
                    state = {"error": "TimeoutError"} if port == 40153 else {}
                    word = "silent" if port == 40153 else "reachable"
                    found.append(path(one, two, "eth0", f"10.0.0.{k + 1}", port, word, **state))
                elif one == "node-b":
                    found.append(path(one, two, "eth0", "10.0.0.1", port, "delayed", round_trip_s=0.0612, sent_again=0))
                else:
                    found.append(path(one, two, "eth0", "10.0.0.2", port, "reachable", round_trip_s=6e-05))
    return found


def host(name: str, number: int) -> Doc:
    def interface(name: str, address: str, netmask: str, mtu: int, **more: Any) -> Doc:
        made = {"name": name, "address": address, "netmask": netmask, "mtu": mtu, "up": True, "loopback": name == "lo"}
        return {**made, "default": False, "speed_mbit": None, **more}

    return {
        "name": name,
        "host": name,
        "own_addresses": [f"10.0.0.{number}"],
        "interfaces": [
            interface("lo", "127.0.0.1", "255.0.0.0", 65536),
            interface("eth0", f"10.0.0.{number}", "255.255.255.0", 9000, speed_mbit=25000, default=True),
            interface("docker0", "172.17.0.1", "255.255.0.0", 1500, up=False),
        ],
        "torch": "2.9.1+cu128",
        "nccl": "2.27.5",
        "driver": "570.86.15",
        "kernel": "5.15.0-1065",
        "shm": {"size": 67108864, "free": 66060288},
        "limits": {"nofile": 1048576, "memlock": -1, "nproc": 96343},
        "cores": 96,
    }


def verification() -> Doc:
    """Return a confirmed wrong interface: controls that fail, treatments that pass, one slow run."""
    other = {"changed": "on an interface that all hosts can reach", "changed_zh": "改用所有主机都能访问的网络接口"}
    inside = {"changed": "with all ranks on one host", "changed_zh": "所有 rank 放在同一台主机内"}
    alone = {**inside, "hosts": ["node-a"], "ranks": [0, 1], "world_size": 2}
    slow = measured(
        0.11,
        "below",
        "0.11 GB/s of bus bandwidth, slower than the expected 0.63-6.2 GB/s (tcp-25, measured)",
        "总线带宽 0.11 GB/s，低于预期的 0.63-6.2 GB/s（tcp-25，实测）",
        0.63,
        6.2,
    )
    good = measured(
        2.4,
        "in-band",
        "2.4 GB/s of bus bandwidth, within the expected 0.63-6.2 GB/s (tcp-25, measured)",
        "总线带宽 2.4 GB/s，符合预期的 0.63-6.2 GB/s（tcp-25，实测）",
        0.63,
        6.2,
    )
    tiny = measured(
        0.00003821,
        "message-too-small",
        "6.1e-05 MiB measure latency, not bandwidth (64 MiB or more would)",
        "6.1e-05 MiB 的消息反映的是延迟而非带宽（至少需要 64 MiB）",
        None,
        None,
    )
    runs = [failing(1), failing(2), run(3, **other, **slow), run(4, **other, **good), run(5, **alone, **tiny)]
    runs.append(run(6, **alone, outcome="hung", stage="warm", reason="deadline before 'warm': 30 s"))
    return {
        "outcome": "confirmed",
        "decided_by": "fails-and-treatment-passes",
        "reason": "The control fails as diagnosed in every run, and with one thing changed it passes in every run.",
        "reason_zh": "对照实验每次都按诊断方式失败，仅改变一个因素后每次都通过。",
        "before": {"status": "supported", "confidence": 0.71},
        "after": {"status": "established", "confidence": 0.998},
        "kind": "reach",
        "differs": ["3 hosts instead of 4", "67,108,864 elements instead of 268,435,456"],
        "differs_zh": ["3 台主机，原作业为 4 台", "67,108,864 个元素，日志中为 268,435,456 个"],
        "findings": [runs[0]["finding"]],
        "narrowed": {"hosts": ["node-a", "node-b"], "kind": "pair", "runs": 3},
        "treatments": [
            {**other, "passed": True, "runs": ["run-03", "run-04"]},
            {**inside, "passed": False, "runs": ["run-05", "run-06"]},
        ],
        "runs": runs,
        "notices": [{"kind": "slow", "run": "run-03", **{k: slow["expected"][k] for k in ("says", "says_zh", "candidates")}}],
        "reachability": reachability(),
        "hosts": [host(name, number) for number, name in enumerate(HOSTS, 1)],
        "problems": ["torch cannot be imported on node-d: no module"],
        "problems_zh": ["node-d 上无法导入 torch：no module"],
        "seconds": 96.4,
    }  # fmt: skip


def without_runs(outcome: str, reason: str, reason_zh: str) -> Doc:
    """Return the verification of a cause for which nothing ran."""
    same = {"status": "possible", "confidence": 0.03}
    lists = ("differs", "differs_zh", "findings", "treatments", "runs", "notices", "reachability", "hosts", "problems")
    empty: Doc = {key: [] for key in (*lists, "problems_zh")}
    return {
        **empty,
        "outcome": outcome,
        "decided_by": outcome,
        "reason": reason,
        "reason_zh": reason_zh,
        "before": same,
        "after": same,
        "kind": "none",
        "narrowed": None,
        "seconds": 0.0,
    }


def verified() -> Doc:
    """A wrong interface, confirmed; a refuted, a not testable and an untested rival."""
    doc = diagnosed()
    doc["outcome"] = {
        "state": "failed",
        "since": None,
        "says": "The job failed.",
        "says_zh": "作业失败。",
        "line": None,
    }
    doc["restart"] = {"decision": "fix_first", "exclude": [], "why": "It would fail again.", "why_zh": "会再次失败。"}
    best, rival = doc["diagnoses"]
    best.update(
        cause="network-wrong-interface",
        family="network",
        title="NCCL took the wrong network interface",
        title_zh="NCCL 选用了错误的网络接口",
        confidence=0.998,
        verification=verification(),
    )
    refuted = without_runs(
        "refuted", "The control passes in every run, where the diagnosis predicts failure.", "对照实验每次都通过。"
    )
    rival["verification"] = {**refuted, "runs": [run(4)]}
    memory = diagnosis("gpu-out-of-memory", "host", "A GPU ran out of memory", "GPU 显存耗尽")
    memory["verification"] = without_runs(
        "not-testable", "A rerun cannot show it: memory depends on the model.", "重新运行无法验证：显存占用取决于模型。"
    )
    doc["diagnoses"] += [memory, diagnosis("os-limit", "host", "A limit of the system", "系统限制")]
    return doc


def not_run() -> Doc:
    """The verifier was asked, and there was nothing to run on."""
    doc = diagnosed()
    doc["diagnoses"][0]["verification"] = without_runs(
        "not-run", "it needs GPUs and NCCL: no NVIDIA GPU is visible", "需要 GPU 和 NCCL：看不到 NVIDIA GPU"
    )
    return doc
