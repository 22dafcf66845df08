"""The options that every job takes, and how options of jobs are read."""

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from app.pipeline.errors import UsageError

LOCAL: Final = "local[*]"
"""The master where none is named."""

PATTERN: Final = re.compile(r"([{}\[\]*?\\])")
"""What Hadoop takes for a pattern of paths. Source: ``GlobPattern``."""

OF_HOUR: Final = "hour-"
"""What the name of a file begins with that has rows of one hour, such as hour-20261120T07-…."""

_MASTER: Final = re.compile(
    r"local(\[([0-9]+|\*)(, *[0-9]+)?\])?|local-cluster\[.+\]|(spark|k8s|sc)://.+|yarn"
)
"""What Spark takes, and the address of a Spark Connect server. Source: ``SparkSubmitArguments``,
``SparkMasterRegex``."""


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add them to a job's parser; a job ignores those that mean nothing to it."""
    group = parser.add_argument_group("common options")
    for name, settings, text in _OPTIONS:
        group.add_argument(name, **settings, help=text)


def _time(text: str) -> datetime:
    """Read RFC 3339, or a date; without an offset it is UTC."""
    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        message = f"{text!r} is not a time such as 2026-11-21T08:00:00Z or 2026-11-21"
        raise argparse.ArgumentTypeError(message) from None


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


_TIME: Final = {"type": _time, "metavar": "TIME"}
_DIR: Final = {"metavar": "DIR"}
_FLAG: Final = {"action": "store_true"}
_REPEATED: Final = {"action": "append"}

_OPTIONS: Final[Sequence[tuple[str, Mapping[str, Any], str]]] = (
    ("--cluster", {"metavar": "ID"}, "id of the cluster; default: that of the input"),
    ("--from", {"dest": "since", **_TIME}, "begin with the hour of this time"),
    ("--to", {"dest": "until", **_TIME}, "leave out hours that begin at this time or later"),
    ("--input", {**_REPEATED, **_DIR}, "what to read; may be repeated"),
    ("--format", {"metavar": "NAME"}, "format of the input"),
    ("--out", _DIR, "where to write a folder of Parquet for each table"),
    (
        "--catalog",
        {"metavar": "NAME"},
        "use tables NAME.<table> of a catalog that --conf sets up, not --out; not for collect",
    ),
    (
        "--pg",
        {"nargs": "?", "const": "", "metavar": "FILE"},
        "publish to the database whose address is in FILE, or in QUOTAS_PIPELINE_DATABASE_URL",
    ),
    (
        "--master",
        {"type": _master},
        f"as of spark-submit, or sc://HOST:PORT of Spark Connect; default: its own, else {LOCAL}",
    ),
    (
        "--conf",
        {**_REPEATED, "type": _setting, "default": [], "metavar": "K=V"},
        "a setting of Spark; may be repeated",
    ),
    ("--dry-run", _FLAG, "print what would be done, and do nothing"),
    ("--explain", _FLAG, "print Spark's plans"),
    ("--json", _FLAG, "print the report as JSON"),
    (
        "--fail-on",
        {**_REPEATED, "choices": ("findings", "dq")},
        "exit with 4 if there are findings, with 3 if a check in dq_result failed",
    ),
    ("--plot", {"type": _folder, **_DIR}, "draw the results here, each picture with its CSV"),
)


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


def number_option(
    least: float, most: float = 2**63 - 1, kind: Callable[[str], float] = float
) -> Callable[[str], float]:
    """Return what reads a number between two others, both included; of ``int`` a whole number."""
    name, form = ("whole number", "d") if kind is int else ("number", "g")

    def read(text: str) -> float:
        with suppress(ValueError):
            number = kind(text)
            if least <= number <= most:
                return number
        message = f"{text!r} is not a {name} from {least:{form}} to {most:{form}}"
        raise argparse.ArgumentTypeError(message)

    return read
