"""From lines to context and events: wrappers, headers, and parsers of what needs more than one regex.

``STATEFUL`` lists the parsers of blocks that span lines; a new one is one module and one entry here.
"""

from __future__ import annotations

from nccl_triage.observations.kinds import Produced
from nccl_triage.parsers import counters, unknown_errors
from nccl_triage.parsers.elastic_report import ElasticReportParser
from nccl_triage.parsers.p2p_test import P2pTestParser
from nccl_triage.parsers.stacks import StackParser
from nccl_triage.parsers.stateful import StatefulParser
from nccl_triage.parsers.tracebacks import TracebackParser
from nccl_triage.recorder import lines

STATEFUL: tuple[type[StatefulParser], ...] = (TracebackParser, ElasticReportParser, P2pTestParser, StackParser)


def produced_signatures() -> dict[str, Produced]:
    """Return the signature ids that are no pattern of a line, with kind and meaning: parsers make them."""
    made = {name: produced for parser in STATEFUL for name, produced in parser.PRODUCES.items()}
    return {**made, **unknown_errors.PRODUCES, **counters.PRODUCES, **lines.PRODUCES}
