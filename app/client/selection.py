"""From the options that name entities to filters of ``GET /quotas``, and to one entity."""

from typing import Any, Final

from app.client.context import Context
from app.client.entities import DEFAULT, entity_of, read_name, read_names, read_types
from app.client.errors import UsageError

_LOOKS_LIKE_DEFAULT: Final = (
    f"Note: the name {DEFAULT} is an ordinary name here; the default entity is --defaults TYPE. "
    f"Write \\{DEFAULT} if the name is meant."
)


def names_of(context: Context) -> list[tuple[str, str]]:
    """Return the pairs of ``--names`` and ``--name``."""
    texts = context.option("names", [])
    pairs = [pair for text in texts for pair in read_names(text, "--names")]
    if any(f"={DEFAULT}" in text for text in texts):
        context.note(_LOOKS_LIKE_DEFAULT)
    return pairs + [read_name(text) for text in context.option("name", [])]


def defaults_of(context: Context) -> list[str]:
    """Return the types of ``--defaults``."""
    return [
        kind for text in context.option("defaults", []) for kind in read_types(text, "--defaults")
    ]


def filters_of(context: Context) -> list[tuple[str, str]]:
    """Return the query parameters for the entities that were asked for.

    Raises:
        UsageError: A type is there twice.
    """
    names, defaults = names_of(context), defaults_of(context)
    prefixes = [
        pair for text in context.option("prefix", []) for pair in read_names(text, "--prefix")
    ]
    entity_of([*names, *prefixes], defaults)
    components = [f"{kind}={name}" for kind, name in names]
    components += [f"{kind}:default" for kind in defaults]
    components += [f"{kind}^={text}" for kind, text in prefixes]
    components += context.option("filter", [])
    parameters = [("filter", component) for component in components]
    return [*parameters, ("strict", "true")] if context.option("strict") else parameters


def entity_chosen(context: Context) -> dict[str, Any]:
    """Return the one entity of ``--names`` and ``--defaults``.

    Raises:
        UsageError: There is none, or a type is there twice.
    """
    entity = entity_of(names_of(context), defaults_of(context))
    if not entity:
        raise UsageError("Name the entity with --names, --name or --defaults.")
    return entity
