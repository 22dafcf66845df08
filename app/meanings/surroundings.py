"""Are these the log and the cluster that the service may start with? Asked once, before it does.

One that does not answer may come later: then readiness and the requests themselves tell.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from app.domain.errors import NotSentError, WrongClusterError
from app.kafka.brokers import Brokers
from app.meanings.audit_log import database_url
from app.meanings.cluster import kafka_settings
from app.meanings.production import is_local_postgres
from app.postgres.database import Database
from app.postgres.schema import ensure_partitions, schema_problem
from app.postgres.server_facts import ServerFacts, server_facts
from app.settings import Mode, Settings, SettingsError

MAX_CLOCK_DIFFERENCE_S: Final = 5.0

logger = logging.getLogger(__name__)


async def check_surroundings(settings: Settings) -> None:
    """Ask Postgres, and the brokers where a cluster is named.

    Raises:
        SettingsError: The log is not append-only or not of this version, Postgres may lose it or
            has another time, and the mode is production; or the cluster is another one.
    """
    await _check_audit_log(settings)
    await _check_cluster(settings)


async def _check_audit_log(settings: Settings) -> None:
    database = Database(database_url(settings), patience=settings.patience)
    with suppress(NotSentError):
        await ensure_partitions(database)
    try:
        problem = await schema_problem(database)
        facts = await server_facts(database)
    except NotSentError as error:
        logger.warning("the audit log cannot be looked at yet: %s", error.detail)
        return
    finally:
        await database.close()
    _warn_of_role(facts)
    faults = [] if problem is None else [problem]
    faults += _server_faults(facts, settings)
    if faults and settings.mode is Mode.PRODUCTION:
        raise SettingsError("\n".join(f"QUOTAS_DATABASE_URL: {fault}" for fault in faults))
    for fault in faults:
        logger.warning("unsafe: QUOTAS_DATABASE_URL: %s", fault)


def _server_faults(facts: ServerFacts, settings: Settings) -> Iterator[str]:
    """Yield what is unsafe; a Postgres on this machine may be a test bench, so it is warned of."""
    if facts.off:
        names = " and ".join(facts.off)
        sentence = f"Postgres has {names} off: a crash may lose what the log had acknowledged."
        if is_local_postgres(settings):
            logger.warning("unsafe: QUOTAS_DATABASE_URL: %s", sentence)
        else:
            yield sentence
    if abs(facts.clock_ahead_s) > MAX_CLOCK_DIFFERENCE_S:
        yield (
            f"the clock of Postgres differs by {facts.clock_ahead_s:+.1f} s from this machine's; "
            "at most 5 s are allowed, tokens and deadlines rest on both."
        )


def _warn_of_role(facts: ServerFacts) -> None:
    if facts.is_superuser or facts.owns_the_log:
        logger.warning(
            "doubtful: QUOTAS_DATABASE_URL: the role %s %s: triggers alone keep the log "
            "append-only. Give the service a role of its own.",
            facts.role,
            "is a superuser" if facts.is_superuser else "owns the audit log",
        )


async def _check_cluster(settings: Settings) -> None:
    if settings.cluster_id is None:
        return
    brokers = Brokers(kafka_settings(settings), patience=settings.patience)
    try:
        await brokers.view(asyncio.get_running_loop().time() + settings.patience.image_s)
    except WrongClusterError as error:
        message = f"QUOTAS_CLUSTER_ID: {error.detail}"
        raise SettingsError(message) from None
    except NotSentError as error:
        logger.warning("the cluster cannot be looked at yet: %s", error.detail)
    finally:
        await brokers.close()
