"""What single options hold, and the option that prints the version."""

import argparse
import math
from typing import Any, Final

_LONGEST_WAIT_S: Final = 86_400


def seconds(text: str) -> float:
    """Read a time to wait, in seconds.

    Raises:
        argparse.ArgumentTypeError: It is not above 0, or over a day.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= _LONGEST_WAIT_S:
        message = f"{text!r} is no number of seconds above 0 and up to {_LONGEST_WAIT_S}"
        raise argparse.ArgumentTypeError(message)
    return number


class PrintVersion(argparse.Action):
    """Prints the version and ends; only then is it looked up, which takes a while."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, nargs=0)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print one line and end with 0."""
        from importlib.metadata import version  # noqa: PLC0415

        print(parser.prog, version("kafka-quota-service"))
        parser.exit()
