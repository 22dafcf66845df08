"""Partitions of the log are made ahead, so that no month begins without its own."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from app.domain.errors import QuotaError
from app.service.metrics_port import AlterationMetrics

INTERVAL_S: Final = 6 * 3600.0
"""How often missing partitions are made, in seconds; three months are kept ahead."""

_AFTER_FAILURE_S: Final = 60.0

logger = logging.getLogger(__name__)


class PartitionKeeper:
    """Makes partitions at the start and at intervals.

    Args:
        ensure: Makes what is missing and returns how many were.
        months_ahead: Counts the months after the present one that have a partition.
        metrics: Where that is told, also when nothing could be made.
    """

    def __init__(
        self,
        ensure: Callable[[], Awaitable[int]],
        months_ahead: Callable[[], Awaitable[int]],
        metrics: AlterationMetrics,
    ) -> None:
        self._ensure = ensure
        self._months_ahead = months_ahead
        self._metrics = metrics

    async def run(self) -> None:
        """Keep partitions ahead until cancelled."""
        while True:
            pause_s = await self._kept()
            await self._tell()
            await asyncio.sleep(pause_s)

    async def _tell(self) -> None:
        try:
            self._metrics.partitions_reach(await self._months_ahead())
        except QuotaError as error:
            logger.warning("partitions of the audit log were not counted: %s", error.detail)
        except Exception:  # the outermost boundary of this task, which must not end
            logger.exception("partitions of the audit log were not counted")

    async def _kept(self) -> float:
        """Return how long to wait until the next time, in seconds."""
        try:
            made = await self._ensure()
        except QuotaError as error:
            logger.warning("partitions of the audit log were not made: %s", error.detail)
            return _AFTER_FAILURE_S
        except Exception:  # the outermost boundary of this task, which must not end
            logger.exception("partitions of the audit log were not made")
            return _AFTER_FAILURE_S
        if made:
            logger.info("made %d partitions of the audit log", made)
        return INTERVAL_S
