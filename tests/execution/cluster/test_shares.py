"""Who reads what: no file is lost or read twice when workers are lost, and some are given up."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from nccl_triage.execution.cluster import shares
from nccl_triage.execution.cluster.node_service import Listing
from nccl_triage.execution.cluster.notes import NodeNotes
from nccl_triage.execution.cluster.shares import NodeListing, WorkShare, shares_of
from nccl_triage.execution.cluster.workers import WorkerHandle
from nccl_triage.hosts.ray_nodes import RayNode
from nccl_triage.ingest.sources import Source
from nccl_triage.observations.store import SourceInfo


def worker(name: str) -> WorkerHandle:
    return WorkerHandle(RayNode(name, name, name.partition("#")[0], name, True), None)


def source(path: str, size: int = 1, **known: int) -> Source:
    return Source(path, SourceInfo(path, **known), Path(path), size)


@pytest.mark.parametrize("seed", range(30))
def test_every_file_counts_once_however_workers_are_lost(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(shares, "_LEAST", 40)
    monkeypatch.setattr(shares, "_TRIES", 99)
    chance = Random(seed)
    workers = [worker(f"n{number}") for number in range(5)]
    share = WorkShare("", list(workers), [source(f"f{number}", chance.randrange(50)) for number in range(40)])
    taken: list[str] = []
    busy: dict[WorkerHandle, list[Source]] = {}
    while share.waiting or any(share.held.values()):
        one = chance.choice([one for one in workers if one.gone is None])
        if chance.random() < 0.1 and sum(other.gone is None for other in workers) > 1:
            one.gone = "killed"
            share.abandoned(one, "killed")
        elif not (batch := share.batch(one)):
            taken += [held.path for held in share.held.get(one, [])]
            share.release(one, [held.path for held in share.held.get(one, [])])
        busy[one] = batch if one.gone is None else []
    assert sorted(taken) == sorted(one.path for one in share.sources)
    assert share.lost == {}


def test_a_file_that_kills_its_workers_is_given_up() -> None:
    workers = [worker(name) for name in "abc"]
    share = WorkShare("", list(workers), [source("poison")])
    for one in workers[:2]:
        assert [held.path for held in share.batch(one)] == ["poison"]
        one.gone = "killed"
        share.abandoned(one, "killed")
    assert share.batch(workers[2]) == []
    assert [lost.path for lost in share.lost["killed"]] == ["poison"]


def test_a_worker_that_does_not_see_the_storage_leaves_it_to_others() -> None:
    workers = [worker(name) for name in "ab"]
    share = WorkShare("", list(workers), [source("x"), source("y")])
    share.unseen(workers[0], share.batch(workers[0]))
    assert share.workers == [workers[1]]
    assert sorted(one.path for one in share.batch(workers[1])) == ["x", "y"]
    share.unseen(workers[1], share.held[workers[1]])
    assert len(share.lost["No such file or directory"]) == 2


def found(name: str, machine: str, likeness: str, *paths: str, asked: str = "/x") -> NodeListing:
    return NodeListing(worker(name), (asked,), Listing([source(path, rank=0) for path in paths], [], machine, likeness))


def test_files_that_several_nodes_see_are_one_share() -> None:
    notes = NodeNotes()
    listed = [
        found("a", "m1", "1", "/x/0.log"),
        found("a#2", "m1", "2", "/x/0.log"),  # one machine; a file grew between the two looks
        found("b", "m2", "3", "/x/0.log"),
        found("c", "m3", "4", "/nfs/1.log"),
        found("d", "m4", "4", "/nfs/1.log"),  # one storage
        found("e", "m5", ""),
    ]
    made = shares_of(listed, notes)
    assert [(share.name, [one.node.name for one in share.workers]) for share in made] == [
        ("a", ["a", "a#2"]),
        ("b", ["b"]),
        ("", ["c", "d"]),
    ]
    assert [share.sources[0].path for share in made] == ["a:/x/0.log", "b:/x/0.log", "/nfs/1.log"]
    assert notes.texts() == ["node c and 1 more have the same files: each is read once"]
    # Rank 0 on two hosts is a local rank; what lies on no host in particular stays as it is.
    assert [(one.info.host, one.info.rank, one.info.local_rank) for share in made for one in share.sources] == [
        ("a", None, 0),
        ("b", None, 0),
        (None, 0, None),
    ]


def test_one_machine_that_is_asked_for_different_files_has_two_shares() -> None:
    made = shares_of([found("a", "m", "1", "/x/0"), found("a#2", "m", "2", "/y/0", asked="/y")], NodeNotes())
    assert [share.name for share in made] == ["a", "a#2"]


def test_of_many_notes_some_are_told() -> None:
    notes = NodeNotes()
    notes.told("n", ["skipped 3 files (empty): x", "cannot read y: Permission denied"])
    for number in range(100):
        notes.missing(f"n{number}", "no news for 120 s")
    texts = notes.texts()
    assert len(texts) == 8 + 1 + 2
    assert texts[8] == "92 more of this kind"
    assert texts[-1] == "on node n: skipped 3 files (empty): x"


def test_behind_the_end_nothing_is_given_out() -> None:
    one, other = worker("a"), worker("b")
    share = WorkShare("", [one, other], [source(f"f{number}") for number in range(3)])
    first = share.batch(one)
    assert sorted(left.path for left in share.end()) == sorted({"f0", "f1", "f2"} - {one.path for one in first})
    one.gone = "died"
    share.abandoned(one, "died")  # there is another, but it is to begin nothing
    assert share.batch(other) == []
    assert share.lost == {"died": first}
