"""Parsers of our commands, errors in which no secret is repeated, output that nobody takes.

A value may be a password that was typed into the wrong option, or into one that does not exist. So
what argparse finds is printed without the values; what a command finds later, without credentials
in addresses and without the values of what is called a secret.
"""

import argparse
import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Final, NoReturn, TextIO

HIDDEN: Final = "…"

_USERINFO: Final = re.compile(r"(?<=://)[^/?#\s'\"]*@")
_SECRET: Final = re.compile(
    r"((?:pass(?:word|wd|phrase)?|pwd|secret|token|credential|signature|(?:access|private|api)[._-]?key)"
    r"[\w.-]*\s*=\s*)[^\s,;&'\"\])}]+",
    re.IGNORECASE,
)
_BARE_FROM: Final = 4
"""Shorter values are hidden only where they are quoted: else they would be found in any word."""

_USAGE: Final = 2
_UNRECOGNIZED: Final = "unrecognized arguments: "
_CHOICE: Final = re.compile(r"invalid choice: '([^']+)' \(choose from (.+)\)")
_WORD: Final = re.compile(r"[\w-]+")


def redact(text: str) -> str:
    """Return a text without the credentials of addresses and of ``password=…`` and the like."""
    return _SECRET.sub(rf"\1{HIDDEN}", _USERINFO.sub(f"{HIDDEN}@", text))


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return `` Did you mean …?`` where a word is close to one that there is."""
    return "".join(f" Did you mean {near}?" for near in get_close_matches(word, [*words], 1, 0.7))


def without_values(message: str, words: Sequence[str]) -> str:
    """Return what argparse says of some words, without the values among them."""
    head, mark, unknown = message.partition(_UNRECOGNIZED)
    if mark:
        options = [word.partition("=")[0] for word in unknown.split() if word[:1] == "-"]
        message = f"{head}{mark}{' '.join(options) or HIDDEN}"
    for value in sorted(_values(words), key=len, reverse=True):
        message = message.replace(repr(value), HIDDEN)
        if len(value) >= _BARE_FROM:
            message = re.sub(rf"(?<![\w-]){re.escape(value)}(?![\w-])", HIDDEN, message)
    return message


def _values(words: Sequence[str]) -> Iterator[str]:
    for word in words:
        value = word.partition("=")[2] if word[:1] == "-" else word
        if value:
            yield value


class CommandParser(argparse.ArgumentParser):
    """Says what is wrong with a command line without repeating a value of it."""

    words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; remember what was typed."""
        self.words = tuple(args or ())
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, and what was probably meant; end with exit code 2."""
        text = redact(without_values(message, self.words)).removesuffix(".")
        choice = _CHOICE.search(message)
        meant = did_you_mean(choice[1], _WORD.findall(choice[2])) if choice else ""
        hint = meant or f" `{self.prog} --help` lists what it takes."
        self.exit(_USAGE, f"{self.prog}: {text}.{hint}\n")


BROKEN_PIPE: Final = 141
_UNWRITABLE: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EBADF}
)


def run_to_the_end(program: str, run: Callable[[], int], *, unwritable: int) -> int:
    """Run a command until all that it prints is written, and return its exit code.

    Args:
        program: Whose output it is.
        run: Returns the exit code.
        unwritable: The exit code where the output cannot be written, as on a full disk.

    Returns:
        141 where the reader of the output went away.
    """
    try:
        try:
            return run()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        drop(sys.stdout)
        return BROKEN_PIPE
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        drop(sys.stdout)
        target = error.filename or "The output"
        line = f"{target} cannot be written: {error.strerror}. What was asked for may be done."
        complain(f"{program}: {line}")
        return unwritable


def complain(text: str) -> None:
    """Print on standard error; where that cannot be written either, the exit code says it alone."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        drop(sys.stderr)


def drop(stream: TextIO) -> None:
    """Drop what is still in the buffer, or the interpreter would complain of it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
