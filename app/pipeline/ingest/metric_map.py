"""The file of ``--map``: how an input's columns and labels are to be read."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import yaml

from app.pipeline.errors import UsageError

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
            data = yaml.safe_load(Path(file).read_text())
        except (OSError, UnicodeDecodeError) as error:
            message = f"--map {file} cannot be read: {error}."
            raise UsageError(message) from error
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
        values: dict[str, Any] = {
            "columns": {},
            "instances": {},
            "urlencoded": None,
            "grain": "bucket",
        }
        if not isinstance(data, dict) or not data.keys() <= values.keys():
            message = f"{where} must be a mapping of {', '.join(values)}; it is {data!r:.200}."
            raise UsageError(message)
        values.update(data)
        problem = _problem(values)
        if problem:
            message = f"{where}: {problem}"
            raise UsageError(message)
        instances = {str(name): instance for name, instance in values["instances"].items()}
        return cls(**{**values, "instances": instances})

    def as_json(self) -> Mapping[str, Any]:
        """Return what ``of`` reads."""
        return asdict(self)


def _problem(data: Mapping[str, Any]) -> str | None:
    columns, instances = data["columns"], data["instances"]
    fields = (*COLUMNS, OPTIONAL)
    if not isinstance(columns, dict) or not all(
        name in fields and (header is None or isinstance(header, str))
        for name, header in columns.items()
    ):
        return f"`columns` must map some of {', '.join(fields)} to a header or null."
    if not isinstance(instances, dict) or not all(
        type(instance) is int for instance in instances.values()
    ):
        return "`instances` must map the value of a label to a broker id, a whole number."
    if data["urlencoded"] not in (True, False, None):
        return "`urlencoded` must be true or false."
    if data["grain"] not in GRAINS:
        return f"`grain` must be one of {', '.join(GRAINS)}."
    return None
