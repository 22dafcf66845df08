"""``--describe``: the entities that match, and their values."""

from typing import Final

from app.client.connection import document
from app.client.context import Context
from app.client.errors import DONE
from app.client.inheritance import inherited_lines
from app.client.rendering import describe_lines
from app.client.selection import filters_of

_MEDIA_TYPES: Final = {"yaml": "application/yaml", "csv": "text/csv"}


def run(context: Context) -> int:
    """Print what is stored; nothing where nothing matches, which is no error."""
    parameters = filters_of(context)
    if context.output in _MEDIA_TYPES:
        accept = _MEDIA_TYPES[context.output]
        context.print_bytes(context.service.get("/quotas", parameters, accept).content)
        return DONE
    quotas = document(context.service.get("/quotas", parameters), "quotas")["quotas"]
    if context.output == "json":
        context.print_json({"quotas": quotas})
    elif context.option("show_overridden"):
        context.print(inherited_lines(context.service, quotas))
    else:
        context.print(describe_lines(quotas))
    return DONE
