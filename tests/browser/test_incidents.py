"""The reports under test are of the sizes, verdicts and families that they stand for."""

from __future__ import annotations

from .incidents import INCIDENTS


def test_the_incident_is_what_it_stands_for(name, doc):
    expected = INCIDENTS[name]
    assert doc["verdict"] == expected.verdict
    if expected.family is not None:
        assert doc["diagnoses"][0]["family"] == expected.family
    known = {entry["rank"] for entry in doc["job"]["ranks"]}
    assert expected.ranks in (len(known), doc["job"]["world_size"]) or expected.verdict == "unknown"


def test_sizes_verdicts_and_families_are_all_there():
    assert {1, 8, 512, 4096} <= {incident.ranks for incident in INCIDENTS.values()}
    assert {incident.verdict for incident in INCIDENTS.values()} == {"diagnosed", "healthy", "unknown"}
    assert {"network", "host", "collective"} <= {incident.family for incident in INCIDENTS.values()}
