"""One fake broker, the adapter on it, and answers that it may give."""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kafka.protocol.admin import AlterClientQuotasResponse, DescribeClientQuotasResponse

from app.kafka.cluster_client import Brokers
from app.kafka.config import KafkaSettings
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from tests.testkit.fake_kafka.server import FakeBroker
from tests.testkit.kafka import entity

SHORT_S = 0.3

TWO_GIGABYTES = struct.pack(">i", 2**31 - 1)
NO_QUOTAS = DescribeClientQuotasResponse(
    throttle_time_ms=0, error_code=0, error_message=None, entries=[]
)
ALICE = entity(user="alice")
BOB = entity(user="bob", client_id=None)


@asynccontextmanager
async def admin_of(broker: FakeBroker) -> AsyncIterator[KafkaClientQuotaAdmin]:
    admin = KafkaClientQuotaAdmin(Brokers(KafkaSettings(broker.bootstrap_servers)))
    try:
        yield admin
    finally:
        await admin.close()


def verdicts(*answers: tuple[str, str | None, int]) -> AlterClientQuotasResponse:
    entry = AlterClientQuotasResponse.EntryData
    return AlterClientQuotasResponse(
        throttle_time_ms=250,
        entries=[
            entry(
                error_code=code,
                error_message=None,
                entity=[entry.EntityData(entity_type=kind, entity_name=name)],
            )
            for kind, name, code in answers
        ],
    )
