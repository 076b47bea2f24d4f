"""Actors of a small rollout service under Ray: one may fail to start, to be reached or to stay."""

import argparse
import os
import signal
import threading
import time

import ray


class Tokenizer:
    def __init__(self):
        self.guard = threading.Lock()

    def encode(self, text):
        return [ord(character) for character in text]


@ray.remote(num_cpus=0)
class Generator:
    def __init__(self, index, options):
        self.index = index
        print(f"generator {index} of {options.world} starts, pid {os.getpid()}", flush=True)
        if options.trouble == "constructor" and index == options.odd:
            weights = {"embed": 1}
            weights["lm_head"]

    def generate(self, step, trouble=""):
        if trouble == "vanish" and step == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if trouble == "module":
            import flash_attn_interface  # noqa: F401
        time.sleep(0.05)
        return self.index * 100 + step

    def encode(self, tokenizer, text):
        return tokenizer.encode(text)

    def ask(self, other):
        """Let another actor generate and wait for it."""
        time.sleep(0.5)
        return ray.get(other.generate.remote(0))

    def make(self):
        return [ray.put(list(range(1000)))]


def run(options):
    generators = [
        Generator.options(max_restarts=2, max_task_retries=2).remote(index, options)
        if options.trouble == "recover"
        else Generator.remote(index, options)
        for index in range(options.world)
    ]
    for step in range(6):
        troubles = [options.trouble if index == options.odd else "" for index in range(options.world)]
        if options.trouble == "recover":
            troubles = [""] * options.world
            if step == 2:
                pid = ray.get(generators[options.odd].__ray_call__.remote(lambda self: os.getpid()))
                os.kill(pid, signal.SIGKILL)
        rows = ray.get([one.generate.remote(step, trouble) for one, trouble in zip(generators, troubles, strict=True)])
        print(f"step {step}: {rows}", flush=True)
        if options.trouble == "argument" and step == 2:
            ray.get(generators[0].encode.remote(Tokenizer(), "a prompt"))
        if options.trouble == "named" and step == 2:
            ray.get(ray.get_actor("critic_0").generate.remote(step))
        if options.trouble == "crossed" and step == 2:
            first, second = generators[:2]
            ray.get([first.ask.remote(second), second.ask.remote(first)], timeout=20)
        if options.trouble == "owner" and step == 2:
            [batch] = ray.get(generators[options.odd].make.remote())
            ray.kill(generators[options.odd])
            time.sleep(1)
            print(f"batch of {len(ray.get(batch))}", flush=True)
    print("all steps done", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--odd", type=int, default=1)
    parser.add_argument("--trouble", default="")
    options = parser.parse_args()
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 << 20)
    run(options)
    ray.shutdown()


if __name__ == "__main__":
    main()
