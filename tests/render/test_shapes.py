from __future__ import annotations

import re

import pytest

from nccl_triage.render import shapes


@pytest.mark.parametrize("kind", sorted({*shapes.SHAPES.values(), *shapes.ROLE_SHAPES.values()}))
def test_shapes_differ_and_stay_in_their_box(kind):
    path = shapes.shape(kind, 0, 0, 6)
    assert re.fullmatch(r"[MlhvazM\d\s-]+", path)
    others = {shapes.shape(other, 0, 0, 6) for other in shapes.SHAPES.values() if other != kind}
    assert path not in others
