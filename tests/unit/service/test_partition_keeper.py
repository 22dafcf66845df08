"""Partitions: made at intervals, and how far they reach is told whatever becomes of that."""

import asyncio

import pytest

from app.domain.errors import NotSentError
from app.service.partition_keeper import INTERVAL_S, PartitionKeeper
from tests.testkit.fake_metrics import CountedMetrics
from tests.testkit.virtual_time import in_virtual_time


class Log:
    """The number of months ahead; ``broken`` tells what cannot be done."""

    def __init__(self) -> None:
        self.months = 0
        self.tried = 0
        self.broken: set[str] = set()
        self.fault: Exception = NotSentError("Postgres is down.", code="audit-log-unavailable")

    async def ensure(self) -> int:
        self.tried += 1
        self._do("ensure")
        made, self.months = 3 - self.months, 3
        return made

    async def ahead(self) -> int:
        self._do("ahead")
        return self.months

    def _do(self, name: str) -> None:
        if name in self.broken:
            raise self.fault


async def kept(log: Log, metrics: CountedMetrics, times: int) -> None:
    keeper = asyncio.create_task(PartitionKeeper(log.ensure, log.ahead, metrics).run())
    async with asyncio.timeout(10 * INTERVAL_S):
        while log.tried < times:
            await asyncio.sleep(30)
    keeper.cancel()
    await asyncio.wait({keeper})


@in_virtual_time
async def test_what_is_missing_is_made_and_told():
    log, metrics = Log(), CountedMetrics()
    await kept(log, metrics, 3)
    assert (log.months, metrics.counts["months ahead"]) == (3, 3)


@in_virtual_time
async def test_how_far_partitions_reach_is_told_when_none_can_be_made():
    log, metrics = Log(), CountedMetrics()
    log.broken, log.months = {"ensure"}, -1
    await kept(log, metrics, 2)
    assert metrics.counts["months ahead"] == -1


@in_virtual_time
async def test_it_goes_on_when_nothing_can_be_counted(caplog: pytest.LogCaptureFixture):
    log, metrics = Log(), CountedMetrics()
    log.broken = {"ahead"}
    await kept(log, metrics, 3)
    assert "months ahead" not in metrics.counts
    assert "were not counted: Postgres is down." in caplog.text


@pytest.mark.parametrize("broken", ["ensure", "ahead"])
@in_virtual_time
async def test_it_goes_on_after_a_fault_of_our_own(caplog: pytest.LogCaptureFixture, broken: str):
    log, metrics = Log(), CountedMetrics()
    log.broken, log.fault = {broken}, RuntimeError("nobody has thought of that")
    await kept(log, metrics, 3)
    assert "nobody has thought of that" in caplog.text
