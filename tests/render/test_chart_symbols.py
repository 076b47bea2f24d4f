from __future__ import annotations

import re

import pytest

from nccl_triage.render import chart_symbols


@pytest.mark.parametrize("kind", sorted({*chart_symbols.SHAPES.values(), *chart_symbols.ROLE_SHAPES.values()}))
def test_shapes_differ_and_stay_in_their_box(kind):
    path = chart_symbols.shape(kind, 0, 0, 6)
    assert re.fullmatch(r"[MlhvazM\d\s-]+", path)
    others = {chart_symbols.shape(other, 0, 0, 6) for other in chart_symbols.SHAPES.values() if other != kind}
    assert path not in others
