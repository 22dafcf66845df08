"""What the pipeline advises about buckets and values, as its columns say it."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa

from app.domain.entities import ClientQuotaEntity
from app.domain.right_sizes import Action, SizingRules
from app.domain.stale_quotas import StaleKind
from app.pipeline.advice.sizes import recommended
from app.pipeline.advice.stale import ClusterColumns
from tests.testkit.naive_sizes import BucketUse, RightSize
from tests.testkit.naive_stale import Seen, StaleValue

_USES: Final = pa.schema(
    [
        *(("key", pa.string()), ("bucket_id", pa.int64()), ("level", pa.int8())),
        *((name, pa.float64()) for name in ("limit", "p95", "rate", "peak", "median")),
        *(("cluster_total", pa.float64()), ("coverage", pa.float64())),
        *((name, pa.int32()) for name in ("broker_id", "brokers", "days")),
        *((name, pa.int64()) for name in ("minutes", "throttled_minutes")),
        *(("bucket_user", pa.string()), ("bucket_client", pa.string())),
    ]
)
_TAGS: Final = {"bucket_user": "user", "bucket_client": "client_id"}


@dataclass(frozen=True, slots=True)
class Advised:
    """A row of ``RECOMMENDATION``; ``entity`` is the body's or, without one, what limits now."""

    use: BucketUse
    entity: ClientQuotaEntity
    buckets: int
    action: Action
    value: float | None
    target: float
    saving: float
    reason: str
    factor: float | None
    skew: float | None
    censored: bool
    body: Mapping[str, Any] | None

    @classmethod
    def of(cls, size: RightSize) -> "Advised":
        """Return what the rules for one bucket say, as a row."""
        of_size = {field.name: getattr(size, field.name) for field in fields(size)}
        derived = {name: getattr(size, name) for name in ("factor", "censored")}
        return cls(**of_size, **derived, skew=size.use.skew, body=size.body())


def advised_sizes(uses: Sequence[BucketUse], rules: SizingRules) -> list[Advised]:
    """Return what the pipeline advises about the values of buckets, by key and bucket."""
    of_bucket = {(use.key, use.bucket_id): use for use in uses}
    rows = [{name: getattr(use, _TAGS.get(name, name)) for name in _USES.names} for use in uses]
    found = recommended(pa.Table.from_pylist(rows, _USES), rules).to_pylist()
    found.sort(key=lambda row: (row["key"], row["bucket_id"]))
    return [_advised(of_bucket[row["key"], row["bucket_id"]], row) for row in found]


def advised_size(use: BucketUse, rules: SizingRules) -> Advised:
    """Return the same of the only bucket that there is."""
    (found,) = advised_sizes([use], rules)
    return found


def _advised(use: BucketUse, row: Mapping[str, Any]) -> Advised:
    entity, body = _quota_entity(row), row["body"] and json.loads(row["body"])
    if body:
        entity = ClientQuotaEntity.of(body["alterations"][0]["entity"])
    own = {field.name: row.get(field.name) for field in fields(Advised)}
    own |= {"use": use, "entity": entity, "action": Action(row["action"]), "body": body}
    return Advised(**own)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VERSIONS: Final = pa.schema(
    [
        *(("user", pa.string()), ("user_default", pa.bool_())),
        *(("client_id", pa.string()), ("client_default", pa.bool_())),
        *(("key", pa.string()), ("value", pa.float64())),
    ]
)
_TIME: Final = pa.timestamp("us", "UTC")
_SEEN: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("key", "user", "client_id")),
        *(("is_pair", pa.bool_()), ("level", pa.int64()), ("last_seen", _TIME)),
    ]
)


def advised_stale(
    stored: Mapping[ClientQuotaEntity, Mapping[str, float]],
    seen: Iterable[Seen],
    *,
    days: int = 30,
    is_long: bool = True,
    inventory: Collection[str] | None = None,
    recent: Collection[tuple[ClientQuotaEntity, str]] = (),
) -> list[StaleValue]:
    """Return the values of which the pipeline says that they do nothing, by entity and key.

    Their bodies are those that ``StaleValue`` has.
    """
    values = [(entity, key, value) for entity, of in stored.items() for key, value in of.items()]
    versions = pa.Table.from_pylist(list(_versions(values)), _VERSIONS)
    rows = [{**each._asdict(), "last_seen": each.last} for each in seen]
    callers = pa.Table.from_pylist(rows, _SEEN)
    silent = [is_long and (entity, key) not in recent for entity, key, _ in values]
    found = ClusterColumns(versions, callers, np.array(silent, bool)).stale(days, inventory)
    listed = [_stale(row) for row in found.to_pylist()]
    return sorted(listed, key=lambda each: (each.entity.sort_key(), each.key))


def _stale(row: Mapping[str, Any]) -> StaleValue:
    own = {field.name: row.get(field.name) for field in fields(StaleValue)}
    own |= {"kind": StaleKind(row["kind"]), "entity": _quota_entity(row)}
    own["winners"] = [ClientQuotaEntity.of(each) for each in json.loads(row["winners"])]
    own["last_seen"] = row["last_seen"] and _EPOCH + timedelta(microseconds=row["last_seen"])
    found = StaleValue(**own)
    assert row["body"] == json.dumps(found.body(), ensure_ascii=False)
    return found


def _quota_entity(row: Mapping[str, Any]) -> ClientQuotaEntity:
    names = {"user": "quota_user", "client-id": "quota_client"}
    columns = {"user": row["quota_user"], "client-id": row["quota_client_id"]}
    is_default = {kind: row[f"{name}_default"] for kind, name in names.items()}
    return ClientQuotaEntity.of(
        {kind: name or None for kind, name in columns.items() if name or is_default[kind]}
    )


def _versions(values: Iterable[tuple[ClientQuotaEntity, str, float]]) -> Iterator[dict[str, Any]]:
    for entity, key, value in values:
        names = entity.as_dict()
        yield {
            "user": names.get("user") or "",
            "user_default": names.get("user", "") is None,
            "client_id": names.get("client-id") or "",
            "client_default": names.get("client-id", "") is None,
            "key": key,
            "value": value,
        }
