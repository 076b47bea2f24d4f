"""What a verdict must not wait for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOG = ROOT / "corpus" / "written" / "logs" / "S004-openrlhf-batch-size.log"


def _modules(code: str) -> set[str]:
    program = f"import sys\nsys.path.insert(0, {str(ROOT / 'analyzer')!r})\n{code}\nprint('\\n'.join(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return {name.split(".")[0] for name in result.stdout.split()}


def test_a_diagnosis_imports_nothing_heavy() -> None:
    loaded = _modules(f"from nccl_triage import diagnose\ndiagnose({str(LOG)!r}).to_dict()")
    assert not loaded & {"torch", "sklearn", "numpy", "ray", "scipy", "pandas", "jinja2", "regex"}
    assert not loaded & {"statistics", "random", "fractions", "difflib"}


def test_help_imports_no_rules_and_no_parsers() -> None:
    program = (
        "import sys\n"
        f"sys.path.insert(0, {str(ROOT / 'analyzer')!r})\n"
        "from nccl_triage.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print('\\n'.join(m for m in sys.modules if m.startswith(('nccl_triage', 'yaml', 'orjson', 'hyperscan'))))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(result.stdout.split())
    assert not {
        m for m in loaded if m.startswith(("yaml", "orjson", "hyperscan", "nccl_triage.engine", "nccl_triage.scan"))
    }
