"""One broker of a fake cluster: its image of the metadata log, its replies, its listener."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

from app.domain.entities import ClientQuotaEntity
from tests.testkit.fake_kafka.controller import FakeController, ForwardQueue, NoAnswer, code_of
from tests.testkit.fake_kafka.messages import (
    acls_answer,
    alter_answer,
    alter_asked,
    authenticate_answer,
    configs_answer,
    describe_answer,
    describe_asked,
    encoded,
    handshake_answer,
    plain_credentials,
    quorum_answer,
)
from tests.testkit.fake_kafka.quotas import (
    CLUSTER_AUTHORIZATION_FAILED,
    REQUEST_TIMED_OUT,
    Values,
    Verdict,
    apply,
    describe,
    for_all,
)
from tests.testkit.fake_kafka.server import (
    ALTER,
    DESCRIBE,
    DESCRIBE_ACLS,
    DESCRIBE_CONFIGS,
    DESCRIBE_QUORUM,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    FakeBroker,
    Reply,
    framed,
)
from tests.testkit.fake_kafka.state import Alteration, Answer, ClusterState, Fault


class FakeImage:
    """Never goes back.

    Attributes:
        lag_s: How late this broker publishes what is committed.
        cut_off: It fetches nothing any more, and shows what it has without an error.
    """

    def __init__(self, controller: FakeController) -> None:
        self.lag_s = 0.0
        self.cut_off = False
        self._controller = controller
        self._published = 0
        self._quotas: dict[ClientQuotaEntity, Values] = {}

    @property
    def offset(self) -> int:
        """The last offset of the log that this broker shows."""
        self._publish()
        return self._controller.end_of(self._published) - 1

    @property
    def quotas(self) -> dict[ClientQuotaEntity, Values]:
        """What this broker shows."""
        self._publish()
        return self._quotas

    def _publish(self) -> None:
        until = time.monotonic() - self.lag_s
        batches = self._controller.batches
        while (
            not self.cut_off
            and self._published < len(batches)
            and batches[self._published].committed_at <= until
        ):
            for change in batches[self._published].changes:
                apply(change, self._quotas)
            self._published += 1


ANONYMOUS = "User:ANONYMOUS"
_SECURITY_DISABLED = 54

Answering = Callable[[asyncio.StreamWriter, bytes], Awaitable[Any]]
"""Takes a connection and a request, returns a message, or what becomes of the connection."""


class Apis:
    """Answers from a broker's own image, and forwards what is the controller's.

    Attributes:
        codes: The code that is answered instead of the truth, by API key.
    """

    def __init__(self, node_id: int, state: ClusterState) -> None:
        self.codes: dict[int, int] = {}
        self.image = FakeImage(state.controller)
        self.queue = ForwardQueue(state.controller, state.patience)
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
        self._state = state
        self._principals: WeakKeyDictionary[asyncio.StreamWriter, str] = WeakKeyDictionary()

    def _refusal(self, writer: asyncio.StreamWriter, api_key: int, operation: str) -> int:
        """Return the code that is answered instead, or 0."""
        if api_key in self.codes:
            return self.codes[api_key]
        permitted = self._state.rights.get(self._principal(writer))
        allowed = permitted is None or operation in permitted
        return 0 if allowed else CLUSTER_AUTHORIZATION_FAILED

    def _principal(self, writer: asyncio.StreamWriter) -> str:
        return self._principals.get(writer, ANONYMOUS)

    async def _handshake(self, writer: asyncio.StreamWriter, request: bytes) -> Any:
        return handshake_answer(request)

    async def _authenticate(self, writer: asyncio.StreamWriter, request: bytes) -> Any:
        user, password = plain_credentials(request)
        accepted = self._state.accounts.get(user) == password
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
        acls = self._state.acls
        if acls is None:
            return acls_answer(_SECURITY_DISABLED, ())
        return acls_answer(code, () if code else acls)

    async def _configs(self, writer: asyncio.StreamWriter, request: bytes) -> Any:
        return configs_answer(request, self._state.callback)

    async def _quorum(self, writer: asyncio.StreamWriter, request: bytes) -> Any:
        code = self._refusal(writer, DESCRIBE_QUORUM, "DESCRIBE")
        if code:
            return quorum_answer(code, None)
        view = await self.queue.ask(self._state.quorum)
        if view is NoAnswer.TIMED_OUT:
            return quorum_answer(REQUEST_TIMED_OUT, None)
        return quorum_answer(0, view)

    async def _alter(self, writer: asyncio.StreamWriter, request: bytes) -> Any:
        asked = alter_asked(request)
        alteration = self._state.arrived(self._node_id, self._principal(writer), asked)
        code = self._refusal(writer, ALTER, "ALTER_CONFIGS")
        if code:
            text = "Cluster authorization failed." if code == CLUSTER_AUTHORIZATION_FAILED else None
            return alter_answer(for_all(asked.entries, code, text))
        fault = self._state.faults.of(alteration)
        if fault.delay_s:
            await asyncio.sleep(fault.delay_s)
        verdicts = await self._verdicts(alteration, fault)
        await asyncio.sleep(fault.answer_after_s)
        if fault.answer is not Answer.TRUTH:
            return fault.answer
        return alter_answer(_overridden(verdicts, fault))

    async def _verdicts(self, alteration: Alteration, fault: Fault) -> list[Verdict]:
        """Return the verdicts when the answer is due, which may never be."""
        work = self._state.work(alteration, fault)
        if fault.applies is None:
            verdicts = await self.queue.ask(work)
            if verdicts is NoAnswer.TIMED_OUT:
                return for_all(alteration.entries, REQUEST_TIMED_OUT, "The request timed out.")
            return list(verdicts)
        applied = self._state.apply_at(work, fault.applies)
        if 0.0 in fault.applies or (fault.answer is Answer.TRUTH and fault.error_code is None):
            return await applied
        return for_all(alteration.entries, 0, None)


def _overridden(verdicts: list[Verdict], fault: Fault) -> list[Verdict]:
    return [
        verdict
        if (code := code_of(fault.error_code, verdict.entity)) is None
        else Verdict(verdict.entity, code, None)
        for verdict in verdicts
        if verdict.entity not in fault.left_out
    ]


class FakeNode(FakeBroker):
    """Listens on one port.

    Attributes:
        apis: What it answers.
        delays: How long an answer is held back, in seconds, by API key.
    """

    def __init__(self, node_id: int, state: ClusterState) -> None:
        self.apis = Apis(node_id, state)
        answering = self.apis.answering.items()
        super().__init__({key: self._replying(key, each) for key, each in answering})
        self.healthy = dict(self.replies)
        self.node_id = node_id
        self.delays: dict[int, float] = {}
        self._state = state
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._listener: socket.socket | None = None
        self._opening: asyncio.Task[None] | None = None
        self._running = asyncio.Event()
        self._running.set()
        self.port = 0

    def start(self) -> None:
        """Listen, on the same port as before."""
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=200)
        self.port = self._listener.getsockname()[1]
        self._opening = asyncio.create_task(self._open(self._listener))

    async def _open(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(self.serve, sock=listener)

    def stop(self) -> None:
        """Die: close every connection, accept no more, and forget what waits."""
        if self._opening is not None:
            self._opening.cancel()
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._listener is not None:
            self._listener.close()
        self.apis.queue.forget()
        self.hang_up()
        for task in self._tasks:
            task.cancel()

    def freeze(self) -> None:
        """Hang: connections stay open, and nothing is done."""
        self._running.clear()
        self.apis.queue.freeze()

    def thaw(self) -> None:
        """Go on."""
        self._running.set()
        self.apis.queue.thaw()

    async def close(self) -> None:
        """Stop, and wait until nothing is left."""
        self.stop()
        self.apis.queue.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await super().serve(reader, writer)
        except asyncio.CancelledError:
            writer.close()

    def published_offset(self) -> int:
        """Return the offset of the image."""
        return self.apis.image.offset

    async def answer(
        self, api_key: int, writer: asyncio.StreamWriter, correlation_id: int, request: bytes
    ) -> None:
        """Answer one request, unless this broker hangs."""
        await self._running.wait()
        if api_key == METADATA:
            self.cluster_id = self._state.cluster_id
            self.peers = dict(self._state.listed)
            self.fenced = self.node_id not in self.peers
        await super().answer(api_key, writer, correlation_id, request)

    def _replying(self, api_key: int, answering: Answering) -> Reply:
        async def reply(writer: asyncio.StreamWriter, correlation_id: int, request: bytes) -> None:
            answer = await answering(writer, request)
            await asyncio.sleep(self.delays.get(api_key, 0.0))
            await self._running.wait()
            if answer is Answer.CLOSE:
                writer.close()
            elif answer is not Answer.SILENCE:
                writer.write(framed(correlation_id, encoded(answer, request)))

        return reply
