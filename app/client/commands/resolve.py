"""``--resolve`` and ``resolve FILE``: which quotas apply, and where each comes from."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from app.client.arguments import add_overridden_option
from app.client.commands.temporary import note_ends
from app.client.documents import Identity, json_value, read_document, read_identities
from app.client.entities import Entity, show_value
from app.client.errors import DONE, UsageError
from app.client.http import document
from app.client.output import Context, Progress
from app.client.selection import add_selection_options, defaults_of, entity_chosen, names_of
from app.domain.alterations import DesiredValue
from app.domain.entities import (
    ClientQuotaEntity,
    entity_warnings,
    show_entity,
    show_name,
    visible,
)
from app.domain.plans import holds
from app.domain.quantities import value_in_words
from app.domain.quota_keys import Scope

_NOW: Final = ("max_age_ms", "0")
"""Who has just altered something wants to see it."""

_COLUMNS: Final = ("key", "value", "unit", "scope", "level", "source")
"""Value, level and source are empty where a key is unlimited."""


def run_resolve_identity(context: Context) -> int:
    """Print a line for each key that is limited; without a line it is unlimited."""
    if defaults_of(context):
        raise UsageError(
            "--resolve asks for a connection, which has names: give a user (and a client-id) of "
            "your own choice, or --describe --defaults to see a default."
        )
    identity = entity_chosen(context)
    if "ip" not in identity and "user" not in identity:
        raise UsageError(
            "--resolve needs a user, or an ip; the user of a connection that is not authenticated "
            "is ANONYMOUS."
        )
    answer = document(context.service.get("/quotas/resolve", [*identity.items(), _NOW]), "quotas")
    _print(context, answer)
    return DONE


def _print(context: Context, answer: Mapping[str, Any]) -> None:
    rows = (_csv_row(key, quota) for key, quota in sorted(answer["quotas"].items()))
    lines = resolve_lines(
        answer["quotas"],
        show_overridden=bool(context.option("show_overridden")),
        in_words=sys.stdout.isatty(),
    )
    context.write(answer, lines, [_COLUMNS, *rows])
    for sentence in answer.get("notes", []):
        context.note(f"Note: {sentence}")
    if context.output == "text":
        note_ends(context, _held(answer["quotas"]))


def _held(
    quotas: Mapping[str, Mapping[str, Any]],
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key, quota in sorted(quotas.items()):
        if (source := quota["source"]) is not None and "temporary" in source:
            yield f"{visible(key)} of {show_entity(source['entity'])}", source["temporary"]


def resolve_lines(
    quotas: Mapping[str, Mapping[str, Any]],
    *,
    show_overridden: bool = False,
    in_words: bool = False,
) -> Iterator[str]:
    """Yield ``key=value {source}`` for each key that is limited; what it overrides begins with *.

    Where the brokers' quota callback decides, and no stored quota, its tags stand there. A key
    without a line is unlimited. In words it also says how much that is, where, and who shares it.
    """
    for key in sorted(quotas):
        quota = quotas[key]
        if quota["source"] is not None:
            line = _limit_line(key, quota["value"], quota["source"]["entity"])
            yield f"{line} ({_words(key, quota)})" if in_words else line
        elif quota["value"] is not None:
            tags = ", ".join(f"{visible(tag)}={visible(of)}" for tag, of in _tags(quota))
            yield f"{visible(key)}={show_value(quota['value'])} shared by [{tags}]"
        for entry in quota["overridden"] if show_overridden else ():
            yield f"*{_limit_line(key, entry['value'], entry['entity'])}"


def _tags(quota: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    tags: Mapping[str, str] = quota["shared_by"]
    return sorted(tags.items())


def _limit_line(key: str, value: Any, entity: Entity) -> str:
    return f"{visible(key)}={show_value(value)} {show_entity(entity)}"


def _words(key: str, quota: Mapping[str, Any]) -> str:
    shared_by = [(kind, name) for kind, name in quota["shared_by"].items() if name]
    where = "on each broker" if quota["scope"] == Scope.PER_BROKER else "in the cluster"
    who = ",".join(f"{visible(kind)}={show_name(name)}" for kind, name in shared_by)
    value = value_in_words(key, quota["value"])
    return f"{value} {where}, shared by {who}" if who else f"{value} {where}"


def _csv_row(key: str, quota: Mapping[str, Any]) -> list[str]:
    source = quota["source"]
    value = "" if quota["value"] is None else show_value(quota["value"])
    level = ["", ""] if source is None else [source["name"], show_entity(source["entity"])]
    return [key, value, quota["unit"], quota["scope"], *level]


_NAMED: Final = 3
"""So many identities of a note are named."""

_HEADING: Final = ("user", "client-id", "ip", "key", "value", "level", "source")


def add_resolve_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="CSV with the heading user,client-id (or ip), or a list in YAML or JSON; - is stdin",
    )
    parser.add_argument(
        "--what-if", metavar="FILE", help="a document; tell what would apply if it held as well"
    )
    add_overridden_option(parser)
    add_selection_options(parser)


def run_resolve(context: Context) -> int:
    """Print a block for each identity of a file; with a what-if what would apply then.

    Without a file the connection is named, as for ``--resolve``.
    """
    file, is_named = context.option("file"), bool(names_of(context) or defaults_of(context))
    if is_named and (file is not None or context.option("what_if") is not None):
        raise UsageError("resolve takes a FILE of identities, or --names of one; not both.")
    if file is None and context.option("what_if") is None:
        return run_resolve_identity(context)
    if file is None:
        raise UsageError("resolve: --what-if needs a FILE of identities.")
    identities = read_identities(file)
    what_if = context.option("what_if")
    alterations = [] if what_if is None else _alterations(context, what_if)
    for alteration in alterations:
        for warning in entity_warnings(ClientQuotaEntity.of(alteration["entity"])):
            context.note(f"warning: {warning.entity} {warning.detail}")
    results = list(_results(context, identities, alterations))
    lines = _lines(results, show_overridden=bool(context.option("show_overridden")))
    context.write({"results": results}, lines, [_HEADING, *_file_rows(results)])
    for sentence in _notes(results):
        context.note(sentence)
    return DONE


def _notes(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield each note once, with the identities that it is about unless that is all of them."""
    noted: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        for note in result["notes"]:
            noted.setdefault(note, []).append(result["identity"])
    for note, identities in noted.items():
        if len(identities) == len(results):
            yield f"Note: {note}"
            continue
        first = ", ".join(map(show_entity, identities[:_NAMED]))
        more = len(identities) - _NAMED
        yield f"Note for {first}{f' and {more} more' if more > 0 else ''}: {note}"


def _alterations(context: Context, file: str) -> list[dict[str, Any]]:
    """Return what the document would change: what is stored already is not judged again."""
    wanted = read_document(file).document.quotas
    quotas = document(context.service.get("/quotas"), "quotas")["quotas"]
    stored = {ClientQuotaEntity.of(quota["entity"]): quota["values"] for quota in quotas}
    alterations = []
    for quota in wanted:
        present = stored.get(quota.entity, {})
        ops = [
            _op(key, value)
            for key, value in quota.values.items()
            if not holds(float(present[key]) if key in present else None, value)
        ]
        if ops:
            alterations.append({"entity": quota.entity.as_dict(), "ops": ops})
    return alterations


def _op(key: str, value: DesiredValue | None) -> dict[str, Any]:
    return {"key": key, **({"remove": True} if value is None else {"value": json_value(value)})}


def _results(
    context: Context, identities: Sequence[Identity], alterations: list[dict[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    progress = Progress("identities resolved")
    members = {"alterations": alterations} if alterations else {}
    results = context.service.resolve(identities, max_age_ms=0, **members)
    for number, result in enumerate(results, 1):
        yield result
        progress.tell(number, len(identities))
    progress.end()


def _lines(results: Sequence[Mapping[str, Any]], *, show_overridden: bool) -> Iterator[str]:
    for at, result in enumerate(results):
        if at:
            yield ""
        yield show_entity(result["identity"])
        effective = result.get("proposed", result)
        yield from resolve_lines(effective["quotas"], show_overridden=show_overridden)


def _file_rows(results: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    for result in results:
        names = [result["identity"].get(kind, "") for kind in _HEADING[:3]]
        quotas = result.get("proposed", result)["quotas"]
        for key in sorted(quotas):
            _, value, _, _, level, source = _csv_row(key, quotas[key])
            yield [*names, key, value, level, source]
