"""What one process cannot recover another one can, and need not wait for it."""

from collections.abc import Callable
from typing import Any

import pytest

from app.domain.alterations import ClientQuotaAlteration
from app.domain.errors import NotSentError
from app.postgres.audit_log import PostgresJournal
from app.postgres.recovery import PostgresRecovery
from app.service.alterations.context import AlterContext, Failpoints
from app.service.alterations.current_values import Barrier, CurrentValues
from app.service.recovery.recovery import FencePair, Fences, Recovery
from app.service.runtime.dependencies import CircuitBreaker
from tests.integration.postgres.locks import Tables
from tests.integration.postgres.recovering import in_doubt
from tests.testkit.fake_metrics import CountedMetrics
from tests.testkit.fake_ports import FakeBrokers
from tests.testkit.postgres import CLUSTER


class Unreachable(Fences):
    """The broker is live, and cannot be reached from here."""

    async def pair(self, alteration: ClientQuotaAlteration, broker_id: int) -> FencePair:
        raise NotSentError("No route to host.")


def recovery_of(
    owner: str,
    journal: PostgresRecovery,
    *,
    reachable: bool = True,
    fences: Callable[..., Fences] = Fences,
) -> Recovery:
    brokers = FakeBrokers([], CLUSTER)
    brokers.reachable = reachable
    barrier = Barrier(brokers, CurrentValues(brokers))
    breaker = CircuitBreaker("audit-log-unavailable", "Down.")
    context = AlterContext(owner, CountedMetrics(), breaker, Failpoints())
    pair = fences(brokers, brokers, between_s=0)
    return Recovery(brokers, journal, pair, barrier, context)


@pytest.mark.parametrize(
    "blindness",
    [{"reachable": False}, {"fences": Unreachable}],
    ids=["the whole cluster", "the broker that it was sent through"],
)
async def test_who_cannot_reach_the_cluster_or_a_broker_leaves_what_is_open_to_others(
    journal: PostgresJournal,
    recovery: PostgresRecovery,
    tables: Tables,
    blindness: dict[str, Any],
):
    request = await in_doubt(journal, "alice")
    assert await recovery_of("blind", recovery, **blindness).round() == 1
    assert await recovery_of("seeing", recovery).round() == 1
    assert tables.locks(request)[0].observed


async def test_who_fails_in_the_midst_leaves_it_to_others(
    journal: PostgresJournal,
    recovery: PostgresRecovery,
    tables: Tables,
    monkeypatch: pytest.MonkeyPatch,
):
    request = await in_doubt(journal, "alice")
    failing = recovery_of("failing", recovery)
    monkeypatch.setattr(failing.admin, "live_brokers", None)
    with pytest.raises(TypeError):
        await failing.round()
    assert await recovery_of("seeing", recovery).round() == 1
    assert tables.locks(request)[0].observed
