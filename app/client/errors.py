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


class ClientError(Exception):
    """Ends the command; the message is for people, the code for scripts."""

    exit_code = REFUSED
    code = "refused"


class UsageError(ClientError):
    """The command line, a file or the configuration cannot be read; raised by all that read."""

    exit_code = USAGE
    code = "usage"


class UnreachableError(ClientError):
    """The service, or what it depends on, does not answer; nothing was changed."""

    exit_code = UNREACHABLE
    code = "unreachable"


class UnknownOutcomeError(ClientError):
    """Something was sent, and what became of it is unknown."""

    exit_code = UNKNOWN_OUTCOME
    code = "outcome-unknown"


class StoppedError(ClientError):
    """Ctrl-C came while a request was in progress; the message says what to do."""

    exit_code = INTERRUPTED
    code = "stopped"


def reason(error: Exception) -> str:
    """Return what went wrong, without the number of an error of the operating system."""
    return getattr(error, "strerror", None) or str(error)
