"""Claims of recovery: what nobody works on any more, who may take it, and who hands it on."""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from app.domain.alterations import ClientQuotaAlteration, Outcome
from app.domain.errors import NotSentError
from app.postgres.audit_log import PostgresJournal
from app.postgres.pool import Database
from app.postgres.recovery import PostgresRecovery
from app.service.alterations.current_values import Barrier, CurrentValues
from app.service.ports.audit_log import AuditConclusion
from app.service.ports.brokers import STANDSTILL_S
from app.service.ports.metrics import OpenIntents
from app.service.recovery import Evidence, Recovery
from app.service.runtime.tasks import AlterationTasks
from tests.integration.postgres.calls import Tables, claimed, concluded, found, in_doubt, opened
from tests.testkit.fake_metrics import CountedMetrics
from tests.testkit.fake_ports import FakeBrokers, FakeJournal, alter_context
from tests.testkit.postgres import CLUSTER, SEND_WITHIN_S

HANDED_OVER_WITHIN_S = SEND_WITHIN_S + STANDSTILL_S
"""After its lock is taken an alteration is sent by then or never."""


async def test_what_is_in_doubt_can_be_claimed_at_once_with_its_audited_state(
    journal: PostgresJournal, recovery: PostgresRecovery
):
    request = await opened(journal, "alice", "bob", owner="alive", broker_id=7)
    results = dict(concluded(request, Outcome.UNKNOWN, None).results)
    results[0] = concluded(request).results[0]
    results[1] = replace(results[1], before={"consumer_byte_rate": 5.0})
    sent = (datetime.now(UTC), "sent", "handed to broker 7")
    await journal.record_conclusion(AuditConclusion(request.alteration_id, results, [sent]))
    (open_alteration,) = await claimed(recovery)
    assert open_alteration.alteration_id == request.alteration_id
    assert open_alteration.audited == replace(
        request.entities[1], before={"consumer_byte_rate": 5.0}
    )
    assert open_alteration.broker_id == 7
    assert open_alteration.last_audited is None
    assert 0 <= open_alteration.age_s < 30


async def test_what_is_open_can_be_claimed_once_its_owner_is_dead_and_can_send_no_more(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    applied = concluded(await opened(journal, "alice"))
    await journal.record_conclusion(applied)
    request = await opened(journal, "alice", owner="worker")
    assert await claimed(recovery) == []
    tables.age(request, HANDED_OVER_WITHIN_S + 4)
    await recovery.beat(CLUSTER, "worker")
    assert await claimed(recovery) == []
    tables.run("update worker set seen_at = seen_at - interval '6 s'")
    (open_alteration,) = await claimed(recovery)
    assert open_alteration.alteration_id == request.alteration_id
    assert open_alteration.last_audited == applied.results[0].after != {}
    assert 2 < open_alteration.age_s < 30


async def test_what_a_living_owner_has_forgotten_can_be_claimed_after_a_minute(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    request = await opened(journal, "alice", owner="worker")
    await recovery.beat(CLUSTER, "worker")
    tables.age(request, HANDED_OVER_WITHIN_S + 54)
    assert await claimed(recovery) == []
    tables.age(request, 10)
    assert [claim.alteration_id for claim in await claimed(recovery)] == [request.alteration_id]


async def test_an_owner_that_was_never_seen_is_dead(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    request = await opened(journal, "alice")
    assert await claimed(recovery) == []
    tables.age(request, HANDED_OVER_WITHIN_S + 4)
    assert [claim.alteration_id for claim in await claimed(recovery)] == [request.alteration_id]


async def test_beats_follow_each_other_and_old_ones_are_forgotten(
    recovery: PostgresRecovery, tables: Tables
):
    for owner in ("a", "b"):
        await recovery.beat(CLUSTER, owner)
    tables.run("update worker set seen_at = seen_at - interval '2 days'")
    await recovery.beat(CLUSTER, "a")
    (row,) = tables.run("select owner, clock_timestamp() - seen_at < '1 min' as fresh from worker")
    assert (row.owner, row.fresh) == ("a", True)


async def test_a_claim_keeps_others_away_for_fifteen_seconds(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    await in_doubt(journal, "alice")
    assert len(await claimed(recovery)) == 1
    assert await claimed(recovery, "other") == []
    tables.run("update quota_entity set claimed_until = claimed_until - interval '15 s'")
    assert len(await claimed(recovery, "other")) == 1
    assert await claimed(recovery) == []


async def test_a_claim_that_came_to_nothing_is_made_again_at_once(
    journal: PostgresJournal, recovery: PostgresRecovery
):
    request = await in_doubt(journal, "alice", "bob")
    for _ in range(2):
        assert [claim.alteration_id for claim in await claimed(recovery)] == [
            request.alteration_id
        ] * 2
    await recovery.record_recovery([found(request, Outcome.APPLIED, final=False)])
    assert [claim.audited.ordinal for claim in await claimed(recovery)] == [1]


async def test_recoveries_at_once_never_claim_the_same(
    journal: PostgresJournal, connect: Callable[..., Database]
):
    request = await in_doubt(journal, *(f"user-{number}" for number in range(100)))
    databases = [connect() for _ in range(2)]
    recoveries = [PostgresRecovery(database) for database in databases for _ in range(3)]
    got: list[int] = []

    async def claim(number: int) -> None:
        owners = (f"{number}-{turn}" for turn in itertools.count())
        while some := await recoveries[number].claim_open(CLUSTER, next(owners), limit=7):
            got.extend(item.audited.ordinal for item in some)

    await asyncio.gather(*(claim(number) for number in range(len(recoveries))))
    assert sorted(got) == [entity.ordinal for entity in request.entities]


async def test_what_is_open_is_counted(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    assert await recovery.open_intents(CLUSTER) == OpenIntents(0, 0.0, 0)
    oldest = await opened(journal, "alice", "bob")
    await in_doubt(journal, "carol")
    tables.age(oldest, 100)
    counted = await recovery.open_intents(CLUSTER)
    assert (counted.number, counted.quarantined) == (3, 1)
    assert 100 < counted.oldest_s < 160


class Unreachable(Recovery):
    """The broker is live, and cannot be reached from here."""

    async def fence_pair(self, alteration: ClientQuotaAlteration, broker_id: int) -> Evidence:
        raise NotSentError("No route to host.")


def recovery_of(
    owner: str,
    journal: PostgresRecovery,
    *,
    reachable: bool = True,
    kind: type[Recovery] = Recovery,
) -> Recovery:
    brokers = FakeBrokers([], CLUSTER)
    brokers.reachable = reachable
    barrier = Barrier(brokers, CurrentValues(brokers))
    context = alter_context(
        brokers,
        FakeJournal([]),
        AlterationTasks(),
        CountedMetrics(),
        owner=owner,
        recoveries=journal,
    )
    return kind(brokers, brokers, barrier, context, between_fences_s=0)


@pytest.mark.parametrize(
    "blindness",
    [{"reachable": False}, {"kind": Unreachable}],
    ids=["the whole cluster", "the broker that it was sent through"],
)
async def test_who_cannot_reach_the_cluster_or_a_broker_leaves_what_is_open_to_others(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables, blindness: dict[str, Any]
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
