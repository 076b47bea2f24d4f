"""A window on ``torch.distributed`` that notes each call, as torch's own ProcessGroupWrapper takes fingerprints.

The parent compares the notes of all ranks: a rank whose call differs is found even where the library only hangs or aborts.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

#: Calls that move no data of the experiment.
_QUIET = {"get_rank", "get_world_size", "is_initialized", "isend", "irecv"}
#: Newer and older names of one call: ranks may have different releases of torch.
_SAME = {
    "all_gather_single": "all_gather_into_tensor",
    "_all_gather_base": "all_gather_into_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
}
#: Calls whose first argument is the output: what the log counts, and what is compared, is the input.
_OUTPUT_FIRST = {
    "all_gather",
    "all_gather_into_tensor",
    "allgather_into_tensor_coalesced",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all",
    "all_to_all_single",
}


def _shape(value: Any) -> list[Any] | None:
    """Return [dtype, elements] of a tensor, of a list of tensors, or of the first of several transfers."""
    if hasattr(value, "numel") and hasattr(value, "dtype"):
        return [str(value.dtype).replace("torch.", ""), int(value.numel())]
    if isinstance(value, (list, tuple)) and value:
        if hasattr(value[0], "numel"):
            return [str(value[0].dtype).replace("torch.", ""), sum(int(item.numel()) for item in value)]
        return _shape(getattr(value[0], "tensor", None))  # a P2POp
    return None


class Window:
    """Wraps ``torch.distributed`` and passes the name and message of every call to ``note``."""

    def __init__(self, dist: Any, note: Callable[[dict[str, Any]], None]) -> None:
        self._dist = dist
        self._note = note
        self._count = 0

    @property
    def distributed_c10d(self) -> Any:
        """The module of that name, as far as operations use it: the group, whose calls are noted, too."""
        group = self._dist.distributed_c10d._get_default_group()
        return SimpleNamespace(_get_default_group=lambda: Window(group, self._note))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._dist, name)
        call = _SAME.get(name, name)
        if not callable(found) or isinstance(found, type) or call.startswith("_") or call in _QUIET:
            return found

        def noted(*args: Any, **kwargs: Any) -> Any:
            self._count += 1
            given = [*args[call in _OUTPUT_FIRST :], *kwargs.values()]
            message = next((shape for value in given if (shape := _shape(value))), None)
            self._note({"call": call, "message": message, "count": self._count})
            return found(*args, **kwargs)

        return noted
