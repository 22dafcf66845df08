"""The quota protocol by hand: a witness that shares no code with the service.

Whatever the protocol can express can be sent: values that are no numbers, a type twice in one
entity, an entity twice in one request, unknown types.
"""

import itertools
import json
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from tests.testkit.patience import DEADLINE_S, wait_until

CLIENT_ID = "witness"
SERVICE_CLIENT_ID = "kafka-quota-service"
EXACT, DEFAULT, ANY = 0, 1, 2

_VERSION = 1
_LENGTH = struct.Struct(">i")
_NUMBERS = itertools.count(1)

Names = Mapping[str, str | None]
Values = Mapping[str, float | None]
Entity = frozenset[tuple[str, str | None]]
Component = tuple[str, int, str | None]


class Entry(NamedTuple):
    """What is asked for one entity: pairs, so that a type or a key can come twice.

    A value of null removes the key.
    """

    entity: Sequence[tuple[str, str | None]]
    ops: Sequence[tuple[str, float | None]]


class Verdict(NamedTuple):
    """One entry of the broker's answer to an alter."""

    entity: Entity
    code: int
    message: str | None


class Described(NamedTuple):
    """The broker's answer to a describe."""

    code: int
    message: str | None
    quotas: dict[Entity, dict[str, float]]


def setting(names: Names, values: Values) -> Entry:
    return Entry(list(names.items()), list(values.items()))


def entity_of(names: Names) -> Entity:
    return frozenset(names.items())


def printed(values: Mapping[str, Any] | None) -> dict[str, str]:
    """Return values so that they can be compared: every bit of them, and NaN equals NaN."""
    return {key: float(value).hex() for key, value in (values or {}).items()}


class RawQuotas:
    """One connection to one broker, in version 1 of both calls.

    Args:
        bootstrap_servers: The broker's listener, PLAINTEXT or with a login SASL_PLAINTEXT.
        host: The address to call from, where it matters.
        login: User and password for PLAIN. Source: RFC 4616.
    """

    def __init__(
        self, bootstrap_servers: str, host: str = "", login: tuple[str, str] | None = None
    ) -> None:
        address, _, port = bootstrap_servers.rpartition(":")
        self._socket = socket.create_connection(
            (address, int(port)), DEADLINE_S, source_address=(host, 0) if host else None
        )
        if login is not None:
            handshake = self._ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
            assert handshake.error_code == 0, handshake
            proof = "\0".join(("", *login)).encode()
            answer = self._ask(SaslAuthenticateRequest(auth_bytes=proof), SaslAuthenticateResponse)
            assert answer.error_code == 0, answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def alter(self, *entries: Entry, validate_only: bool = False) -> list[Verdict]:
        data = AlterClientQuotasRequest.EntryData
        request = AlterClientQuotasRequest(
            entries=[
                data(
                    entity=[
                        data.EntityData(entity_type=kind, entity_name=name)
                        for kind, name in entry.entity
                    ],
                    ops=[
                        data.OpData(key=key, value=value or 0.0, remove=value is None)
                        for key, value in entry.ops
                    ],
                )
                for entry in entries
            ],
            validate_only=validate_only,
        )
        answer = self._ask(request, AlterClientQuotasResponse)
        return [
            Verdict(_entity(entry.entity), entry.error_code, entry.error_message)
            for entry in answer.entries
        ]

    def describe(self, *components: Component, strict: bool = False) -> Described:
        data = DescribeClientQuotasRequest.ComponentData
        request = DescribeClientQuotasRequest(
            components=[
                data(entity_type=kind, match_type=match_type, match=match)
                for kind, match_type, match in components
            ],
            strict=strict,
        )
        answer = self._ask(request, DescribeClientQuotasResponse)
        quotas = {
            _entity(entry.entity): {value.key: value.value for value in entry.values}
            for entry in answer.entries or ()
        }
        return Described(answer.error_code, answer.error_message, quotas)

    def stored(self, names: Names) -> dict[str, float]:
        """Return the values of exactly this entity; empty where there is none."""
        components = [
            (kind, DEFAULT if name is None else EXACT, name) for kind, name in names.items()
        ]
        return self.describe(*components, strict=True).quotas.get(entity_of(names), {})

    def everything(self) -> dict[Entity, dict[str, float]]:
        return self.describe().quotas

    def store(self, names: Names, values: Values) -> None:
        """Set and remove values, and wait until the broker shows them."""
        wanted = {**self.stored(names), **values}
        verdicts = self.alter(setting(names, values))
        assert [verdict.code for verdict in verdicts] == [0], verdicts
        left = printed({key: value for key, value in wanted.items() if value is not None})
        wait_until(lambda: printed(self.stored(names)) == left)

    def become(self, world: Mapping[Entity, Mapping[str, float]]) -> None:
        """Make this every quota of the cluster, and wait until the broker shows it."""
        now = self.everything()
        changes = [
            setting(dict(entity), {**dict.fromkeys(now.get(entity, {})), **world.get(entity, {})})
            for entity in {*now, *world}
            if printed(now.get(entity)) != printed(world.get(entity))
        ]
        if changes:
            verdicts = self.alter(*changes)
            assert {verdict.code for verdict in verdicts} == {0}, verdicts
        wanted = {entity: printed(values) for entity, values in world.items()}
        wait_until(
            lambda: {key: printed(values) for key, values in self.everything().items()} == wanted
        )

    def _ask(self, request: Any, response: Any) -> Any:
        request.API_VERSION = _VERSION
        request.with_header(correlation_id=next(_NUMBERS), client_id=CLIENT_ID)
        self._socket.sendall(request.encode(header=True, framed=True))
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return response.decode(self._read(length), version=_VERSION, header=True)

    def _read(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self._socket.recv(size - len(received))
            assert chunk, "the broker closed the connection"
            received += chunk
        return bytes(received)


def _entity(components: Any) -> Entity:
    return frozenset((component.entity_type, component.entity_name) for component in components)


class RequestLog:
    """What arrived at the broker, from its own request log."""

    def __init__(self, path: Path, raw: RawQuotas) -> None:
        self._path = path
        self._raw = raw

    @contextmanager
    def alterations(self) -> Iterator[list[dict[str, Any]]]:
        """Collect the alterations that arrive within the block; the list is filled at its end.

        They are those of the service. The broker logs a request after it has answered, so a marker
        is sent before the block and another one after it. What the log holds between the two is
        what came between them: the broker has one network thread.
        """
        start = self._end_of_marker(self._path.stat().st_size)
        arrived: list[dict[str, Any]] = []
        yield arrived
        self._end_of_marker(start)
        arrived.extend(self._alterations(start, SERVICE_CLIENT_ID))

    @contextmanager
    def nothing_arrives(self, of: str = "") -> Iterator[None]:
        """Make sure that no alteration arrives within the block.

        Args:
            of: What the names of the block's entities begin with. After outages recovery asks the
                broker to validate what has no outcome yet; that changes nothing, and is of others.
        """
        with self.alterations() as arrived:
            yield
        of_others = [each for each in arrived if each["validateOnly"] and of not in f"{each}"]
        assert [each for each in arrived if each not in of_others] == []

    def _end_of_marker(self, start: int) -> int:
        """Send a marker and wait for it in the log; the offset in its line."""
        marker = f"marker-{next(_NUMBERS)}-{start}"
        self._raw.alter(setting({"user": marker}, {"request_percentage": 1}), validate_only=True)
        wait_until(lambda: marker in str(list(self._alterations(start, CLIENT_ID))))
        whole, _, _ = self._path.read_bytes().rpartition(marker.encode())
        return len(whole) + len(marker)

    def _alterations(self, start: int, client_id: str) -> Iterator[dict[str, Any]]:
        with self._path.open("rb") as log:
            log.seek(max(0, start - 1))
            if start > 0:
                log.readline()  # the rest of a line that was being written
            whole_lines, _, _ = log.read().decode().rpartition("\n")
        for line in whole_lines.splitlines():
            record = json.loads(line.partition(":")[2])
            header = record["requestHeader"]
            is_alter = header["requestApiKeyName"] == "ALTER_CLIENT_QUOTAS"
            if is_alter and header["clientId"] == client_id and not record["isForwarded"]:
                yield record["request"]
