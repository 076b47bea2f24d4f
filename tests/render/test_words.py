from __future__ import annotations

import re
import string

import pytest

from nccl_triage.render import vocabulary, words

from .documents import HOSTILE, diagnosed, healthy


@pytest.mark.parametrize("key", sorted(vocabulary.WORDS))
def test_every_word_has_both_languages_with_the_same_places(key):
    pair = vocabulary.WORDS[key]
    assert pair.en.strip()
    assert pair.zh.strip()
    assert not re.search("[\u4e00-\u9fff]", pair.en)

    def places(text):
        return {name for _, name, _, _ in string.Formatter().parse(text) if name}

    assert places(pair.en) == places(pair.zh)


def test_states_roles_weights_and_statuses_have_words():
    for state in ("root", "entered", "missing", "behind", "dead", "error", "ok", "unknown"):
        assert f"state_{state}" in vocabulary.WORDS
    for role in ("root", "cascade", "context", "progress"):
        assert f"role_{role}" in vocabulary.WORDS
    for other in ("decisive", "strong", "moderate", "weak", "established", "supported", "possible"):
        assert other in vocabulary.WORDS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain\ttab", "plain\ttab"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x1b\\", "link"),
        ("\x1b[", "\\x1b["),
        ("a\x00b\rc\x9bd", "a\\x00b\\x0dc\\x9bd"),
        ("a\u202eb\u2067c\u200fd", "a\\u202eb\\u2067c\\u200fd"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("a\nb\u2028c", "a\\nb\\u2028c"),
        ("\ud800", "\\ud800"),
        ("中文 ok é", "中文 ok é"),
    ],
)
def test_visible(text, expected):
    assert words.visible(text) == expected


def test_visible_cuts_and_says_how_much():
    assert words.visible("x" * 1_000_000, 10) == "x" * 10 + " ..[+999990]"
    assert words.visible(HOSTILE).isprintable()


def test_cut_counts_wide_characters():
    assert words.columns("显存 ok") == 7
    assert words.cut("显存耗尽", 8) == "显存耗尽"
    assert words.cut("显存耗尽", 7) == "显存.."
    assert words.cut("plain text", 7) == "plain.."


def test_ranges_confidence_and_names():
    assert words.rank_ranges([7, 0, 1, 2, 2, 5]) == "0-2, 5, 7"
    assert words.confidence(0.9999) == "0.99"
    assert words.confidence(1) == "0.99"
    assert words.confidence(None) == "0.00"
    assert words.culprit_name({"rank": 3, "host": "a", "gpu": 1}, "en") == "rank 3 on a (gpu 1)"
    assert words.culprit_name({"rank": 3, "host": "a"}, "zh") == "a 上的 rank 3"
    assert words.culprit_name({"host": "a", "address": "10.0.0.1"}, "en") == "a (10.0.0.1)"
    assert words.culprit_name({}, "en") == "not identified"


def test_ranks_that_failed_by_themselves_are_no_consequences():
    doc = diagnosed()
    doc["diagnoses"][0]["culprits"] = []
    for rank in doc["job"]["ranks"]:
        rank["state"] = "error" if rank["rank"] < 2 else "ok"
    doc["symptoms"] = []
    assert words.consequence_phrase(doc, "en") == "2 ranks failed (0-1)"
    assert words.consequence_phrase(doc, "zh") == "2 个 rank 失败（0-1）"
    doc["symptoms"] = [{"signature": "a.b", "role": "root", "count": 1, "ranks": [0]}]
    assert words.consequence_phrase(doc, "en") == "1 other rank failed as a result (1)"
    doc["diagnoses"][0]["culprits"] = [{"rank": None, "host": "node-a"}]
    assert words.consequence_phrase(doc, "en") == ""


def test_consequences_leave_out_the_culprit():
    assert words.consequence_phrase(diagnosed(), "en") == "7 other ranks failed as a result (0-1, 3-7)"
    doc = healthy()
    assert words.consequence_phrase(doc, "en") == "2 lines only show the consequences"
    doc["symptoms"] = []
    assert words.consequence_phrase(doc, "en") == ""
