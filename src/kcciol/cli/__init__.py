"""The command line: one file for each command. A UserError becomes one sentence and exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

import kcciol
from kcciol.cli.bench import bench
from kcciol.cli.data import data
from kcciol.cli.evaluate import evaluate
from kcciol.cli.listing import list_
from kcciol.cli.quickstart import quickstart
from kcciol.cli.report import report
from kcciol.cli.reproduce import reproduce
from kcciol.cli.terminal import out
from kcciol.cli.train import train
from kcciol.errors import UserError

COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "quickstart": quickstart,
    "data": data,
    "train": train,
    "evaluate": evaluate,
    "list": list_,
    "bench": bench,
    "reproduce": reproduce,
    "report": report,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    # Threads that wait by spinning make a small network fifty times slower as soon as another program wants a core.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        _print_help()
        return 0
    if words[0] == "--version":
        out.print(f"kcciol {kcciol.__version__}")
        return 0
    try:
        if words[0] not in COMMANDS:
            raise UserError(f"There is no command {words[0]!r}; there are: {', '.join(COMMANDS)}.")
        return COMMANDS[words[0]](words[1:]) or 0
    except UserError as error:
        print(f"kcciol: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # a full disk, a file that was taken away: nothing a traceback would help with
        print(f"kcciol: {_words(error)}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate" not in str(error) and "out of memory" not in str(error):
            raise
        print("kcciol: There is not enough memory for this: ask for less (fewer, smaller or shorter).", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("kcciol: interrupted", file=sys.stderr)
        return 130


def _words(error: OSError) -> str:
    """What a system says, as a sentence."""
    if error.strerror is None:
        return str(error)
    if error.filename is None:
        return f"A file could not be written or read ({error.strerror})."
    return f"{error.filename} could not be written or read ({error.strerror})."


def _print_help() -> None:
    out.print(f"kcciol {kcciol.__version__}: learn new classes online, from few examples, without forgetting\n")
    out.print("usage: kcciol COMMAND [options]      (kcciol COMMAND --help explains each)\n")
    for name, function in COMMANDS.items():
        out.print(f"  {name:<11} {(function.__doc__ or '').splitlines()[0]}")
