"""The torch of this interpreter: how it was built, without importing it, and whether it can be imported."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

#: Names in torch/version.py -> names in the answer.
_NAMES = {"__version__": "version", "cuda": "cuda", "hip": "hip"}
_TEXT = 600


def built(path: list[str] | None = None) -> dict[str, Any] | None:
    """Return version, cuda and hip as torch/version.py on ``path`` (default: sys.path) has them; None without torch.

    cuda and hip are missing where the build does not say them, None where it was built without.
    """
    for entry in sys.path if path is None else path:
        folder = Path(entry or ".") / "torch"
        if (folder / "__init__.py").is_file():
            return _version(folder / "version.py")
        if folder.with_suffix(".py").is_file():
            return {"version": "unknown"}
    return _elsewhere() if path is None else None


def _version(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"version": "unknown"}
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except (OSError, ValueError, SyntaxError):
        return found
    for node in body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(node.value, ast.Constant):
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        name = _NAMES.get(target.id) if isinstance(target, ast.Name) else None
        if name is not None:
            found[name] = None if node.value.value is None else str(node.value.value)
    return found


def _elsewhere() -> dict[str, Any] | None:
    """Return what is known of a torch that lies in no folder of the path: in an archive, or where it is developed."""
    from importlib import metadata, util

    try:
        return {"version": metadata.version("torch")}
    except metadata.PackageNotFoundError:
        pass
    try:
        return {"version": "unknown"} if util.find_spec("torch") is not None else None
    except (ImportError, ValueError):
        return None


def imported() -> dict[str, Any]:
    """Import torch and return version, cuda, hip, whether it has NCCL, and which; CUDA is not initialised."""
    try:
        import torch
        import torch.distributed as dist

        has = dist.is_available() and dist.is_nccl_available()
        found = {
            "version": str(torch.__version__),
            "cuda": torch.version.cuda,
            "hip": getattr(torch.version, "hip", None),
            "has_nccl": has,
        }
    except BaseException as error:  # whatever a broken torch does is what it does to a rank
        return {"error": f"{type(error).__name__}: {error}"[:_TEXT]}
    if has:
        try:
            found["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())  # type: ignore[no-untyped-call]
        except Exception as error:
            found["nccl_error"] = f"{type(error).__name__}: {error}"[:_TEXT]
    return found
