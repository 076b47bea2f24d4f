"""Logs with known incidents, of any length, from a seed: for training, for scale tests and for benches.

Generated logs never count as accuracy: they show what the generator's author knows, not what happens.
"""

from __future__ import annotations

from corpus.generate.bench import PROFILES, stream
from corpus.generate.generated import Generated, healthy, incident
from corpus.generate.variants import NoSuchIncident, causes, frameworks
from corpus.generate.views import VIEWS

__all__ = ["PROFILES", "VIEWS", "Generated", "NoSuchIncident", "causes", "frameworks", "healthy", "incident", "stream"]
