"""The wait until what was applied can be read; nothing that happens in it undoes the change."""

import logging
import time
from collections.abc import Sequence

from app.domain.alterations import Quotas
from app.domain.errors import NotSentError
from app.service.alterations.alteration_command import AlterCommand, Wait
from app.service.alterations.present_values import PresentValues
from app.service.cluster_ports import ClientQuotaAdmin

logger = logging.getLogger(__name__)


async def is_readable(
    command: AlterCommand,
    after: Quotas,
    broker_id: int | None,
    admin: ClientQuotaAdmin,
    present: PresentValues,
) -> bool:
    """Wait for as long as the caller does; tell whether the brokers that count have shown it.

    Args:
        command: What was asked for.
        after: What was applied.
        broker_id: Through which broker.
        admin: Tells which brokers are live, where all of them count.
        present: Reads.
    """
    within_s = command.wait_ms / 1000
    brokers: Sequence[int | None] = (broker_id,)
    began = time.monotonic()
    try:
        if command.wait is Wait.ALL_BROKERS:
            brokers = await admin.live_brokers(timeout_s=within_s)
        left_s = within_s - (time.monotonic() - began)
        return await present.until_readable(after, within_s=left_s, brokers=brokers)
    except NotSentError:
        return False
    except Exception:  # whatever it is, the change was applied, and the caller must be told
        logger.exception("whether a change is readable was not found out")
        return False
