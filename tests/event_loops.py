"""Runs coroutines where a test of a browser may have left an event loop in this thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import anyio

Result = TypeVar("Result")


def run_apart(function: Callable[[], Awaitable[Result]]) -> Result:
    """Run a coroutine function to its end, in a thread of its own: Playwright keeps a loop in that of the tests."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, function).result()
