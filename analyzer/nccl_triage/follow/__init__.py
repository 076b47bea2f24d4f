"""Follows the logs of a running job: reads what is added, suspects hangs, and decides when a verdict is news."""
