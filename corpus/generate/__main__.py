"""``python -m corpus.generate``: write logs with known incidents."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import BinaryIO

from corpus.generate import PROFILES, VIEWS, Generated, causes, frameworks, healthy, incident, stream
from corpus.generate.dataset import write
from corpus.generate.launchers import NAMES
from corpus.generate.variants import all_variants

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)B?", text.strip().upper())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write 4000, 64K, 20M or 1.5G")
    return int(float(match[1]) * _UNITS[match[2]])


def _open(path: str) -> BinaryIO:
    return sys.stdout.buffer if path == "-" else Path(path).open("wb")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m corpus.generate", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("incident", help="one log with one incident; its label goes to stderr")
    one.add_argument("cause", choices=[*causes(), "healthy"], metavar="CAUSE", help="a cause id, or healthy")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--world-size", type=int)
    one.add_argument("--launcher", choices=NAMES)
    one.add_argument("--framework", choices=frameworks())
    one.add_argument("--torch", help="release of PyTorch, such as 2.5.1")
    one.add_argument("--variant", help="variant of the cause (see: list)")
    one.add_argument("--length", type=_size, default=60_000, help="size aimed at: 4000, 64K, 20M, 1.5G")
    one.add_argument("--view", choices=list(VIEWS), default="full")
    one.add_argument("--nccl-debug", choices=("none", "WARN", "INFO"))
    one.add_argument("-o", "--output", default="-", help="file, or - for stdout")
    one.add_argument("--folder", type=Path, help="write one file a rank into this folder instead")
    many = commands.add_parser("set", help="a labelled set: DIR/cases.jsonl and DIR/logs")
    many.add_argument("folder", type=Path)
    many.add_argument("--count", type=int, default=400)
    many.add_argument("--seed", type=int, default=0)
    many.add_argument(
        "--cause", action="append", choices=causes(), metavar="CAUSE", help="only this cause (repeatable)"
    )
    bench = commands.add_parser("bench", help="a log of a bench profile")
    bench.add_argument("profile", choices=list(PROFILES))
    bench.add_argument("size", type=_size)
    bench.add_argument("--seed", type=int, default=0)
    bench.add_argument("-o", "--output", default="-")
    commands.add_parser("list", help="what can be generated")
    return parser


def _generated(options: argparse.Namespace) -> Generated:
    common = {
        "world_size": options.world_size,
        "launcher": options.launcher,
        "framework": options.framework,
        "length": options.length,
        "view": options.view,
        "nccl_debug": options.nccl_debug,
        "folder": options.folder is not None,
    }
    if options.cause == "healthy":
        return healthy(options.seed, **common)
    return incident(options.cause, options.seed, torch=options.torch, variant=options.variant, **common)


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns 2 when nothing fits what was asked for."""
    options = _parser().parse_args(argv)
    if options.command == "list":
        for cause, found in sorted(all_variants().items()):
            print(f"{cause:34} {', '.join(variant.name for variant in found)}")
        print(f"{'profiles':34} {', '.join(PROFILES)}")
        return 0
    if options.command == "set":
        made = write(options.folder, options.count, options.seed, options.cause)
        print(f"{made} logs in {options.folder}", file=sys.stderr)
        return 0
    try:
        if options.command == "bench":
            with _open(options.output) as out:
                out.writelines(stream(options.profile, options.size, options.seed))
            return 0
        made_log = _generated(options)
        if options.folder is not None:
            label = made_log.write_folder(options.folder)
        else:
            with _open(options.output) as out:
                label = made_log.write(out)
    except ValueError as error:
        print(f"corpus.generate: {error}", file=sys.stderr)
        return 2
    print(json.dumps(label, ensure_ascii=False), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
