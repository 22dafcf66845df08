"""Findings on their way to the log: in portions, so that no transaction holds slots for long."""

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final

from app.service.recovery.recovery_ports import Recovered, RecoveryJournal

PORTION: Final = 1000
"""How many findings are one transaction."""

logger = logging.getLogger(__name__)


async def record_in_portions(
    journal: RecoveryJournal, found: Sequence[Recovered]
) -> AsyncIterator[Sequence[Recovered]]:
    """Record findings; yield those of each portion once they are in the log.

    Raises:
        NotSentError: The rest is not recorded; what was yielded is.
    """
    for begin in range(0, len(found), PORTION):
        portion = found[begin : begin + PORTION]
        left = await journal.record_recovery(portion)
        for (alteration_id, _), why in left.items():
            logger.warning("%s was concluded elsewhere: %s", alteration_id, why)
        yield [one for one in portion if one.place not in left]
