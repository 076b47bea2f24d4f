"""``python -m nccl_triage`` and the console script: signals are answered before the command line is even imported."""

from __future__ import annotations

from nccl_triage import interrupts


def run() -> None:
    """Run the command line and exit."""
    interrupts.listen()
    from nccl_triage import garbage
    from nccl_triage.cli import main

    garbage.seldom()
    interrupts.take_over()
    try:
        main()
    finally:
        garbage.no_more()


if __name__ == "__main__":
    run()
