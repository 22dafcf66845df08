"""What is proposed, and the quotas that would hold then."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from app.documents.alterations import Alterations, read_proposal
from app.documents.faults import UnreadableDocumentError
from app.domain.alterations import ClientQuotaAlteration, Op, Quotas, apply_ops, quota_value_json
from app.domain.entities import ClientQuotaEntity, EntityType, visible
from app.domain.errors import Violation
from app.domain.plans import PlanRequest, make_plan
from app.domain.resolution_index import CLIENT_KEYS
from app.domain.validation import judge
from app.pipeline.errors import UsageError
from app.pipeline.options import read_file

_USER, _CLIENT_ID = EntityType.USER.value, EntityType.CLIENT_ID.value
_ENTITY: Final = ("user", "user_default", "client_id", "client_default")
_TYPES: Final = ((_USER, "user", "user"), (_CLIENT_ID, "client", "client_id"))
_OPTION: Final = "--alterations"
_LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class Proposal:
    """The quotas of a cluster before and after.

    Attributes:
        alterations: What is proposed.
        before: The values that hold now, by entity.
        after: Those of the altered entities that would hold.
    """

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

    def versions(self, now: DataFrame, cluster: str) -> DataFrame:
        """Return ``quota_version`` as it would be.

        Args:
            now: The values that hold, as that table has them.
            cluster: Whose they are.
        """
        altered, values = [], []
        for each in self.alterations:
            names = _columns(each.entity)
            after = self.after[each.entity]
            altered += [(*names, op.key) for op in each.ops]
            values += [(*names, op.key, after[op.key]) for op in each.ops if op.key in after]
        session = now.sparkSession
        columns = "user string, user_default boolean, client_id string, client_default boolean"
        gone = session.createDataFrame(altered, f"{columns}, key string")
        left = now.join(sf.broadcast(gone), [*_ENTITY, "key"], "left_anti")
        if not values:
            return left
        added = session.createDataFrame(values, f"{columns}, key string, value double")
        own = added.withColumn("cluster_id", sf.lit(cluster))
        return left.unionByName(own, allowMissingColumns=True)


def read_alterations(file: str, before: Quotas) -> Proposal:
    """Read a body of ``POST /quotas/alterations``, or a document of quotas, from a file.

    Args:
        file: JSON, YAML or CSV.
        before: The values that hold now.

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


def read_recommendations(rows: Iterable[Mapping[str, Any]], before: Quotas) -> Proposal:
    """Read what recommendations would change: their bodies.

    Args:
        rows: Of ``recommendation``.
        before: The values that hold now.

    Raises:
        UsageError: None of them changes anything.
    """
    bodies = sorted({row["body"] for row in rows if row["body"]})
    read = [read_proposal(body) for body in bodies]
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


def quotas_of(versions: DataFrame) -> Quotas:
    """Return the values that hold, by entity.

    Args:
        versions: ``quota_version`` of one cluster, those that hold.
    """
    quotas: dict[ClientQuotaEntity, dict[str, float]] = {}
    rows = versions.where("`value` is not null").select(*_ENTITY, "key", "value")
    for row in rows.toArrow().to_pylist():
        names = {
            kind: None if row[f"{name}_default"] else row[column]
            for kind, name, column in _TYPES
            if row[f"{name}_default"] or row[column]
        }
        quotas.setdefault(ClientQuotaEntity.of(names), {})[row["key"]] = row["value"]
    return quotas


def _columns(entity: ClientQuotaEntity) -> tuple[str, bool, str, bool]:
    names = entity.as_dict()
    user, client_id = names.get(_USER, ""), names.get(_CLIENT_ID, "")
    return user or "", user is None, client_id or "", client_id is None


def _as_json(alteration: ClientQuotaAlteration) -> Mapping[str, Any]:
    ops = [
        {"key": op.key, "remove": True}
        if op.value is None
        else {"key": op.key, "value": quota_value_json(float(op.value))}
        for op in alteration.ops
    ]
    return {"entity": alteration.entity.as_dict(), "ops": ops}
