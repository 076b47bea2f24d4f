"""What dumped stacks tell of a hang: who stands elsewhere while the others wait, and who waits at another place.

Nobody takes such dumps of a job that is well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nccl_triage.diagnosis import dumped_stacks as dumped
from nccl_triage.diagnosis.case import Case, Fact, fact
from nccl_triage.diagnosis.dumped_stacks import Stack


def _told(value: Any, who: Sequence[Stack], others: Sequence[Stack] = ()) -> Fact | None:
    """Return a fact with a line of each side, and then those of the other culprits."""
    if not who:
        return None
    return Fact(value, [one.event for one in (who[0], *others[:1], *who[1:7])])


@fact("stacks.dumped", "how many processes' stacks were dumped: somebody looked into a job that hung")
def _dumped(case: Case) -> Fact | None:
    found = dumped.of_case(case)
    return _told(len(found), found[:2])


@fact("stacks.doing", "what the dumped processes do, as far as known: activities of rules/stacks")
def _doing(case: Case) -> Fact | None:
    found = [one for one in dumped.of_case(case) if one.activity is not None]
    return _told(dumped.kinds(found), found)


@fact("stacks.diverging", "processes that stand outside any collective while others stand in one")
def _diverging(case: Case) -> Fact | None:
    found = dumped.of_case(case)
    inside = [one for one in found if one.waits]
    outside = [one for one in found if not one.waits]
    meets = {"collective", "rendezvous"}.intersection(dumped.kinds(inside))
    return _told(len(outside), outside, inside) if meets else None


@fact("stacks.elsewhere", "processes that stand in something which needs no other rank while the others wait")
def _elsewhere(case: Case) -> Fact | None:
    away, waiting = dumped.elsewhere(case)
    return _told(len(away), away, waiting)


@fact("stacks.elsewhere_doing", "what they do: activities of rules/stacks")
def _elsewhere_doing(case: Case) -> Fact | None:
    away, waiting = dumped.elsewhere(case)
    return _told(dumped.kinds(away), away, waiting)


@fact("stacks.elsewhere_frame", "the deciding frame of the first of them, and the job's own below it")
def _elsewhere_frame(case: Case) -> Fact | None:
    away, waiting = dumped.elsewhere(case)
    return _told(away[0].shown if away else None, away, waiting)


@fact("stacks.waiting", "how many wait meanwhile")
def _waiting(case: Case) -> Fact | None:
    _, waiting = dumped.elsewhere(case)
    return _told(len(waiting), waiting)


@fact("stacks.waiting_frame", "where the first of those that wait stands")
def _waiting_frame(case: Case) -> Fact | None:
    _, waiting = dumped.elsewhere(case)
    return _told(waiting[0].shown if waiting else None, waiting)


@fact("stacks.alone_frame", "where the first dumped process stands, when none of them waits for others")
def _alone_frame(case: Case) -> Fact | None:
    found = dumped.alone(case)
    return _told(found[0].shown if found else None, found)


@fact("stacks.apart", "how many wait at another place than the majority")
def _apart(case: Case) -> Fact | None:
    minority, rest = dumped.apart(case)
    return _told(len(minority), minority, rest)


@fact("stacks.apart_frame", "where the first of them stands")
def _apart_frame(case: Case) -> Fact | None:
    minority, rest = dumped.apart(case)
    return _told(minority[0].shown if minority else None, minority, rest)


@fact("stacks.majority_frame", "where the first of the majority stands")
def _majority_frame(case: Case) -> Fact | None:
    _, rest = dumped.apart(case)
    return _told(rest[0].shown if rest else None, rest)


@fact("stacks.apart_generating", "whether one of the two sides generates text and the other does not")
def _apart_generating(case: Case) -> Fact | None:
    minority, rest = dumped.apart(case)
    return _told(True, minority, rest) if minority and minority[0].generates != rest[0].generates else None


@fact("stacks.together", "how many stand at the same place, when all of the dumped ones do")
def _together(case: Case) -> Fact | None:
    found = dumped.of_case(case)
    places = {(one.activity.id if one.activity else None, one.place) for one in found}
    return _told(len(found), found) if len(found) > 1 and len(places) == 1 and found[0].waits else None


@fact("stacks.loading_frame", "where in the job's own code a worker of a data loader stands")
def _loading_frame(case: Case) -> Fact | None:
    found = dumped.loading(case)
    return _told(found[0][1] if found else None, [one for one, _ in found])
