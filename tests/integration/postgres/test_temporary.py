"""Temporary values in Postgres: whoever concludes one keeps its end, and each ends once."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from app.domain.alterations import Op, Outcome
from app.domain.errors import EntityBusyError, ExpectationFailedError, NotFoundError, NotSentError
from app.domain.expiry import TemporaryValue, end_of
from app.postgres.audit_log import PostgresJournal
from app.postgres.pool import Database
from app.postgres.recovery import PostgresRecovery
from app.postgres.temporary import PostgresTemporary
from app.service.ports.alterations import Alteration, Change
from app.service.ports.temporary import Asked
from app.service.runtime.clock import database_now
from tests.integration.postgres.calls import Tables, concluded, found, request_of
from tests.testkit.postgres import (
    ALICE,
    CLUSTER,
    HOSTILE_NAMES,
    audit_change,
    audit_request,
    intent_of,
    record_conclusion,
    record_intent,
)

KEY = "producer_byte_rate"
PAST, LATER = timedelta(seconds=-1), timedelta(hours=1)
ASKED = Asked(ALICE, "req-2")


@pytest.fixture
def temporary(database: Database) -> PostgresTemporary:
    return PostgresTemporary(database)


def for_a_time(request: Alteration, lasts: timedelta = LATER) -> Alteration:
    return replace(request, expires_at=database_now() + lasts)


async def set_for(
    journal: PostgresJournal, request: Alteration, lasts: timedelta = LATER
) -> Alteration:
    request = for_a_time(request, lasts)
    await record_intent(journal, intent_of(request))
    before = [replace(change, before={KEY: 1.0}) for change in request.changes]
    await journal.record_returns([replace(request, changes=tuple(before))])
    return request


async def held(temporary: PostgresTemporary) -> list[tuple[float | None, float | None]]:
    return [(value.value, value.returns_to) for value in await temporary.values(CLUSTER)]


def ending(values: list[TemporaryValue]) -> Alteration:
    changes = [
        Change(value.entity, end_of({value.key: value}), n, {value.key: value.value})
        for n, value in enumerate(values)
    ]
    request = audit_request(*changes, action="expire")
    return intent_of(replace(request, expires=values[0].alteration_id))


@pytest.mark.parametrize("outcome", list(Outcome))
async def test_whoever_concludes_it_keeps_what_may_hold_for_a_time(
    journal: PostgresJournal,
    recovery: PostgresRecovery,
    temporary: PostgresTemporary,
    outcome: Outcome,
):
    if outcome is Outcome.VALIDATED:
        return
    may_hold = outcome in {Outcome.APPLIED, Outcome.OBSERVED_OTHER, Outcome.SUPERSEDED}
    own = await set_for(journal, request_of("own"))
    await record_conclusion(journal, concluded(own, outcome))
    assert await held(temporary) == [(1024.0, 1.0)] * may_hold
    lost = await set_for(journal, request_of("lost"))
    await record_conclusion(journal, concluded(lost, Outcome.UNKNOWN, None))
    if outcome is not Outcome.UNKNOWN:
        await recovery.record_recovery([found(lost, outcome, final=True)])
    assert await held(temporary) == [(1024.0, 1.0)] * may_hold * 2


async def test_what_was_never_sent_has_no_end_and_leaves_that_of_an_earlier_raise(
    journal: PostgresJournal, recovery: PostgresRecovery, temporary: PostgresTemporary
):
    """Recovery finds the value that held before, and calls it applied."""
    unsent = for_a_time(request_of("unsent"))
    await record_intent(journal, intent_of(unsent))
    await recovery.record_recovery([found(unsent, Outcome.APPLIED, final=True)])
    assert await held(temporary) == []
    first = await set_for(journal, request_of("twice"))
    await record_conclusion(journal, concluded(first))
    second = for_a_time(request_of("twice"), 2 * LATER)
    await record_intent(journal, intent_of(second))
    await recovery.record_recovery([found(second, Outcome.APPLIED, final=True)])
    (value,) = await temporary.values(CLUSTER)
    assert (value.alteration_id, value.returns_to) == (second.alteration_id, 1.0)
    assert value.expires_at == second.expires_at


async def test_two_that_end_the_same_value_at_once_end_it_once(
    journal: PostgresJournal, temporary: PostgresTemporary, tables: Tables
):
    request = await set_for(journal, request_of("alice", "bob"), PAST)
    await record_conclusion(journal, concluded(request))
    due = list(await temporary.claim_due(CLUSTER, "me", limit=100))
    assert len(due) == 2
    assert await temporary.claim_due(CLUSTER, "another", limit=100) == []
    first, late = ending(due), ending(due)
    await record_intent(journal, first)
    with pytest.raises(EntityBusyError):
        await record_intent(journal, late)
    busy = await temporary.pending(CLUSTER)
    assert (busy.number, busy.late_s > 0) == (2, True)
    with pytest.raises(EntityBusyError):
        await temporary.change_expiry(CLUSTER, request.alteration_id, None, ASKED)
    await record_conclusion(journal, concluded(first))
    with pytest.raises(ExpectationFailedError):
        await record_intent(journal, late)
    assert (tables.count("temporary_value"), tables.locked()) == (0, 0)
    assert await journal.alteration(late.alteration_id) is None


async def test_an_end_that_was_not_applied_is_due_again_and_one_that_was_changed_is_not(
    journal: PostgresJournal, temporary: PostgresTemporary
):
    request = await set_for(journal, request_of("alice"), PAST)
    await record_conclusion(journal, concluded(request))
    due = list(await temporary.claim_due(CLUSTER, "me", limit=100))
    first = ending(due)
    await record_intent(journal, first)
    await record_conclusion(journal, concluded(first, Outcome.NOT_APPLIED))
    await temporary.change_expiry(CLUSTER, request.alteration_id, request.expires_at, ASKED)
    assert list(await temporary.claim_due(CLUSTER, "another", limit=100)) == due
    later = database_now() + LATER
    (value,) = await temporary.change_expiry(CLUSTER, request.alteration_id, later, ASKED)
    assert value.expires_at == later
    with pytest.raises(ExpectationFailedError):
        await record_intent(journal, ending(due))
    record = await journal.alteration(request.alteration_id)
    assert record is not None
    assert [event for _, event, _ in record.history[-2:]] == ["expiry", "expiry"]
    assert record.alteration.expires_at == later
    await temporary.change_expiry(CLUSTER, request.alteration_id, None, ASKED)
    with pytest.raises(NotFoundError):
        await temporary.change_expiry(CLUSTER, request.alteration_id, None, ASKED)


async def test_what_is_set_again_is_over_for_its_keys_whatever_the_names_are(
    journal: PostgresJournal, temporary: PostgresTemporary
):
    names = [name for name in HOSTILE_NAMES if name]
    request = await set_for(journal, request_of(*names))
    await record_conclusion(journal, concluded(request))
    assert len(await temporary.values(CLUSTER)) == len(names)
    other = audit_request(
        *(
            audit_change(n, {"user": name}, ops=(Op("consumer_byte_rate", Decimal(5)),))
            for n, name in enumerate(names)
        )
    )
    await record_intent(journal, intent_of(other))
    await record_conclusion(journal, concluded(other))
    assert len(await temporary.values(CLUSTER)) == len(names)
    again = request_of(*names)
    await record_intent(journal, intent_of(again))
    await record_conclusion(journal, concluded(again))
    assert await temporary.values(CLUSTER) == []


async def test_what_a_key_returns_to_is_recorded_under_its_own_lock_only(journal: PostgresJournal):
    request = for_a_time(request_of("alice"))
    with pytest.raises(NotSentError):
        await journal.record_returns([request])
