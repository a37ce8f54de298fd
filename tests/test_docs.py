"""The numbers in the docs are those in results/."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_tables_are_up_to_date() -> None:
    words = [sys.executable, str(ROOT / "benchmarks" / "readme_table.py"), "--check"]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_links_lead_somewhere() -> None:
    for name in ("README.md", "docs/protocol.md", "docs/architecture.md"):
        path = ROOT / name
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
            assert target.startswith("https://") or (path.parent / target).exists(), f"{name}: {target}"
