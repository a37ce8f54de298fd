"""The command line: one file for each command. A UserError becomes one sentence and exit code 2."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Callable, Sequence

import kcciol
from kcciol.cli.terminal import flags, out, say, with_flags
from kcciol.engine.stop import Stopped
from kcciol.errors import UserError, lacks_memory, visible
from kcciol.plugins import Registry

NARROWEST = 20  # columns of a terminal; what is laid out in fewer goes on for ever


def _require_command(found: object) -> None:
    if not callable(found):
        raise TypeError("it is no function of the words that follow the command")


COMMANDS: Registry[Callable[[Sequence[str]], int]] = Registry(
    "kcciol.commands",
    "command",
    {
        "quickstart": "kcciol.cli.quickstart:quickstart",
        "data": "kcciol.cli.data:data",
        "train": "kcciol.cli.train:train",
        "evaluate": "kcciol.cli.evaluate:evaluate",
        "list": "kcciol.cli.listing:list_",
        "encoders": "kcciol.cli.encoders:encoders",
        "bench": "kcciol.cli.bench:bench",
        "reproduce": "kcciol.cli.reproduce:reproduce",
        "report": "kcciol.cli.report:report",
    },
    _require_command,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    # Threads that wait by spinning make a small network fifty times slower as soon as another program wants a core.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if isinstance(sys.stdout, io.TextIOWrapper):  # there are terminals and pipes that have no "±"
        sys.stdout.reconfigure(errors="backslashreplace")
    if shutil.get_terminal_size().columns < NARROWEST:
        os.environ["COLUMNS"] = str(NARROWEST)
    words = list(sys.argv[1:] if arguments is None else arguments)
    flags.clear()
    try:
        if not words or words[0] in ("-h", "--help", "help"):
            return _print_help()
        if words[0] == "--version":
            out.print(f"kcciol {kcciol.__version__}")
            return 0
        return COMMANDS.find(words[0])(words[1:]) or 0
    except UserError as error:
        say(f"kcciol: {visible(with_flags(str(error)))}")
        return 2
    except Stopped as stopped:
        say(f"kcciol: {stopped}")
        return stopped.exit_code
    except BrokenPipeError:  # the reader of our output has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # a full disk, a file that was taken away: nothing a traceback would help with
        say(f"kcciol: {visible(_words(error))}")
        return 2
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        say("kcciol: There is not enough memory for this: ask for less (fewer, smaller or shorter).")
        return 2
    except KeyboardInterrupt:
        say("kcciol: interrupted")
        return 130


def _words(error: OSError) -> str:
    """What a system says, as a sentence."""
    if error.strerror is None:
        return str(error)
    if error.filename is None:
        return f"A file could not be written or read ({error.strerror})."
    return f"{error.filename} could not be written or read ({error.strerror})."


def _print_help() -> int:
    out.print(f"kcciol {kcciol.__version__}: teach a model new classes online, from few examples each")
    out.print()
    out.print("usage: kcciol COMMAND [options]      (kcciol COMMAND --help explains each)")
    out.print()
    described, wrong = COMMANDS.survey(COMMANDS.describe)
    for name, what in described.items():
        out.print(f"  {name:<11} {what}")
    for sentence in wrong:
        say(f"kcciol: {sentence}")
    return 0
