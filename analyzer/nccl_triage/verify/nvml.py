"""NVML (the package nvidia-ml-py, module pynvml): its library, a session, and questions that may stay unanswered.

Numbers are those of nvml.h, so that a library which does not name them yet serves as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

#: nvmlReturn_t.
NO_DRIVER, NO_LIBRARY, LOST, RESET_REQUIRED, LIBRARY_MISMATCH, UNKNOWN = 9, 12, 15, 16, 18, 999


def library() -> tuple[Any, str]:
    """Return the module, or None and why it cannot be used."""
    try:
        import pynvml
    except (ImportError, OSError) as error:
        return None, f"the library nvidia-ml-py cannot be used ({error})"
    return pynvml, ""


@contextlib.contextmanager
def session(nvml: Any) -> Iterator[None]:
    """Start NVML and end it again; raises the library's NVMLError when it does not start."""
    nvml.nvmlInit()
    try:
        yield
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def text(found: Any) -> str:
    """Return a text of the library's; those before 11.515 return bytes."""
    return found.decode(errors="replace") if isinstance(found, bytes) else str(found or "")


class Questions:
    """Questions to one GPU (or to the driver, without a handle) that answer None for what is not supported."""

    def __init__(self, nvml: Any, handle: Any = None) -> None:
        self._nvml = nvml
        self._first = () if handle is None else (handle,)
        self.errors: dict[str, int] = {}

    def ask(self, function: str, *arguments: Any, **options: Any) -> Any:
        """Return the answer of a function of the library, None where there is none."""
        call = getattr(self._nvml, function, None)
        if call is None:
            return None
        try:
            return call(*self._first, *arguments, **options)
        except self._nvml.NVMLError as error:
            self.errors[function] = error.value
            return None

    def fault(self) -> str | None:
        """Return what the errors so far say of the GPU itself rather than of the questions."""
        codes = set(self.errors.values())
        if LOST in codes:
            return "lost"
        if RESET_REQUIRED in codes:
            return "reset-required"
        # Rare questions have "unknown error" for an answer on healthy GPUs; its memory every GPU knows.
        return "unknown" if self.errors.get("nvmlDeviceGetMemoryInfo") == UNKNOWN else None
