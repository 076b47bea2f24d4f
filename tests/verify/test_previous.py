"""Earlier results of the same hosts are what a bandwidth is compared with."""

from __future__ import annotations

import json

import pytest

from nccl_triage.errors import InputError
from nccl_triage.verify import previous


def run(**changes):
    return {
        "op": "ALLREDUCE",
        "numel": 1 << 26,
        "dtype": "bfloat16",
        "backend": "nccl",
        "world_size": 8,
        "hosts": ["node-a"],
        "outcome": "passed",
        "changed": None,
        "bandwidth": {"busbw": 400.0},
        "parts": [{"op": "BROADCAST", "numel": 8, "dtype": "float32", "bandwidth": {"busbw": 3.0}}],
        **changes,
    }


def written(tmp_path, document):
    path = tmp_path / "earlier.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_runs_of_preflight_and_of_verify_are_read(tmp_path):
    one = written(tmp_path, {"runs": [run()]})
    two = tmp_path / "report.json"
    two.write_text(
        json.dumps(
            {"diagnoses": [{"verification": {"runs": [run(bandwidth={"busbw": 410.0})]}}, {"verification": None}]}
        )
    )
    found = previous.read([one, two])
    assert found[previous.key_of(run())] == [400.0, 410.0]
    assert found[previous.key_of(run(), run()["parts"][0])] == [3.0, 3.0]


@pytest.mark.parametrize(
    "changes", [{"outcome": "error"}, {"changed": "with NCCL_P2P_DISABLE=1"}, {"bandwidth": None, "parts": []}]
)
def test_runs_that_failed_or_were_changed_are_no_expectation(tmp_path, changes):
    assert previous.read([written(tmp_path, {"runs": [run(**changes)]})]) == {}


@pytest.mark.parametrize(
    "other", [{"hosts": ["node-b"]}, {"world_size": 4}, {"dtype": "float32"}, {"numel": 1}, {"backend": "gloo"}]
)
def test_another_collective_or_host_is_not_compared(tmp_path, other):
    assert previous.key_of(run(**other)) not in previous.read([written(tmp_path, {"runs": [run()]})])


@pytest.mark.parametrize("text", ["", "[1]", "{]", '{"runs": [{"outcome": "passed"}]}', '{"runs": 5}'])
def test_a_file_that_holds_no_results_is_one_sentence(tmp_path, text):
    with pytest.raises(InputError):
        previous.read([written(tmp_path, text)])


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        previous.read([tmp_path / "none.json"])


def test_earlier_results_are_the_band_of_a_run():
    from nccl_triage.verify.bandwidth import judge

    assert judge(300.0, 1 << 30, None, [400.0, 410.0]).state == "below"
    assert judge(395.0, 1 << 30, None, [400.0, 410.0]).state == "in-band"
