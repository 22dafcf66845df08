"""What a broker of a fake cluster answers to each kind of request."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

from tests.testkit.fake_broker import (
    ALTER,
    DESCRIBE,
    DESCRIBE_ACLS,
    DESCRIBE_CONFIGS,
    DESCRIBE_QUORUM,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from tests.testkit.fake_broker_accounts import (
    acls_answer,
    authenticate_answer,
    handshake_answer,
    plain_credentials,
)
from tests.testkit.fake_broker_controller import code_of
from tests.testkit.fake_broker_faults import Alteration, Answer, Fault
from tests.testkit.fake_broker_filters import describe
from tests.testkit.fake_broker_image import FakeImage
from tests.testkit.fake_broker_messages import (
    alter_answer,
    alter_asked,
    configs_answer,
    describe_answer,
    describe_asked,
    quorum_answer,
)
from tests.testkit.fake_broker_queue import ForwardQueue, NoAnswer
from tests.testkit.fake_broker_quotas import (
    CLUSTER_AUTHORIZATION_FAILED,
    REQUEST_TIMED_OUT,
    Verdict,
    for_all,
)
from tests.testkit.fake_broker_world import World

ANONYMOUS = "User:ANONYMOUS"
_SECURITY_DISABLED = 54

Answering = Callable[[asyncio.StreamWriter, bytes], Awaitable[Any]]
"""Takes a connection and a request, returns a message, or what becomes of the connection."""


class Apis:
    """Answers from a broker's own image, and forwards what is the controller's.

    Attributes:
        codes: The code that is answered instead of the truth, by API key.
    """

    def __init__(self, node_id: int, world: World) -> None:
        self.codes: dict[int, int] = {}
        self.image = FakeImage(world.controller)
        self.queue = ForwardQueue(world.controller, world.patience)
        self.answering: dict[int, Answering] = {
            SASL_HANDSHAKE: self._handshake,
            SASL_AUTHENTICATE: self._authenticate,
            DESCRIBE: self._describe,
            ALTER: self._alter,
            DESCRIBE_ACLS: self._acls,
            DESCRIBE_CONFIGS: self._configs,
            DESCRIBE_QUORUM: self._quorum,
        }
        self._node_id = node_id
        self._world = world
        self._principals: WeakKeyDictionary[asyncio.StreamWriter, str] = WeakKeyDictionary()

    def _refusal(self, writer: asyncio.StreamWriter, api_key: int, operation: str) -> int:
        """Return the code that stands in the way of an answer, or 0."""
        if api_key in self.codes:
            return self.codes[api_key]
        permitted = self._world.rights.get(self._principal(writer))
        allowed = permitted is None or operation in permitted
        return 0 if allowed else CLUSTER_AUTHORIZATION_FAILED

    def _principal(self, writer: asyncio.StreamWriter) -> str:
        return self._principals.get(writer, ANONYMOUS)

    async def _handshake(self, writer: asyncio.StreamWriter, request: bytes) -> Any:
        return handshake_answer(request)

    async def _authenticate(self, writer: asyncio.StreamWriter, request: bytes) -> Any:
        user, password = plain_credentials(request)
        accepted = self._world.accounts.get(user) == password
        if accepted:
            self._principals[writer] = f"User:{user}"
        return authenticate_answer(accepted=accepted)

    async def _describe(self, writer: asyncio.StreamWriter, request: bytes) -> Any:
        code = self._refusal(writer, DESCRIBE, "DESCRIBE_CONFIGS")
        if code:
            return describe_answer(code, None, None)
        components, strict = describe_asked(request)
        return describe_answer(*describe(components, self.image.quotas, strict=strict))

    async def _acls(self, writer: asyncio.StreamWriter, request: bytes) -> Any:
        code = self._refusal(writer, DESCRIBE_ACLS, "DESCRIBE")
        acls = self._world.acls
        if acls is None:
            return acls_answer(_SECURITY_DISABLED, ())
        return acls_answer(code, () if code else acls)

    async def _configs(self, writer: asyncio.StreamWriter, request: bytes) -> Any:
        return configs_answer(request, self._world.callback)

    async def _quorum(self, writer: asyncio.StreamWriter, request: bytes) -> Any:
        code = self._refusal(writer, DESCRIBE_QUORUM, "DESCRIBE")
        if code:
            return quorum_answer(code, None)
        told = await self.queue.ask(self._world.quorum)
        if told is NoAnswer.TIMED_OUT:
            return quorum_answer(REQUEST_TIMED_OUT, None)
        return quorum_answer(0, told)

    async def _alter(self, writer: asyncio.StreamWriter, request: bytes) -> Any:
        asked = alter_asked(request)
        alteration = self._world.arrived(self._node_id, self._principal(writer), asked)
        code = self._refusal(writer, ALTER, "ALTER_CONFIGS")
        if code:
            text = "Cluster authorization failed." if code == CLUSTER_AUTHORIZATION_FAILED else None
            return alter_answer(for_all(asked.entries, code, text))
        fault = self._world.faults.of(alteration)
        if fault.delay_s:
            await asyncio.sleep(fault.delay_s)
        verdicts = await self._verdicts(alteration, fault)
        await asyncio.sleep(fault.answer_after_s)
        if fault.answer is not Answer.TRUTH:
            return fault.answer
        return alter_answer(_as_told(verdicts, fault))

    async def _verdicts(self, alteration: Alteration, fault: Fault) -> list[Verdict]:
        """Return what is known when the answer is due, which may never be."""
        work = self._world.work(alteration, fault)
        if fault.applies is None:
            verdicts = await self.queue.ask(work)
            if verdicts is NoAnswer.TIMED_OUT:
                return for_all(alteration.entries, REQUEST_TIMED_OUT, "The request timed out.")
            return list(verdicts)
        applied = self._world.apply_at(work, fault.applies)
        if 0.0 in fault.applies or (fault.answer is Answer.TRUTH and fault.said is None):
            return await applied
        return for_all(alteration.entries, 0, None)


def _as_told(verdicts: list[Verdict], fault: Fault) -> list[Verdict]:
    return [
        verdict
        if (said := code_of(fault.said, verdict.entity)) is None
        else Verdict(verdict.entity, said, None)
        for verdict in verdicts
        if verdict.entity not in fault.left_out
    ]
