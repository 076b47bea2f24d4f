"""Where ranks stood in their own program when communication broke, compared with those that had left it in order."""

from __future__ import annotations
