"""``python -m nccl_triage`` and the console script: signals are answered before the command line is even imported."""

from __future__ import annotations

from nccl_triage import interrupts


def run() -> None:
    """Run the command line and exit."""
    interrupts.listen()
    from nccl_triage import gc_tuning, lazy_regex

    gc_tuning.collect_rarely()
    from nccl_triage.cli import main

    try:
        main()
    finally:
        lazy_regex.code.keep()
        gc_tuning.skip_at_exit()


if __name__ == "__main__":
    run()
