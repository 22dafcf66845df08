"""The world that every example is about: a few entities with quotas, one alteration of them."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from app.domain.alterations import (
    AlterationResult,
    ClientQuotaAlteration,
    KafkaRefusal,
    Op,
    Outcome,
    Quotas,
)
from app.domain.entities import Caller, ClientQuotaEntity
from app.domain.quota_keys import QuotaKey

PRODUCER: Final = QuotaKey.PRODUCER_BYTE_RATE.value
CONSUMER: Final = QuotaKey.CONSUMER_BYTE_RATE.value
CONNECTIONS: Final = QuotaKey.CONNECTION_CREATION_RATE.value

CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"
REQUEST_ID: Final = "3b0f6a52-7d5e-4a5f-9a54-6d1c0a1f2e3d"
ALTERATION_ID: Final = "01a1fb9f-e8c0-7c4d-8e9f-0a1b2c3d4e5f"
AT: Final = datetime(2026, 11, 21, 1, 2, 3, 456000, tzinfo=UTC)
LATER: Final = AT.replace(microsecond=498000)
MUCH_LATER: Final = AT + timedelta(seconds=97)
IDEMPOTENCY_KEY: Final = "inc-4711-raise-for-backfill"
PAGE_TOKEN: Final = "Yl9zaWduYXR1cmVfaGVyZVsxNzMyMTUwOTIzXQ"  # noqa: S105
REASON: Final = "INC-4711 raise for backfill"
CALLER: Final = Caller("User:alice", "10.0.0.7", "bearer-token")

USER: Final = ClientQuotaEntity.of({"user": "alice"})
USER_ANY_CLIENT: Final = ClientQuotaEntity.of({"user": "alice", "client-id": None})
DEFAULT_USER: Final = ClientQuotaEntity.of({"user": None})
ADDRESS: Final = ClientQuotaEntity.of({"ip": "10.0.0.1"})

QUOTAS: Final[Quotas] = {
    DEFAULT_USER: {PRODUCER: 1000.0},
    USER: {PRODUCER: 1048576.0, CONSUMER: 2.0**63},
    ADDRESS: {CONNECTIONS: 100.0},
}

BEFORE: Final = {PRODUCER: 524288.0, CONSUMER: 1000.0}
AFTER: Final = {PRODUCER: 1048576.0}

ALTERATION: Final = ClientQuotaAlteration(
    USER_ANY_CLIENT, (Op(PRODUCER, Decimal(1048576)), Op(CONSUMER, remove=True))
)

APPLIED: Final = AlterationResult(
    USER_ANY_CLIENT, Outcome.APPLIED, changed=True, before=BEFORE, after=AFTER
)
VALIDATED: Final = AlterationResult(
    USER_ANY_CLIENT, Outcome.VALIDATED, changed=True, before=BEFORE, after=AFTER
)
OBSERVED_OTHER: Final = AlterationResult(
    USER_ANY_CLIENT, Outcome.OBSERVED_OTHER, before=BEFORE, after={PRODUCER: 2097152.0}
)
REVERTED: Final = AlterationResult(
    USER_ANY_CLIENT, Outcome.APPLIED, changed=True, before=AFTER, after=BEFORE
)
REFUSED: Final = AlterationResult(
    ADDRESS,
    Outcome.REFUSED,
    changed=False,
    before={},
    after={},
    error=KafkaRefusal("INVALID_REQUEST", "10.0.0.1 is not a valid IP or resolvable host."),
)
