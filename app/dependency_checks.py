"""What Postgres and the brokers say of themselves, in sentences.

The start refuses what must not be, and `kafka-quota-service check` prints all of it.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final

from app.cluster_settings import ClusterSettings
from app.domain.authorization import Operation
from app.domain.errors import NotSentError, WrongClusterError
from app.http.authentication.proxies import is_this_machine
from app.kafka.acls import KafkaCallerRights
from app.kafka.cluster_client import Brokers
from app.kafka.cluster_facts import KafkaCluster
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.postgres.connect import read_url
from app.postgres.pool import Database
from app.postgres.schema import (
    SCHEMA_REVISION,
    ServerFacts,
    clocks_apart,
    ensure_partitions,
    schema_problem,
    server_facts,
)
from app.service.queries.callbacks import QuotaCallbacks
from app.settings import Settings


class Grade(Enum):
    """How good a finding is."""

    GOOD = "ok"
    RISKY = "risky"
    TOLERATED = "tolerated"
    """Unsafe; what is on this machine may be a test bench, so it stops no start."""
    UNSAFE = "unsafe"
    """Stops the start in production."""
    WRONG = "wrong"
    """Stops the start."""
    AWAY = "away"
    """May come later, so it stops no start."""

    @property
    def word(self) -> str:
        """What stands before the sentence in the log."""
        return Grade.UNSAFE.value if self is Grade.TOLERATED else self.value

    def refuses(self, settings: Settings) -> bool:
        """Tell whether it stops the start."""
        return self is Grade.WRONG or (self is Grade.UNSAFE and settings.is_production)

    def fails(self, settings: Settings) -> bool:
        """Tell whether nothing can be served with it as it is."""
        return self is Grade.AWAY or self.refuses(settings)


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about one subject, such as ``database``; of a fault it says what to do."""

    subject: str
    grade: Grade
    sentence: str


def is_local_postgres(settings: Settings) -> bool:
    """Tell whether Postgres is on this machine: a socket, or a loopback address."""
    parameters = read_url(settings.database_url.get_secret_value())
    # As libpq sees them; an empty one is its socket.
    named = parameters.get("hostaddr") or parameters.get("host") or os.environ.get("PGHOST") or ""
    return all(
        not host or host.startswith(("/", "@")) or is_this_machine(host)
        for host in str(named).split(",")
    )


async def examine_database(settings: Settings) -> list[Finding]:
    """Look at the audit log, its server, its clock and the service's role; make partitions."""
    database = Database(settings.database_url.get_secret_value(), patience=settings.patience)
    with suppress(NotSentError):
        await ensure_partitions(database)
    try:
        problem = await schema_problem(database)
        facts = await server_facts(database)
    except NotSentError as error:
        sentence = f"the audit log cannot be looked at yet: {error.detail}"
        return [Finding("database", Grade.AWAY, sentence)]
    finally:
        await database.close()
    return [*_of_log(problem, facts), *_of_role(facts), *_of_server(facts, settings)]


def _of_log(problem: str | None, facts: ServerFacts) -> Iterator[Finding]:
    if problem is None:
        yield Finding("database", Grade.GOOD, f"schema {SCHEMA_REVISION}, role {facts.role}")
    else:
        yield Finding("database", Grade.UNSAFE, f"{_DATABASE} {problem}")


_DATABASE: Final = "QUOTAS_DATABASE_URL:"


def _of_role(facts: ServerFacts) -> Iterator[Finding]:
    if facts.is_superuser or facts.owns_the_log:
        is_what = "is a superuser" if facts.is_superuser else "owns the audit log"
        sentence = (
            f"{_DATABASE} the role {facts.role} {is_what}: triggers alone keep the log "
            "append-only. Give the service a role of its own."
        )
        yield Finding("database", Grade.RISKY, sentence)


def _of_server(facts: ServerFacts, settings: Settings) -> Iterator[Finding]:
    """Yield whether what the log has acknowledged is safe there, and whether the clocks agree."""
    if facts.off:
        names = " and ".join(facts.off)
        sentence = (
            f"{_DATABASE} Postgres has {names} off: a crash may lose what the log had acknowledged."
        )
        grade = Grade.TOLERATED if is_local_postgres(settings) else Grade.UNSAFE
        yield Finding("database", grade, sentence)
    if apart := clocks_apart(facts):
        yield Finding("clock", Grade.UNSAFE, f"{_DATABASE} {apart}")
    else:
        sentence = f"that of Postgres differs by {facts.clock_ahead_s:+.1f} s from this machine's"
        yield Finding("clock", Grade.GOOD, sentence)


@asynccontextmanager
async def brokers_of(cluster: ClusterSettings, settings: Settings) -> AsyncIterator[Brokers]:
    """Connect as the service would; close the connections at the end."""
    brokers = Brokers(cluster.kafka, patience=settings.patience)
    try:
        yield brokers
    finally:
        await brokers.close()


async def examine_cluster(
    cluster: ClusterSettings, settings: Settings, brokers: Brokers
) -> list[Finding]:
    """Ask which cluster it is, and which brokers are live."""
    deadline = asyncio.get_running_loop().time() + settings.patience.image_s
    try:
        view = await brokers.view(deadline)
    except WrongClusterError as error:
        return [Finding("brokers", Grade.WRONG, f"{cluster.setting('cluster_id')}: {error.detail}")]
    except NotSentError as error:
        sentence = f"the cluster cannot be looked at yet: {error.detail}"
        return [Finding("brokers", Grade.AWAY, sentence)]
    live = ", ".join(map(str, sorted(view.addresses)))
    return [Finding("brokers", Grade.GOOD, f"cluster {view.cluster_id}, live: {live}")]


async def examine_callback(cluster: ClusterSettings, brokers: Brokers) -> list[Finding]:
    """Compare what brokers report as their quota callback with what is configured.

    Raises:
        CallbackFileError: The file cannot be used.
        CallbackFailedError: The class that it names cannot be made.
    """
    facts = KafkaCluster(brokers)
    callbacks = QuotaCallbacks(facts.callback_reports, cluster.read_callback(), facts.leaders)
    try:
        in_use = await callbacks.now()
    except NotSentError as error:
        return [Finding("callback", Grade.AWAY, error.detail)]
    finally:
        await callbacks.close()
        await facts.close()
    if in_use.notes:
        return [Finding("callback", Grade.RISKY, note) for note in in_use.notes]
    sentence = in_use.class_name or "none: Kafka's own rules decide"
    return [Finding("callback", Grade.GOOD, sentence)]


_NEEDED: Final = {
    Operation.DESCRIBE: "Describe",
    Operation.DESCRIBE_CONFIGS: "DescribeConfigs",
    Operation.ALTER_CONFIGS: "AlterConfigs",
}
"""By what it is called in ACLs."""

_NO_AUTHORIZER: Final = (
    "the cluster has no authorizer, so nobody would be let in: configure authorizer.class.name of "
    "the brokers, or set QUOTAS_INSECURE_ALLOW_WITHOUT_AUTHORIZER in development"
)


async def examine_rights(
    cluster: ClusterSettings, settings: Settings, brokers: Brokers
) -> list[Finding]:
    """Ask what the service's own account may do on the cluster; nothing is changed for it."""
    rights = KafkaCallerRights(brokers, KafkaClientQuotaAdmin(brokers))
    try:
        found = {
            operation: await rights.rights(operation, max_age_s=settings.patience.image_s)
            for operation in _NEEDED
        }
    except NotSentError as error:
        return [Finding("rights", Grade.AWAY, error.detail)]
    finally:
        await rights.close()
    if not all(each.has_authorizer for each in found.values()):
        allowed = settings.insecure_allow_without_authorizer
        return [Finding("rights", Grade.RISKY if allowed else Grade.WRONG, _NO_AUTHORIZER)]
    missing = [name for operation, name in _NEEDED.items() if not found[operation].allowed]
    if missing:
        names = " and ".join(missing)
        sentence = (
            f"the account of {cluster.account} lacks {names} on the cluster: add it with "
            f"kafka-acls --add --cluster {' '.join(f'--operation {name}' for name in missing)}"
        )
        return [Finding("rights", Grade.WRONG, sentence)]
    sentence = f"the service's account has {', '.join(_NEEDED.values())} on the cluster"
    return [Finding("rights", Grade.GOOD, sentence)]
