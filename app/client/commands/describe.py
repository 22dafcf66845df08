"""``--describe`` and ``export``: the entities that match, as text or as a document."""

import json
import os
import stat
import sys
import uuid
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any, Final

from app.client.arguments import add_overridden_option
from app.client.commands.temporary import note_ends
from app.client.entities import Entity, show_value
from app.client.errors import DONE, UsageError
from app.client.http import JSON, Parameters, document
from app.client.kafka_configs import add_other_flags
from app.client.output import Context, table
from app.client.problems import ServiceError
from app.client.selection import add_owner_option, add_selection_options, filters_of
from app.documents import API_VERSION
from app.domain.entities import show_entity, visible

_SET_HERE: Final = "set here"
_INHERITED: Final = ("inherited", "overridden")
_ANY_NAME: Final = uuid.uuid4().hex
_ANY_ADDRESS: Final = str(IPv6Address(0x20010DB8 << 96 | uuid.uuid4().int >> 32))
"""Those of a connection for which no rule is made; addresses for examples are in RFC 3849."""


def identity_of(entity: Entity) -> dict[str, str]:
    """Return the connection that meets an entity first: a made-up name stands for a default."""
    if "ip" in entity:
        return {"ip": entity["ip"] or _ANY_ADDRESS}
    return {"user": _ANY_NAME, **{kind: name or _ANY_NAME for kind, name in entity.items()}}


def inherited_lines(service: Any, quotas: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a block for each entity; what less specific entities have and lose begins with *."""
    identities = [identity_of(quota["entity"]) for quota in quotas]
    results = service.resolve(identities, max_age_ms=0)
    for at, (quota, result) in enumerate(zip(quotas, results, strict=True)):
        if at:
            yield ""
        yield show_entity(quota["entity"])
        yield from _effective(quota, result["quotas"])


def _effective(
    quota: Mapping[str, Any], resolved: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    entity, own = quota["entity"], quota["values"]
    for key in sorted({*own, *resolved}):
        sources = _sources(resolved.get(key))
        if key in own and entity not in [source for source, _ in sources]:
            sources = [(entity, own[key]), *sources]
        for at, (source, value) in enumerate(sources):
            line = f"{'*' if at else ''}{visible(key)}={show_value(value)} {show_entity(source)}"
            yield f"{line} ({_SET_HERE if source == entity else _INHERITED[at > 0]})"


def _sources(quota: Mapping[str, Any] | None) -> list[tuple[Entity, Any]]:
    """Return where a key is set for a connection: what applies, then what loses."""
    if quota is None or quota["source"] is None:
        return []
    effective = (quota["source"]["entity"], quota["value"])
    return [effective, *((loser["entity"], loser["value"]) for loser in quota["overridden"])]


def describe_lines(
    quotas: Iterable[Mapping[str, Any]], *, with_owners: bool = False
) -> Iterator[str]:
    """Yield a block for each entity: the entity, then its values by key; a blank line between.

    Args:
        quotas: As ``GET /quotas`` has them.
        with_owners: Whether a value says whose it is, where the answer does.
    """
    for at, quota in enumerate(quotas):
        if at:
            yield ""
        yield show_entity(quota["entity"])
        for key, value in sorted(quota["values"].items()):
            owner = quota.get("owners", {}).get(key) if with_owners else None
            applied = "" if owner is None else f" (applied by {visible(owner)})"
            yield f"{visible(key)}={show_value(value)}{applied}"


_MEDIA_TYPES: Final = {"yaml": "application/yaml", "csv": "text/csv"}
_NOTHING: Final = "Nothing found: no entity with quotas matches."
_OF_THE_LOG: Final = ("audit-log-unavailable", "query-too-slow")
"""Why nobody can say who owns what, while quotas can be read."""


def _alone(context: Context, parameters: Parameters, media_type: str) -> Any:
    return context.service.get("/quotas", parameters, media_type)


def _with_owners(context: Context, parameters: Parameters, media_type: str = JSON) -> Any:
    """Return the answer with owners; without them, which is said, where the log has no answer."""
    try:
        return _alone(context, [*parameters, ("owners", "true")], media_type)
    except ServiceError as error:
        if error.code not in _OF_THE_LOG or context.option("owner"):
            raise
        context.note(f"Owners are left out: {error.problem.get('detail')}")
        return _alone(context, parameters, media_type)


def _written(context: Context, parameters: Sequence[tuple[str, str]], output: str) -> bytes:
    """Return YAML or CSV as the service writes it; a document of nothing is said to be one."""
    with_owners = _with_owners if output == "yaml" else _alone
    content: bytes = with_owners(context, parameters, _MEDIA_TYPES[output]).content
    lines = content.rstrip().splitlines()
    if (len(lines) <= 1) if output == "csv" else lines[-1:] == [b"quotas: []"]:
        context.tell_always(_NOTHING)
    return content


def add_describe_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    add_selection_options(parser)
    add_owner_option(parser)
    add_overridden_option(parser)
    add_other_flags(parser)


def run_describe(context: Context) -> int:
    """Print what is stored; nothing where nothing matches, which is no error."""
    parameters = filters_of(context)
    if context.output in _MEDIA_TYPES:
        context.print_bytes(_written(context, parameters, context.output))
        return DONE
    # In a pipe the lines are those of KIP-546, and JSON is what `plan` takes.
    is_for_people = context.output == "text" and sys.stdout.isatty()
    read = _with_owners if is_for_people else _alone
    quotas = document(read(context, parameters, JSON), "quotas")["quotas"]
    if not quotas:
        context.tell_always(_NOTHING)
    if context.output == "json":
        context.print_json({"quotas": quotas})
    elif context.option("show_overridden"):
        context.print(inherited_lines(context.service, quotas))
    else:
        context.print(describe_lines(quotas, with_owners=is_for_people))
    if context.output == "text":
        note_ends(context, _held(quotas))
    return DONE


def _held(quotas: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for quota in quotas:
        for key, end in sorted(quota.get("temporary", {}).items()):
            yield f"{visible(key)} of {show_entity(quota['entity'])}", end


_OWNER_COLUMNS: Final = ("entity", "key", "value", "owner")


def add_owners_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    add_selection_options(parser)
    add_owner_option(parser)


def run_owners(context: Context) -> int:
    """Print each value that somebody owns, with its owner."""
    parameters = [*filters_of(context), ("owners", "true")]
    quotas = document(context.service.get("/quotas", parameters), "quotas")["quotas"]
    owned = [quota for quota in quotas if quota.get("owners")]
    rows = [
        [show_entity(quota["entity"]), visible(key), show_value(quota["values"][key]), owner]
        for quota in owned
        for key, owner in sorted(quota["owners"].items())
    ]
    if not rows:
        context.tell_always("Nothing found: nobody owns a value that matches.")
    lines = table([_OWNER_COLUMNS, *([*row[:3], visible(row[3])] for row in rows)])
    context.write({"quotas": owned}, lines if rows else [], [_OWNER_COLUMNS, *rows])
    return DONE


def add_export_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    add_selection_options(parser)
    add_owner_option(parser)
    parser.add_argument("--out", metavar="FILE", help="write there instead of standard output")


def run_export(context: Context) -> int:
    """Write YAML by default; JSON and CSV with ``--output``."""
    parameters = filters_of(context)
    if context.output == "json":
        quotas = document(context.service.get("/quotas", parameters), "quotas")["quotas"]
        quotas = [found for quota in quotas if (found := returned(quota))["values"]]
        written = {"apiVersion": API_VERSION, "quotas": quotas}
        content = (json.dumps(written, indent=2) + "\n").encode()
    else:
        content = _written(context, parameters, "csv" if context.output == "csv" else "yaml")
    out = context.option("out")
    if out is None:
        context.print_bytes(content)
        return DONE
    try:
        _replace(Path(out), content)
    except OSError as error:
        raise UsageError(f"--out {out} cannot be written: {error.strerror}.") from error
    context.tell(f"Written to {out}.")
    return DONE


def returned(quota: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an entity as a document has it: with the values that those for a time return to."""
    temporary = quota.get("temporary", {})
    values = {**quota["values"], **{key: end["returns_to"] for key, end in temporary.items()}}
    left = {key: value for key, value in values.items() if value is not None}
    return {**{name: quota[name] for name in quota if name != "temporary"}, "values": left}


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole, or leave the one that is there: half a document is one, too."""
    if path.exists() and not path.is_file():
        path.write_bytes(content)  # a pipe or a device cannot be replaced
        return
    target = path.resolve()
    unfinished = target.with_name(f".{uuid.uuid4().hex}")
    try:
        with unfinished.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            unfinished.chmod(stat.S_IMODE(target.stat().st_mode))
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
