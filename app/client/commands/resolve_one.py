"""``--resolve``: which quotas apply to a connection, and where each comes from."""

import csv
import io
from collections.abc import Mapping
from typing import Any, Final

from app.client.connection import document
from app.client.context import Context
from app.client.entities import show_entity
from app.client.errors import DONE, UsageError
from app.client.rendering import resolve_lines
from app.client.selection import defaults_of, entity_chosen
from app.client.values import show_value
from app.client.yaml_writing import yaml_lines

_NOW: Final = ("max_age_ms", "0")
"""Who has just altered something wants to see it."""


def run(context: Context) -> int:
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
    if context.output == "json":
        context.print_json(answer)
    elif context.output == "yaml":
        context.print(yaml_lines(answer))
    elif context.output == "csv":
        context.print(csv_lines(answer["quotas"]))
    else:
        show_overridden = bool(context.option("show_overridden"))
        context.print(resolve_lines(answer["quotas"], show_overridden=show_overridden))
    for sentence in answer.get("notes", []):
        context.note(f"Note: {sentence}")


def csv_lines(quotas: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return ``key,value,unit,scope,level,source``; value, level and source empty: unlimited."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["key", "value", "unit", "scope", "level", "source"])
    for key in sorted(quotas):
        quota, source = quotas[key], quotas[key]["source"]
        value = "" if quota["value"] is None else show_value(quota["value"])
        place = ["", ""] if source is None else [source["name"], show_entity(source["entity"])]
        writer.writerow([key, value, quota["unit"], quota["scope"], *place])
    return buffer.getvalue().splitlines()
