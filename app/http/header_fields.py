"""Header fields that may stand on several lines. Source: RFC 9110 5.3."""

from starlette.datastructures import Headers


def list_field(headers: Headers, name: str) -> str | None:
    """Return a field whose value is a list, its lines joined with commas; null if it is absent."""
    lines = headers.getlist(name)
    return ", ".join(lines) if lines else None
