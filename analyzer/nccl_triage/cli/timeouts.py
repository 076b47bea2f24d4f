"""``nccl-triage timeouts``: a time-out by arithmetic, and who sets it in which unit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from nccl_triage.cli import explain, options
from nccl_triage.errors import UsageError

if TYPE_CHECKING:
    from nccl_triage.knowledge.timeouts import Assumptions, CollectiveTraffic

#: Numbers beyond these are slips of the pen.
_MOST, _RANKS = 1e16, 1 << 20


def _amount(ctx: click.Context, param: click.Parameter, value: Any) -> float | None:
    """Return a positive number that may end in k, M, B or T (a callback of click)."""
    from nccl_triage.knowledge import amounts

    if value is None:
        return None
    found = amounts.count(str(value))
    if found is None or not 0 < found <= _MOST or not math.isfinite(found):
        raise click.BadParameter(f"{str(value)[:40]!r}", ctx, param)
    return found


def _number(name: str, *names: str, **how: Any) -> Callable[[Any], Any]:
    """Return the option of a number."""
    return click.option(name, *names, callback=_amount, **how)


OPERATIONS = (
    "ALLREDUCE",
    "ALLGATHER",
    "REDUCE_SCATTER",
    "BROADCAST",
    "REDUCE",
    "ALLTOALL",
    "GATHER",
    "SCATTER",
    "SEND",
)


@click.command(
    "timeouts",
    epilog="""\b
Examples:
  nccl-triage timeouts
  nccl-triage timeouts --parameters 70B --storage 2 --network 100
  nccl-triage timeouts --op ALLGATHER --numel 116391936 --dtype bf16 --world-size 8 --timeout 600""",
)
@_number("--parameters", metavar="N", help="Parameters of the model, e.g. 70B.")
@click.option("--op", metavar="OP", help="A collective, e.g. ALLREDUCE or all_gather.")
@_number("--numel", metavar="N", help="Elements that one rank contributes (NumelIn in the watchdog's line).")
@_number("--bytes", "size", metavar="N", help="Bytes that one rank contributes, instead of --numel.")
@click.option("--dtype", default="fp32", show_default=True, metavar="TYPE", help="Data type of an element.")
@click.option("--world-size", type=click.IntRange(1, _RANKS), default=8, show_default=True, help="Ranks in the group.")
@_number("--timeout", "limit", metavar="SECONDS", help="Compare the collective with this timeout.")
@_number("--storage", default="1", show_default=True, metavar="GB/s", help="Storage speed.")
@_number("--network", default="10", show_default=True, metavar="Gbit/s", help="Network speed of one rank.")
@_number("--weight-bytes", default="2", show_default=True, metavar="N", help="Bytes per weight.")
@_number(
    "--state-bytes", default="14", show_default=True, metavar="N",
    help="Bytes per parameter in a checkpoint, optimizer state included.",
)  # fmt: skip
@_number("--compile", "compile_", default="300", show_default=True, metavar="SECONDS", help="Time for compilation.")
@_number("--tokens", metavar="N", help="Tokens that one rank prepares while the others wait.")
@_number("--token-rate", default="1M", show_default=True, metavar="N", help="Tokens per second on that rank.")
@_number("--measured", metavar="SECONDS", help="The longest such phase that was measured.")
@_number("--factor", default="2", show_default=True, metavar="N", help="Safety factor on the longest phase.")
@click.option(
    "--format", "chosen", type=click.Choice(explain.FORMATS), default="text", show_default=True, help="Output format."
)
@options.language_option
@options.debug_option
def command(chosen: str, lang: str, debug: bool, **given: Any) -> None:
    """Compute a timeout from the model or the collective, and say what sets it, where and in which unit.

    A collective's size almost never explains a timeout; phases in which one rank works alone may need a longer one.
    """
    from nccl_triage.knowledge import timeout_plan

    data = timeout_plan.plan(_model(given), _message(given), given["limit"], given["network"] / 8)
    explain.show([data], chosen, options.language(lang))


def _model(given: dict[str, Any]) -> Assumptions | None:
    from nccl_triage.knowledge.timeouts import Assumptions

    if not (given["parameters"] or given["measured"] or given["tokens"]):
        return None
    return Assumptions(
        parameters=given["parameters"] or 0.0,
        storage=given["storage"],
        network=given["network"] / 8,
        weight_bytes=given["weight_bytes"],
        state_bytes=given["state_bytes"],
        compile=given["compile_"],
        tokens=given["tokens"] or 0.0,
        token_rate=given["token_rate"],
        measured=given["measured"] or 0.0,
        factor=given["factor"],
    )


def _message(given: dict[str, Any]) -> CollectiveTraffic | None:
    """Return the collective that the options name; raises UsageError when they name none that is known."""
    from nccl_triage.knowledge import timeouts

    if given["op"] is None and given["numel"] is None and given["size"] is None:
        return None
    if given["op"] is None or (given["numel"] is None) == (given["size"] is None):
        raise UsageError(
            "a collective needs --op and either --numel or --bytes", remedy="--op ALLREDUCE --numel 8388608"
        )
    kind = given["dtype"].lower().removeprefix("torch.")
    if kind not in timeouts.DTYPE_BYTES:
        raise UsageError(
            "{dtype} is no type that is known", dtype=given["dtype"][:40], names=", ".join(timeouts.DTYPE_BYTES),
            remedy="the types are {names}",
        )  # fmt: skip
    numel = int(given["numel"] if given["numel"] is not None else given["size"] / timeouts.DTYPE_BYTES[kind])
    found = timeouts.message(given["op"], numel, given["world_size"], kind)
    if found is None:
        raise UsageError(
            "{op} with {numel} elements is no collective that is known", op=given["op"][:40], numel=numel,
            names=", ".join(OPERATIONS), remedy="the operations are {names}, and a size below 1e13",
        )  # fmt: skip
    return found
