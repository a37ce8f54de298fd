"""The command kcciol, and python -m kcciol."""

import os
import signal
import sys
from types import FrameType


def main() -> int:
    """Run a command; the exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as in the background
        signal.signal(signal.SIGINT, interrupt)
    from kcciol.cli import main as run  # from here on Ctrl-C is no traceback

    return run()


def interrupt(number: int, frame: FrameType | None) -> None:
    """What Ctrl-C does: as always, but while a module is imported the process ends at once, since some modules take the
    exception for something else, and leave themselves half made."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            os.write(2, b"kcciol: interrupted\n")
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
