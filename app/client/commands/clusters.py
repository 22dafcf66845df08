"""``clusters`` and ``diff``: the clusters of one service, and how the quotas of two differ."""

from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.client.commands.describe import returned
from app.client.configuration import cluster_name
from app.client.entities import show_value
from app.client.errors import DONE, REFUSED, UsageError
from app.client.http import Connection, Parameters, document
from app.client.output import Context, table
from app.client.selection import add_selection_options, filters_of
from app.domain.entities import ClientQuotaEntity, show_entity, visible
from app.domain.quantities import factor_in_words

_HEADER: Final = ("name", "cluster_id", "ready", "you may", "reason")
_UNKNOWN: Final = "?"
_BOTH: Final = 2


def clusters_of(context: Context) -> tuple[str, Sequence[Mapping[str, Any]]]:
    """Return the name of the default cluster, and all clusters of the service."""
    answer = document(context.service.of_cluster(None).get("/clusters"), "default", "clusters")
    return answer["default"], answer["clusters"]


def run_clusters(context: Context) -> int:
    """Print the clusters of the service, the default marked with a star."""
    default, clusters = clusters_of(context)
    cells = [_cells(each) for each in clusters]
    starred = [[f"{'*' if row[0] == default else ' '}{row[0]}", *row[1:]] for row in cells]
    lines = table([(f" {_HEADER[0]}", *_HEADER[1:]), *starred])
    context.write({"default": default, "clusters": clusters}, lines, [_HEADER, *cells])
    return DONE


def _cells(cluster: Mapping[str, Any]) -> list[str]:
    permissions = cluster["permissions"]
    allowed = [name for name, may in (permissions or {}).items() if may]
    return [
        visible(cluster["name"]),
        visible(cluster["cluster_id"] or _UNKNOWN),
        "yes" if cluster["ready"] else "no",
        _UNKNOWN if permissions is None else ", ".join(allowed) or "nothing",
        visible(cluster["reason"] or ""),
    ]


def add_diff_options(parser: ArgumentParser) -> None:
    """Add the options of the subcommand."""
    parser.add_argument(
        "--cluster",
        dest="clusters",
        nargs=_BOTH,
        metavar="NAME",
        help="two clusters of the service",
    )
    add_selection_options(parser)


def run_diff(context: Context) -> int:
    """Print what two clusters have different; exit code 1 where there is something.

    What is for a time counts as what it returns to, as in an export.
    """
    names = list(map(cluster_name, context.option("clusters", ())))
    if len(set(names)) != _BOTH:
        raise UsageError("diff: name two clusters: --cluster staging prod.")
    parameters = filters_of(context)
    first, second = (_values(context.service.of_cluster(name), parameters) for name in names)
    differences = list(_differences(first, second))
    rows = [
        [show_entity(each["entity"]), visible(each["key"]), *map(_text, each["values"])]
        for each in differences
    ]
    header = ("entity", "key", *names)
    written = [
        [*row, _factor(*each["values"])] for row, each in zip(rows, differences, strict=True)
    ]
    lines = table([(*header, ""), *written], right=(2, 3)) if rows else ()
    context.write({"clusters": names, "differences": differences}, lines, [header, *rows])
    if not differences:
        context.tell_always("No differences.")
    return REFUSED if differences else DONE


Values = Mapping[ClientQuotaEntity, Mapping[str, Any]]


def _values(service: Connection, parameters: Parameters) -> Values:
    quotas = document(service.get("/quotas", parameters), "quotas")["quotas"]
    documented = (returned(quota) for quota in quotas)
    return {ClientQuotaEntity.of(quota["entity"]): quota["values"] for quota in documented}


def _differences(first: Values, second: Values) -> Iterator[dict[str, Any]]:
    for entity in sorted({*first, *second}, key=ClientQuotaEntity.sort_key):
        held = [values.get(entity, {}) for values in (first, second)]
        for key in sorted({*held[0], *held[1]}):
            values = [each.get(key) for each in held]
            if values[0] != values[1]:
                yield {
                    "entity": entity.as_dict(),
                    "entity_key": entity.key,
                    "key": key,
                    "values": values,
                }


def _text(value: Any) -> str:
    return "unset" if value is None else show_value(value)


def _factor(first: Any, second: Any) -> str:
    is_ratio = all(isinstance(value, int | float) and value > 0 for value in (first, second))
    return factor_in_words(second / first) if is_ratio else ""
