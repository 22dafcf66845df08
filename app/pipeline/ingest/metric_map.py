"""What ``--map`` says."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Self

from app.domain.metric_labels import (
    BROKER,
    CLIENT_ID,
    CLUSTER,
    METRIC,
    RESOURCE,
    USER,
)
from app.pipeline.errors import UsageError

COLUMNS: Final = ("ts", "broker_id", "metric", "resource", "user", "client_id", "value")
"""What a tidy row holds; a header of the same name is meant unless the map says otherwise."""

OPTIONAL: Final = "cluster_id"

LABELS: Final[Mapping[str, str]] = {
    "metric": METRIC,
    "resource": RESOURCE,
    "user": USER,
    "client_id": CLIENT_ID,
    "broker_id": BROKER,
    OPTIONAL: CLUSTER,
}
"""A column to what its header, or the label of a series, says."""

GRAINS: Final = ("bucket", "pair")


@dataclass(frozen=True, slots=True)
class MetricMap:
    """What the map says.

    Attributes:
        columns: Column to header, or to the label of series in JSON; null says that the input has
            no such column.
        instances: The value of a broker or instance label to the broker's id.
        none: Values of ``user``, ``client_id``, ``resource`` and ``cluster_id`` that stand for
            none, before they are decoded.
        urlencoded: Whether names are tags of metrics, form-encoded or quoted; null leaves it to
            the format.
        grain: ``bucket``: names are tags of metrics; ``pair``: both are real.
    """

    columns: Mapping[str, str | None] = field(default_factory=dict)
    instances: Mapping[str, int] = field(default_factory=dict)
    urlencoded: bool | None = None
    grain: str = "bucket"
    none: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: Any, where: str = "--map") -> Self:
        """Return the map of a parsed document.

        Raises:
            UsageError: Something in it has the wrong name or type.
        """
        names = [field.name for field in fields(cls)]
        if not isinstance(data, dict) or not data.keys() <= set(names):
            message = f"{where} must be a mapping of {', '.join(names)}, and of nothing else."
            raise UsageError(message)
        read = cls(**data)
        problem = read._problem()
        if problem:
            message = f"{where}: {problem}"
            raise UsageError(message)
        instances = {str(name): broker_id for name, broker_id in read.instances.items()}
        return replace(read, instances=instances, none=tuple(read.none))

    def require_labels(self, kind: str) -> None:
        """Refuse what has no meaning where points are series with labels, in JSON.

        Raises:
            UsageError: ``columns`` names the time or the value, which are no labels there.
        """
        unnamed = [name for name in self.columns if name not in LABELS]
        if unnamed:
            message = (
                f"--map: `columns` cannot name {' and '.join(unnamed)} with --format {kind}, whose "
                f"times and values are not labels; it may name {', '.join(LABELS)}."
            )
            raise UsageError(message)

    def _problem(self) -> str | None:
        names = (*COLUMNS, OPTIONAL)
        are_columns = isinstance(self.columns, dict) and all(
            name in names and (header is None or isinstance(header, str))
            for name, header in self.columns.items()
        )
        are_ids = isinstance(self.instances, dict) and all(
            type(broker_id) is int for broker_id in self.instances.values()
        )
        are_texts = isinstance(self.none, list | tuple) and all(
            isinstance(value, str) for value in self.none
        )
        claims = {
            f"`columns` must map some of {', '.join(names)} to a header or null.": are_columns,
            "`instances` must map the value of a label to a broker id, a whole number.": are_ids,
            "`urlencoded` must be true or false.": self.urlencoded in (True, False, None),
            f"`grain` must be one of {', '.join(GRAINS)}.": self.grain in GRAINS,
            '`none` must list the texts that stand for no name, such as "" or unknown.': are_texts,
        }
        return next((sentence for sentence, is_so in claims.items() if not is_so), None)
