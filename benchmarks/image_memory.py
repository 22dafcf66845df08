"""Memory of the image over many renewals with changes, and how long others wait for them.

``python -m benchmarks.image_memory``. A process that has imported the whole service renews an image
of a broker in memory; after each an identity is resolved and, if wanted, the list is rendered.
The delay is how much later than due a task runs that wants to run every millisecond.
"""

import argparse
import asyncio
import random
import struct
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import uvloop

import app.wiring
from app.domain.entities import ALL_ENTITIES, ClientQuotaFilter
from app.http.quotas.rendering import json_chunks
from app.http.resolve.rendering import resolution_bytes
from app.kafka.describe_all import DescribedAll
from app.service.ports.brokers import Described
from app.service.queries.describe import SortedSnapshots
from app.service.queries.image import QuotaImage
from app.service.queries.resolve import Identity, ResolveQuery, ResolveQuotas
from benchmarks.errors import BenchmarkError
from benchmarks.measures import Measure

_HEADER: Final = struct.Struct(">iBihB").pack(1, 0, 0, 0, 1)
_EVERY_S: Final = 0.001
_CHANGES: Final = 20
_REPORTS: Final = 10


def _text(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def _entry(number: int, value: float) -> bytes:
    """Return an entity of two names and two keys as brokers encode it."""
    names = (("user", f"user-{number:07}"), ("client-id", f"client-{number:07}"))
    values = (("producer_byte_rate", value), ("consumer_byte_rate", 2 * value))
    entity = b"".join(_text(kind) + _text(name) + b"\0" for kind, name in names)
    quotas = b"".join(_text(key) + struct.pack(">d", rate) + b"\0" for key, rate in values)
    return b"\3" + entity + b"\3" + quotas + b"\0"


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


class _Broker:
    """Describes everything, each entity with values of its own; and has no code of its own."""

    def __init__(self, entities: int) -> None:
        self._entries = {number: _entry(number, 1000.0 + number) for number in range(entities)}
        self._decoder = DescribedAll()
        self._next = entities
        self._payload = bytearray()

    def change(self) -> None:
        """Change some values, remove some entities, and store as many new ones."""
        for number in random.sample(list(self._entries), 2 * _CHANGES):
            self._next += 1
            if number % 2:
                self._entries[number] = _entry(number, self._next)
            else:
                del self._entries[number]
                self._entries[self._next] = _entry(self._next, self._next)
        entries = self._entries.values()
        self._payload = bytearray().join([_HEADER, _varint(len(entries) + 1), *entries, b"\0"])

    async def describe_client_quotas(
        self, quota_filter: ClientQuotaFilter, **_options: Any
    ) -> Described:
        """See ``QuotaReader``; everything is the only filter here."""
        if quota_filter != ALL_ENTITIES:
            raise BenchmarkError("the image describes everything")
        payload, self._payload = self._payload, bytearray()
        answer, changes = await self._decoder.read(payload, 1)
        if answer.quotas is None:
            raise BenchmarkError("the response cannot be read")
        return Described(answer.quotas, datetime.now(UTC), "cluster", 1, changes)

    async def custom_callback(self) -> str | None:
        """See ``CallbackDetector``."""
        return None


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


async def _note_delays(delays_ms: list[float]) -> None:
    while True:
        due = time.perf_counter() + _EVERY_S
        await asyncio.sleep(_EVERY_S)
        delays_ms.append((time.perf_counter() - due) * 1000)


async def _measure(entities: int, renewals: int, *, lists: bool) -> None:
    print(f"imported {app.wiring.__name__}: {_resident_mb():.0f} MB")
    broker = _Broker(entities)
    print(f"with the broker's {entities:,} entries: {_resident_mb():.0f} MB")
    image = QuotaImage(broker, broker)
    resolving, lists_of = ResolveQuotas(image), SortedSnapshots()
    identities = (Identity("user-0000001", "client-0000001"),)
    for renewal in range(renewals + 1):
        broker.change()
        delays_ms: list[float] = []
        noting = asyncio.create_task(_note_delays(delays_ms))
        began, cpu = time.perf_counter(), time.process_time()
        described = await image.image(max_age_ms=0)
        basis = await resolving.basis(ResolveQuery(identities))
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        noting.cancel()
        resolution_bytes(basis)
        if lists:
            arranged = await lists_of.in_order(described)
            if arranged.rendering is not None:
                await asyncio.to_thread(json_chunks, arranged.rendering)
        if renewal % max(1, renewals // _REPORTS) == 0:
            delay = Measure(delays_ms or [0.0])
            print(
                f"renewal {renewal}: {_resident_mb():.0f} MB, {took * 1000:.0f} ms "
                f"({cpu * 1000:.0f} of CPU), others {delay.median:.2f} ms late, p99 {delay.p99:.2f}"
            )
    await image.close()


def main(arguments: Sequence[str]) -> None:
    """Measure, and print a line for each tenth of the renewals."""
    parser = argparse.ArgumentParser(description=__doc__.partition(".")[0])
    parser.add_argument("--entities", type=int, default=100_000)
    parser.add_argument("--renewals", type=int, default=200)
    parser.add_argument("--lists", action="store_true", help="render the list each time, too")
    options = parser.parse_args(arguments)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_measure(options.entities, options.renewals, lists=options.lists))


if __name__ == "__main__":
    main(sys.argv[1:])
