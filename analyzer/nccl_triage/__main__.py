"""``python -m nccl_triage`` and the console script: signals are answered before the command line is even imported."""

from __future__ import annotations

import gc

from nccl_triage import interrupts

#: New objects after which the collector looks for cycles. Nearly all of what a diagnosis makes stays until its end: with
#: Python's own 700 a twentieth of its time went into looking again and again.
_COLLECT_AFTER = 50_000


def run() -> None:
    """Run the command line and exit."""
    interrupts.listen()
    gc.set_threshold(_COLLECT_AFTER)
    from nccl_triage.cli import main

    interrupts.take_over()
    main()


if __name__ == "__main__":
    run()
