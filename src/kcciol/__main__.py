"""python -m kcciol"""

import sys

from kcciol.cli import main

sys.exit(main())
