"""What a rank really calls: torch.distributed seen through a window that notes each call.

The parent compares the notes of all ranks, as torch's own ProcessGroupWrapper compares fingerprints: the rank whose
call differs from the others' is found even where the library only hangs or aborts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Calls that move no data of the experiment.
_QUIET = {"get_rank", "get_world_size", "is_initialized", "isend", "irecv"}


def _shape(value: Any) -> list[Any] | None:
    """Return [dtype, elements] of a tensor or of a list of tensors."""
    if hasattr(value, "numel") and hasattr(value, "dtype"):
        return [str(value.dtype).replace("torch.", ""), int(value.numel())]
    if isinstance(value, (list, tuple)) and value and hasattr(value[0], "numel"):
        return [str(value[0].dtype).replace("torch.", ""), sum(int(item.numel()) for item in value)]
    return None


class Window:
    """Stands for ``torch.distributed`` and tells ``note`` the name and the message of every call."""

    def __init__(self, dist: Any, note: Callable[[dict[str, Any]], None]) -> None:
        self._dist = dist
        self._note = note
        self._count = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._dist, name)
        if not callable(found) or isinstance(found, type) or name.startswith("_") or name in _QUIET:
            return found

        def noted(*args: Any, **kwargs: Any) -> Any:
            self._count += 1
            message = next((shape for value in (*args, *kwargs.values()) if (shape := _shape(value))), None)
            self._note({"call": name, "message": message, "count": self._count})
            return found(*args, **kwargs)

        return noted
