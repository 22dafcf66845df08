"""``/metrics`` of a service with several workers: whichever is asked answers for all."""

import asyncio
import logging
from pathlib import Path
from typing import Final

import httpx
from prometheus_client import CollectorRegistry, exposition

from app.http.metrics import HttpMetrics
from app.http.workers.private_app import COUNTED
from app.http.workers.samples import (
    Families,
    Shown,
    add,
    add_gauges,
    counted,
    families_of,
    read,
    written,
)
from app.http.workers.team import Team
from app.http.workers.ways import way_to

_WITHIN_S: Final = 2.0

logger = logging.getLogger(__name__)


class ServiceMetrics:
    """Adds up what the workers have counted.

    What a worker tells others it has written to its file before. So whatever was shown once is
    counted on when that worker has died: the one that follows it counts on from there, and until it
    does its file is read. No sum ever falls.

    Args:
        metrics: Of this worker.
        team: The workers.
    """

    def __init__(self, metrics: HttpMetrics, team: Team) -> None:
        self._metrics = metrics
        self._team = team
        self._before = counted(_kept(team.metrics_of(team.mine)))

    def own(self) -> bytes:
        """Return what this worker has counted, with those whose place it took."""
        return written(self._own())

    def _own(self) -> Families:
        families = families_of(self._metrics.registry.collect())
        add(families, self._before)
        path = self._team.metrics_of(self._team.mine)
        fresh = path.with_suffix(".new")
        fresh.write_bytes(written(counted(families)))
        fresh.replace(path)
        return families

    async def exposition(self) -> tuple[bytes, str]:
        """Return the Prometheus text for the whole service, and its content type."""
        numbers = self._team.others()
        told = await asyncio.gather(*(_told(self._team.socket_of(each)) for each in numbers))
        of_all = dict(zip(numbers, told, strict=True))
        service: Families = {}
        for number in self._team.numbers():
            text = of_all.get(number)
            if number == self._team.mine:
                families = self._own()
            else:
                families = read(text) if text else _kept(self._team.metrics_of(number))
            add(service, counted(families))
            add_gauges(service, families, number)
        registry = CollectorRegistry()
        registry.register(Shown(service))
        return exposition.generate_latest(registry), exposition.CONTENT_TYPE_PLAIN_0_0_4


def _kept(path: Path) -> Families:
    """Return what a worker that does not answer, or is dead, had told; empty if nothing."""
    try:
        return read(path.read_bytes())
    except FileNotFoundError:
        return {}


async def _told(path: Path) -> bytes | None:
    """Ask a worker what it has counted; null where it does not answer."""
    try:
        async with asyncio.timeout(_WITHIN_S), way_to(path) as way:
            answer = await way.handle_async_request(httpx.Request("GET", f"http://worker{COUNTED}"))
            body = await answer.aread()
            return body if answer.is_success else None
    except (httpx.TransportError, TimeoutError) as error:
        logger.warning("a worker does not tell what it has counted: %r", error)
        return None
