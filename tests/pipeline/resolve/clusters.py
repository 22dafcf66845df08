"""Made-up clusters of few names, so that every level is hit, and every missing name too."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from app.domain.entities import ClientQuotaEntity
from app.domain.quota_keys import QuotaKey
from app.domain.resolution import resolve_client
from app.domain.resolution_index import QuotaIndex
from app.domain.resolution_levels import ResolvedQuota
from app.pipeline.tables import OBSERVATION_MINUTE, QUOTA_VERSION
from tests.testkit.bucket_worlds import arrow_schema

BEGIN: Final = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
KEYS: Final = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)
NAMES: Final = ("a", "b", "<default>")
SEEN: Final = (*NAMES, "", None)

Entity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs; null is the default."""

ENTITIES: Final[Sequence[Entity]] = tuple(
    tuple((kind, name) for kind, name in (("user", user), ("client-id", client)) if name != "")
    for user in (*NAMES, None, "")
    for client in (*NAMES, None, "")
    if (user, client) != ("", "")
)


@dataclass(frozen=True)
class Version:
    """A value of one key of one entity, from a minute (inclusive) to another (null: open)."""

    cluster: str
    entity: Entity
    key: QuotaKey
    value: float
    since: int
    until: int | None
    origin: str = "audit"

    def row(self) -> dict[str, Any]:
        names = dict(self.entity)
        return {
            "cluster_id": self.cluster,
            "user": names.get("user") or "",
            "user_default": "user" in names and names["user"] is None,
            "client_id": names.get("client-id") or "",
            "client_default": "client-id" in names and names["client-id"] is None,
            "key": self.key.value,
            "value": self.value,
            "valid_from": minute(self.since),
            "valid_to": None if self.until is None else minute(self.until),
            "origin": self.origin,
            "audit_seq": None,
        }


def minute(number: int) -> datetime:
    return BEGIN + timedelta(minutes=number)


def clusters(seed: int, count: int) -> Iterator[list[Version]]:
    """Return clusters named by their number, each with values that all hold now."""
    dice = random.Random(seed)
    kinds = [
        [entity for entity in ENTITIES if {kind for kind, _ in entity} <= set(allowed)]
        for allowed in (("user",), ("client-id",), ("user", "client-id"))
    ]
    for number in range(count):
        pool = [entity for item in dice.sample(kinds, dice.randint(1, 3)) for entity in item]
        if dice.random() < 0.1:
            pool = [entity for entity in ENTITIES if len(entity) == 2]
        chosen = dice.sample(pool, dice.randint(0, min(len(pool), 8)))
        yield [
            Version(str(number), entity, key, float(dice.randint(1, 10**6)), 0, None)
            for entity in dict.fromkeys(chosen)
            for key in KEYS
            if dice.random() < 0.7
        ]


def histories(seed: int, count: int, minutes: int) -> Iterator[list[Version]]:
    """Return clusters whose values come, change and go; some a snapshot saw first."""
    dice = random.Random(seed)
    for number in range(count):
        versions: list[Version] = []
        for entity in dice.sample(ENTITIES, dice.randint(1, 8)):
            of_entity: list[Version] = []
            for key in KEYS[: dice.randint(1, 2)]:
                cuts = sorted(dice.sample(range(minutes), dice.randint(1, 4)))
                spans: list[tuple[int, int | None]] = [*pairwise(cuts), (cuts[-1], None)]
                chosen = [span for span in spans if dice.random() < 0.7]
                of_entity += [
                    Version(str(number), entity, key, float(dice.randint(1, 10**6)), *span)
                    for span in chosen
                ]
            versions += dice.choice((of_entity, seen_first(of_entity)))
        yield versions


def seen_first(versions: Sequence[Version]) -> list[Version]:
    """Return the versions of an entity as if a snapshot had seen the first of them."""
    first = min((version.since for version in versions), default=0)
    return [
        replace(version, origin="snapshot") if version.since == first else version
        for version in versions
    ]


def held_at(world: Sequence[Version], at: int) -> list[Version]:
    """Return the values of a minute; those that a snapshot saw first held before, too."""
    return [
        version
        for version in world
        if (version.since <= at or version.origin == "snapshot")
        and (version.until is None or at < version.until)
    ]


def quota_table(versions: Sequence[Version]) -> pa.Table:
    """Return rows of ``quota_version``."""
    rows = [version.row() for version in versions]
    return pa.Table.from_pylist(rows, schema=arrow_schema(QUOTA_VERSION))


def observation(cluster: str, key: str, at: int, **others: Any) -> dict[str, Any]:
    """Return a row of ``observation_minute``."""
    return {
        "cluster_id": cluster,
        "dt": minute(at).date(),
        "ts": minute(at),
        "broker_id": 1,
        "key": key,
        "grain": "pair",
        "rate_avg": 1.0,
        "rate_max": 2.0,
        "samples": 1,
        "source": "made-up",
        **others,
    }


def observation_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows of ``observation_minute``; what is left out is null."""
    return pa.Table.from_pylist(list(rows), schema=arrow_schema(OBSERVATION_MINUTE))


def index_of(versions: Sequence[Version]) -> QuotaIndex:
    """Return the domain's index of some values."""
    quotas: dict[ClientQuotaEntity, dict[str, float]] = {}
    for version in versions:
        entity = ClientQuotaEntity.of(dict(version.entity))
        quotas.setdefault(entity, {})[version.key.value] = version.value
    return QuotaIndex.of(quotas)


def judged(
    index: QuotaIndex, key: str, user: str | None, client: str | None
) -> tuple[int, float | None, str, str]:
    """Return level, limit and the two tags as the domain has them."""
    found: ResolvedQuota = resolve_client(index, user or "", client).quotas[QuotaKey(key)]
    tags = found.shared_by
    level = found.source.level if found.source else 0
    return level, found.value, tags["user"], tags["client-id"]
