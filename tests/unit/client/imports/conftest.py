"""Files of other tools as a test sees them: entities with values, and sentences."""

from pathlib import Path
from typing import NamedTuple

from app.client.imports.formats import read_foreign

P, C, R, I = (  # noqa: E741
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "connection_creation_rate",
)
M = "controller_mutation_rate"


class Imported(NamedTuple):
    """What a file comes to; sentences begin with their line."""

    quotas: list[tuple[object, object]]
    lost: list[str]
    warnings: list[str]
    others: dict[str, int]


def imported(folder: Path, content: str | bytes, source: str | None = None) -> Imported:
    """Import a file with this content."""
    file = folder / "foreign"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    collection = read_foreign(str(file), source)
    return Imported(
        [(quota["entity"], quota["values"]) for quota in collection.quotas()],
        [sentence.removeprefix(f"{file}:") for sentence in collection.lost],
        [sentence.removeprefix(f"{file}:") for sentence in collection.warnings],
        {singular: number for (singular, _), number in collection.others.items()},
    )
