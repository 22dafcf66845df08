"""Which entities a command is about: its options, and what they select."""

import argparse
from typing import Any, Final

from app.client.entities import (
    entity_of,
    read_components,
    read_name,
    read_names,
    read_types,
)
from app.client.errors import UsageError
from app.client.kafka_configs import ANY, add_entity_flags, pairs_of
from app.client.output import Context
from app.domain.entities import DEFAULT


def add_selection_options(to: argparse.ArgumentParser) -> None:
    """Add the options that name entities."""
    group = to.add_argument_group(
        "entities", r"In --names and --prefix write \, for a comma of a name, \\ for a backslash."
    )
    for flag, metavar, line in (
        ("--names", "TYPE=NAME,…", "names, as in user=alice,client-id=etl"),
        ("--name", "TYPE=NAME", "one name, taken as it is; repeats"),
        ("--defaults", "TYPE,…", "types with the default name"),
        ("--prefix", "TYPE=TEXT,…", "names that begin so (describe)"),
        ("--search", "TEXT", "a text in some name, in any case (describe); repeats: all of them"),
        (
            "--filter",
            "COMPONENT",
            (
                "as in GET /quotas: user=alice, user^=team-, user~=etl, user:default, user:any, "
                "user:absent, any~=etl"
            ),
        ),
    ):
        group.add_argument(flag, action="append", metavar=metavar, help=line)
    group.add_argument(
        "--strict", action="store_true", help="only entities of exactly these types (describe)"
    )
    add_entity_flags(to)


def add_owner_option(to: Any) -> None:
    """Add the option that selects by owner."""
    to.add_argument(
        "--owner",
        action="append",
        metavar="NAME",
        help="only what this owner applied by a plan, as in team-a; repeats: any of them",
    )


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
    pairs += [read_name(text) for text in context.option("name", [])]
    return pairs + [(kind, name) for kind, name in pairs_of(context) if name]


def defaults_of(context: Context) -> list[str]:
    """Return the types of ``--defaults``."""
    types = [
        kind for text in context.option("defaults", []) for kind in read_types(text, "--defaults")
    ]
    return types + [kind for kind, name in pairs_of(context) if name is None]


def filters_of(context: Context) -> list[tuple[str, str]]:
    """Return the query parameters for the entities that were asked for."""
    names, defaults = names_of(context), defaults_of(context)
    prefixes = [
        pair for text in context.option("prefix", []) for pair in read_names(text, "--prefix")
    ]
    entity_of([*names, *prefixes], defaults)
    components = [f"{kind}={name}" for kind, name in names]
    components += [f"{kind}:default" for kind in defaults]
    components += [f"{kind}^={text}" for kind, text in prefixes]
    components += [f"any~={text}" for text in context.option("search", [])]
    for text in context.option("filter", []):
        components += read_components(text, "--filter")
    components += [f"{kind}:any" for kind, name in pairs_of(context) if name == ANY]
    parameters = [("filter", component) for component in components]
    parameters += [("owner", name) for name in context.option("owner", [])]
    # As kafka-configs describes: entities of exactly the types that it is asked for.
    is_strict = context.option("strict") or pairs_of(context)
    return [*parameters, ("strict", "true")] if is_strict else parameters


def entity_chosen(context: Context) -> dict[str, Any]:
    """Return the one entity of ``--names`` and ``--defaults``."""
    entity = entity_of(names_of(context), defaults_of(context))
    if not entity or any(name == ANY for _, name in pairs_of(context)):
        raise UsageError("Name the entity with --names, --name or --defaults.")
    return entity
