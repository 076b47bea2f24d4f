"""Prefix every line of standard input as collectors of logs do: ``collect.py STYLE NAME``."""

import datetime
import sys
import time

STYLES = {
    "cri": lambda name, now: now.strftime("%Y-%m-%dT%H:%M:%S.%f") + "123Z stderr F ",
    "journal": lambda name, now: now.strftime("%b %d %H:%M:%S ") + f"{name} train[1873]: ",
    "stamps": lambda name, now: now.strftime("%b %d %H:%M:%S "),
    "compose": lambda name, now: f"{name:<12} | " + now.strftime("%Y-%m-%dT%H:%M:%S.%f") + "512Z ",
    "elapsed": lambda name, now: f"[{time.monotonic() - STARTED:10.3f}s] ",
}
STARTED = time.monotonic()


def main():
    style, name = STYLES[sys.argv[1]], sys.argv[2]
    for line in sys.stdin.buffer:
        now = datetime.datetime.now(datetime.timezone.utc)
        sys.stdout.buffer.write(style(name, now).encode() + line)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
