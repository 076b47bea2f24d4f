"""Runs the work of a call in a child process, and ends it when it takes too long or when nobody waits for it any more."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Any

from nccl_triage import interrupts
from nccl_triage.hosts import safe_path
from nccl_triage.mcp_server.access import CallRefusedError

#: Bytes of a result at most.
MOST_BYTES = 128 << 20
#: Seconds that the server waits longer than the child has: for its start, and until its own alarm.
BEYOND = 20.0
#: What the child runs.
_COMMAND = safe_path.command("nccl_triage.mcp_server.work")


class WorkerLimits:
    """How long a call may take, and how many are carried out at a time."""

    def __init__(self, seconds: float, at_once: int = 2) -> None:
        import anyio

        self.seconds = seconds
        self._limiter = anyio.CapacityLimiter(at_once)
        self._running: set[int] = set()

    def end_with_signals(self) -> None:
        """Let a signal end this process and its children at once: a thread that waits for the client ends by nothing else."""
        for number in interrupts.SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._end)

    def _end(self, number: int, frame: object) -> None:
        for child in self._running:
            _kill(child)
        os._exit(interrupts.code_of(interrupts.Ended(number)))

    async def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a request; raises CallRefusedError where there is none."""
        async with self._limiter:
            return await self._run({**request, "seconds": self.seconds})

    async def _run(self, request: dict[str, Any]) -> dict[str, Any]:
        import anyio
        import orjson

        # The child's own session: Ctrl-C does not reach it, and its helpers end with it.
        process = await anyio.open_process(
            _COMMAND, stderr=None, env=safe_path.environment(os.environ), start_new_session=True
        )
        self._running.add(process.pid)
        try:
            with anyio.fail_after(self.seconds + BEYOND):
                assert process.stdin is not None
                with suppress(anyio.BrokenResourceError):  # it ended before: its exit says so
                    await process.stdin.send(orjson.dumps(request))
                await process.stdin.aclose()
                data = await self._output(process.stdout)
                code = await process.wait()
        except TimeoutError:
            raise CallRefusedError(self._too_long()) from None
        finally:
            self._running.discard(process.pid)
            if process.returncode != 0:
                _kill(process.pid)
            with anyio.CancelScope(shield=True):
                await process.aclose()
        if code != 0 or not data:
            raise CallRefusedError(self._too_long() if code < 0 or code == 70 else "nccl-triage failed on this input")
        result: dict[str, Any] = orjson.loads(data)
        if "error" in result:
            raise CallRefusedError(result["error"])
        return result

    def _too_long(self) -> str:
        return (
            f"this took longer than {self.seconds:g} seconds and was ended; name fewer or smaller logs, or ask the "
            "person to run nccl-triage on the command line"
        )

    async def _output(self, stream: Any) -> bytes:
        parts, size = [], 0
        async for part in stream:
            size += len(part)
            if size > MOST_BYTES:
                raise CallRefusedError("the result is too large; name fewer logs")
            parts.append(part)
        return b"".join(parts)


def _kill(child: int) -> None:
    """Kill a child with its helpers."""
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
