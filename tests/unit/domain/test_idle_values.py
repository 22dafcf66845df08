"""Which stored values the levels alone make useless."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis.strategies import builds, dictionaries, fixed_dictionaries, one_of, sampled_from

from app.domain.entities import ClientQuotaEntity
from app.domain.idle_values import IdleKind, idle_values
from app.domain.resolution import resolve_client
from app.domain.resolution_index import QuotaIndex

P = "producer_byte_rate"
USERS = ("alice", "bob", "")
CLIENTS = ("etl", "web", "")

Stored = Mapping[ClientQuotaEntity, Mapping[str, float]]

ENTITIES = one_of(
    builds(lambda user: ClientQuotaEntity.of({"user": user}), sampled_from(["alice", "bob", None])),
    builds(
        lambda name: ClientQuotaEntity.of({"client-id": name}), sampled_from(["etl", "web", None])
    ),
    builds(
        lambda user, name: ClientQuotaEntity.of({"user": user, "client-id": name}),
        sampled_from(["alice", "bob", None]),
        sampled_from(["etl", "web", None]),
    ),
)
QUOTAS = dictionaries(ENTITIES, fixed_dictionaries({P: sampled_from([1.0, 2.0])}), max_size=9)
CALLERS = [(user, client_id) for user in USERS if user for client_id in CLIENTS]


@given(QUOTAS)
def test_what_levels_shadow_applies_to_nobody(stored: Stored):
    for idle in idle_values(stored):
        for user, client_id in CALLERS:
            source = resolve_client(QuotaIndex.of(stored), user, client_id).quotas[P].source  # type: ignore[index]
            if idle.kind is IdleKind.SHADOWED:
                assert source is None or source.entity != idle.entity
            if idle.kind is IdleKind.SHADOWED_FOR_CLIENTS and client_id:
                assert source is None or source.entity != idle.entity
