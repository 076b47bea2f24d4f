"""A signature with a mistake: ``rules test`` finds it, in its line, and says what is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.wrong import SIGNATURES, broken, told, write


def test_the_rules_as_they_are_are_well(tmp_path: Path) -> None:
    assert told(write(tmp_path)) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # -- placeholders
        ("cache {f:path} on", "cache {f:pth} on", "says: {f:pth} has no value: no line of acme.cache_gone has such a field; did you mean {f:path}?"),
        ("缓存 {f:path} 消失[", "缓存 {f:pth} 消失[", "says: in one language alone (zh): {f:pth}"),
        ("[ after {f:age} s].", " after {f:age} s.", "says: {f:age} has no value in some lines of acme.cache_gone; put it in square brackets"),
        ("on {f:server} went away[", "on {server} went away[", "says: {server} means nothing here; there are {rank}, {host}, {count}, {meaning}; a field is written {f:server}"),
        ("the cache on {f:server} went", "the cache on {f:sever} went", "culprit.why: {f:sever} has no value: no line of acme.cache_gone has such a field; did you mean {f:server}?"),
        ("meaning: The shard cache of a host", "meaning: The shard cache of {f:server}", "meaning: {f:server} would be printed as it is"),
        ("{f:path} on {f:server} went away[", "{fact:collective.timeoutz} on {f:server} went away[", "{fact:collective.timeoutz} is no fact; did you mean {fact:collective.timeouts}?"),
        # -- keys
        ("kind: storage.error", "kind: storage.eror", "'storage.eror' is not one of"),
        ("    role: root\n    pattern: 'AcmeCache", "    role: rot\n    pattern: 'AcmeCache", "'rot' is not one of root, cascade, context, progress"),
        ("    not: ['AcmeCache: /shards on gpu-a is ready']\n", "", "the key 'not' is missing"),
        ("    not: ['AcmeCache: /shards on gpu-a is ready']\n", "    not: []\n", "has no sample under 'not'"),
        ("    match: ['AcmeCache", "    matches: ['AcmeCache", "unknown key 'matches'"),
        ("    culprit: {host: server, why", "    culprit: {host: sever, why", "'sever' is not a named group of the pattern"),
        ("premise: f.want != f.have", "premise: f.want != f.hav", "'hav' is not a named group of the pattern"),
        ("    meaning: The shard", "    keep_by: [pth]\n    meaning: The shard", "'pth' is not a named group of the pattern"),
        ("    meaning: The shard", "    codes: xid\n    meaning: The shard", "'xid' is not a named group of the pattern"),
        ("    meaning: The shard", "    sets: {path: x}\n    meaning: The shard", "'path' is a named group of the pattern already"),
        ("cause: acme-down\n      id", "cause: acme-dwn\n      id", "supports the unknown cause 'acme-dwn'"),
        ("      weight: strong\n", "      weight: sure\n", "'sure' is not one of decisive, strong, moderate, weak"),
        ("      weight: strong\n", "", "the key 'weight' is missing"),
        ("id: acme.tokens_differ", "id: acme.cache_gone", "'acme.cache_gone' already exists"),
        ("    meaning: The shard", "    overlaps: ['acme.tokens_difer']\n    meaning: The shard", "mentions the unknown signature 'acme.tokens_difer'; did you mean 'acme.tokens_differ'?"),
        ("id: acme.tokens_differ", "id: tokens", "its id must begin with the program: acme.tokens"),
        ("    supports:\n    - {cause: acme-down}\n", "", "has the role root and serves no verdict: say under 'supports' for which cause it speaks"),
        # -- patterns and samples
        ("    not: ['AcmeToken: expected 4, got 4', 'AcmeToken: none']\n", "    not: ['AcmeToken: expected 4, got 4', 'AcmeToken: none']\n  - id: acme.broken\n    kind: note\n    role: cascade\n    pattern: AcmeBroken\n    meaning: It broke.\n    match: [AcmeBroken]\n    not: ['Acme is broken']\n", "the word 'AcmeBroken' is also found in 'callAcmeBroken'"),
        ("AcmeToken: none'", "AcmeToken: expected 1, got 2'", "matches a sample of 'not'"),
        ("expected 4, got 5'", "expected four, got 5'", "does not match its sample; matches up to"),
        ("not: ['AcmeToken: expected 4, got 4', ", "not: [", "needs a sample under 'not' that its pattern matches and its premise refuses"),
        ("    meaning: The shard", "    anchors: ['AcmeCash']\n    meaning: The shard", "its anchors are not in its sample"),
        ("(?P<path>\\S+) on", "(?P<path>(?:\\w+/?)+)+ on", "a repeated group repeats inside"),
        ("'AcmeToken: expected (?P<want>\\d+), got (?P<have>\\d+)'", "'Ac.*To(?P<want>\\d+)(?P<have>\\d+)'", "no literal text of three characters or more"),
        ("(?P<want>\\d+), got", "(?P<want>\\d+, got", "not a valid regular expression"),
        ("pattern: 'AcmeCache", "pattern: 'AcmeToken: expected|AcmeCache", "its sample also matches acme.cache_gone"),
    ],
)  # fmt: skip
def test_a_mistake_is_found(tmp_path: Path, old: str, new: str, message: str) -> None:
    found = told(write(tmp_path, broken(SIGNATURES, old, new)))
    assert any(message in one for one in found), found
    assert all(one.partition(":")[0].isdigit() for one in found), "where it is"


def test_a_field_that_no_text_uses_is_fine(tmp_path: Path) -> None:
    pattern = r"got (?P<have>\d+)(?: \((?P<unused>\w+)\))?"
    assert told(write(tmp_path, broken(SIGNATURES, r"got (?P<have>\d+)", pattern))) == []


def test_a_row_of_several_messages_needs_the_field_in_each(tmp_path: Path) -> None:
    joins = broken(SIGNATURES, "- {cause: acme-down}", "- {cause: acme-down, id: cache-gone}")
    (wrong, *others) = [one for one in told(write(tmp_path, joins)) if "{f:path}" in one]
    assert "{f:path} has no value in some lines of acme.tokens_differ; put it in square brackets" in wrong
    assert others == []
    bracketed = broken(joins, "The cache {f:path} on {f:server} went", "The cache[ {f:path}][ on {f:server}] went")
    bracketed = broken(bracketed, '"{f:server} 上的缓存 {f:path} 消失[', '"[{f:server} 上的]缓存[ {f:path} ]消失[')
    assert told(write(tmp_path / "bracketed", bracketed)) == []
