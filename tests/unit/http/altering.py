"""What the tests of alterations over HTTP ask for."""

from collections.abc import Sequence
from typing import Any

from app.domain.alterations import ClientQuotaAlteration
from app.domain.entities import ClientQuotaEntity
from app.service.cluster_ports import EntityVerdict
from tests.testkit.fake_ports import Verdicts
from tests.unit.http.application import Answer
from tests.unit.http.fake_service import ALTERATIONS, FakeService

ALICE = ClientQuotaEntity.of({"user": "alice"})
BOB = ClientQuotaEntity.of({"user": "bob"})
RATE = "producer_byte_rate"


def answering(verdict: EntityVerdict, *entities: ClientQuotaEntity) -> Any:
    def fault(alterations: Sequence[ClientQuotaAlteration], validate_only: bool) -> Verdicts:
        if validate_only:
            return {}
        return {one.entity: verdict for one in alterations if one.entity in entities}

    return fault


async def altered(service: FakeService, body: Any) -> str:
    answer = await service.post(ALTERATIONS, body)
    return str(answer.document["alteration_id"])


async def revert(
    service: FakeService, alteration_id: str, body: Any = None, **options: Any
) -> Answer:
    return await service.post(f"{ALTERATIONS}/{alteration_id}/revert", body or {}, **options)
