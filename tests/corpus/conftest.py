"""The package ``corpus`` lies in the repository's root, which pytest does not put on the path by itself."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
