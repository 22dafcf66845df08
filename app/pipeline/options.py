"""The options that every job takes."""

import argparse
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from app.pipeline.errors import UsageError
from app.pipeline.spark import LOCAL

_MASTER: Final = re.compile(
    r"local(\[([0-9]+|\*)(, *[0-9]+)?\])?|local-cluster\[.+\]|(spark|k8s|sc)://.+|yarn"
)
"""What Spark takes, and the address of a Spark Connect server. Source: ``SparkSubmitArguments``,
``SparkMasterRegex``."""


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add them to a job's parser; a job ignores those that mean nothing to it."""
    group = parser.add_argument_group("common options")
    group.add_argument("--cluster", metavar="ID", help="cluster id; default the input's")
    group.add_argument(
        "--from", dest="since", type=_time, metavar="TIME", help="begin with the hour of this time"
    )
    group.add_argument(
        "--to",
        dest="until",
        type=_time,
        metavar="TIME",
        help="leave out hours that begin then or later",
    )
    group.add_argument(
        "--input", action="append", metavar="DIR", help="what to read; may be repeated"
    )
    group.add_argument("--format", metavar="NAME", help="of the input")
    group.add_argument("--out", metavar="DIR", help="one folder of Parquet for each table")
    group.add_argument(
        "--catalog",
        metavar="NAME",
        help="all but collect: tables are NAME.<table> of a catalog that "
        "--conf sets up, instead of --out",
    )
    group.add_argument(
        "--pg",
        nargs="?",
        const="",
        metavar="FILE",
        help="publish to the database whose address the file holds, or "
        "QUOTAS_PIPELINE_DATABASE_URL",
    )
    group.add_argument(
        "--master",
        type=_master,
        help="as of spark-submit, whose own is the default, or sc://HOST:PORT of Spark Connect; "
        f"else {LOCAL}",
    )
    group.add_argument(
        "--conf", action="append", type=_setting, default=[], metavar="K=V", help="of Spark"
    )
    group.add_argument("--dry-run", action="store_true", help="say what would be done")
    group.add_argument("--explain", action="store_true", help="print Spark's plans")
    group.add_argument("--json", action="store_true", help="report as JSON")
    group.add_argument(
        "--fail-on",
        action="append",
        choices=("findings", "dq"),
        help="exit with 4 where there are findings, with 3 where a check of dq_result failed",
    )
    group.add_argument(
        "--plot", type=_folder, metavar="DIR", help="pictures of the results, with their CSV"
    )


def _time(text: str) -> datetime:
    """Read RFC 3339, or a date; without an offset it is UTC."""
    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        message = f"{text!r} is not a time such as 2026-11-21T08:00:00Z or 2026-11-21"
        raise argparse.ArgumentTypeError(message) from None


PATTERN: Final = re.compile(r"([{}\[\]*?\\])")
"""What Hadoop takes for a pattern of paths. Source: ``GlobPattern``."""


OF_HOUR: Final = "hour-"
"""What the name of a file begins with that has rows of one hour, such as hour-20261120T07-…."""


def local_folder(uri: str) -> Path:
    """Return the folder of this machine that a path or ``file:`` URI names.

    Raises:
        UsageError: It names something else.
    """
    scheme, colon, rest = uri.partition("://")
    if not colon:
        return Path(uri.removeprefix("file:")).absolute()
    if scheme != "file":
        message = f"{uri} must be a folder of this machine: mount it."
        raise UsageError(message)
    return Path(unquote(rest)).absolute()


def _folder(text: str) -> Path:
    try:
        return local_folder(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _master(text: str) -> str:
    if not _MASTER.fullmatch(text):
        message = (
            f"{text!r} is not local, local[N], local[*], spark://HOST:PORT, yarn, k8s://URL or "
            "sc://HOST:PORT"
        )
        raise argparse.ArgumentTypeError(message)
    return text


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        message = f"{text!r} is not NAME=VALUE"
        raise argparse.ArgumentTypeError(message)
    return name, value


def read_file(option: str, file: str) -> str:
    """Return the text of the file that an option names.

    Raises:
        UsageError: It cannot be read.
    """
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        message = f"The file of {option} cannot be read: {reason}."
        raise UsageError(message) from error


def whole_number(text: str, least: int, most: int = 2**63 - 1) -> int:
    """Read a whole number between two others, both included.

    Raises:
        argparse.ArgumentTypeError: It is none, or less or more than it may be.
    """
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        message = f"{text!r} is not a whole number from {least} to {most}"
        raise argparse.ArgumentTypeError(message)
    return number


def number_option(least: float, most: float) -> Callable[[str], float]:
    """Return what reads a number between two others, both included."""

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not least <= number <= most:
            message = f"{text!r} is not a number from {least:g} to {most:g}"
            raise argparse.ArgumentTypeError(message)
        return number

    return read
