"""Write the shard files that pretrain.py reads: npz arrays, gzipped JSON lines, or small images."""

import argparse
import gzip
import json
from pathlib import Path

import numpy


def write_npz(folder, index, rng, rows):
    features = rng.standard_normal((rows, 64)).astype("float32")
    numpy.savez(folder / f"train-{index:05d}.npz", x=features, y=features.mean(1) + 0.1)


def write_jsonl(folder, index, rng, rows):
    with gzip.open(folder / f"train-{index:05d}.jsonl.gz", "wt") as file:
        for number in range(rows):
            row = {"id": index * rows + number, "features": rng.standard_normal(64).round(3).tolist(), "label": 0.5}
            file.write(json.dumps(row) + "\n")


def write_images(folder, index, rng, rows):
    pixels = rng.integers(0, 256, (rows, 3, 32, 32), dtype="uint8")
    numpy.savez_compressed(folder / f"train-{index:05d}.npz", x=pixels, y=rng.random(rows).astype("float32"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--format", choices=["npz", "jsonl", "images"], default="npz")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--overflow", type=int, default=-1, help="shard in which a few values are infinite")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rng = numpy.random.default_rng(1)
    write = {"npz": write_npz, "jsonl": write_jsonl, "images": write_images}[options.format]
    for index in range(options.shards):
        write(options.folder, index, rng, options.rows)
    if options.overflow >= 0:
        path = options.folder / f"train-{options.overflow:05d}.npz"
        arrays = dict(numpy.load(path))
        arrays["x"][40:44, 7] = numpy.inf
        numpy.savez(path, **arrays)


if __name__ == "__main__":
    main()
