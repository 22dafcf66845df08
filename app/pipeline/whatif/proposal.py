"""What is proposed, and the quotas that would hold then."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from app.documents.alterations import Alterations, read_proposal
from app.documents.faults import UnreadableDocumentError
from app.domain.alterations import ClientQuotaAlteration, Op, Quotas, apply_ops, quota_value_json
from app.domain.entities import ClientQuotaEntity, visible
from app.domain.errors import Violation
from app.domain.plans import PlanRequest, make_plan
from app.domain.resolution_index import CLIENT_KEYS
from app.domain.validation import judge
from app.pipeline.errors import UsageError
from app.pipeline.options import read_file
from app.pipeline.quota_history import entity_columns, entity_of_columns

_QUOTA: Final = ["user", "user_default", "client_id", "client_default", "key"]
_OPTION: Final = "--alterations"
_LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class Proposal:
    """What is proposed, the values of a cluster before it, and those of altered entities after."""

    alterations: Sequence[ClientQuotaAlteration]
    before: Quotas
    after: Quotas

    @property
    def keys(self) -> list[str]:
        """The altered keys that limit a user and client-id."""
        return sorted({op.key for each in self.alterations for op in each.ops} & {*CLIENT_KEYS})

    def proposed(self) -> Quotas:
        """Return all values that would hold."""
        return {**self.before, **self.after}

    def as_json(self) -> str:
        """Return the alterations as the API takes them."""
        return json.dumps({"alterations": [_as_json(each) for each in self.alterations]})

    def versions(self, now: pa.Table, cluster: str) -> pa.Table:
        """Return the versions that would hold, from those that hold now."""
        altered = [
            {"cluster_id": cluster, **entity_columns(each.entity), "key": op.key}
            | {"value": self.after[each.entity].get(op.key)}
            for each in self.alterations
            for op in each.ops
        ]
        rows = pa.Table.from_pylist(altered, now.schema)
        left = now.join(rows.select(_QUOTA), _QUOTA, join_type="left anti")
        return pa.concat_tables([left, rows.filter(pc.field("value").is_valid())])


def read_alterations(file: str, before: Quotas) -> Proposal:
    """Read a body of ``POST /quotas/alterations``, or a document of quotas: JSON, YAML or CSV.

    Raises:
        UsageError: It cannot be read, or breaks a rule of quotas; the member is named.
    """
    try:
        wanted = read_proposal(read_file(_OPTION, file))
    except UnreadableDocumentError as error:
        lines = [f"line {fault.line}: {visible(fault.detail)}" for fault in error.faults]
        raise _refusal(lines) from error
    if isinstance(wanted, Alterations):
        return _judged(wanted.alterations, before)
    plan = make_plan(PlanRequest(tuple(wanted.quotas), "whatif"), before, {})
    _refuse(plan.violations)
    return _judged([change.alteration for change in plan.changes], before)


def read_recommendations(bodies: Iterable[str | None], before: Quotas) -> Proposal:
    """Read what recommendations would change, from their bodies.

    Raises:
        UsageError: None of them changes anything.
    """
    read = [read_proposal(body) for body in sorted({body for body in bodies if body})]
    found = [each for body in read if isinstance(body, Alterations) for each in body.alterations]
    merged: dict[ClientQuotaEntity, dict[str, Op]] = {}
    for each in found:
        merged.setdefault(each.entity, {}).update({op.key: op for op in each.ops})
    return _judged(
        [ClientQuotaAlteration(entity, tuple(ops.values())) for entity, ops in merged.items()],
        before,
    )


def _judged(alterations: Sequence[ClientQuotaAlteration], before: Quotas) -> Proposal:
    if not alterations:
        message = "Nothing would change: what is proposed holds already."
        raise UsageError(message)
    judgement = judge(alterations, before)
    _refuse(judgement.violations)
    after = {
        each.entity: apply_ops(before.get(each.entity, {}), each.ops)
        for each in judgement.alterations
    }
    return Proposal(judgement.alterations, before, after)


def _refuse(violations: Sequence[Violation]) -> None:
    if violations:
        raise _refusal([f"{each.pointer}: {visible(each.detail)}" for each in violations])


def _refusal(lines: Sequence[str]) -> UsageError:
    more = len(lines) - _LISTED
    rest = [f"and {more} more"] if more > 0 else []
    return UsageError("\n".join([f"{_OPTION} is refused:", *lines[:_LISTED], *rest]))


def quotas_of(versions: pa.Table) -> Quotas:
    """Return the values of versions of one cluster that hold, by entity."""
    quotas: dict[ClientQuotaEntity, dict[str, float]] = {}
    for row in versions.filter(pc.field("value").is_valid()).to_pylist():
        quotas.setdefault(entity_of_columns(row), {})[row["key"]] = row["value"]
    return quotas


def _as_json(alteration: ClientQuotaAlteration) -> Mapping[str, Any]:
    ops = [
        {"key": op.key, "remove": True}
        if op.value is None
        else {"key": op.key, "value": quota_value_json(float(op.value))}
        for op in alteration.ops
    ]
    return {"entity": alteration.entity.as_dict(), "ops": ops}
