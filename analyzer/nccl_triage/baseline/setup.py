"""Compares how two runs were set up: variables, versions, networks, transports and size."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence

from nccl_triage.baseline.run_difference import RunDifference, place
from nccl_triage.diagnosis.case import Case
from nccl_triage.diagnosis.facts import software
from nccl_triage.lazy_regex import lazily
from nccl_triage.observations.event import Context, Event
from nccl_triage.parsers import templates
from nccl_triage.scan.measurements import LINK
from nccl_triage.story.addresses import parse

#: A value and the first line that shows it.
Valued = Sequence[tuple[str, Event]]


def first_event(case: Case) -> Event | None:
    """Return the first line that is known of a run."""
    return next(iter(case.events), None)


def shown(values: Iterable[str]) -> str:
    """Return values as text."""
    return ", ".join(sorted(set(values)))


def of_field(events: Iterable[Event], name: str) -> Valued:
    """Return the distinct values of a field, each with its first line."""
    found: dict[str, Event] = {}
    for event in events:
        value = event.fields.get(name)
        if value:
            found.setdefault(value, event)
    return list(found.items())


def changed(subject: str, name: str, good: Valued, bad: Valued, **further: str) -> Iterator[RunDifference]:
    """Yield the difference between the values of both runs; a run that shows none says nothing."""
    ours, theirs = {value for value, _ in bad}, {value for value, _ in good}
    if not ours or not theirs or ours == theirs:
        return
    at = next((event for value, event in bad if value not in theirs), bad[0][1])
    good_at = next((event for value, event in good if value not in ours), good[0][1])
    host = at.context.host if len(ours) > 1 and ours & theirs else None  # the others have what the good run had
    yield RunDifference(subject, name, shown(theirs), shown(ours), at, place(good_at), further, host=host)


def by_name(good: Mapping[str, Valued], bad: Mapping[str, Valued]) -> Iterator[tuple[str, Valued, Valued]]:
    """Yield each name with the values of both runs."""
    for name in sorted({*good, *bad}):
        yield name, good.get(name, ()), bad.get(name, ())


#: ``[0]eth0:10.0.0.1<0> [1]mlx5_0:1/IB``: name, and address where there is one.
_DEVICE = lazily(r"\[\d+\](?P<name>[\w.@-]+)(?::(?P<address>[0-9a-fA-F.:]+)<\d+>)?")
#: Bits of an address that identify the network.
_NETWORK = 16


def compare_networks(good: Case, bad: Case) -> Iterator[RunDifference]:
    """Yield other interfaces, adapters, networks and plugins; addresses within one network are alike."""
    for name in ("sockets", "adapters"):
        yield from changed("interface", name, _devices(good, name), _devices(bad, name))
    for name, lines in (("bootstrap", _bootstrap), ("out-of-band", _adapters)):
        differs = list(changed("interface", name, of_field(lines(good), "iface"), of_field(lines(bad), "iface")))
        yield from differs
        if not differs and name == "bootstrap":
            yield from changed("interface", "subnet", _networks(good), _networks(bad))
    for chosen in ("network", "plugin"):
        theirs, ours = (case.having("transport.chosen", chosen=chosen) for case in (good, bad))
        yield from changed("interface", chosen, of_field(theirs, "name"), of_field(ours, "name"))


def _bootstrap(case: Case) -> list[Event]:
    """Return the lines that name the interface over which processes meet."""
    return [event for event in case.having("interface.chosen", "iface") if "devs" not in event.fields]


def _adapters(case: Case) -> list[Event]:
    """Return the lines that name adapters, and the interface beside them."""
    return case.having("interface.chosen", devices="adapters")


def _devices(case: Case, devices: str) -> Valued:
    """Return the names of the devices of all processes, each once."""
    found: dict[str, Event] = {}
    for event in case.having("interface.chosen", devices=devices):
        for device in _DEVICE.finditer(event.fields.get("devs", "")):
            found.setdefault(device["name"], event)
    return list(found.items())


def _networks(case: Case) -> Valued:
    found: dict[str, Event] = {}
    for event in case.having("interface.chosen", "iface", "address"):
        address = parse(event.fields.get("address"))
        if address is not None and address.version == 4:
            network = ipaddress.ip_network(f"{address}/{_NETWORK}", strict=False)
            found.setdefault(f"{event.fields['iface']} {network}", event)
    return list(found.items())


#: Kinds of change that are told.
MAX_KINDS = 4
_Pair = tuple[int, int]


def compare_transports(good: Case, bad: Case) -> Iterator[RunDifference]:
    """Yield the changes of transport between the same two ranks, the most frequent first."""
    theirs, ours = _transports(good), _transports(bad)
    kinds: dict[tuple[str, str], list[_Pair]] = {}
    for pair in sorted(theirs.keys() & ours.keys()):
        before, after = theirs[pair][0], ours[pair][0]
        if before != after:
            kinds.setdefault((before, after), []).append(pair)
    for (before, after), pairs in sorted(kinds.items(), key=lambda kind: (-len(kind[1]), kind[0]))[:MAX_KINDS]:
        first = pairs[0]
        source, line = ours[first][1]
        at = Event(LINK, source, line, "", Context())
        further = {"pairs": str(len(pairs)), "first_pair": f"{first[0]} -> {first[1]}"}
        yield RunDifference("transport", further["first_pair"], before, after, at, theirs[first][1], further)


def _transports(case: Case) -> dict[_Pair, tuple[str, tuple[str, int]]]:
    """Return each pair's transports in words, and where they are printed first."""
    found: dict[_Pair, dict[str, tuple[str, int]]] = {}
    for link, seen in sorted(case.observations.links.kept().items(), key=lambda kept: kept[1].place):
        name = f"{link.via}{' GDRDMA' if link.direct else ''}"
        found.setdefault((link.source_rank, link.target_rank), {}).setdefault(name, seen.place)
    return {pair: (", ".join(sorted(names)), min(names.values())) for pair, names in found.items()}


def compare_shape(good: Case, bad: Case) -> Iterator[RunDifference]:
    """Yield what differs in numbers of ranks, hosts and channels, in topology and in algorithms."""
    yield from changed("world", "ranks", _number(good, good.identity.world_size), _number(bad, bad.identity.world_size))
    for name, key in (("nodes", "nnodes"), ("ranks per node", "local_ranks")):
        yield from changed("world", name, *(_largest(case, "communicator.starting", key) for case in (good, bad)))
    for name, key in (("collective channels", "coll"), ("p2p channels", "p2p")):
        channels = (_largest(case, "transport.chosen", key) for case in (good, bad))
        yield from changed("topology", name, *channels)
    multicast = (of_field(case.having("transport.chosen", chosen="multicast"), "value") for case in (good, bad))
    yield from changed("topology", "NVLS multicast", *multicast)
    for name, key in (("GPUDirect in rings", "gdr"), ("PXN in rings", "pxn")):
        rings = (of_field(case.having("communicator.ready", key), key) for case in (good, bad))
        yield from changed("topology", name, *rings)
    yield from _algorithms(good, bad)


def _algorithms(good: Case, bad: Case) -> Iterator[RunDifference]:
    """Yield the choices that the good run never made; which are made depends on the sizes that occur."""
    for name, key in (("algorithm", "algo"), ("protocol", "proto")):
        theirs, ours = (of_field(case.having("transport.chosen", key), key) for case in (good, bad))
        if {value for value, _ in ours} - {value for value, _ in theirs}:
            yield from changed("algorithm", name, theirs, ours)


def _number(case: Case, value: int | None) -> Valued:
    if not value:
        return ()
    names = ("nranks", "world_size", "world")
    at = next((e for e in case.events if any(e.fields.get(name) == str(value) for name in names)), first_event(case))
    return [(str(value), at)] if at is not None else ()


def _largest(case: Case, kind: str, key: str) -> Valued:
    """Return the largest number of a field: small communicators come and go, the largest is the job's."""
    found: tuple[float, Event] | None = None
    for event in case.having(kind, key):
        number = event.number(key)
        if number is not None and (found is None or number > found[0]):
            found = number, event
    return [(str(int(found[0])), found[1])] if found else ()


#: What is another value in every run, or belongs to one process: addresses, ports, ids, places of output.
_BY_NATURE = lazily(
    r"(?:_|^)(?:ADDR|ADDRESS|IP|PORT|PORTS|RANK|LOCAL_RANK|HOSTID|HOST_ID|COMM_ID|RUN_ID|JOB_ID|NODE_ID|UUID|TOKEN|KEY"
    r"|DEBUG_FILE|LOG_DIR|SESSION\w*|TMPDIR|TEMP|SECRET|PASSWORD)$"
)
#: Lines of NCCL that come once the variables of networks have been looked up.
_CONSULTED = ("transport.chosen", "communicator.ready")
#: Lines of NCCL at level INFO: whoever prints them prints variables too.
_INFORMS = ("variable", "communicator.starting", "interface.chosen", *_CONSULTED)


def compare_variables(good: Case, bad: Case) -> Iterator[RunDifference]:
    """Yield what is set in one run alone or differently, where the other run would have shown it."""
    for name, theirs, ours in by_name(software.environment(good), software.environment(bad)):
        if _BY_NATURE.search(name):
            continue
        if theirs and ours:
            yield from changed("variable", name, _alike(theirs), _alike(ours))
        elif ours and _would_show(good, ours, _INFORMS):
            yield RunDifference("variable", name, None, shown(v for v, _ in ours), ours[0][1])
        elif theirs and _would_show(bad, theirs, _CONSULTED):
            near = next(iter(bad.of("variable", *_CONSULTED)), first_event(bad))
            if near is not None:
                yield RunDifference("variable", name, shown(v for v, _ in theirs), None, near, place(theirs[0][1]))


def _alike(values: Valued) -> Valued:
    """Return values with what varies from run to run in a path folded."""
    return [(templates.template(value) if "/" in value else value, event) for value, event in values]


def _would_show(other: Case, values: Valued, informs: tuple[str, ...]) -> bool:
    """Tell whether the other run would have printed a variable, had it been set there."""
    if values[0][1].context.program == "nccl":
        return bool(other.of(*informs))
    return bool([event for event in other.of("variable") if event.context.program != "nccl"])


def compare_versions(good: Case, bad: Case) -> Iterator[RunDifference]:
    """Yield the programs whose version is another; a version that only one run prints says nothing."""
    for name, theirs, ours in by_name(software.versions(good), software.versions(bad)):
        yield from changed("version", name, theirs, ours)
