"""Run the tests that need a GPU, and keep what came of them with the versions and the hardware.

    python benchmarks/cuda_tests.py --out results/cuda-tests.json

Exit code 1 when one fails, or when there is no GPU: a run in which all are skipped says nothing.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
import tyro

from kcciol.engine.record import record
from kcciol.files import require_json, write_json


@dataclass(frozen=True)
class Options:
    out: Path = Path("results/cuda-tests.json")
    """The file to write."""
    tests: Path = Path("tests")
    """Where the tests lie."""
    processes: int = 1
    """How many processes share the GPU."""


def main(options: Options) -> int:
    if not torch.cuda.is_available():
        print("There is no GPU here.", file=sys.stderr)
        return 1
    require_json(options.out)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tests.xml"
        words = ["-q", "-m", "cuda", "-p", "no:cacheprovider", f"--junit-xml={path}", str(options.tests)]
        words += ["--numprocesses", str(options.processes)] if options.processes > 1 else []
        code = pytest.main(words)
        found = outcomes(path)
    seconds = time.monotonic() - began
    write_json(options.out, {**found, "seconds": seconds, "record": record()})
    return int(code)


def outcomes(path: Path) -> dict[str, list[str] | dict[str, str]]:
    """Names of tests that passed and failed, and why others were skipped."""
    passed, failed, skipped = [], [], {}
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        if (why := case.find("skipped")) is not None:
            skipped[name] = str(why.get("message"))
        elif case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        else:
            passed.append(name)
    return {"passed": passed, "failed": failed, "skipped": skipped}


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
