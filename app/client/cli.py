"""``kafka-client-quotas``: its streams, its exit codes, and which command runs."""

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Final

from app.client.arguments import function_of, parser
from app.client.errors import DONE, INTERRUPTED, USAGE, ClientError, UsageError
from app.client.output import PROGRAM, Context
from app.client.problems import ServiceError, explain
from app.command_line import complain, redact, run_to_the_end
from app.domain.entities import visible


def prepare() -> None:
    """Make both streams take whatever is written.

    What the terminal's encoding lacks is written as an escape that ``--names`` reads. Where
    the caller has closed a stream, nobody reads it, and the command still does its work.
    """
    sys.stdout = sys.stdout or _nobody()
    sys.stderr = sys.stderr or _nobody()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _nobody() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.FileIO(os.open(os.devnull, os.O_WRONLY), "w"), encoding="utf-8")


_BELONGS_TO: Final = {
    **dict.fromkeys(("prefix", "search", "filter", "strict", "owner"), ("describe",)),
    **dict.fromkeys(
        (
            "add",
            "add_config_file",
            "delete",
            "validate_only",
            "reason",
            "expires_in",
            "expires_at",
            "yes",
            "idempotency_key",
        ),
        ("alter",),
    ),
    "show_overridden": ("describe", "resolve"),
}
"""By an option: the operations that take it."""

_OF_ALL: Final = ("describe", "resolve", "alter")

_FLAGS: Final = {"expires_in": "--for", "expires_at": "--until"}
"""Of options that have another name than their flag."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    Returns:
        0 done; 1 refused, or ``plan`` has changes; 2 usage, or the output cannot be written; 3 not
        authorized; 4 unknown outcome; 5 unreachable; 130 after Ctrl-C; 141 where the reader of the
        output went away.
    """
    words = tuple(sys.argv[1:] if argv is None else argv)
    prepare()
    return run_to_the_end(PROGRAM, partial(_main, words), unwritable=USAGE)


def _main(words: tuple[str, ...]) -> int:
    context = Context(argparse.Namespace(), words)
    try:
        return _run(words, context)
    except SystemExit:  # argparse, after --help or --version
        return DONE
    except ClientError as error:
        # What argparse refuses has no options yet.
        typed = {"--output=json", ("--output", "json")} & {*words, *pairwise(words)}
        if context.output == "json" or typed:
            _say_json(error)
        else:
            _say(*_lines(error))
        return error.exit_code
    except KeyboardInterrupt:
        _say("stopped; this command was not altering anything.")
        return INTERRUPTED


def _run(words: tuple[str, ...], context: Context) -> int:
    if any("\udc80" <= character <= "\udcff" for word in words for character in word):
        raise UsageError("An argument is not UTF-8.")
    options = context.options = parser(words).parse_args(words)
    try:
        run = function_of(options)
        _refuse_misplaced(options)
        code = _understanding(run, context)
        sys.stdout.flush()
        return code
    finally:
        context.close()


def _refuse_misplaced(options: argparse.Namespace) -> None:
    """Refuse options of another operation, which stand in the help of all three."""
    operation = options.operation or options.subcommand
    for name, operations in _BELONGS_TO.items():
        if getattr(options, name, None) and operation in _OF_ALL and operation not in operations:
            flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
            word = operation if options.operation is None else f"--{operation}"
            raise UsageError(f"{flag} does not belong to {word}.")


def _understanding(run: Callable[[Context], int], context: Context) -> int:
    """Run a command; where the service has answered, what cannot be read is its answer."""
    try:
        return run(context)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        if "service" not in context.__dict__:
            raise
        from app.client.http import odd_answer  # noqa: PLC0415 - slow to import

        raise odd_answer(context.service, error) from error


def _lines(error: ClientError) -> Sequence[str]:
    return explain(error) if isinstance(error, ServiceError) else redact(str(error)).splitlines()


def _say_json(error: ClientError) -> None:
    if isinstance(error, ServiceError):
        problem = {**error.problem, "location": error.location}
    else:
        problem = {"title": redact(str(error)), "code": error.code}
    sys.stdout.flush()
    complain(json.dumps(problem, indent=2))


def _say(*lines: str) -> None:
    sys.stdout.flush()
    for at, line in enumerate(lines):
        complain(f"{'' if at else f'{PROGRAM}: '}{visible(line)}")


if __name__ == "__main__":
    sys.exit(main())
