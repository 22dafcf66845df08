"""How the command fails, and the exit code that tells a script so."""

from typing import Final

DONE: Final = 0
REFUSED: Final = 1
"""Refused by the service or the broker; or ``plan`` has changes."""
USAGE: Final = 2
NOT_AUTHORIZED: Final = 3
UNKNOWN_OUTCOME: Final = 4
UNREACHABLE: Final = 5
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141


class ClientError(Exception):
    """Ends the command; the message is for people."""

    exit_code = REFUSED


class UsageError(ClientError):
    """The command line, a file or the configuration cannot be read."""

    exit_code = USAGE


class UnreachableError(ClientError):
    """The service, or what it depends on, does not answer; nothing was changed."""

    exit_code = UNREACHABLE


class UnknownOutcomeError(ClientError):
    """Something was sent, and what became of it is unknown."""

    exit_code = UNKNOWN_OUTCOME


class StoppedError(ClientError):
    """Ctrl-C came while a request was in progress; the message says what to do."""

    exit_code = INTERRUPTED
