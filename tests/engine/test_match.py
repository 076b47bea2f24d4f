"""What a match hands over: the fields of a message, however it is worded."""

from __future__ import annotations

from nccl_triage.engine import load, match


def test_a_second_wording_fills_the_same_fields() -> None:
    signature = load.load().signatures["gloo.socket_error_remote"]
    new = match.search(signature, "SO_ERROR: Connection refused, remote=[127.0.0.1]:52113")
    old = match.search(
        signature, "[../third_party/gloo/gloo/transport/tcp/pair.cc:799] connect [127.0.0.1]:52113: Connection refused"
    )
    assert new is not None
    assert old is not None
    assert (new["peer"], new["error"]) == (old["peer"], old["error"]) == ("127.0.0.1", "Connection refused")


def test_what_is_said_twice_stays_two_fields() -> None:
    signature = load.load().signatures["nccl.bootstrap_nranks_mismatch"]
    found = match.search(signature, signature.match_samples[0])
    assert found is not None
    assert found["nranks"] != found["nranks2"]
