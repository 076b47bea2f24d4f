"""What a verdict must not wait for."""

from __future__ import annotations

import os
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
    program = f"from nccl_triage import diagnose\ndiagnose({str(LOG)!r}).to_dict()"
    _modules(program)  # the first one compiles the rules and keeps them, by way of a temporary file
    loaded = _modules(program)
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


_SECOND_RUN = """
import ast, re, sys
from nccl_triage import lazy_regex
from nccl_triage.engine.expression import Expression
made, parsed = [], []
row, parse = lazy_regex._row, ast.parse
lazy_regex._row = lambda *words: made.append(words) or row(*words)
ast.parse = lambda *words, **named: parsed.append(words) or parse(*words, **named)
sys.argv[1:] = [LOG]
from nccl_triage.__main__ import run
try:
    run()
except SystemExit:
    pass
print("counted", len(made), len(parsed))
"""


def test_a_second_run_compiles_no_pattern_and_parses_few_conditions(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "analyzer"), "NCCL_TRIAGE_CACHE": str(tmp_path)}
    program = _SECOND_RUN.replace("LOG", repr(str(LOG)))
    counts = []
    for _ in range(2):
        result = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120, env=environment
        )
        counts.append([int(word) for word in result.stdout.splitlines()[-1].split()[1:]])
    (first, every), (second, few) = counts
    assert first > 100
    assert second == 0
    assert few < every / 2
