"""``python -m corpus.scenarios``: record what this machine allows (``make corpus``)."""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

from corpus.scenarios import families
from corpus.scenarios.facilities import missing
from corpus.scenarios.recorder import NotProvoked, record
from corpus.scenarios.scenario import Scenario
from corpus.scenarios.store import label, relabel, write

ROOT = Path(__file__).parents[1] / "recorded"


def scenarios() -> list[Scenario]:
    """Return the scenarios of every module in ``families``; raises ValueError when two share an id."""
    found: dict[str, Scenario] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(families.__path__)):
        for scenario in importlib.import_module(f"corpus.scenarios.families.{module}").SCENARIOS:
            if scenario.id in found:
                raise ValueError(f"two scenarios are called {scenario.id}")
            found[scenario.id] = scenario
    return list(found.values())


def _versions(python: Path) -> dict[str, str]:
    code = (
        "import json,platform,importlib.metadata as m\n"
        "names=('torch','ray','deepspeed','numpy','nvidia-nccl-cu12','nvidia-nccl-cu13')\n"
        "found={d.metadata['Name'].lower():d.version for d in m.distributions() if d.metadata['Name']}\n"
        "print(json.dumps({'python':platform.python_version(),**{n:found[n] for n in names if n in found}}))"
    )
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def main(argv: list[str] | None = None) -> int:
    """Record the chosen scenarios; returns 1 when one of them could not be provoked."""
    parser = argparse.ArgumentParser(prog="python -m corpus.scenarios", description=__doc__)
    parser.add_argument("patterns", nargs="*", help="ids to record (globs); all without one")
    parser.add_argument("--list", action="store_true", help="list the scenarios and why some would be skipped")
    parser.add_argument("--new", action="store_true", help="only those that have no recording yet")
    parser.add_argument("--relabel", action="store_true", help="only bring the labels of recordings up to date")
    parser.add_argument("--out", type=Path, default=ROOT, help="folder of the recordings")
    parser.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="interpreter that has torch, ray, ..."
    )
    options = parser.parse_args(argv)
    python = options.python.absolute()
    chosen = [s for s in scenarios() if not options.patterns or any(fnmatch.fnmatch(s.id, p) for p in options.patterns)]
    if options.relabel:
        print(f"{sum(relabel(options.out, scenario) for scenario in chosen)} labels brought up to date")
        return 0
    versions = _versions(python)
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    failed = skipped = made = 0
    for scenario in chosen:
        lacks = [why for need in ("namespaces", *scenario.needs) if (why := missing(need, python)) is not None]
        if options.list:
            print(f"{scenario.id:48} {scenario.cause:32} {'skipped: ' + lacks[0] if lacks else ''}")
            continue
        if options.new and (options.out / "logs" / f"{scenario.id}.log").exists():
            continue
        if lacks:
            skipped += 1
            print(f"{scenario.id:48} skipped: {lacks[0]}", flush=True)
            continue
        try:
            recording = record(scenario, python)
            write(options.out, label(scenario, recording, versions, today), recording)
        except (NotProvoked, ValueError, RuntimeError, LookupError) as error:
            failed += 1
            print(f"{scenario.id:48} FAILED: {error}", flush=True)
            continue
        made += 1
        codes = ",".join(map(str, recording.exit_codes))
        print(f"{scenario.id:48} {recording.seconds:6.1f} s, exit {codes}, {len(recording.combined)} bytes", flush=True)
    print(f"{made} recorded, {skipped} skipped, {failed} failed, {len(chosen)} chosen")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
