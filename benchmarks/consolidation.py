"""What consolidation is worth, on Omniglot and CIFAR-100 at a small size: docs/consolidation.md.

    python benchmarks/consolidation.py --out runs/consolidation --jobs 2      # hours on two CPU cores; again to go on
    python benchmarks/consolidation.py --only encoders-characters encoders-small-images --jobs 2      # a part of it
    python benchmarks/consolidation.py --pack FOLDER                          # the images that it needs, for a machine
    KCCIOL_DATA=FOLDER python benchmarks/consolidation.py --out DIR --jobs 12 # that has no data sets

Needs torch, numpy, pillow and safetensors only. OUT/consolidation.json is written whenever a part is done.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kcciol.errors import UserError
from kcciol.paper.consolidation.encoder_plan import ENCODERS
from kcciol.paper.consolidation.plan import SETTINGS, Setting
from kcciol.paper.consolidation.runner import Wanted, make
from kcciol.paper.consolidation.sets import pack

EVERY: dict[str, Setting] = {**SETTINGS, **ENCODERS}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/consolidation"), help="the folder for runs and results")
    parser.add_argument("--only", nargs="+", default=(), choices=list(EVERY), help="data sets, or encoders")
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2))
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="when to stop; run again to go on")
    parser.add_argument("--pack", type=Path, help="write the images that are needed into this folder, and nothing else")
    words = parser.parse_args()
    try:
        if words.pack:
            for name in words.only or SETTINGS:
                if name not in SETTINGS:
                    raise UserError(f"The images of {name} cannot be packed, but only those of {', '.join(SETTINGS)}.")
                print(pack(SETTINGS[name], words.pack))
            return 0
        settings = tuple(EVERY[name] for name in words.only or EVERY)
        wanted = Wanted(words.out, settings, tuple(words.seeds), words.device, words.jobs, words.seconds)
        return 0 if make(wanted) else 1
    except UserError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
