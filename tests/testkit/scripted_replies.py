"""What a fake broker may answer to a whole service."""

import asyncio
import threading
from typing import Any, Final

from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeAclsResponse,
    DescribeClientQuotasResponse,
)
from kafka.protocol.metadata import ApiVersionsResponse

from tests.testkit.fake_broker import ALTER, DESCRIBE, HEALTHY_VERSIONS, Reply, answering, framed

DEADLINE_S: Final = 30.0


def acl_error(code: int) -> Reply:
    """Refuse to tell the ACLs."""
    answer = DescribeAclsResponse(
        throttle_time_ms=0, error_code=code, error_message=None, resources=[]
    )
    return answering(answer, 3)


def describe_error(code: int, message: str | None = None) -> Reply:
    """Refuse to describe."""
    answer = DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=code, error_message=message, entries=None
    )
    return answering(answer, 1)


def versions_before_2_6() -> Reply:
    """Offer neither DescribeClientQuotas nor AlterClientQuotas."""
    key: Any = ApiVersionsResponse.ApiVersion
    spans = {api: span for api, span in HEALTHY_VERSIONS.items() if api not in {DESCRIBE, ALTER}}
    keys = [
        key(api_key=api, min_version=low, max_version=high) for api, (low, high) in spans.items()
    ]
    return answering(ApiVersionsResponse(error_code=0, api_keys=keys), 3, flexible=False)


def verdict(code: int = 0, message: str | None = None) -> Reply:
    """Answer an alteration with this code for each entity."""

    async def reply(writer: asyncio.StreamWriter, correlation_id: int, request: bytes) -> None:
        entry: Any = AlterClientQuotasResponse.EntryData
        entries = [
            entry(
                error_code=code,
                error_message=message,
                entity=[
                    entry.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in each.entity
                ],
            )
            for each in _decoded(request).entries
        ]
        answer = AlterClientQuotasResponse(throttle_time_ms=0, entries=entries)
        writer.write(framed(correlation_id, b"\0" + bytes(answer.encode(version=1))))

    return reply


class Alterations:
    """Answers alterations as told, and remembers them; a validation is always passed.

    Attributes:
        count: How many came that would change something.
        arrived: Set from the first on.
    """

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.count = 0
        self.arrived = threading.Event()

    async def __call__(
        self, writer: asyncio.StreamWriter, correlation_id: int, request: bytes
    ) -> None:
        """Answer one."""
        if _decoded(request).validate_only:
            await verdict()(writer, correlation_id, request)
            return
        self.count += 1
        self.arrived.set()
        await self.answer(writer, correlation_id, request)

    async def answer(
        self, writer: asyncio.StreamWriter, correlation_id: int, request: bytes
    ) -> None:
        """Answer one that would change something."""
        await self._reply(writer, correlation_id, request)

    def wait(self) -> None:
        """Wait for the first."""
        assert self.arrived.wait(DEADLINE_S), "the alteration did not arrive"


class HeldAlterations(Alterations):
    """Keeps the answers back until the test lets them go."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply)
        self._released = threading.Event()

    async def answer(
        self, writer: asyncio.StreamWriter, correlation_id: int, request: bytes
    ) -> None:
        """Answer when the test says so."""
        await asyncio.to_thread(self._released.wait, DEADLINE_S)
        await super().answer(writer, correlation_id, request)

    def release(self) -> None:
        """Let the answers go."""
        self._released.set()


def _decoded(request: bytes) -> Any:
    return AlterClientQuotasRequest.decode(request, version=1, header=True)
