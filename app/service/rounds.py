"""Work that is done again and again for as long as the process lives."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from app.domain.errors import QuotaError


async def again_and_again(
    what: str, work: Callable[[], Awaitable[object]], *, pause_s: float, logger: logging.Logger
) -> None:
    """Work until cancelled; what fails is tried again in the next round.

    It is logged, but for a failure that is the same as that of the round before.

    Args:
        what: Names a round in the log.
        work: One round.
        pause_s: Between two rounds, in seconds.
        logger: Of the module whose work it is.
    """
    logged: str | None = None
    while True:
        try:
            await work()
            logged = None
        except QuotaError as error:
            if error.detail != logged:
                logger.warning("%s failed: %s", what, error.detail)
            logged = error.detail
        except Exception:  # the outermost boundary of this task: one bad row must not end it
            logger.exception("%s failed", what)
        await asyncio.sleep(pause_s)
