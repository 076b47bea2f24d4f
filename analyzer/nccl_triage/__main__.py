"""``python -m nccl_triage`` and the console script: signals are answered before the command line is even imported."""

from __future__ import annotations

from nccl_triage import interrupts


def run() -> None:
    """Run the command line and exit."""
    interrupts.listen()
    from nccl_triage import gc_tuning
    from nccl_triage.cli import main

    gc_tuning.collect_rarely()
    try:
        main()
    finally:
        gc_tuning.skip_at_exit()


if __name__ == "__main__":
    run()
