"""What nodes have, as shares: files that several nodes see are read once, and every source is named after its node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nccl_triage.execution.cluster.bulletin import Bulletin
from nccl_triage.execution.cluster.crew import Member
from nccl_triage.execution.cluster.desk import Listing
from nccl_triage.execution.cluster.shares import Share
from nccl_triage.ingest import layouts


@dataclass(eq=False, slots=True)
class Found:
    """The listing of one node, and what it was asked for."""

    member: Member
    asked: tuple[str, ...]
    listing: Listing


def shares_of(found: Sequence[Found], bulletin: Bulletin) -> list[Share]:
    """Return a share a file system: of each node, of the nodes on one machine, of nodes with one storage (named "")."""
    groups: dict[object, list[Found]] = {}
    by_likeness: dict[str, list[Found]] = {}
    for one in sorted(found, key=lambda one: one.member.node.name):
        if not one.listing.sources:
            bulletin.told(one.member.node.name, one.listing.notes)
            continue
        machine = (one.listing.machine, one.asked)
        group = groups.get(machine) or by_likeness.get(one.listing.likeness) or []
        group.append(one)
        groups[machine] = by_likeness[one.listing.likeness] = group
    shares = [_share(group, bulletin) for group in {id(group): group for group in groups.values()}.values()]
    # A rank that stands on several hosts is a local rank: only all listings together show it.
    layouts.settle([source.info for share in shares for source in share.sources])
    return shares


def _share(group: Sequence[Found], bulletin: Bulletin) -> Share:
    first = group[0]
    bulletin.told(first.member.node.name, first.listing.notes)
    sources = first.listing.sources
    alone = len({one.listing.machine for one in group}) == 1
    if alone:
        node = first.member.node
        for source in sources:
            source.path = source.info.path = f"{node.name}:{source.path}"
            source.info.host = source.info.host or node.host
    else:
        bulletin.common([one.member.node.name for one in group])
    return Share(first.member.node.name if alone else "", [one.member for one in group], sources)
