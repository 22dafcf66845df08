"""The runs of the pipeline that may be asked for over HTTP: which jobs, with which options.

The service refuses anything else when a run is queued, and the worker again when it is started.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

from app.domain.errors import Violation, pointer_token

OptionValue = str | int | tuple[str, ...]
"""As a caller gives it: a text, a whole number, or several texts."""

MAX_TEXT: Final = 1024
"""Characters of a text."""


class OptionKind(StrEnum):
    """What an option holds."""

    FOLDER = "folder"
    TEXT = "text"
    TIME = "time"
    NUMBER = "number"
    WORD = "word"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionRule:
    """One option of a job.

    Attributes:
        kind: A FOLDER lies below the worker's own; a TIME is RFC 3339 or a date.
        repeats: Whether it may have several values.
        words: The values of a WORD.
        maximum: The largest NUMBER; the smallest is 1.
    """

    kind: OptionKind
    description: str
    repeats: bool = False
    words: tuple[str, ...] = ()
    maximum: int = 0


_COMMON: Final[Mapping[str, OptionRule]] = {
    "input": OptionRule(
        kind=OptionKind.FOLDER,
        description="What to read, below the worker's data folder; default that folder.",
        repeats=True,
    ),
    "out": OptionRule(
        kind=OptionKind.FOLDER,
        description="Where the tables are written, below the data folder; default that folder.",
    ),
    "cluster": OptionRule(kind=OptionKind.TEXT, description="Cluster id; default the input's."),
    "from": OptionRule(kind=OptionKind.TIME, description="Leave out what is earlier."),
    "to": OptionRule(kind=OptionKind.TIME, description="Leave out this time and later."),
}
# Topics are no folders below the worker's own: who may call the service may not name brokers to it.
_READING: Final[Mapping[str, OptionRule]] = {
    "format": OptionRule(
        kind=OptionKind.WORD,
        description="Of the input.",
        words=("parquet", "prom-json", "vm-jsonl", "csv", "adapter-json", "collect"),
    ),
    "map": OptionRule(
        kind=OptionKind.FOLDER, description="The YAML file of names, below the data folder."
    ),
}
_RESOLVING: Final[Mapping[str, OptionRule]] = {
    "quotas": OptionRule(
        kind=OptionKind.FOLDER,
        description="Holds `quota_version`, below the data folder; default that folder.",
    ),
    "as-of": OptionRule(
        kind=OptionKind.WORD,
        description="Which quotas: the latest, or those that held at the time.",
        words=("latest", "history"),
    ),
}
_JOINING: Final[Mapping[str, OptionRule]] = {
    "gap": OptionRule(
        kind=OptionKind.NUMBER,
        description="Minutes between the starts that one incident joins.",
        maximum=1440,
    )
}

RUNNABLE: Final[Mapping[str, Mapping[str, OptionRule]]] = MappingProxyType(
    {
        "ingest": {**_COMMON, **_READING},
        "resolve": {**_COMMON, **_RESOLVING},
        "utilization": _COMMON,
        "incidents": {**_COMMON, **_JOINING},
        "run": {**_COMMON, **_READING, **_RESOLVING, **_JOINING},
    }
)
"""Each job with its options, named as on the command line."""

PUBLISHING: Final = frozenset({"resolve", "utilization", "incidents", "run"})
"""The jobs whose tables the service serves."""


def run_violations(job: str, options: Mapping[str, OptionValue]) -> list[Violation]:
    """Return every broken rule of a run that is asked for; pointers are those of its body."""
    rules = RUNNABLE.get(job)
    if rules is None:
        detail = f"{job[:80]!r} is unknown; job is one of {', '.join(RUNNABLE)}."
        return [Violation("/job", "unknown-word", detail)]
    return [
        violation
        for name, value in options.items()
        for violation in _violations(rules, name, value)
    ]


def inside(path: str) -> bool:
    """Tell whether a path stays where it begins: it is relative and never goes up."""
    pure = PurePosixPath(path)
    return "\0" not in path and not pure.is_absolute() and ".." not in pure.parts


def _violations(
    rules: Mapping[str, OptionRule], name: str, value: OptionValue
) -> Iterator[Violation]:
    pointer = f"/options/{pointer_token(name[:80])}"
    rule = rules.get(name)
    if rule is None:
        detail = f"The job has no option {name[:80]!r}; it has {', '.join(rules)}."
        yield Violation(pointer, "unknown-option", detail)
        return
    for text in _problems(rule, name, value):
        yield Violation(pointer, "bad-option", text)


def _problems(rule: OptionRule, name: str, value: OptionValue) -> Iterator[str]:
    if rule.kind is OptionKind.NUMBER:
        if not isinstance(value, int) or not 1 <= value <= rule.maximum:
            yield f"{name} must be a whole number from 1 to {rule.maximum}."
        return
    texts: Sequence[str | int] = value if isinstance(value, tuple) else (value,)
    if isinstance(value, tuple) and not (rule.repeats and value):
        yield f"{name} must be one text."
        return
    for text in texts:
        if not isinstance(text, str) or not 0 < len(text) <= MAX_TEXT:
            yield f"{name} must be a text of 1 to {MAX_TEXT} characters."
        else:
            yield from _problems_with(rule, name, text)


def _problems_with(rule: OptionRule, name: str, text: str) -> Iterator[str]:
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        yield f"{name} must be Unicode text without U+0000."
    elif rule.kind is OptionKind.WORD and text not in rule.words:
        yield f"{text[:80]!r} is unknown; {name} is one of {', '.join(rule.words)}."
    elif rule.kind is OptionKind.FOLDER and not inside(text):
        yield f"{name} must be a path below the worker's data folder: relative, without `..`."
    elif rule.kind is OptionKind.TIME and not _is_time(text):
        yield f"{name} must be a time such as 2026-11-21T08:00:00Z, or a date."


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
