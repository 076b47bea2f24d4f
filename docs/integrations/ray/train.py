"""Two actors of Ray that take steps together; the second meets a bad sample in the third."""

import ray


@ray.remote(num_cpus=0)
class Trainer:
    """One rank of a job."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def step(self, number: int) -> None:
        """Take one step."""
        if (self.rank, number) == (1, 3):
            raise ValueError(f"sample {2 * number + self.rank} has 3 tokens, expected 4")
        print(f"step {number} rank {self.rank}", flush=True)


trainers = [Trainer.remote(rank) for rank in range(2)]
for number in range(1, 5):
    ray.get([trainer.step.remote(number) for trainer in trainers])
