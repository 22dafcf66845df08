"""The audit log: intents before anything is sent, outcomes after. Rows are only ever added."""

import asyncio
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Final

from app.domain.alterations import AlterationResult, Outcome, Quotas
from app.domain.entities import Caller, ClientQuotaEntity, show_entity
from app.domain.errors import NotSentError, QuotaError
from app.postgres.audit_query import audit_statement
from app.postgres.errors import CommitInDoubtError, failure
from app.postgres.locks import find_key, recent_values
from app.postgres.log_writer import (
    BatchRejectedError,
    append,
    can_share,
    write_intent,
    write_intents,
    write_outcomes,
)
from app.postgres.payload import (
    Document,
    change_from_json,
    is_record_id,
    listed_op,
    refusal_from_json,
    result_document,
    result_from_json,
    start_event,
    values_from_json,
)
from app.postgres.pool import Database, Lease, Row
from app.service.ports.alterations import (
    DEFAULT_WAIT_MS,
    Alteration,
    AlterationRecord,
    Conclusion,
    Wait,
)
from app.service.ports.audit_log import AuditPage, AuditQuery, AuditRow, StoredKey
from app.service.runtime.clock import new_alteration_id, time_of
from app.service.runtime.tasks import off_loop


def page_of(rows: Sequence[Row], limit: int) -> AuditPage:
    """Return the page that the rows make."""
    page = rows[:limit]
    requests = {row.alteration_id: row.request for row in page}
    read = {alteration_id: json.loads(record) for alteration_id, record in requests.items()}
    listed = [
        audit_row(
            row.at,
            read[row.alteration_id],
            json.loads(row.start),
            None if row.conclusion is None else json.loads(row.conclusion),
        )
        for row in page
    ]
    if len(rows) <= limit:
        return AuditPage(listed, None)
    last = page[-1]
    return AuditPage(listed, (last.at.astimezone(UTC), str(last.alteration_id), last.ordinal))


_DETAILS: Final[Mapping[str, tuple[str, str]]] = {
    "intent": ("intent", "committed before anything was sent"),
    "denied": ("outcome", "denied; nothing was sent"),
    "validated": ("outcome", "judged; nothing was changed"),
    "drift": ("outcome", "seen in the cluster; this service did not make the change"),
}
"""The first event of a history, by its kind: event and detail."""


_EVENTS: Final = """
    select at, occurred_at, payload, rejected, (
        select string_agg(document, ',' order by ordinal) from audit_entity
        where received_at = event.received_at and alteration_id = event.alteration_id
          and seq = event.seq
      ) as documents
    from audit_event as event
    where received_at = %(received_at)s and alteration_id = %(alteration_id)s
    order by seq
    """


def alteration_record(events: Sequence[Row]) -> AlterationRecord:
    """Return an alteration from its events, in order."""
    start, *later = map(_whole_event, events)
    at = start["occurred_at"]
    entities = [entry for entry in start["entities"] if entry["entity"] is not None]
    started = {entry["ordinal"]: entry for entry in entities}
    rejected = _results(start["rejected"])
    for event in later:
        rejected |= _results(event["rejected"])
    concluded = _results(entities) | _ends(later, started)
    open_results = {n: _open(entry) for n, entry in started.items() if n not in concluded}
    reported = {entry["ordinal"] for event in later for entry in event["entities"]}
    return AlterationRecord(
        alteration=_alteration(start, entities, rejected),
        results=dict(sorted({**rejected, **concluded, **open_results}.items())),
        at=at,
        concluded=reported.issuperset(open_results),
        history=[(at, *_DETAILS[start["event"]]), *_history(later, started)],
    )


def audit_row(
    at: datetime, request: Document, start: Document, conclusion: Document | None
) -> AuditRow:
    """Return one row of the log: from the record of the request, and the entity's documents."""
    result = result_document(conclusion or start)
    return AuditRow(
        cluster_id=request["cluster_id"],
        alteration_id=request["alteration_id"],
        at=at.astimezone(UTC),
        principal=request["principal"],
        authentication=request["authentication"],
        client_address=request["client_address"],
        action=request["action"],
        entity=None if start["entity"] is None else ClientQuotaEntity.of(start["entity"]),
        ops=None if start["ops"] is None else [listed_op(op) for op in start["ops"]],
        before=values_from_json(result.get("before")),
        after=values_from_json(result.get("after")),
        outcome=result.get("outcome", Outcome.UNKNOWN.value),
        reason=request["reason"],
        request_id=request["request_id"],
        error=refusal_from_json(result.get("error")),
        plan=_plan(request, start),
        denied=request["decision"].get("denied"),
    )


def _whole_event(row: Row) -> Document:
    return {
        **json.loads(row.payload),
        "occurred_at": row.occurred_at.astimezone(UTC),
        "entities": json.loads(f"[{row.documents or ''}]"),
        "rejected": json.loads(row.rejected or "[]"),
    }


def _plan(request: Document, start: Document) -> Document | None:
    """Return the plan behind a request, as far as it concerns one entity; null where none is."""
    plan: Document | None = request["options"].get("plan")
    if plan is None:
        return None
    return {**plan, "taken_over": plan["taken_over"].get(str(start["ordinal"]), {})}


def _alteration(
    start: Document, entities: Sequence[Document], rejected: Mapping[int, AlterationResult]
) -> Alteration:
    options = start["options"]
    return Alteration(
        caller=Caller(start["principal"], start["client_address"], start["authentication"]),
        request_id=start["request_id"],
        changes=tuple(map(change_from_json, entities)),
        action=start["action"],
        reason=start["reason"],
        evidence=start["decision"],
        validate_only=start["action"] == "validate",
        all_or_nothing=options.get("all_or_nothing", True),
        wait=Wait(options.get("wait", Wait.READABLE)),
        wait_ms=options.get("wait_ms", DEFAULT_WAIT_MS),
        local_refusals=rejected,
        alteration_id=start["alteration_id"],
        cluster_id=start["cluster_id"],
        broker_id=start["broker_id"],
    )


def _results(documents: Iterable[Document]) -> dict[int, AlterationResult]:
    return {
        entry["ordinal"]: result_from_json(
            ClientQuotaEntity.of(entry["entity"]), result_document(entry)
        )
        for entry in documents
        if "result" in entry
    }


def _ends(
    later: Iterable[Document], started: Mapping[int, Document]
) -> dict[int, AlterationResult]:
    """A final result comes last; an observation is not a result yet."""
    return _results(
        {**entry, "entity": started[entry["ordinal"]]["entity"]}
        for event in later
        for entry in event["entities"]
        if entry.get("final", True)
    )


def _open(document: Document) -> AlterationResult:
    change = change_from_json(document)
    return AlterationResult(change.entity, Outcome.UNKNOWN, warnings=change.warnings)


def _history(
    later: Iterable[Document], started: Mapping[int, Document]
) -> Iterator[tuple[datetime, str, str]]:
    """In the order of the database's clock; what concerns one of several entities names it."""
    names = {n: show_entity(entry["entity"]) for n, entry in started.items()}
    for event in sorted(later, key=itemgetter("occurred_at")):
        for time, kind, detail in event.get("events", ()):
            yield datetime.fromisoformat(time), kind, detail
        for entry in event["entities"]:
            if "detail" in entry:
                of = f" for {names[entry['ordinal']]}" if len(names) > 1 else ""
                yield event["occurred_at"], "recovery", f"{entry['detail']}{of}"


def _in_doubt(intent: Alteration, error: QuotaError) -> QuotaError:
    """Return the error with the intent's id where the log may have it all the same."""
    if not isinstance(error, CommitInDoubtError):
        return error
    return NotSentError(error.detail, code=error.code, alteration_id=intent.alteration_id)


class PostgresJournal:
    """The port ``AuditJournal`` on Postgres; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._patience = database.patience

    async def record_intents(self, intents: Sequence[Alteration]) -> Sequence[Exception | None]:
        """See ``AuditJournal``; who cannot share the transaction, or not be served, goes alone."""
        shared = [intent for intent in intents if can_share(intent)]
        errors: dict[int, Exception | None] = {}
        if len(shared) > 1:
            try:
                written = await self._database.writing.run(
                    partial(write_intents, shared, lock_s=self._patience.shared_lock_s)
                )
            except BatchRejectedError:
                written = []
            except QuotaError as error:
                errors = {id(intent): _in_doubt(intent, error) for intent in shared}
                written = []
            errors |= {id(intent): None for intent in written if intent is not None}
        alone = [intent for intent in intents if id(intent) not in errors]
        answers = await asyncio.gather(*map(self._record_alone, alone), return_exceptions=True)
        for intent, answer in zip(alone, answers, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, Exception):
                raise answer
            errors[id(intent)] = answer if isinstance(answer, Exception) else None
        return [errors[id(intent)] for intent in intents]

    async def _record_alone(self, intent: Alteration) -> None:
        if intent.supersedes is not None and not is_record_id(intent.supersedes):
            intent = replace(intent, supersedes=None)
        try:
            await self._database.writing.run(
                partial(write_intent, intent, lock_s=self._patience.lock_s)
            )
        except QuotaError as error:
            raise _in_doubt(intent, error) from error

    async def recent_values(self, intent: Alteration) -> Quotas:
        """See ``AuditJournal``."""
        return await self._database.writing.run(partial(recent_values, intent))

    async def stored_key(self, key_hash: bytes) -> StoredKey | None:
        """See ``AuditJournal``."""
        return await self._database.writing.run(partial(find_key, key_hash))

    async def record_conclusions(
        self, conclusions: Sequence[Conclusion]
    ) -> Sequence[Exception | None]:
        """See ``AuditJournal``; where a transaction is rejected, each is written alone."""
        return await self._write_outcomes(conclusions)

    async def _write_outcomes(
        self, batch: Sequence[Conclusion], *, alone: bool = False
    ) -> Sequence[Exception | None]:
        work = partial(write_outcomes, batch)
        try:
            return await self._database.writing.run(work, within_s=self._patience.conclusion_s)
        except QuotaError as error:
            return [error] * len(batch)
        except BatchRejectedError as error:
            if alone:
                return [failure(error.__cause__)]
        each = await asyncio.gather(*(self._write_outcomes([item], alone=True) for item in batch))
        return list(chain.from_iterable(each))

    async def record_final(
        self, alteration: Alteration, results: Mapping[int, AlterationResult]
    ) -> datetime:
        """See ``AuditJournal``."""
        denied = alteration.action == "denied"
        pool = self._database.denying if denied else self._database.writing
        return await pool.run(partial(_write_final, alteration, results))

    async def alteration(self, alteration_id: str) -> AlterationRecord | None:
        """See ``AuditJournal``."""
        if not is_record_id(alteration_id):
            return None
        values = {"received_at": time_of(alteration_id), "alteration_id": uuid.UUID(alteration_id)}
        rows = await self._database.querying.rows(
            _EVENTS, values, within_s=self._patience.look_up_s
        )
        if not rows:
            return None
        read = sum(len(row.documents or "") + len(row.rejected or "") for row in rows)
        number = read // 200  # an entity has so many characters, about
        return await off_loop(number, alteration_record, rows)

    async def audit_rows(self, query: AuditQuery) -> AuditPage:
        """See ``AuditJournal``."""
        statement = audit_statement(query)
        rows = await self._database.querying.rows(statement, within_s=self._patience.list_s)
        return await off_loop(len(rows), page_of, rows, query.limit)

    async def check_writable(self) -> None:
        """See ``AuditJournal``: a row is inserted and rolled back."""
        await self._database.writing.run(_probe)


async def _write_final(
    alteration: Alteration, results: Mapping[int, AlterationResult], lease: Lease
) -> datetime:
    event = await off_loop(len(alteration.changes), start_event, alteration, results)
    return (await append([event], lease)).at


_PROBE: Final = Alteration(Caller("probe", "probe", "probe"), "probe", cluster_id="probe")


async def _probe(lease: Lease) -> None:
    probe = replace(_PROBE, alteration_id=new_alteration_id())
    await append([start_event(probe)], lease, commit=False)
    await lease.driver.rollback()
