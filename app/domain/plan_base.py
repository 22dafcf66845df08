"""The base of a plan: a fingerprint of everything that it rests on."""

import hashlib
import json
from collections.abc import Iterable, Mapping

from app.domain.entities import ClientQuotaEntity
from app.domain.plans import Plan


def base_of(cluster_id: str, plan: Plan) -> str:
    """Return SHA-256, in hexadecimal digits, of the values and the owners that a plan rests on.

    Two plans of one cluster with the same base were made from the same values.
    """
    values = sorted(_values(plan.rests_on))
    owners = [
        [change.alteration.entity.entries, sorted(change.holders.items())]
        for change in plan.changes
    ]
    text = json.dumps([cluster_id, values, owners], separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _values(
    rests_on: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
) -> Iterable[list[str]]:
    """Write each entity as text, so that absent names and nulls can be sorted."""
    for entity, values in rests_on.items():
        told = {key: None if value is None else float(value).hex() for key, value in values.items()}
        yield [json.dumps(entity.entries), json.dumps(told, sort_keys=True)]
