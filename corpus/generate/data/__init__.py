"""Texts of programs and descriptions of incidents, as YAML."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def load(name: str) -> dict[str, Any]:
    """Return the contents of one file of this folder."""
    loaded = yaml.load((ROOT / name).read_text(encoding="utf-8"), Loader=_LOADER)
    if not isinstance(loaded, dict):
        raise ValueError(f"{name}: a mapping is expected")
    return loaded


def names(folder: str) -> list[str]:
    """Return the names (without ending) of the files of a subfolder."""
    return sorted(path.stem for path in (ROOT / folder).glob("*.yaml"))
