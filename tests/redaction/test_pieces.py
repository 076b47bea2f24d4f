"""Addresses, paths, URLs and hosts one by one: what becomes of them, and what stays."""

from __future__ import annotations

import pytest

from nccl_triage.redaction.rewrite import FieldKind, Rewriter, kind_of


def rewritten(text: str, *names: tuple[FieldKind, str]) -> str:
    """Return a text as a document would have it in which only it and the names stand."""
    rewriter = Rewriter()
    for kind, name in names:
        rewriter.learn(kind, "", name)
    rewriter.learn(FieldKind.TEXT, "text", text)
    rewriter.settle()
    return rewriter.text(text)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("eth0:10.1.2.3<0> 10.1.2.9 10.1.3.3", "eth0:10.net-1.1<0> 10.net-1.2 10.net-2.3"),
        ("172.31.9.90 192.168.4.9:29500 100.72.1.1", "172.16.net-1.1 192.168.net-2.2:29500 100.64.net-3.3"),
        ("tcp://45.63.16.199:44123", "tcp://public.net-1.1:44123"),
        ("10.1.2.0/24 via 10.1.2.1 dev eth0", "10.net-1.0/24 via 10.net-1.1 dev eth0"),
        ("10.20.0.0/16, 10.20.1.5/32", "10.net-1.0/16, 10.net-2.1/32"),
        ("::ffff:10.1.2.3 and [::ffff:10.1.2.4]:29500", "::ffff:10.net-1.1 and [::ffff:10.net-1.2]:29500"),
        ("fd00:1:2:3::5 fd00:1:2:3::6 2001:db8::7", "fd.net-1.1 fd.net-1.2 public.net-2.3"),
        ("fe80::ba59:9fff:fe12:3456%eth0<3>", "fe80::id-1%eth0<3>"),
        (
            "Using [0]eth0:fe80::88cc:b4ff:fe29:85b4%eth0<0> [1]ib0:fd00::7<0>",
            "Using [0]eth0:fe80::id-1%eth0<0> [1]ib0:fd.net-1.2<0>",
        ),
        ("10.1.2.3@o2ib:/fs on /mnt", "10.net-1.1@o2ib:/fs on /mnt"),
        ("addr=[6f00::bd:be95:f23f:bb31]:5732", "addr=[public.net-1.1]:5732"),
        ("fe80:0000:0000:0000:ba59:9fff:fe12:3456", "fe80::id-1"),
        ("link/ether b8:59:9f:12:34:56 brd", "link/ether mac-1 brd"),
        ("Node GUID: 0x506b4b0300cbd2c4, 506b:4b03:00cb:d2c4", "Node GUID: guid-1, guid-2"),
        ("GPU-8f6b0f9e-3c2a-4d8e-9b1a-7c6d5e4f3a2b fell off", "GPU-uuid-1 fell off"),
        ("Serial Number: 1652823054567", "Serial Number: serial-1"),
    ],
)
def test_addresses_and_devices(text: str, made: str) -> None:
    assert rewritten(text) == made


@pytest.mark.parametrize(
    ("text", "made"),
    [
        (
            'File "/home/zhangwei/acme_llm/train_acme.py", line 3, in main',
            'File "/home/user-1/path-1/file-1.py", line 3, in main',
        ),
        (
            "/home/zhangwei/miniconda3/envs/acme/lib/python3.10/site-packages/torch/nn/modules/module.py:1511",
            "/home/user-1/miniconda3/envs/path-1/lib/python3.10/site-packages/torch/nn/modules/module.py:1511",
        ),
        ("/mnt/acme/ckpt/step_100 /mnt/acme/logs/rank_3.log", "/mnt/path-1/ckpt/step_100 /mnt/path-1/logs/rank_3.log"),
        ("~zhangwei/x.py ./acme/run.sh ../../acme/x", "path-1/x.py ./path-2/run.sh ../../path-3/x"),
        ("rm -rf /data/{acme,b}/x", "rm -rf /data/{acme,b}/x"),
        ("${ROOT}/acme/x.pt", "${ROOT}/path-1/x.pt"),
        ("--output_dir=runs/acme/seven", "--output_dir=runs/path-1"),
        (r"C:\Users\zhangwei\acme\train.py", r"C:\Users\user-1\path-1\train.py"),
        ("/home/ubuntu/acme/x.log.", "/home/ubuntu/path-1/x.log."),
        ("/数据/日志/rank_0.log", "/path-1/rank_0.log"),
        ("train_acme.py in /a/train_acme.py", "file-1.py in /a/file-1.py"),
        ("/root/.cache/acme.tar.gz", "/root/.cache/file-1.tar.gz"),
    ],
)
def test_paths(text: str, made: str) -> None:
    assert rewritten(text) == made


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("https://git.acme.cn/acme/y.py?token=1#a", "https://git.domain-1/path-1/y.py?..."),
        ("https://build7.nvidia.com/x https://acme.github.io/", "https://host-1.domain-1/x https://host-2.domain-2/"),
        ("https://zhangwei@wiki.acme-corp.internal:8443/p", "https://user-1@host-1.domain-1:8443/p"),
        ("s3://acme-ckpt/acme/x.pt oss://acme-ckpt/", "s3://bucket-1/path-1/x.pt oss://bucket-1/"),
        ("hdfs://nn01.acme.cn:8020/user/zhangwei/x", "hdfs://host-1.domain-1:8020/user/user-1/x"),
        ("abfss://acmedata@store1.dfs.core.windows.net/x", "abfss://bucket-1@host-1.domain-1/x"),
        (
            "https://huggingface.co/acme/llm70/resolve/main/config.json",
            "https://huggingface.co/path-1/llm70/path-2/main/config.json",
        ),
        ("mail zhangwei@acme.com, ssh zhangwei@gpu-17 ls", "mail user-1@domain-1, ssh user-1@host-1 ls"),
        ("clone git@git.acme.com:team/x", "clone git@git.domain-1:team/x"),
        ("registry.acme.com/acme/llm:3 pulled", "registry.domain-1/path-1/llm:3 pulled"),
    ],
)
def test_urls_and_mail(text: str, made: str) -> None:
    assert rewritten(text) == made


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("gpu-17 GPU-17 gpu-17.acme.cn gpu-170", "host-1 host-1 host-1.domain-1 gpu-170"),
        ("nodes gpu-[016-018,020] down", "nodes host-[2-5] down"),
        ("nodes gpu-[17-19] down, sdm[16-17] up", "nodes host-[1-3] down, sdm[16-17] up"),
        ("gpu-17_rank3.log on [gpu-17]:29500", "host-1_rank3.log on [host-1]:29500"),
        ("/a/stack.gpu-17.6327 /a/worker.gpu-17", "/a/stack.host-1.6327 /a/worker.host-1"),
        ("\x1b[31mgpu\x1b[0m-17 died", "host-1 died"),
        ("主机gpu-17失联", "主机host-1失联"),
    ],
)
def test_hosts(text: str, made: str) -> None:
    assert rewritten(text, (FieldKind.HOST, "gpu-17")) == made


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1 ::1 [::]:29500 0.0.0.0 169.254.3.4 172.17.0.1 ::ffff:127.0.0.1 255.255.255.0 10.0.0.0/8 fe80::",
        "NCCL version 2.21.5+cuda12.4 cuDNN 9.1.0.70 nvidia-cublas-cu12==12.1.3.1 driver 535.104.05 v1.2.3.4",
        "NCCL_SOCKET_IFNAME=eth0,bond0 NCCL_IB_HCA=mlx5_0:1,mlx5_bond_0 NCCL_IB_GID_INDEX=3",
        "[0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA P2P/CUMEM",
        "2024-06-01 10:00:00,123 12:34:56.789 took 3 it/s 1834 tokens/s 100%|####| 8/8 [00:41<00:00, 5.17s/it]",
        "busId 0000:4f:00.0 commId 0x506b4b0300cbd2c4 c10::Error std::bad_alloc ffff:ffff",
        "misc/socket.cc:484 transport/net_ib.cc:1234 ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3384",
        "/pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:475 /usr/lib/x86_64-linux-gnu/libnccl.so.2",
        '  File "/usr/lib/python3.10/threading.py", line 1016, in _bootstrap_inner',
        "/dev/shm/nccl-Xy12Zq /proc/sys/net/core/somaxconn /sys/class/infiniband/mlx5_0/ports/1/state /tmp /etc/hosts",
        "awk '/libnccl-net/{print $NF; exit}' | sed s/a/b/ </s> <|im_end|> N/A and/or",
        "https://docs.pytorch.org/docs/stable/distributed.html#debug https://verl.readthedocs.io/en/latest/x.html https://github.com/NVIDIA/nccl/issues/1",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError self.net threading.local google.protobuf.internal",
        "export NCCL_SOCKET_IFNAME=INTERFACE; ip route get PEER_ADDRESS; torchrun --rdzv-endpoint HOST0:29500",
        "--signal=USR1@120 eth0@if12 torch@2.1.0 symbol memcpy@@GLIBC_2.14",
        "tensor[0] ranks[0-7] x[1,2] grad[3]",
        "root@localhost: user root, /home/ubuntu, /root/.cache/huggingface",
        "[secret:huggingface-token] http://127.0.0.1:8265 tcp://[::1]:29500",
        "project_name=None user: 1.2s, system: 0.1s run_name=null",
    ],
)
def test_evidence_stays(text: str) -> None:
    assert rewritten(text) == text


@pytest.mark.parametrize(
    "name", ["worker", "localhost", "rank0", "mlx5_0", "7", "vm", "train.py", "MASTER_PORT", "HOST0"]
)
def test_a_host_whose_name_says_nothing_stays(name: str) -> None:
    text = f"{name}:1:2 [0] NCCL INFO x: {name} {name}s"
    assert rewritten(text, (FieldKind.HOST, name)) == text


@pytest.mark.parametrize("user", ["kim", "list", "ray", "u3"])
def test_a_short_or_common_user_is_replaced_in_homes_only(user: str) -> None:
    made = rewritten(f"/home/{user}/x.py: {user} of the {user}s")
    assert made.endswith(f": {user} of the {user}s")


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("hosts.name", FieldKind.HOST),
        ("narrowed.hosts", FieldKind.HOST),
        ("reachability.from", FieldKind.HOST),
        ("evidence.path", FieldKind.PATH),
        ("series.source", FieldKind.PATH),
        ("peers.names", FieldKind.HOST),
        ("hosts.*", FieldKind.TEXT),
        ("evidence.text", FieldKind.TEXT),
        ("tool.name", FieldKind.FIXED),
        (".verdict", FieldKind.FIXED),
        ("software.torch", FieldKind.FIXED),
        ("env.WANDB_PROJECT", FieldKind.TEXT),
    ],
)
def test_what_fields_hold(key: str, kind: FieldKind) -> None:
    assert kind_of(key) is kind
