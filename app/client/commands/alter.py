"""``--alter``: set and remove quotas of one entity."""

from collections.abc import Mapping
from typing import Any

from app.client.alterations import conclude, refused_with_places
from app.client.context import Context
from app.client.errors import UsageError
from app.client.selection import entity_chosen
from app.client.values import read_changes


def run(context: Context) -> int:
    """Alter; print nothing where it is done."""
    context.refuse_output("csv")
    ops = read_changes(_joined(context, "add"), _joined(context, "delete"))
    if not ops:
        raise UsageError("--alter needs --add or --delete.")
    body: dict[str, Any] = {
        "validate_only": bool(context.option("validate_only")),
        "alterations": [{"entity": entity_chosen(context), "ops": ops}],
    }
    if context.option("reason") is not None:
        body["reason"] = context.option("reason")
    key = context.option("idempotency_key")
    with refused_with_places(lambda pointer: _written(body, pointer)):
        answer = context.service.alter("/quotas/alterations", body, key)
    return conclude(context, answer)


def _joined(context: Context, name: str) -> str | None:
    given = context.option(name)
    return None if given is None else ",".join(given)


def _written(body: Mapping[str, Any], pointer: str) -> str | None:
    """Return what the user wrote for a pointer into the body."""
    parts = pointer.split("/")[1:]
    if parts[:2] != ["alterations", "0"] or len(parts) < 3:
        return "--reason" if parts == ["reason"] else None
    alteration = body["alterations"][0]
    if parts[2] == "entity":
        return "--names and --defaults"
    if parts[2] == "ops" and len(parts) > 3 and parts[3].isdigit():
        op = alteration["ops"][int(parts[3])]
        return f"--delete {op['key']}" if "remove" in op else f"--add {op['key']}={op['value']}"
    return None
