"""``python -m nccl_triage``."""

from nccl_triage.cli import main

if __name__ == "__main__":
    main()
