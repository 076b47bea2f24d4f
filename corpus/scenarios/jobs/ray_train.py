"""A Ray driver: trainer actors that reduce gradients over Gloo, optionally rollout engines that get their weights.

What goes wrong is chosen with ``--fault`` and happens in ray_actors.py; this file knows only the order of the steps.
"""

import argparse
import logging
import signal
import sys
import time

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from ray_actors import RolloutEngine, Trainer, evaluate_prompt, tokenize_shard

log = logging.getLogger("driver")


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", default="", help="cluster to join; without it a local one is started")
    parser.add_argument("--trainers", type=int, default=2)
    parser.add_argument("--engines", type=int, default=0)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--step-time", type=float, default=0.2)
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds of the process group's time-out")
    parser.add_argument("--get-timeout", type=float, default=0.0, help="seconds the driver waits for a step's results")
    parser.add_argument("--collect", action="store_true", help="log every actor's error")
    parser.add_argument("--keep-rollouts", action="store_true", help="keep the rollouts of all steps")
    parser.add_argument("--ready-timeout", type=float, default=180.0, help="seconds the driver waits for its resources")
    parser.add_argument("--strategy", default="PACK")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs wanted for each actor")
    parser.add_argument("--cpus", type=int, default=1, help="CPUs wanted for each actor")
    parser.add_argument("--master-port", type=int, default=0)
    parser.add_argument("--store-mib", type=int, default=80, help="object store of the local cluster")
    parser.add_argument(
        "--rollout-mib", type=int, default=0, help="size of the rollouts that the driver puts each step"
    )
    parser.add_argument("--pip", default="", help="packages of the actors' runtime environment")
    parser.add_argument("--spill", default="", help="folder to which objects are spilled")
    parser.add_argument("--preprocess", type=int, default=0, help="number of tasks that tokenize data before training")
    parser.add_argument("--evaluate", action="store_true", help="evaluate after training")
    parser.add_argument("--fault", default="none")
    parser.add_argument("--fault-rank", type=int, default=1)
    parser.add_argument("--fault-step", type=int, default=5)
    return parser.parse_args()


def connect(options):
    """Join the cluster, or start one on this machine."""
    if options.address:
        ray.init(address=options.address, logging_level=logging.INFO)
        return
    system = {}
    if options.spill:
        system["object_spilling_directory"] = options.spill
    ray.init(
        num_cpus=(options.trainers + options.engines) * options.cpus,
        object_store_memory=options.store_mib * 1024 * 1024,
        include_dashboard=False,
        **system,
    )


def make_actors(options):
    """Reserve a bundle for each actor and start the actors in them."""
    count = options.trainers + options.engines
    bundle = {"CPU": options.cpus, **({"GPU": options.gpus} if options.gpus else {})}
    group = placement_group([bundle] * count, strategy=options.strategy)
    log.info("waiting for %d bundles %s (strategy %s)", count, bundle, options.strategy)
    ray.get(group.ready(), timeout=options.ready_timeout)
    log.info("placement group ready")
    environment = {"pip": options.pip.split(",")} if options.pip else None

    def place(actor_class, index, *arguments):
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        return actor_class.options(
            num_cpus=options.cpus, num_gpus=options.gpus, scheduling_strategy=strategy, runtime_env=environment
        ).remote(*arguments)

    trainers = [place(Trainer, rank, rank, options) for rank in range(options.trainers)]
    engines = [
        place(RolloutEngine, options.trainers + k, options.trainers + k, options) for k in range(options.engines)
    ]
    return trainers, engines


def start_groups(options, trainers, engines):
    """Make one process group of all actors at rank 0's address."""
    actors = [*trainers, *engines]
    address, port = ray.get(trainers[0].address.remote(options.master_port))
    log.info("process group at %s:%d, %d trainers, %d engines", address, port, len(trainers), len(engines))
    ray.get([actor.join.remote(address, port, len(actors)) for actor in actors])


def results(references, options):
    """Wait for the results of a step; with ``--collect`` every actor's error is logged before the first is raised."""
    if not options.collect:
        return ray.get(references, timeout=options.get_timeout or None)
    ray.wait(references, num_returns=len(references), timeout=options.get_timeout or None)
    errors = []
    for index, reference in enumerate(references):
        try:
            ray.get(reference, timeout=1)
        except ray.exceptions.RayError as error:
            log.error("actor %d failed: %s", index, error)
            errors.append(error)
    if errors:
        raise errors[0]
    return ray.get(references)


def run(options):
    connect(options)
    log.info("cluster resources %s", ray.cluster_resources())
    if options.preprocess:
        sizes = ray.get([tokenize_shard.remote(index) for index in range(options.preprocess)])
        log.info("tokenized %d shards, %d tokens", len(sizes), sum(sizes))
    trainers, engines = make_actors(options)
    start_groups(options, trainers, engines)
    replay = []
    for step in range(options.steps):
        rollouts = None
        if engines:
            samples = results([engine.generate.remote(step) for engine in engines], options)
            rollouts = ray.put([text for batch in samples for text in batch])
        elif options.rollout_mib:
            rollouts = ray.put(bytes(options.rollout_mib * 1024 * 1024))
        if options.keep_rollouts:
            replay.append(rollouts)
        losses = results([trainer.train_step.remote(step, rollouts) for trainer in trainers], options)
        if engines:
            results([actor.sync_weights.remote(step) for actor in [*trainers, *engines]], options)
        log.info("step %d/%d loss %.4f", step, options.steps, sum(losses) / len(losses))
    if options.evaluate:
        ray.get([evaluate_prompt.remote(index) for index in range(8)])
    ray.get([trainer.save.remote() for trainer in trainers])
    log.info("training finished")


def main():
    options = parse_arguments()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stdout, force=True
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)
    started = time.time()
    run(options)
    log.info("total %.1f s", time.time() - started)


if __name__ == "__main__":
    main()
