"""The file of ``--map``, and which column of a tidy file is what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Self

import yaml

from app.pipeline.errors import UsageError
from app.pipeline.options import read_file

COLUMNS: Final = ("ts", "broker_id", "metric", "resource", "user", "client_id", "value")
"""What a tidy row holds; a header of the same name is meant unless the map says otherwise."""

OPTIONAL: Final = "cluster_id"
GRAINS: Final = ("bucket", "pair")


@dataclass(frozen=True, slots=True)
class MetricMap:
    """What the map says.

    Attributes:
        columns: Column to header; null says that the input has no such column.
        instances: The value of a broker or instance label to the broker's id.
        urlencoded: Whether names are tags of metrics, form-encoded or quoted; null leaves it to
            the format.
        grain: ``bucket``: names are tags of metrics; ``pair``: both are real.
    """

    columns: Mapping[str, str | None] = field(default_factory=dict)
    instances: Mapping[str, int] = field(default_factory=dict)
    urlencoded: bool | None = None
    grain: str = "bucket"

    @classmethod
    def load(cls, file: str | None) -> Self:
        """Read the file; without one nothing is mapped.

        Raises:
            UsageError: It is missing, no YAML, or says what nobody reads.
        """
        if file is None:
            return cls()
        try:
            data = yaml.safe_load(read_file("--map", file))
        except yaml.YAMLError as error:
            message = f"--map {file} is not YAML: {error}"
            raise UsageError(message) from error
        return cls.of({} if data is None else data, f"--map {file}")

    @classmethod
    def of(cls, data: Any, where: str = "--map") -> Self:
        """Return the map of a parsed document.

        Raises:
            UsageError: Something in it has the wrong name or type.
        """
        names = [field.name for field in fields(cls)]
        if not isinstance(data, dict) or not data.keys() <= set(names):
            message = f"{where} must be a mapping of {', '.join(names)}; it is {data!r:.200}."
            raise UsageError(message)
        read = cls(**data)
        problem = read._problem()
        if problem:
            message = f"{where}: {problem}"
            raise UsageError(message)
        instances = {str(name): broker_id for name, broker_id in read.instances.items()}
        return replace(read, instances=instances)

    def _problem(self) -> str | None:
        names = (*COLUMNS, OPTIONAL)
        if not isinstance(self.columns, dict) or not all(
            name in names and (header is None or isinstance(header, str))
            for name, header in self.columns.items()
        ):
            return f"`columns` must map some of {', '.join(names)} to a header or null."
        if not isinstance(self.instances, dict) or not all(
            type(broker_id) is int for broker_id in self.instances.values()
        ):
            return "`instances` must map the value of a label to a broker id, a whole number."
        if self.urlencoded not in (True, False, None):
            return "`urlencoded` must be true or false."
        if self.grain not in GRAINS:
            return f"`grain` must be one of {', '.join(GRAINS)}."
        return None


Columns = Mapping[str, str | None]
"""A field of a point (``FIELDS``) to the header of its column; null where there is none."""

FIELDS: Final = (
    *("ts", "value", "cluster_id", "broker_id", "instance", "metric", "resource", "user"),
    "client_id",
)
"""Time and value, then what ``Labels`` holds, in its order."""


def columns_of(headers: Sequence[str], metric_map: MetricMap, where: str) -> Columns:
    """Find the columns of a file.

    Args:
        headers: What the file has.
        metric_map: The map; a column that it does not name has its own name, however it is spelled.
        where: The file, for the message.

    Raises:
        UsageError: A column is missing.
    """
    mapped = metric_map.columns
    names = (*COLUMNS, OPTIONAL)
    found = {name: mapped[name] if name in mapped else _alike(name, headers) for name in names}
    found["instance"] = None
    if found["broker_id"] is None and "broker_id" not in mapped:
        found |= {"broker_id": _alike("broker", headers), "instance": _alike("instance", headers)}
    optional = {OPTIONAL, *mapped}
    if found["broker_id"] or found["instance"]:
        optional.add("broker_id")
    if found["metric"] or found["resource"]:
        optional |= {"metric", "resource"}
    missing = [name for name in COLUMNS if found[name] is None and name not in optional]
    missing += [
        f"{name} (mapped to {header!r})"
        for name, header in found.items()
        if header is not None and header not in headers
    ]
    if missing:
        message = (
            f"{where} has no column {', '.join(missing)}. Its headers are {', '.join(headers)}. "
            "Name the right ones in the file of --map, below `columns`; null where there is none."
        )
        raise UsageError(message)
    return found


def _alike(name: str, headers: Sequence[str]) -> str | None:
    if name in headers:
        return name
    return next((header for header in headers if _plain(header) == _plain(name)), None)


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "").replace("_", "")
