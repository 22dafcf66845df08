"""Arrays as Postgres writes them, for parameters of many items: psycopg takes ten times as long."""

from collections.abc import Iterable


def bytes_array(items: Iterable[bytes]) -> str:
    """Return bytes as the text of a ``bytea[]``."""
    return "{" + ",".join(f'"\\\\x{item.hex()}"' for item in items) + "}"


def integer_array(items: Iterable[int]) -> str:
    """Return integers as the text of a ``smallint[]`` or a larger kind."""
    return "{" + ",".join(map(str, items)) + "}"
