"""Standard output and error, which may be closed, full, or of a small character set."""

import io
import os
import sys


def prepare() -> None:
    """Make both streams take whatever is written.

    What the terminal's encoding lacks is shown as an escape that ``--names`` reads. A stream that
    the caller closed is one that nobody reads: what the command does is not lost with it.
    """
    if sys.stdout is None:
        sys.stdout = _nobody()
    if sys.stderr is None:
        sys.stderr = _nobody()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _nobody() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.FileIO(os.open(os.devnull, os.O_WRONLY), "w"), encoding="utf-8")


def drop_output() -> None:
    """Drop what is still in the buffer, or the interpreter would complain of it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
