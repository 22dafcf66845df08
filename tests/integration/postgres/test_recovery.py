"""Recovery: who may claim what nobody works on any more; findings, and which is final."""

import asyncio
import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from app.domain.alterations import ClientQuotaAlteration, KafkaRefusal, Outcome
from app.domain.errors import NotSentError
from app.postgres.audit_log import PostgresJournal
from app.postgres.drift import PostgresDriftJournal
from app.postgres.pool import Database
from app.postgres.recovery import PostgresRecovery
from app.service.alterations.barrier import Barrier, CurrentValues
from app.service.ports.alterations import Alteration, Conclusion
from app.service.ports.audit_log import (
    AuditQuery,
    OpenIntents,
)
from app.service.ports.brokers import STANDSTILL_S
from app.service.recovery import Evidence, Recovery
from tests.integration.postgres.calls import (
    AFTER,
    Tables,
    claimed,
    concluded,
    found,
    in_doubt,
    listed,
    opened,
    request_of,
    stored,
    take,
)
from tests.testkit.counted_metrics import CountedMetrics
from tests.testkit.fake_ports import FakeBrokers
from tests.testkit.postgres import (
    CLUSTER,
    SEND_WITHIN_S,
    audit_change,
    audit_request,
    intent_of,
    record_conclusion,
    record_intent,
)


async def test_what_was_observed_is_reported_and_due_again_when_it_can_be_final(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    request = await in_doubt(journal, "alice")
    await claimed(recovery)
    observed = found(request, Outcome.APPLIED, final=False, indistinguishable=True, verified=False)
    for _ in range(2):
        await recovery.record_recovery([observed])
    record = await stored(journal, request)
    assert record.results[0].outcome is Outcome.UNKNOWN
    assert [(event, detail) for _, event, detail in record.history[1:]] == [
        ("sent", "handed to broker 1"),
        ("recovery", "observed: applied so far (indistinguishable, unverified)"),
    ]
    assert await listed(journal, request) == ["unknown"]
    assert await claimed(recovery) == []
    tables.age(request, 60)
    assert await claimed(recovery) == []
    tables.age(request, 35)
    (open_alteration,) = await claimed(recovery)
    assert tables.locks(request)[0].observed
    assert open_alteration.age_s >= 95


async def test_when_an_observed_entity_is_due_can_be_set(
    journal: PostgresJournal, database: Database, recovery: PostgresRecovery
):
    request = await in_doubt(journal, "alice")
    await recovery.record_recovery([found(request, Outcome.APPLIED, final=False)])
    assert await claimed(recovery) == []
    assert len(await claimed(PostgresRecovery(database, final_after_s=0))) == 1


@pytest.mark.parametrize("was_in_doubt", [True, False])
@pytest.mark.parametrize(
    "outcome", [Outcome.APPLIED, Outcome.NOT_APPLIED, Outcome.OBSERVED_OTHER, Outcome.REFUSED]
)
async def test_what_is_final_is_the_outcome_and_frees_the_entity(
    journal: PostgresJournal,
    recovery: PostgresRecovery,
    tables: Tables,
    outcome: Outcome,
    was_in_doubt: bool,
):
    request = await (in_doubt if was_in_doubt else opened)(journal, "alice")
    await recovery.record_recovery([found(request, Outcome.NOT_APPLIED, final=False)])
    final = found(request, outcome, final=True, fences=[1, 2], epoch=3)
    for _ in range(2):
        await recovery.record_recovery([final])
    record = await stored(journal, request)
    assert record.results == {0: final.result}
    assert record.concluded
    words = f"observed: {outcome.value.replace('_', ' ')}"
    if outcome is Outcome.NOT_APPLIED:
        words += " (another tool may have put back what held before)"
    assert [detail for _, event, detail in record.history if event == "recovery"] == [
        "observed: not applied so far",
        words,
    ]
    assert await listed(journal, request) == [outcome.value]
    (row,) = (await journal.audit_rows(AuditQuery())).rows
    assert row.after == final.result.after
    assert tables.locked() == 0
    (row,) = tables.run(
        "select document from audit_entity_event where verdict is not null "
        "and event_type = 'recovery'"
    )
    assert '"evidence":{"before_is_proven":true,"epoch":3,"fences":[1,2]}' in row.document
    state = tables.state(request)
    assert (state is not None) == (outcome in (Outcome.APPLIED, Outcome.OBSERVED_OTHER))
    assert state is None or state.stored == '{"producer_byte_rate":1024}'
    await opened(journal, "alice")


async def test_odd_values_and_names_come_back_from_recovery(
    journal: PostgresJournal, recovery: PostgresRecovery
):
    first, second = (
        audit_request(audit_change(0, {"user": "a\x00\n'\"", "client-id": None})) for _ in range(2)
    )
    await take(journal, first)
    odd = {"a": math.inf, "b": 2.0**63, "c": 5e-324, "\x00": 1.0}
    finding = found(first, Outcome.OBSERVED_OTHER, final=True, x="\x00")
    result = replace(finding.result, after=odd, error=KafkaRefusal(None, "why \x00"))
    await recovery.record_recovery([replace(finding, result=result)])
    assert (await stored(journal, first)).results == {0: result}
    recent = await journal.recent_values(await take(journal, second))
    assert list(recent.values()) == [odd]


async def test_a_final_word_stands(journal: PostgresJournal, recovery: PostgresRecovery):
    request = await in_doubt(journal, "alice")
    await recovery.record_recovery([found(request, Outcome.APPLIED, final=True)])
    for outcome in (Outcome.NOT_APPLIED, Outcome.REFUSED):
        left = await recovery.record_recovery([found(request, outcome, final=True)])
        assert "entity 0 is already applied, not " in left[request.alteration_id, 0]
    await recovery.record_recovery([found(request, Outcome.NOT_APPLIED, final=False)])
    record = await stored(journal, request)
    assert record.results[0].outcome is Outcome.APPLIED
    assert len(record.history) == 3


async def test_an_owner_that_comes_back_late_agrees_or_is_refused(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    request = await opened(journal, "alice", "bob", "carol")
    await recovery.record_recovery([found(request, Outcome.APPLIED, final=True)])
    await recovery.record_recovery([found(request, Outcome.NOT_APPLIED, final=True, ordinal=1)])
    with pytest.raises(ValueError, match="entity 1 is already not_applied, not applied"):
        await record_conclusion(journal, concluded(request))
    record = await stored(journal, request)
    assert [result.outcome.value for result in record.results.values()] == [
        "applied",
        "not_applied",
        "applied",
    ]
    assert tables.locked() == 0
    assert await listed(journal, request) == ["applied", "not_applied", "applied"]


async def test_an_owner_that_comes_back_and_knows_nothing_changes_nothing(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    request = await opened(journal, "alice")
    await recovery.record_recovery([found(request, Outcome.OBSERVED_OTHER, final=True)])
    await record_conclusion(journal, concluded(request, Outcome.UNKNOWN, None))
    assert await listed(journal, request) == ["observed_other"]
    assert tables.run("select 1 from audit_event where event_type = 'outcome'") == []
    assert tables.locked() == 0


async def test_an_owner_that_comes_back_in_time_has_the_last_word(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    request = await opened(journal, "alice")
    await recovery.record_recovery([found(request, Outcome.NOT_APPLIED, final=False)])
    record = await stored(journal, request)
    assert (record.results[0].outcome, record.concluded) == (Outcome.UNKNOWN, True)
    await record_conclusion(journal, concluded(request))
    record = await stored(journal, request)
    assert record.results[0].outcome is Outcome.APPLIED
    assert [event for _, event, _ in record.history] == ["intent", "recovery", "sent"]
    assert await listed(journal, request) == ["applied"]
    assert tables.locked() == 0
    await recovery.record_recovery([found(request, Outcome.APPLIED, final=True)])
    left = await recovery.record_recovery([found(request, Outcome.NOT_APPLIED, final=True)])
    assert "already applied" in left[request.alteration_id, 0]
    assert len((await stored(journal, request)).history) == 3


async def test_of_an_owner_and_a_recovery_at_once_one_concludes(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    for number in range(30):
        request = await opened(journal, f"user-{number}")
        results = await asyncio.gather(
            record_conclusion(journal, concluded(request, Outcome.REFUSED, {})),
            recovery.record_recovery([found(request, Outcome.APPLIED, final=True)]),
            recovery.record_recovery([found(request, Outcome.NOT_APPLIED, final=True)]),
            return_exceptions=True,
        )
        refused = [result for result in results if result]
        assert len(refused) == 2
        assert all("is already" in str(item) for item in refused)
    conclusions = tables.run("select count(*) as n from audit_entity where seq > 0")
    assert conclusions[0].n == 30
    assert tables.locked() == 0


async def test_of_a_recovery_and_a_successor_at_once_one_concludes(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    for number in range(30):
        old, new = await in_doubt(journal, f"user-{number}"), request_of(f"user-{number}")
        claim = intent_of(new, supersedes=old.alteration_id)
        taken, _ = await asyncio.gather(
            record_intent(journal, claim),
            recovery.record_recovery([found(old, Outcome.APPLIED, final=True)]),
            return_exceptions=True,
        )
        assert isinstance(taken, Alteration)
        (outcome,) = await listed(journal, old)
        assert outcome in ("applied", "superseded")
        ends = "select count(*) as n from audit_entity where alteration_id = %(id)s and seq > 1"
        assert tables.run(ends, id=old.alteration_id)[0].n == 1
        assert [lock.quarantined for lock in tables.locks(new).values()] == [False]


async def test_each_entity_has_its_own_history(
    journal: PostgresJournal, recovery: PostgresRecovery
):
    request = await in_doubt(journal, "alice", "bob")
    await recovery.record_recovery([found(request, Outcome.APPLIED, final=False, ordinal=1)])
    await recovery.record_recovery([found(request, Outcome.APPLIED, final=True, ordinal=0)])
    record = await stored(journal, request)
    assert [result.outcome.value for result in record.results.values()] == ["applied", "unknown"]
    assert [detail for _, event, detail in record.history if event == "recovery"] == [
        "observed: applied so far for {user=bob}",
        "observed: applied for {user=alice}",
    ]
    times = [at for at, event, _ in record.history if event == "recovery"]
    assert times == sorted(times)
    assert record.at < times[0]


async def test_findings_of_several_alterations_are_recorded_together(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    requests = [await in_doubt(journal, f"{name}-a", f"{name}-b") for name in ("x", "y", "z")]
    first, second, third = requests
    await recovery.record_recovery([found(third, Outcome.REFUSED, final=True)])
    left = await recovery.record_recovery(
        [
            found(first, Outcome.APPLIED, final=True),
            found(first, Outcome.NOT_APPLIED, final=False, ordinal=1),
            found(second, Outcome.OBSERVED_OTHER, final=True, ordinal=1),
            found(third, Outcome.APPLIED, final=True),
            found(third, Outcome.NOT_APPLIED, final=True, ordinal=1),
            found(request_of("nobody"), Outcome.APPLIED, final=True),
        ]
    )
    assert len(left) == 2
    assert "already refused, not applied" in left[third.alteration_id, 0]
    outcomes = [
        [result.outcome.value for result in (await stored(journal, request)).results.values()]
        for request in requests
    ]
    assert outcomes == [
        ["applied", "unknown"],
        ["unknown", "observed_other"],
        ["refused", "not_applied"],
    ]
    assert [list(tables.locks(request)) for request in requests] == [[1], [0], []]
    assert tables.locks(first)[1].observed
    assert str(tables.state(first).changed_by) == first.alteration_id
    assert str(tables.state(second, 1).changed_by) == second.alteration_id
    assert tables.state(third, 1) is None
    assert tables.audited() == 2


async def test_thousands_of_entities_are_claimed_and_concluded_together(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    request = await in_doubt(journal, *(f"user-{number}" for number in range(3000)))
    everything = await recovery.claim_open(CLUSTER, "me", limit=10_000)
    assert [item.change for item in everything] == list(request.changes)
    for final in (False, True):
        findings = [
            found(request, Outcome.APPLIED, final=final, ordinal=item.change.ordinal)
            for item in everything
        ]
        for _ in range(2):
            assert await recovery.record_recovery(findings) == {}
    assert (tables.locked(), tables.audited()) == (0, 3000)
    ends = tables.run("select count(*) as n, count(verdict) as m from audit_entity where seq > 1")
    assert (ends[0].n, ends[0].m) == (6000, 3000)


async def test_there_is_no_recovery_without_an_intent(recovery: PostgresRecovery):
    nobody = found(request_of("alice"), Outcome.APPLIED, final=True)
    left = await recovery.record_recovery([nobody])
    assert left == {nobody.key: f"the log has no entity 0 of {nobody.alteration_id}"}


async def test_a_conclusion_renews_the_key_also_when_recovery_finds_it(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    request = await in_doubt(journal, "alice")
    tables.run(
        "insert into idempotency values (sha256('k'), sha256('f'), %(id)s, now() + '1 min')",
        id=request.alteration_id,
    )
    await recovery.record_recovery([found(request, Outcome.APPLIED, final=True)])
    (row,) = tables.run("select expires_at > now() + '23 hours' as renewed from idempotency")
    assert row.renewed


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
    await record_conclusion(journal, Conclusion(request.alteration_id, results, [sent]))
    (open_alteration,) = await claimed(recovery)
    assert open_alteration.alteration_id == request.alteration_id
    assert open_alteration.change == replace(request.changes[1], before={"consumer_byte_rate": 5.0})
    assert open_alteration.broker_id == 7
    assert open_alteration.last_audited is None
    assert 0 <= open_alteration.age_s < 30


async def test_what_is_open_can_be_claimed_once_its_owner_is_dead_and_can_send_no_more(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    applied = concluded(await opened(journal, "alice"))
    await record_conclusion(journal, applied)
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


async def test_what_is_stored_under_the_lock_is_no_earlier_state(
    journal: PostgresJournal, recovery: PostgresRecovery, database: Database, tables: Tables
):
    """The first round of the watch may come after the alteration: it sees what that has set."""
    request = await opened(journal, "alice", "bob")
    drift, (alice, _) = PostgresDriftJournal(database), request.changes
    await drift.keep_baseline(CLUSTER, {alice.entity: AFTER})
    tables.run(
        "update quota_entity set taken_at = taken_at - interval '1 h', handed_over_by = now()"
    )
    tables.run("update worker set seen_at = seen_at - interval '6 s'")
    tables.run("update quota_entity set handed_over_by = handed_over_by - interval '30 s'")
    assert [claim.last_audited for claim in await claimed(recovery)] == [None, None]
    tables.run("update drift_baseline set taken_at = taken_at - interval '2 h'")
    assert [claim.last_audited for claim in await claimed(recovery)] == [None, {}]


async def test_what_an_earlier_layout_took_for_the_values_before_is_not_repeated(
    journal: PostgresJournal, recovery: PostgresRecovery, tables: Tables
):
    request = await in_doubt(journal, "alice")
    earlier = found(request, Outcome.APPLIED, final=True, before_is_proven=False)
    await recovery.record_recovery([earlier])
    result = (await stored(journal, request)).results[0]
    assert (result.before, result.changed, result.after) == (None, None, AFTER)
    (row,) = (await journal.audit_rows(AuditQuery())).rows
    assert (row.before, row.after) == (None, AFTER)
    (in_sql,) = tables.run("select before, after from audit_log")
    assert (in_sql.before, in_sql.after) == (None, AFTER)


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
    assert [claim.change.ordinal for claim in await claimed(recovery)] == [1]


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
            got.extend(item.change.ordinal for item in some)

    await asyncio.gather(*(claim(number) for number in range(len(recoveries))))
    assert sorted(got) == [entity.ordinal for entity in request.changes]


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
    metrics = CountedMetrics()
    return kind(brokers, brokers, barrier, journal, metrics, owner, between_fences_s=0)


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
