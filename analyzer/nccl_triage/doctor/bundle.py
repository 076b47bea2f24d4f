"""The probes as one archive that any Python runs, for machines that have no nccl-triage."""

from __future__ import annotations

import importlib.resources
import io
import zipfile

from nccl_triage import archives

_MAIN = "import sys\nfrom nccl_triage.doctor.collect import main\nsys.exit(main())\n"


def program() -> bytes:
    """Return the archive: ``python ARCHIVE WISH`` prints what its host shows as JSON."""
    made = io.BytesIO()
    root = importlib.resources.files("nccl_triage")
    with zipfile.ZipFile(made, "w") as archive:
        archives.add_text(archive, "__main__.py", _MAIN)
        archives.add_sources(archive, root, "nccl_triage")
        archives.add_sources(archive, root / "doctor", "nccl_triage/doctor", below=True)
        archives.add_sources(archive, root / "verify", "nccl_triage/verify")
        archives.add_sources(archive, root / "verify" / "worker", "nccl_triage/verify/worker")
    return made.getvalue()
