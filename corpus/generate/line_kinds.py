"""Logs of one kind of line each, as real programs print them, for the bench of folders and of single files.

What a line says is drawn for a log: which metrics, in which order, how wide, with which words. Two seeds therefore give
logs of different shapes, and nothing can be tuned to one text. Numbers are drawn for each line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from time import gmtime, strftime

#: Seconds of the epoch at which every log begins.
_BEGIN = 1_767_225_600.0
_METRICS = (
    "loss", "lm loss", "grad_norm", "learning_rate", "lr", "epoch", "throughput", "tokens_per_sec", "mfu", "num_tokens",
    "load_balancing_loss", "z_loss", "params norm", "loss scale", "kl", "reward_mean", "entropy", "pg_clipfrac", "ppo_kl",
    "response_length/mean", "response_length/max", "timing_s/gen", "timing_s/ref", "timing_s/update_actor", "advantage/min",
    "critic/score/mean", "critic/rewards/max", "actor/pg_loss", "perf/mfu/actor", "memory_allocated_gb", "cpu_memory_used_gb",
)  # fmt: skip
_WORDS = [
    "shard",
    "worker",
    "batch",
    "queue",
    "cache",
    "index",
    "page",
    "block",
    "tensor",
    "layer",
    "stage",
    "replica",
    "bucket",
    "plan",
    "route",
    "token",
    "sample",
    "prompt",
    "actor",
    "optimizer",
    "schedule",
    "buffer",
    "window",
    "prefix",
    "segment",
    "session",
    "lease",
    "ticket",
    "chunk",
    "offset",
]
_VERBS = [
    "loaded",
    "flushed",
    "assigned",
    "released",
    "copied",
    "merged",
    "packed",
    "scheduled",
    "mapped",
    "reused",
    "skipped",
    "moved",
    "opened",
    "sealed",
]

#: Rank and size of the job -> the lines of one process, without end.
Process = Callable[[int, int], Iterator[str]]


def _clock(rank: int, chance: Random) -> Iterator[float]:
    now = _BEGIN + rank * 0.001
    while True:
        yield now
        now += chance.uniform(0.05, 2.0)


@dataclass(frozen=True)
class _Metric:
    """A metric of a log: its name, how it is written, and its order of magnitude."""

    name: str
    style: int
    size: float

    def value(self, chance: Random) -> str:
        """Return a value as the log writes it."""
        return _written(self.size * 10 ** chance.uniform(-0.7, 0.7), self.style)


def _written(number: float, style: int) -> str:
    if style == 0:
        return f"{number:.4f}"
    if style == 1:
        return f"{number:.3e}"
    return repr(number) if style == 2 else str(int(number))


def _chosen(chance: Random, least: int, most: int) -> list[_Metric]:
    names = chance.sample(_METRICS, chance.randint(least, min(most, len(_METRICS))))
    return [_Metric(name, chance.randrange(4), 10 ** chance.uniform(-4, 4)) for name in names]


def _process(seed: int, rank: int) -> Random:
    return Random(f"{seed}/{rank}")


def megatron(seed: int) -> Process:
    """Iterations as Megatron-LM prints them, metrics between bars."""
    draw = Random(seed)
    shown, total, width = _chosen(draw, 6, 12), draw.randint(10_000, 900_000), draw.choice((8, 10, 12))

    def lines(rank: int, world: int) -> Iterator[str]:
        chance = _process(seed, rank)
        for step, now in enumerate(_clock(rank, chance), 1):
            metrics = "".join(f" {one.name}: {one.value(chance)} |" for one in shown)
            stamp = strftime("%Y-%m-%d %H:%M:%S", gmtime(now))
            yield f" [{stamp}] iteration {step:{width}d}/{total:{width}d} | consumed samples: {step * 512:12d} |{metrics}\n"

    return lines


def verl(seed: int) -> Process:
    """Steps as verl's console logger prints them: dozens of metrics on a line."""
    draw = Random(seed)
    shown = _chosen(draw, 24, len(_METRICS))

    def lines(rank: int, world: int) -> Iterator[str]:
        chance = _process(seed, rank)
        for step in count(1):
            yield f"step:{step} - " + " - ".join(f"{one.name}:{one.value(chance)}" for one in shown) + "\n"

    return lines


def huggingface(seed: int) -> Process:
    """Dictionaries of metrics as the Trainer of transformers prints them."""
    draw = Random(seed)
    shown = [
        _Metric("loss", 0, 2.0),
        _Metric("grad_norm", 2, 0.7),
        _Metric("learning_rate", 1, 1e-5),
        *_chosen(draw, 0, 5),
    ]

    def lines(rank: int, world: int) -> Iterator[str]:
        chance = _process(seed, rank)
        for step in count(1):
            inner = ", ".join(f"'{one.name}': {one.value(chance)}" for one in shown)
            yield f"{{{inner}, 'epoch': {step / 1000:.2f}}}\n"

    return lines


def tqdm(seed: int) -> Process:
    """Bars that redraw themselves behind carriage returns, a line end now and then."""
    draw = Random(seed)
    total, name = draw.randint(2_000, 90_000), draw.choice(("Training", "Epoch 1", "Generating", "Map", "train"))

    def lines(rank: int, world: int) -> Iterator[str]:
        chance = _process(seed, rank)
        done = 0
        while True:
            for _ in range(chance.randint(20, 120)):
                done = (done + 1) % total
                share = done * 100 // total
                bar = "█" * (share // 10)
                rest = f"{done // 60:02d}:{done % 60:02d}<{(total - done) // 60:02d}:{(total - done) % 60:02d}"
                yield f"\r{name}: {share:3d}%|{bar:<10}| {done}/{total} [{rest}, {chance.uniform(0.3, 9):.2f}it/s]"
            yield "\n"

    return lines


def deepspeed(seed: int) -> Process:
    """Steps and memory as DeepSpeed logs them."""
    draw = Random(seed)
    line_a, line_b = draw.randint(80, 400), draw.randint(80, 900)

    def lines(rank: int, world: int) -> Iterator[str]:
        chance = _process(seed, rank)
        for step, now in enumerate(_clock(rank, chance), 1):
            stamp = strftime("%Y-%m-%d %H:%M:%S", gmtime(now)) + f",{int(now * 1000) % 1000:03d}"
            yield (
                f"[{stamp}] [INFO] [logging.py:{line_a}:log_dist] [Rank {rank}] step={step}, skipped={chance.randrange(3)}, "
                f"lr=[{chance.random():.6e}, {chance.random():.6e}], mom=[(0.9, 0.95), (0.9, 0.95)]\n"
            )
            if step % 2:
                yield (
                    f"[{stamp}] [INFO] [timer.py:{line_b}:stop] epoch=0/micro_step={step * 4}/global_step={step}, "
                    f"RunningAvgSamplesPerSec={chance.uniform(1, 900)}, CurrSamplesPerSec={chance.uniform(1, 900)}, "
                    f"MemAllocated={chance.uniform(1, 70):.2f}GB, MaxMemAllocated={chance.uniform(1, 79):.2f}GB\n"
                )

    return lines


def vllm(seed: int) -> Process:
    """The statistics and requests of a vLLM server."""
    draw = Random(seed)
    module, number = draw.choice(("metrics.py", "loggers.py", "llm_engine.py")), draw.randint(90, 500)

    def lines(rank: int, world: int) -> Iterator[str]:
        chance = _process(seed, rank)
        for now in _clock(rank, chance):
            stamp = strftime("%m-%d %H:%M:%S", gmtime(now))
            if chance.random() < 0.5:
                yield (
                    f"INFO {stamp} [{module}:{number}] Engine 000: Avg prompt throughput: {chance.uniform(0, 9e4):.1f} tokens/s, "
                    f"Avg generation throughput: {chance.uniform(0, 9e3):.1f} tokens/s, Running: {chance.randrange(512)} reqs, "
                    f"Waiting: {chance.randrange(90)} reqs, GPU KV cache usage: {chance.uniform(0, 100):.1f}%, "
                    f"Prefix cache hit rate: {chance.uniform(0, 100):.1f}%\n"
                )
            else:
                yield (
                    f'INFO:     10.0.{chance.randrange(256)}.{chance.randrange(256)}:{chance.randint(1024, 65535)} - "POST '
                    f'/v1/completions HTTP/1.1" 200 OK\n'
                )

    return lines


def sglang(seed: int) -> Process:
    """The batches of an SGLang server."""
    draw = Random(seed)
    tp = draw.choice((" TP{rank}", " DP{rank} TP0", ""))

    def lines(rank: int, world: int) -> Iterator[str]:
        chance = _process(seed, rank)
        for now in _clock(rank, chance):
            head = f"[{strftime('%Y-%m-%d %H:%M:%S', gmtime(now))}{tp.format(rank=rank % 8)}]"
            if chance.random() < 0.4:
                yield (
                    f"{head} Prefill batch. #new-seq: {chance.randrange(64)}, #new-token: {chance.randrange(16384)}, "
                    f"#cached-token: {chance.randrange(9999)}, token usage: {chance.random():.2f}, "
                    f"#running-req: {chance.randrange(256)}, #queue-req: {chance.randrange(256)}, \n"
                )
            else:
                yield (
                    f"{head} Decode batch. #running-req: {chance.randrange(256)}, #token: {chance.randrange(900_000)}, "
                    f"token usage: {chance.random():.2f}, cuda graph: {chance.random() < 0.9}, "
                    f"gen throughput (token/s): {chance.uniform(1, 9000):.2f}, #queue-req: {chance.randrange(90)}, \n"
                )

    return lines


def ray(seed: int) -> Process:
    """What Ray's driver prints of its workers: each line behind the name of an actor."""
    draw = Random(seed)
    actor, shown = draw.choice(("WorkerDict", "TaskRunner", "RayTrainWorker", "PolicyWorker")), _chosen(draw, 3, 6)

    def lines(rank: int, world: int) -> Iterator[str]:
        chance = _process(seed, rank)
        for step in count(1):
            head = f"({actor} pid={4000 + rank}, ip=10.0.{rank // 8}.{rank % 8 + 1}) "
            yield f"{head}step {step}: " + ", ".join(f"{one.name}={one.value(chance)}" for one in shown) + "\n"
            if step % 3 == 0:
                yield f"{head}INFO {chance.choice(_WORDS)} {chance.choice(_VERBS)} in {chance.uniform(0, 9):.3f} s\n"

    return lines


def lightning(seed: int) -> Process:
    """Bars of PyTorch Lightning, one on a line."""
    draw = Random(seed)
    total, shown = draw.randint(500, 9_000), _chosen(draw, 2, 6)

    def lines(rank: int, world: int) -> Iterator[str]:
        chance = _process(seed, rank)
        for step in count(1):
            done = step % total
            share = done * 100 // total
            metrics = ", ".join(f"{one.name}={one.value(chance)}" for one in shown)
            yield (
                f"Epoch {step // total}: {share:3d}%|{'█' * (share // 10):<10}| {done}/{total} [{done // 60:02d}:{done % 60:02d}<"
                f"{(total - done) // 60:02d}:{(total - done) % 60:02d}, {chance.uniform(0.3, 9):.2f}it/s, v_num=0, {metrics}]\n"
            )

    return lines


def maxtext(seed: int) -> Process:
    """Steps as MaxText prints them, and the lines of absl beside them."""
    draw = Random(seed)
    shown = _chosen(draw, 3, 5)

    def lines(rank: int, world: int) -> Iterator[str]:
        chance = _process(seed, rank)
        for step, now in enumerate(_clock(rank, chance)):
            metrics = ", ".join(f"{one.name}: {one.value(chance)}" for one in shown)
            yield (
                f"completed step: {step}, seconds: {chance.uniform(0.1, 9):.3f}, TFLOP/s/device: {chance.uniform(10, 400):.3f}, "
                f"Tokens/s/device: {chance.uniform(100, 9000):.3f}, total_weights: {chance.randrange(10**6)}, {metrics}\n"
            )
            if step % 4 == 0:
                stamp = strftime("%m%d %H:%M:%S", gmtime(now)) + f".{int(now * 1e6) % 1000000:06d}"
                yield f"I{stamp} {139_000_000_000_000 + rank} checkpoint_manager.py:{900 + step % 7}] no save at step {step}\n"

    return lines


def nccl_info(seed: int) -> Process:
    """NCCL's INFO lines of channels, trees and connections."""
    draw = Random(seed)
    host, version = draw.choice(("gpu", "node-", "hgx-a")), draw.choice(("2.21.5", "2.27.3"))

    def lines(rank: int, world: int) -> Iterator[str]:
        chance = _process(seed, rank)
        name, gpu = f"{host}{rank // 8:03d}", rank % 8
        head = f"{name}:{20_000 + rank}:{21_000 + rank} [{gpu}] NCCL INFO "
        yield f"{head}NCCL version {version}+cuda12.4\n"
        while True:
            peer, channel = (rank + chance.choice((1, -1, 8, -8))) % world, chance.randrange(32)
            yield chance.choice(
                (
                    f"{head}Channel {channel:02d}/0 : {rank}[{gpu}] -> {peer}[{peer % 8}] via P2P/CUMEM/read\n",
                    f"{head}Channel {channel:02d}/0 : {rank}[{gpu}] -> {peer}[{peer % 8}] [send] via NET/IB/{channel % 4}/GDRDMA\n",
                    f"{head}Trees [{channel}] {peer}/-1/-1->{rank}->{(peer + 1) % world} [{channel + 1}] -1/-1/-1->{rank}->{peer}\n",
                    f"{head}Connected all rings, use ring PXN {channel % 2} GDR 1\n",
                    f"{head}NET/IB: NIC {channel % 4} IbDev {channel % 4} Port 1 qpn {chance.randrange(99999)} mtu 5 GID 3 (0/{chance.randrange(16**12):X})\n",
                    f"{head}{channel} coll channels, {channel} collnet channels, 0 nvls channels, {channel} p2p channels\n",
                )
            )

    return lines


def nccl_trace(seed: int) -> Process:
    """NCCL's trace of collectives (``NCCL_DEBUG_SUBSYS=COLL``): one line a call."""
    draw = Random(seed)
    host, comm = draw.choice(("gpu", "node-", "hgx-a")), draw.randrange(16**12)

    def lines(rank: int, world: int) -> Iterator[str]:
        chance = _process(seed, rank)
        name, gpu = f"{host}{rank // 8:03d}", rank % 8
        for number in count(1):
            op = chance.choice(("AllReduce", "AllGather", "ReduceScatter", "Broadcast"))
            yield (
                f"{name}:{20_000 + rank}:{21_000 + rank} [{gpu}] NCCL INFO {op}: opCount {number:x} sendbuff 0x7f{chance.randrange(16**10):010x} "
                f"recvbuff 0x7f{chance.randrange(16**10):010x} count {chance.randrange(10**8)} datatype {chance.randrange(10)} op 0 root 0 "
                f"comm 0x{comm:x} [nranks={world}] stream 0x{chance.randrange(16**9):x}\n"
            )

    return lines


def free_text(seed: int) -> Process:
    """The chatter of a program that nobody knows: twenty forms of lines, words and numbers."""
    draw = Random(seed)
    forms = []
    for _ in range(20):
        parts = [
            draw.choice(("{w} {v}", "{w}={n}", "{n} {w}s", "{w}[{n}]", "{w}/{w}", "{h}", "({w}: {f})"))
            for _ in range(draw.randint(3, 12))
        ]
        forms.append(draw.choice(("", "INFO ", "{t} ", "[{t}] ", "{t} DEBUG {w}.{w}: ")) + " ".join(parts))

    def lines(rank: int, world: int) -> Iterator[str]:
        chance = _process(seed, rank)
        for now in _clock(rank, chance):
            text = chance.choice(forms)
            while (place := text.find("{")) >= 0:
                kind = text[place + 1]
                said = {
                    "w": lambda: chance.choice(_WORDS),
                    "v": lambda: chance.choice(_VERBS),
                    "n": lambda: str(chance.randrange(10**6)),
                    "h": lambda: f"0x{chance.randrange(16**8):08x}",
                    "f": lambda: f"{chance.random():.4f}",
                    "t": lambda: strftime("%Y-%m-%d %H:%M:%S", gmtime(now)),  # noqa: B023
                }[kind]()
                text = text[:place] + said + text[place + 3 :]
            yield text + "\n"

    return lines


def json_records(seed: int) -> Process:
    """Records of a collector: the text of a line within JSON."""
    draw = Random(seed)
    inner, keys = (
        draw.choice((megatron, deepspeed, free_text))(seed),
        draw.choice((("log", "time"), ("message", "@timestamp"))),
    )

    def lines(rank: int, world: int) -> Iterator[str]:
        chance = _process(seed, rank)
        for now, text in zip(_clock(rank, chance), inner(rank, world), strict=False):
            stamp = strftime("%Y-%m-%dT%H:%M:%S", gmtime(now)) + f".{int(now * 1e9) % 10**9:09d}Z"
            yield json.dumps({keys[0]: text, "stream": "stderr", keys[1]: stamp}) + "\n"

    return lines


def storm(seed: int) -> Process:
    """A third of the lines are errors, the rest steps."""
    draw = Random(seed)
    port, seq = draw.randint(10_000, 60_000), draw.randint(10, 90_000)
    lost = [draw.random() for _ in range(4)]

    def lines(rank: int, world: int) -> Iterator[str]:
        chance = _process(seed, rank)
        for step, now in enumerate(_clock(rank, chance)):
            stamp = strftime("%Y-%m-%d %H:%M:%S", gmtime(now))
            yield f"[rank{rank}]: {stamp} step {step} loss {chance.random():.4f}\n"
            yield f"[rank{rank}]: {stamp} {chance.choice(_WORDS)} {chance.choice(_VERBS)} {chance.randrange(999)}\n"
            peer = int(chance.choice(lost) * world)
            yield chance.choice(
                (
                    f"gpu{rank // 8:03d}:{20_000 + rank}:{21_000 + rank} [{rank % 8}] NCCL WARN socketProgress: Connection closed by remote peer 10.0.{peer // 8}.{peer % 8 + 1}<{port}>\n",
                    f"[rank{rank}]:[E ProcessGroupNCCL.cpp:{600 + step % 9}] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq + step % 8}, OpType=ALLREDUCE, NumelIn={chance.randrange(10**7)}, NumelOut={chance.randrange(10**7)}, Timeout(ms)=600000) ran for {600_000 + step} milliseconds before timing out.\n",
                    f"[rank{rank}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.{peer // 8}.{peer % 8 + 1}]:{port}\n",
                )
            )

    return lines


KINDS: dict[str, Callable[[int], Process]] = {
    "Megatron iterations": megatron,
    "verl metrics": verl,
    "HF dictionaries": huggingface,
    "tqdm redraws": tqdm,
    "DeepSpeed": deepspeed,
    "vLLM": vllm,
    "SGLang": sglang,
    "Ray lines": ray,
    "Lightning": lightning,
    "MaxText": maxtext,
    "NCCL INFO": nccl_info,
    "NCCL TRACE": nccl_trace,
    "free text": free_text,
    "JSON records": json_records,
    "storm": storm,
}


def process(kind: str, seed: int, rank: int, world: int, size: int) -> Iterator[bytes]:
    """Yield the log of one process in pieces, ``size`` bytes at least; the same ones for the same arguments."""
    made = 0
    piece: list[str] = []
    held = 0
    for line in KINDS[kind](seed)(rank, world):
        piece.append(line)
        held += len(line)
        if held >= min(1 << 16, size - made):
            data = "".join(piece).encode()
            made += len(data)
            yield data
            piece, held = [], 0
            if made >= size:
                return
